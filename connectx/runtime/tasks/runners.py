"""Run one source or sink task: its thread, clients of Kafka and Spark session, around the pure loop of `connectx.core`.

They mirror the threads of Kafka Connect's AbstractWorkerSourceTask and WorkerSinkTask.
"""

from __future__ import annotations

from typing_extensions import override

from connectx.core.messages import TaskProducerReady
from connectx.core.sink.loop import SinkTaskCore
from connectx.core.sink.messages import SinkAction, SinkStimulus
from connectx.core.source.loop import SourceTaskCore
from connectx.core.source.messages import SourceAction, SourceStimulus
from connectx.errors.kafka import ProducerFencedError
from connectx.recording.loops import SINK, SOURCE
from connectx.recording.ring import RecordedCore
from connectx.runtime.tasks.connector_host import trace_of
from connectx.runtime.tasks.plugin_names import plugins_of
from connectx.runtime.tasks.runner import Runner, TaskCancelled
from connectx.runtime.tasks.sink import setup as sink_setup
from connectx.runtime.tasks.sink.effects import SinkWorld
from connectx.runtime.tasks.source import setup as source_setup
from connectx.runtime.tasks.source.effects import SourceWorld


class SinkRunner(Runner[SinkStimulus, SinkAction]):
    kind = "sink"

    @override
    def set_up(self) -> tuple[RecordedCore[SinkTaskCore], SinkWorld, str | None]:
        setup = sink_setup.set_up(self.services.resolved(self.order), self.services, self.classes)
        self.plugins = plugins_of(setup, self.order.connector_config.get("connector.class") or "", self.kind)
        return self.make_core(SINK, setup.loop), SinkWorld(setup, self), setup.version


class SourceRunner(Runner[SourceStimulus, SourceAction]):
    kind = "source"
    _source_world: SourceWorld | None = None

    @override
    def set_up(self) -> tuple[RecordedCore[SourceTaskCore], SourceWorld, str | None]:
        setup = source_setup.set_up(self.services.resolved(self.order), self.services, self.classes)
        self.plugins = plugins_of(setup, self.order.connector_config.get("connector.class") or "", self.kind)
        self._source_world = SourceWorld(setup, self)
        return self.make_core(SOURCE, setup.loop), self._source_world, setup.version

    @override
    def init_producer(self) -> bool:
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
