"""One task outside of a worker: a real runner on real Kafka and Spark, its stimuli and events kept in lists."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from connectx.core.messages import (
    BeginTask,
    InitTaskProducer,
    PrepareTask,
    SetTaskTargetState,
    Stimulus,
    StopTask,
    TaskFailed,
    TaskPrepared,
    TaskProducerReady,
    TaskStateReached,
    TaskStopped,
)
from connectx.history.clock import system_clock
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.events import EventKind, Transition
from connectx.model.ids import TaskId
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.model.states import TargetState
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.registry import Plugins
from connectx.protocol.offsets_topic import encode_offset_key
from connectx.runtime.tasks.runner import Runner
from connectx.runtime.tasks.runners import SinkRunner, SourceRunner
from connectx.runtime.tasks.services import OffsetReader, TaskServices, WorkerGone
from tests.support.profiles import FILE_PROVIDER, STRINGS
from tests.support.records import read_all
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from connectx.spark.sessions import SparkProvider

T = TypeVar("T")


class Task:
    """One runner, not started, and what it reports to its worker. `unfrozen` and `kill` act as a worker's faults do.

    It freezes itself when it records an event of the kind `freezes_at`.
    """

    def __init__(
        self,
        runner: type[SourceRunner | SinkRunner],
        order: PrepareTask,
        plugins: Plugins,
        spark: SparkProvider,
        offsets: OffsetReader,
        config: WorkerConfig,
        worker: str = "worker-1",
        bootstrap_servers: str | None = None,
    ) -> None:
        self.order = order
        self.stimuli: list[Stimulus] = []
        self.transitions: list[Transition] = []
        self.freezes_at: EventKind | None = None
        self.unfrozen = threading.Event()
        self.unfrozen.set()
        self._is_killed = False
        services = TaskServices(
            worker=worker,
            config=config,
            clients=ClientConfigs(config, worker, bootstrap_servers),
            spark=spark,
            offsets=offsets,
            post=self.stimuli.append,
            record=self._record,
            clock=system_clock(),
            pulse=self._pulse,
            place=lambda: {"url": "http://127.0.0.1:1/", "leader_url": None},
            ended=lambda task, instance: None,
            providers=plugins.providers(config),
        )
        self.runner: Runner[Any, Any] = runner(order, services, plugins)

    def said(self, kind: type[T], count: int = 1) -> T:
        """Wait until it has posted `count` stimuli of a kind; return the last of these. A failure ends the wait."""

        def found() -> list[T]:
            reported: list[object] = [*self.stimuli]
            matching = [stimulus for stimulus in reported if isinstance(stimulus, kind)]
            failed = [stimulus for stimulus in self.stimuli if isinstance(stimulus, TaskFailed)]
            assert kind is TaskFailed or not failed, failed[0].trace
            return matching[count - 1 : count]

        return until(found, f"{kind.__name__} number {count}")[0]

    def count(self, name: str) -> int:
        """Return a live number of the task."""
        number = self.runner.metrics()[name]
        assert isinstance(number, int)
        return number

    def recorded(self, kind: EventKind) -> list[Transition]:
        return [transition for transition in self.transitions if transition.kind is kind]

    def begin(self) -> Task:
        """Start the thread, begin, and wait until it runs."""
        self.runner.start()
        if self.order.exactly_once:
            self.said(TaskPrepared)
            self.runner.execute(InitTaskProducer(self.order.task, self.order.instance))
            self.said(TaskProducerReady)
        self.runner.execute(BeginTask(self.order.task, self.order.instance))
        self.said(TaskStateReached)
        return self

    def begin_and_fail(self) -> TaskFailed:
        """Start the thread, begin, and wait for its failure."""
        self.runner.start()
        if self.order.exactly_once:
            self.runner.execute(InitTaskProducer(self.order.task, self.order.instance))
        self.runner.execute(BeginTask(self.order.task, self.order.instance))
        return self.said(TaskFailed)

    def failure(self) -> str:
        """Wait for its failure and the end of its thread; return the trace."""
        trace = self.said(TaskFailed).trace
        assert self.runner.join(WAIT_S)
        return trace

    def set_state(self, state: TargetState) -> None:
        self.runner.execute(SetTaskTargetState(self.order.task, self.order.instance, state))

    def stop(self) -> None:
        self.runner.execute(StopTask(self.order.task, self.order.instance))
        self.said(TaskStopped)
        assert self.runner.join(WAIT_S)

    def kill(self) -> None:
        """Do what a worker does when it is killed."""
        self._is_killed = True
        self.unfrozen.set()
        self.runner.kill()

    def wait_ended(self) -> None:
        """Fail if its thread, once started, does not end."""
        assert self.runner._thread.ident is None or self.runner.join(WAIT_S), "a task thread is left"

    def _record(self, transition: Transition) -> None:
        self.transitions.append(transition)
        if transition.kind is self.freezes_at:
            self.unfrozen.clear()

    def _pulse(self) -> None:
        self.unfrozen.wait()
        if self._is_killed:
            raise WorkerGone


class CommittedOffsets:
    """Committed source offsets, read from the real offsets topic."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._where = bootstrap_servers, topic

    def read(
        self, connector: str, partitions: list[SourcePartition], *, cancel: threading.Event | None = None
    ) -> list[SourceOffset | None]:
        newest = {record.key(): record.value() for record in read_all(*self._where)}
        found = [newest.get(encode_offset_key(connector, partition)) for partition in partitions]
        return [None if value is None else json.loads(value) for value in found]


