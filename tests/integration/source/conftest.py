"""A worker's place for one source task: real Kafka and Spark around a real runner, and what it said kept in lists."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from connectx.core.messages import (
    BeginTask,
    InitTaskProducer,
    PrepareTask,
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
from connectx.runtime.tasks.services import TaskServices, WorkerGone
from connectx.runtime.tasks.source.runner import SourceRunner
from tests.support import waiting

if TYPE_CHECKING:
    from connectx.spark.sessions import SparkProvider

WAIT_S = 60.0
LINES = "org.apache.kafka.connect.storage.StringConverter"


def until(condition: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """The first true value of `condition`; a flow over Spark may take its time."""
    return waiting.until(condition, what, timeout_s)


def read_all(bootstrap_servers: str, topic: str, *, isolation: str = "read_committed") -> list[Any]:
    """Every record of a topic up to its end now, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": "false",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[Any] = []
        left = len(partitions)
        while left:
            for message in consumer.consume(10_000, 0.1):
                if message.error():
                    left -= 1
                else:
                    found.append(message)
        return sorted(found, key=lambda message: (message.partition(), message.offset()))
    finally:
        consumer.close()


@dataclass
class Task:
    """One runner and what it told its worker."""

    runner: SourceRunner
    order: PrepareTask
    stimuli: list[Stimulus]
    transitions: list[Transition]
    unfrozen: threading.Event = field(default_factory=threading.Event)

    def said(self, kind: type[Any], count: int = 1) -> Any:
        """Wait until it has said something of that kind `count` times; the last of these. A failure ends the wait."""

        def found() -> Any:
            matching = [stimulus for stimulus in self.stimuli if isinstance(stimulus, kind)]
            failed = [stimulus for stimulus in self.stimuli if isinstance(stimulus, TaskFailed)]
            assert kind is TaskFailed or not failed, failed[0].trace
            return matching[count - 1] if len(matching) >= count else None

        return until(found, f"{kind.__name__} number {count}")

    def recorded(self, kind: EventKind) -> list[Transition]:
        return [transition for transition in self.transitions if transition.kind is kind]

    def begin(self) -> Task:
        """Prepare, initialise if exactly-once, begin, and wait until it runs."""
        self.runner.start()
        self.said(TaskPrepared)
        if self.order.exactly_once:
            self.runner.execute(InitTaskProducer(self.order.task, self.order.instance))
            self.said(TaskProducerReady)
        self.runner.execute(BeginTask(self.order.task, self.order.instance))
        self.said(TaskStateReached)
        return self

    def begin_and_fail(self) -> TaskFailed:
        """Begin, and wait for its failure."""
        self.runner.start()
        if self.order.exactly_once:
            self.runner.execute(InitTaskProducer(self.order.task, self.order.instance))
        self.runner.execute(BeginTask(self.order.task, self.order.instance))
        failed: TaskFailed = self.said(TaskFailed)
        return failed

    def stop(self) -> None:
        self.runner.execute(StopTask(self.order.task, self.order.instance))
        self.said(TaskStopped)
        assert self.runner.join(WAIT_S)


class Offsets:
    """Committed source offsets, read from the real offsets topic."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._where = bootstrap_servers, topic

    def read(
        self, connector: str, partitions: list[SourcePartition], *, cancel: threading.Event | None = None
    ) -> list[SourceOffset | None]:
        newest = {record.key(): record.value() for record in read_all(*self._where)}
        found = [newest.get(encode_offset_key(connector, partition)) for partition in partitions]
        return [None if value is None else json.loads(value) for value in found]


class Place:
    """Where tasks run in these tests. Each place has an offsets topic, a group id and a plugin registry of its own."""

    def __init__(self, kafka: EmbeddedKafka, spark: SparkProvider) -> None:
        self.bootstrap_servers = kafka.bootstrap_servers
        self.group = f"g{uuid.uuid4().hex[:8]}"
        self.spark = spark
        self.plugins = Plugins()
        self.tasks: list[Task] = []
        self.offsets_topic = f"{self.group}-offsets"
        self.offsets = Offsets(self.bootstrap_servers, self.offsets_topic)
        self.create_topic(self.offsets_topic, cleanup_policy="compact")

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> str:
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
        return name

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
        worker_config = WorkerConfig.parse(embedded_config(given))
        full = {"name": "c", "value.converter": LINES, **config}
        stimuli: list[Stimulus] = []
        transitions: list[Transition] = []
        unfrozen = threading.Event()
        unfrozen.set()
        services = TaskServices(
            worker="w1",
            config=worker_config,
            clients=ClientConfigs(worker_config, "w1", bootstrap_servers),
            spark=self.spark,
            offsets=self.offsets,
            post=stimuli.append,
            record=transitions.append,
            clock=system_clock(),
            pulse=unfrozen.wait,  # type: ignore[arg-type]
            place=lambda: {"url": "http://127.0.0.1:1/", "leader_url": None},
            ended=lambda task, instance: None,
        )
        order = PrepareTask(
            TaskId(full["name"], 0),
            instance,
            connector_config=full,
            task_config=full,
            target_state=TargetState.PAUSED if paused else TargetState.STARTED,
            generation=1,
            exactly_once=exactly_once,
        )
        task = Task(SourceRunner(order, services, self.plugins), order, stimuli, transitions, unfrozen)
        self.tasks.append(task)
        return task

    def values(self, topic: str, isolation: str = "read_committed") -> list[str]:
        """Values of a topic as text, partition by partition."""
        return [message.value().decode() for message in read_all(self.bootstrap_servers, topic, isolation=isolation)]

    def wait_for_values(self, topic: str, count: int) -> list[str]:
        """Values once there are at least so many."""
        found: list[str] = until(
            lambda: values if len(values := self.values(topic)) >= count else None, f"{count} records in {topic}"
        )
        return found

    def committed(self, partition: SourcePartition, connector: str = "c") -> SourceOffset | None:
        return self.offsets.read(connector, [partition])[0]

    def close(self) -> None:
        for task in self.tasks:
            task.unfrozen.set()
            task.runner.kill()
        for task in self.tasks:
            assert not task.runner._thread.ident or task.runner.join(WAIT_S), "a task thread is left"


@pytest.fixture
def place(kafka: EmbeddedKafka, spark_provider: SparkProvider) -> Iterator[Place]:
    made = Place(kafka, spark_provider)
    yield made
    made.close()


__all__ = ["LINES", "Place", "Task", "WorkerGone", "read_all", "until"]
