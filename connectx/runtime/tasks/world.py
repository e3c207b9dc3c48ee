"""What carries out the effects of a task's loop: the part that source and sink tasks share.

It decides only what a failure is; what follows from it is the core's decision. Of the core it knows only the steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from connectx.core.lanes import LaneChoice
from connectx.core.loops.messages import CoresKnown, EffectFailed
from connectx.model.ids import TaskId
from connectx.runtime.tasks.connector_host import trace_of
from connectx.runtime.tasks.runner import Runner, TaskCancelled
from connectx.runtime.tasks.services import WorkerGone
from connectx.spark.executors import executor_cores
from connectx.spark.slices import TaskSpark

log = logging.getLogger(__name__)

StimulusT = TypeVar("StimulusT")
ActionT = TypeVar("ActionT")


class Setup(Protocol):
    """What both kinds of tasks have in their set-ups."""

    @property
    def task(self) -> TaskId:
        """Connector and number."""

    @property
    def plugin(self) -> Any:
        """The plugin's task."""


class TaskWorld(Generic[StimulusT, ActionT]):
    """The outside world of one task, used by its thread only, but for `unblock` and `metrics`."""

    def __init__(
        self,
        setup: Setup,
        runner: Runner[StimulusT, ActionT],
        spark: TaskSpark,
        metrics: Mapping[str, Any],
    ) -> None:
        self._runner = runner
        self._clock = runner.services.clock
        self._spark = spark
        self._started = False
        self._task, self._plugin = setup.task, setup.plugin
        self._metrics: Mapping[str, Any] = {"lane": "tail", "lane_reason": "", "job": None, **metrics}

    def carry_out(self, effect: ActionT) -> Any:
        """Do it and return its answer, None where it has none. What failed is an EffectFailed; WorkerGone passes."""
        try:
            return self.execute(effect)
        except TaskCancelled:
            return EffectFailed("the task was cancelled")
        except Exception as error:
            self._runner.stay_alive()
            return self.failure(error)

    def execute(self, effect: ActionT) -> Any:
        """Do it; raises what fails."""
        raise NotImplementedError

    def failure(self, error: Exception) -> EffectFailed:
        """What an error means for the task."""
        return EffectFailed(trace_of(error))

    def show(self, shown: Any) -> None:
        """Take over what a step shows: as live numbers."""
        raise NotImplementedError

    def abandon_clients(self) -> None:
        """Close the clients of Kafka as they are."""
        raise NotImplementedError

    @property
    def abandoned(self) -> bool:
        return self._spark.abandoned

    def metrics(self) -> Mapping[str, object]:
        return self._metrics

    def unblock(self) -> None:
        self._cancel(self._spark.interrupt)

    def release(self) -> None:
        """The thread ends: close everything as it is. Only the session is left after an orderly end."""
        try:
            self._quietly("close of the clients", self.abandon_clients)
            if self._started:
                self._end_plugin("abandon")
        except WorkerGone:
            log.debug("%s: abandon() waited for its worker", self._task)
        finally:
            self._spark.release()

    def query_cores(self) -> CoresKnown:
        """Ask Spark. Without an answer the worker can do it all."""
        try:
            return CoresKnown(executor_cores(self._spark.session()))
        except Exception as error:
            self._runner.checkpoint()
            log.warning("%s: Spark does not report its cores: %s", self._task, error)
            return CoresKnown(None)

    def _cancel(self, cancel: Callable[[], object]) -> None:
        try:
            cancel()
        except Exception as error:
            log.warning("%s could not be interrupted\n%s", self._task, trace_of(error))

    def _end_plugin(self, name: str) -> None:
        """Call the plugin's `stop` or `abandon`."""
        self._started = False
        self._quietly(f"{name}()", getattr(self._plugin, name))

    def _quietly(self, name: str, call: Callable[..., object], *args: object) -> None:
        """Call what may fail without an effect on the task."""
        try:
            call(*args)
        except Exception as error:
            log.warning("%s: %s failed\n%s", self._task, name, trace_of(error))

    def _show_lane(self, choice: LaneChoice) -> None:
        self._update(lane=choice.lane.value, lane_reason=str(choice.reason))

    def _update(self, **metrics: object) -> None:
        self._metrics = {**self._metrics, **metrics}
