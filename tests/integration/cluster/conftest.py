"""Whole clusters on a real Kafka, and what looks at them from outside: a growing file, and an independent consumer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import connectx as cx
from connectx.model.events import Event, EventKind
from tests.support import waiting

if TYPE_CHECKING:
    from connectx.api.workers import Worker

WAIT_S = 90.0
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
QUICK = {"value.converter": STRINGS, "offset.flush.interval.ms": "500", "session.timeout.ms": "2000",
         "scheduled.rebalance.max.delay.ms": "1000", "consumer.session.timeout.ms": "2000",
         "config.providers": "file", "config.providers.file.class": "FileConfigProvider"}  # fmt: skip

T = TypeVar("T")
MakeCluster = Callable[..., cx.Cluster]


def until(condition: Callable[[], T], what: str, timeout_s: float = WAIT_S) -> T:
    """The first true value of `condition`; a flow over Spark may take its time."""
    return waiting.until(condition, what, timeout_s)


class Reader:
    """A consumer that belongs to nobody: all records of a topic from its beginning, in order per partition."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, isolation: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "outside",
                "isolation.level": isolation,
                "enable.auto.commit": "false",
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.seen: list[tuple[int, str]] = []

    def values(self) -> list[str]:
        """Everything that has come up to now."""
        while messages := self._consumer.consume(10_000, 0.1):
            good = [message for message in messages if message.error() is None]
            self.seen += [(message.partition() or 0, (message.value() or b"").decode()) for message in good]
        return [value for _, value in self.seen]

    def close(self) -> None:
        self._consumer.close()


class Lines:
    """A file of numbered lines, the source connector that reads it, and its topic as seen from outside."""

    def __init__(self, cluster: cx.Cluster, name: str, folder: Path, partitions: int) -> None:
        self.cluster = cluster
        self.name = name
        self.topic = f"{name}-topic"
        self.path = folder / f"{name}.txt"
        self.path.touch()
        self.count = 0
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(self.topic, partitions)])[self.topic].result(30)
        self.committed = Reader(cluster.bootstrap_servers, self.topic, partitions, "read_committed")
        self.written = Reader(cluster.bootstrap_servers, self.topic, partitions, "read_uncommitted")

    @property
    def task(self) -> str:
        return f"{self.name}-0"

    def start(self, **settings: str) -> cx.Connector:
        """Create the source connector; keys have underscores for dots."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        given = {"connector.class": "FileStreamSource", "file": str(self.path), "topic": self.topic, **config}
        return self.cluster.create(self.name, given).wait("RUNNING", WAIT_S)

    def append(self, count: int) -> None:
        """Add lines to the file."""
        with self.path.open("a") as file:
            file.writelines(f"{self.name} {number}\n" for number in range(self.count, self.count + count))
        self.count += count

    @property
    def expected(self) -> list[str]:
        return [f"{self.name} {number}" for number in range(self.count)]

    def wait_committed(self) -> None:
        """Until a read_committed consumer has seen as many records as there are lines."""
        until(lambda: len(self.committed.values()) >= self.count, f"{self.count} committed records of {self.topic}")

    def wait_written(self, count: int) -> None:
        """Until a read_uncommitted consumer has seen as many records."""
        until(lambda: len(self.written.values()) >= count, f"{count} records of {self.topic}")

    def check_exactly_once(self) -> None:
        """Every line once, in order in its partition."""
        self.wait_committed()
        assert sorted(self.committed.values(), key=_number) == self.expected
        for partition in {partition for partition, _ in self.committed.seen}:
            numbers = [_number(value) for where, value in self.committed.seen if where == partition]
            assert numbers == sorted(numbers), f"partition {partition} is out of order"

    def owner(self) -> Worker:
        """The healthy worker that runs the source task now."""
        return owner_of(self.cluster, self.task)

    def close(self) -> None:
        self.committed.close()
        self.written.close()


def _number(value: str) -> int:
    return int(value.rpartition(" ")[2])


def owner_of(cluster: cx.Cluster, task: str) -> Worker:
    """The healthy worker that runs a task, once the task is RUNNING there."""
    connector, _, number = task.rpartition("-")

    def runs_on(worker: Worker) -> bool:
        told = events(cluster, EventKind.TASK_STATE, worker=worker.name, connector=connector, task=int(number))
        return worker.is_healthy and task in worker.tasks and bool(told) and told[-1].data["state"] == "RUNNING"

    def found() -> Worker | None:
        candidates = [worker for worker in cluster.workers if runs_on(worker)]
        return candidates[0] if len(candidates) == 1 else None

    return until(found, f"an owner of {task}")


def events(cluster: cx.Cluster, kind: EventKind, since: int = 0, **wanted: Any) -> list[Event]:
    """Events of a kind, with attributes or data as wanted."""

    def fits(event: Event) -> bool:
        given = {**event.data, "worker": event.worker, "connector": event.connector, "task": event.task}
        return event.kind is kind and all(given.get(key) == value for key, value in wanted.items())

    return [event for event in cluster.events.since(since) if fits(event)]


@pytest.fixture(scope="session")
def cluster(make_cluster: MakeCluster) -> Iterator[cx.Cluster]:
    """Two workers, for tests that break no worker."""
    with make_cluster(workers=2, config=QUICK) as made:
        yield made


@pytest.fixture(scope="session")
def names() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def make_lines(tmp_path: Path, names: Iterator[int]) -> Iterator[Callable[..., Lines]]:
    """`make_lines(cluster, partitions=1)`: a new file, connector name and topic."""
    made: list[Lines] = []

    def make(cluster: cx.Cluster, partitions: int = 1) -> Lines:
        lines = Lines(cluster, f"lines{next(names)}", tmp_path, partitions)
        made.append(lines)
        return lines

    yield make
    for lines in made:
        lines.close()
