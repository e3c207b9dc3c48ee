"""What sink tests share: a recording listener, producing, and waiting for a condition."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Tp

from connectx.core.messages import (
    BeginTask,
    PrepareTask,
    SetTaskTargetState,
    Stimulus,
    StopTask,
    TaskFailed,
    TaskStateReached,
    TaskStopped,
)
from connectx.history.clock import system_clock
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.settings.clients import ClientConfigs
from connectx.kafka.settings.librdkafka_log import LibrdkafkaLog
from connectx.kafka.sink_consumer import CommitError, FetchedRecords, SinkConsumer
from connectx.model.events import EventKind, Transition
from connectx.model.ids import TaskId, TopicPartition
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.model.states import TargetState
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.registry import Plugins
from connectx.runtime.tasks.services import TaskServices, WorkerGone
from connectx.runtime.tasks.sink.runner import SinkRunner
from tests.support import waiting

if TYPE_CHECKING:
    from connectx.spark.sessions import SparkProvider

T = TypeVar("T")


class Member:
    """A consumer with its listener, which notes what it hears."""

    def __init__(self, config: Mapping[str, Any], topics: Sequence[str]) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.owned: dict[TopicPartition, int] = {}
        self.on_assigned: Callable[[], None] = lambda: None
        self.on_revoked: Callable[[], None] = lambda: None
        self.consumer = SinkConsumer(config, self, checkpoint=lambda: None)
        self.consumer.join(topics)

    def assigned(self, positions: Mapping[TopicPartition, int]) -> None:
        self.heard.append(("assigned", dict(positions)))
        self.owned |= positions
        self.on_assigned()

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.heard.append(("revoked", list(partitions)))
        self.on_revoked()
        self._drop(partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.heard.append(("lost", list(partitions)))
        self._drop(partitions)

    def committed(self, sequence: int, error: CommitError | None) -> None:
        self.heard.append(("committed", (sequence, error)))

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self.owned.pop(partition, None)

    def read(self, wanted: Callable[[list[FetchedRecords]], bool], seconds: float = 30.0) -> list[FetchedRecords]:
        """Poll until `wanted` is true of what came."""
        got: list[FetchedRecords] = []

        def enough() -> bool:
            fetched = self.consumer.poll(0.1, 10_000)
            if fetched is not None:
                got.append(fetched)
            return wanted(got)

        until(enough, seconds)
        return got


def until(condition: Callable[[], T], seconds: float = 30.0) -> T:
    """The first true value of the condition; fails after `seconds`."""
    return waiting.until(condition, timeout_s=seconds)


@pytest.fixture
def produce(kafka: EmbeddedKafka) -> Callable[..., None]:
    """`produce(topic, values, partition=0, keys=None, transactional=False, abort=False)`."""

    def send(
        topic: str,
        values: Sequence[bytes | None],
        partition: int = 0,
        keys: Sequence[bytes | None] | None = None,
        transactional: bool = False,
    ) -> None:
        config: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers}
        producer = Producer(config | ({"transactional.id": f"test-{topic}"} if transactional else {}))
        if transactional:
            producer.init_transactions(30)
            producer.begin_transaction()
        for row, value in enumerate(values):
            producer.produce(topic, value, None if keys is None else keys[row], partition=partition)
        if transactional:
            producer.commit_transaction(30)
        producer.flush(30)

    return send


@pytest.fixture
def committed(kafka: EmbeddedKafka) -> Callable[..., dict[str, int]]:
    """`committed(group, topic, partitions)`: what the group holds, by partition name."""

    def ask(group: str, topic: str, partitions: int = 1) -> dict[str, int]:
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
        try:
            answers = consumer.committed([Tp(topic, partition) for partition in range(partitions)], timeout=30)
            return {f"{a.topic}-{a.partition}": a.offset for a in answers if a.offset >= 0}
        finally:
            consumer.close()

    return ask


@pytest.fixture
def member(kafka: EmbeddedKafka) -> Iterator[Callable[..., Member]]:
    """`member(group, *topics, **settings)` joins; all members leave at the end."""
    members: list[Member] = []

    def join(group: str, *topics: str, **settings: Any) -> Member:
        config = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            "isolation.level": "read_committed",
            "partition.assignment.strategy": "range",
            "fetch.queue.backoff.ms": 10,
            "logger": LibrdkafkaLog(),
        }
        members.append(Member(config | {name.replace("_", "."): value for name, value in settings.items()}, topics))
        return members[-1]

    yield join
    for each in members:
        each.consumer.close()


# -------------------------------------------------------------------------------------------------- whole tasks


@dataclass
class Task:
    """One runner and what it told its worker."""

    runner: SinkRunner
    order: PrepareTask
    stimuli: list[Stimulus] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)
    unfrozen: threading.Event = field(default_factory=threading.Event)
    is_killed: bool = False

    def said(self, kind: type[Any]) -> Any:
        """Wait until it has said something of that kind; the last of these. A failure ends the wait."""
        found: list[Stimulus] = []

        def has_said() -> bool:
            found[:] = [stimulus for stimulus in self.stimuli if isinstance(stimulus, kind)]
            failed = [stimulus for stimulus in self.stimuli if isinstance(stimulus, TaskFailed)]
            assert kind is TaskFailed or not failed, failed[0].trace
            return bool(found)

        until(has_said, 60.0)
        return found[-1]

    def recorded(self, kind: EventKind) -> list[Transition]:
        return [transition for transition in self.transitions if transition.kind is kind]

    def begin(self) -> Task:
        """Begin, and wait until it runs."""
        self.runner.start()
        self.runner.execute(BeginTask(self.order.task, self.order.instance))
        self.said(TaskStateReached)
        return self

    def failure(self) -> str:
        """Wait for its failure; the trace."""
        trace = self.said(TaskFailed).trace
        assert self.runner.join(60.0)
        assert isinstance(trace, str)
        return trace

    def set_state(self, state: TargetState) -> None:
        self.runner.execute(SetTaskTargetState(self.order.task, self.order.instance, state))

    def stop(self) -> None:
        self.runner.execute(StopTask(self.order.task, self.order.instance))
        self.said(TaskStopped)
        assert self.runner.join(60.0)

    def kill(self) -> None:
        """What a worker does when it is killed."""
        self.is_killed = True
        self.unfrozen.set()
        self.runner.kill()

    def pulse(self) -> None:
        self.unfrozen.wait()
        if self.is_killed:
            raise WorkerGone


WORKER = {
    "config.providers": "file",
    "config.providers.file.class": "FileConfigProvider",
    "offset.flush.interval.ms": "500",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}


@pytest.fixture
def sink_task(kafka: EmbeddedKafka, spark_provider: SparkProvider) -> Iterator[Callable[..., Task]]:
    """`sink_task(name, config, task=0, worker="worker-1", **worker_settings)` makes a task that is not begun yet."""
    tasks: list[Task] = []
    plugins = Plugins()

    def make(name: str, config: Mapping[str, Any], task: int = 0, worker: str = "worker-1") -> Task:
        given = {key: plugins.as_text(value) for key, value in {"name": name, **config}.items()}
        worker_config = WorkerConfig.parse(embedded_config({"bootstrap.servers": kafka.bootstrap_servers, **WORKER}))
        order = PrepareTask(
            task=TaskId(name, task),
            instance=len(tasks) + 1,
            connector_config=given,
            task_config=given,
            target_state=TargetState.STARTED,
            generation=1,
            exactly_once=False,
        )
        services = TaskServices(
            worker=worker,
            config=worker_config,
            clients=ClientConfigs(worker_config, worker),
            spark=spark_provider,
            offsets=NoOffsets(),
            post=lambda stimulus: made.stimuli.append(stimulus),  # noqa: PLW0108
            record=lambda transition: made.transitions.append(transition),  # noqa: PLW0108
            clock=system_clock(),
            pulse=lambda: made.pulse(),  # noqa: PLW0108
            place=lambda: {"url": "http://127.0.0.1:1/", "leader_url": None},
            ended=lambda task, instance: None,
            providers=plugins.providers(worker_config),
        )
        made = Task(SinkRunner(order, services, plugins), order)
        made.unfrozen.set()
        tasks.append(made)
        return made

    yield make
    for each in tasks:
        each.kill()
    for each in tasks:
        assert each.runner.join(60.0) or not each.stimuli


class NoOffsets:
    """Sink tasks read no source offsets."""

    def read(self, connector: str, partitions: list[SourcePartition]) -> list[SourceOffset | None]:
        raise AssertionError("a sink task asked for source offsets")
