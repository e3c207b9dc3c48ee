"""Runs one sink task: its thread, consumer and Spark session, around the pure loop of `connectx.core.sink.loop`.

Mirrors the thread of Kafka Connect's WorkerSinkTask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectx.core.messages import PrepareTask
from connectx.core.sink.loop import SinkTaskCore
from connectx.core.sink.messages import SinkAction, SinkStimulus
from connectx.recording.loops import SINK
from connectx.recording.ring import RecordedCore
from connectx.runtime.tasks.plugin_names import plugins_of
from connectx.runtime.tasks.runner import Runner
from connectx.runtime.tasks.services import TaskServices
from connectx.runtime.tasks.sink.effects import SinkWorld
from connectx.runtime.tasks.sink.setup import set_up

if TYPE_CHECKING:
    from connectx.plugins.registry import Plugins


class SinkRunner(Runner[SinkStimulus, SinkAction]):
    """One instance of a sink task (see `connectx.runtime.tasks.services.TaskRunner`).

    Args:
        order: the task and its configuration.
        services: what the worker offers.
        plugins: connector and converter classes.
    """

    def __init__(self, order: PrepareTask, services: TaskServices, plugins: Plugins) -> None:
        super().__init__(order, services, "sink")
        self._plugins = plugins

    def set_up(self) -> tuple[RecordedCore[SinkTaskCore], SinkWorld, str | None]:
        """Make the plugin, the converters, the loop; nothing is connected yet."""
        setup = set_up(self.services.resolved(self.order), self.services, self._plugins)
        self.plugins = plugins_of(setup, self.order.connector_config.get("connector.class") or "", "sink")
        return self.make_core(SINK, setup.loop), SinkWorld(setup, self), setup.version
