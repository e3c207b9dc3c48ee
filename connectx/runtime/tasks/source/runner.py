"""Runs one source task: its thread, producer and Spark session, around the pure loop of `connectx.core.source.loop`.

Mirrors the thread of Kafka Connect's AbstractWorkerSourceTask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectx.core.messages import PrepareTask, TaskProducerReady
from connectx.core.source.loop import SourceTaskCore
from connectx.core.source.messages import SourceAction, SourceStimulus
from connectx.errors.kafka import ProducerFencedError
from connectx.recording.loops import SOURCE
from connectx.recording.ring import RecordedCore
from connectx.runtime.tasks.connector_host import trace_of
from connectx.runtime.tasks.plugin_names import plugins_of
from connectx.runtime.tasks.runner import Runner, TaskCancelled
from connectx.runtime.tasks.services import TaskServices
from connectx.runtime.tasks.source.effects import SourceWorld
from connectx.runtime.tasks.source.setup import set_up

if TYPE_CHECKING:
    from connectx.plugins.registry import Plugins


class SourceRunner(Runner[SourceStimulus, SourceAction]):
    """One instance of a source task (see `connectx.runtime.tasks.services.TaskRunner`).

    Args:
        order: the task and its configuration.
        services: what the worker offers.
        plugins: connector and converter classes.
    """

    def __init__(self, order: PrepareTask, services: TaskServices, plugins: Plugins) -> None:
        super().__init__(order, services, "source")
        self._plugins = plugins
        self._source_world: SourceWorld | None = None

    def set_up(self) -> tuple[RecordedCore[SourceTaskCore], SourceWorld, str | None]:
        """Make the plugin, the converters, the loop; nothing is connected yet."""
        setup = set_up(self.services.resolved(self.order), self.services, self._plugins)
        self.plugins = plugins_of(setup, self.order.connector_config.get("connector.class") or "", "source")
        self._source_world = SourceWorld(setup, self)
        return self.make_core(SOURCE, setup.loop), self._source_world, setup.version

    def init_producer(self) -> bool:
        """Initialise transactions, which fences every older instance of the task."""
        order, world = self.order, self._source_world
        assert world is not None, "prepared"
        try:
            producer_epoch = world.init_producer()
        except TaskCancelled:
            return True  # the cancellation is the next command
        except Exception as error:
            self.stay_alive()
            self.post_failure(trace_of(error), fenced=isinstance(error, ProducerFencedError))
            return False
        ready = TaskProducerReady(order.task, order.instance, producer_epoch)
        self.feed(ready)
        self.services.post(ready)
        return True