class NoOffsets:
    """Sink tasks read no source offsets."""

    def read(
        self, connector: str, partitions: list[SourcePartition], *, cancel: threading.Event | None = None
    ) -> list[SourceOffset | None]:
        raise AssertionError("a sink task asked for source offsets")


class Place:
    """Where source tasks run. Each place has its own offsets topic, group id and plugin registry."""

    def __init__(self, kafka: EmbeddedKafka, spark: SparkProvider) -> None:
        self.bootstrap_servers = kafka.bootstrap_servers
        self.group = f"g{uuid.uuid4().hex[:8]}"
        self.spark = spark
        self.plugins = Plugins()
        self.tasks: list[Task] = []
        self.offsets_topic = self.create_topic(f"{self.group}-offsets", cleanup_policy="compact")
        self.offsets = CommittedOffsets(self.bootstrap_servers, self.offsets_topic)

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> str:
        return create_topic(self.bootstrap_servers, name, partitions, **settings)

    def task(
        self,
        config: Mapping[str, str],
        *,
        instance: int = 1,
        exactly_once: bool = True,
        paused: bool = False,
        worker: Mapping[str, str] | None = None,
        bootstrap_servers: str | None = None,
    ) -> Task:
        """A runner for task 0 of connector `name` (default c), not started."""
        given = {"bootstrap.servers": self.bootstrap_servers, "group.id": self.group, **(worker or {})}
        full = {"name": "c", "value.converter": STRINGS, **config}
        order = PrepareTask(
            TaskId(full["name"], 0),
            instance,
            connector_config=full,
            task_config=full,
            target_state=TargetState.PAUSED if paused else TargetState.STARTED,
            generation=1,
            exactly_once=exactly_once,
            task_count=1,
        )
        worker_config = WorkerConfig.parse(embedded_config(given))
        task = Task(SourceRunner, order, self.plugins, self.spark, self.offsets, worker_config, "w1", bootstrap_servers)
        self.tasks.append(task)
        return task

    def values(self, topic: str, isolation: str = "read_committed") -> list[str]:
        """Values of a topic as text, partition by partition."""
        return [message.value().decode() for message in read_all(self.bootstrap_servers, topic, isolation=isolation)]

    def wait_for_values(self, topic: str, count: int) -> list[str]:
        """Values once there are at least so many."""
        return until(
            lambda: values if len(values := self.values(topic)) >= count else [], f"{count} records in {topic}"
        )

    def committed(self, partition: SourcePartition, connector: str = "c") -> SourceOffset | None:
        return self.offsets.read(connector, [partition])[0]

    def close(self) -> None:
        for task in self.tasks:
            task.kill()
        for task in self.tasks:
            task.wait_ended()


class SinkPlace:
    """Where sink tasks run; calling it makes a task that is not begun yet."""

    def __init__(self, kafka: EmbeddedKafka, spark: SparkProvider) -> None:
        converters = {"key.converter": STRINGS, "value.converter": STRINGS}
        own = {"bootstrap.servers": kafka.bootstrap_servers, "offset.flush.interval.ms": "500"}
        self._config = WorkerConfig.parse(embedded_config({**own, **converters, **FILE_PROVIDER}))
        self._spark = spark
        self._plugins = Plugins()
        self._tasks: list[Task] = []

    def __call__(self, name: str, config: Mapping[str, Any], task: int = 0, worker: str = "worker-1") -> Task:
        given = {key: self._plugins.as_text(value) for key, value in {"name": name, **config}.items()}
        order = PrepareTask(
            task=TaskId(name, task),
            instance=len(self._tasks) + 1,
            connector_config=given,
            task_config=given,
            target_state=TargetState.STARTED,
            generation=1,
            exactly_once=False,
            task_count=1,
        )
        self._tasks.append(Task(SinkRunner, order, self._plugins, self._spark, NoOffsets(), self._config, worker))
        return self._tasks[-1]

    def close(self) -> None:
        for task in self._tasks:
            task.kill()
        for task in self._tasks:
            task.wait_ended()
