"""What runs on a worker: connector instances and task runners, made and reached by the core's effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from connectx.core.messages import (
    GenerateTaskConfigs,
    PrepareTask,
    SetConnectorTargetState,
    StartConnector,
    Stimulus,
    StopConnector,
    TaskFailed,
    TaskStopped,
)
from connectx.model.events import EventKind, Transition
from connectx.model.ids import TaskId
from connectx.model.states import ConnectorType
from connectx.runtime.connector_host import ConnectorHost
from connectx.runtime.sink_runner import SinkRunner
from connectx.runtime.source_runner import SourceRunner
from connectx.runtime.task import TaskEffect, TaskRunner, TaskServices

if TYPE_CHECKING:
    from connectx.connectors.plugins import Plugins


@dataclass(frozen=True, slots=True)
class _Instance:
    """Key of a task runner."""

    task: TaskId
    instance: int


class Work:
    """Connectors and tasks of one worker.

    Args:
        services: what runners may use; their stimuli pass through here on the way to `services.post`.
        plugins: connector classes.
        is_gone: True once the worker has ended: nothing that its work says is heard any more.
    """

    def __init__(self, services: TaskServices, plugins: Plugins, is_gone: Callable[[], bool]) -> None:
        self._post = services.post
        self._record = services.record
        self._services = replace(services, post=self._post_of_task)
        self._plugins = plugins
        self._is_gone = is_gone
        self._hosts: dict[tuple[str, int], ConnectorHost] = {}
        self._runners: dict[_Instance, TaskRunner] = {}

    def start_connector(self, effect: StartConnector) -> None:
        """Start a connector instance on a thread of its own."""
        host = ConnectorHost(effect, self._plugins.create_connector, self._plugins.task_configs, self._post)
        self._hosts[effect.connector, effect.instance] = host
        host.start()

    def tell_connector(self, effect: SetConnectorTargetState | GenerateTaskConfigs | StopConnector) -> None:
        """Pass an effect to a connector instance."""
        key = effect.connector, effect.instance
        self._hosts[key].execute(effect)
        if isinstance(effect, StopConnector):
            del self._hosts[key]

    def prepare_task(self, effect: PrepareTask) -> None:
        """Make and start a task runner."""
        is_source = self._plugins.connector_type(effect.connector_config) is ConnectorType.SOURCE
        make = SourceRunner if is_source else SinkRunner
        runner: TaskRunner = make(effect, self._services, self._plugins)
        self._runners[_Instance(effect.task, effect.instance)] = runner
        runner.start()

    def tell_task(self, effect: TaskEffect) -> None:
        """Pass an effect to a task runner, if it is still there."""
        runner = self._runners.get(_Instance(effect.task, effect.instance))
        if runner is not None:
            runner.execute(effect)

    def facts(self) -> dict[TaskId, Mapping[str, object]]:
        """Live numbers of the tasks."""
        return {key.task: runner.facts() for key, runner in list(self._runners.items())}

    def kill(self) -> None:
        """End everything at once."""
        for runner in list(self._runners.values()):
            runner.kill()
        for host in list(self._hosts.values()):
            host.kill()

    def join(self, timeout_s: float, reason: str) -> bool:
        """Wait for the ends of all task threads and tell the history of each; True when all have ended."""
        ended = True
        for key, runner in list(self._runners.items()):
            if runner.join(timeout_s):
                self._ended(key, reason)
            else:
                ended = False
        return ended

    def _post_of_task(self, stimulus: Stimulus) -> None:
        """A stimulus of a runner. Its end is told to the history, also when the core has long forgotten it."""
        if self._is_gone():
            return
        if isinstance(stimulus, TaskStopped | TaskFailed):
            reason = "failed" if isinstance(stimulus, TaskFailed) else "stopped"
            self._ended(_Instance(stimulus.task, stimulus.instance), reason)
        self._post(stimulus)

    def _ended(self, key: _Instance, reason: str) -> None:
        if self._runners.pop(key, None) is not None:
            data = {"instance": key.instance, "reason": reason}
            self._record(Transition(EventKind.TASK_ENDED, key.task.connector, key.task.task, data=data))
