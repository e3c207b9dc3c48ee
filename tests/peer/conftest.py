"""Groups of Java and Python workers on the broker of all tests, and a source file that goes on growing."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import connectx as cx
from connectx.errors import ConnectorNotFoundError
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.rest.client import RestClient
from tests.support.java_worker import JavaWorker, peer_config
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 120.0


@dataclass
class Group:
    """One group: settings, and what was started in it."""

    config: dict[str, str]
    folder: Path
    spark: SparkSession
    java: list[JavaWorker] = field(default_factory=list)
    python: list[cx.Cluster] = field(default_factory=list)
    endings: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start_java(self, count: int = 1) -> list[JavaWorker]:
        """More Java workers; returns when they have joined."""
        started = [JavaWorker(self.config, self.folder / f"java-{len(self.java) + n}") for n in range(count)]
        self.java += started
        return [worker.wait_ready() for worker in started]

    def start_python(self, count: int = 1) -> cx.Cluster:
        """More Python workers; returns when they have joined."""
        cluster = cx.Cluster(count, config=self.config, spark=self.spark, join=True)
        self.python.append(cluster)
        return cluster

    @property
    def client(self) -> RestClient:
        """A client of whoever runs."""
        return self.client_of(*self._urls())

    def client_of(self, *urls: str) -> RestClient:
        """A client of the first of these workers that answers."""
        client = RestClient(urls)
        self.endings.callback(client.close)
        return client

    def _urls(self) -> list[str]:
        java = [worker.url for worker in self.java if worker.process.poll() is None]
        return java + [worker.url for cluster in self.python for worker in cluster.workers if worker.state == "running"]

    def homes(self, connector: str) -> dict[str, str]:
        """Where a connector and its tasks are RUNNING: worker id by "connector" or the task's number."""
        try:
            status = self.client.status(connector)
        except ConnectorNotFoundError:
            return {}
        parts = {"connector": status["connector"], **{str(task["id"]): task for task in status["tasks"]}}
        return {part: shown["worker_id"] for part, shown in parts.items() if shown["state"] == "RUNNING"}

    def wait_on(self, connector: str, workers: list[str], tasks: int) -> dict[str, str]:
        """Wait until connector and tasks are RUNNING, all of them on `workers`."""

        def settled() -> dict[str, str]:
            homes = self.homes(connector)
            return homes if len(homes) == tasks + 1 and set(homes.values()) <= set(workers) else {}

        return until(settled, f"{connector} to run on {workers}", WAIT_S)


@pytest.fixture
def group(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, group_numbers: Iterator[int]
) -> Iterator[Callable[..., Group]]:
    """`group(**settings)` makes a group of its own; everything in it ends with the test."""
    made: list[Group] = []

    def make(**settings: str) -> Group:
        config = peer_config(kafka.bootstrap_servers, f"peer-{next(group_numbers)}", **settings)
        made.append(Group(config, tmp_path, spark))
        return made[-1]

    yield make
    with contextlib.ExitStack() as endings:
        for one in made:
            for worker in one.java:
                endings.callback(worker.kill)
            for cluster in one.python:
                endings.callback(cluster.close)
            endings.callback(one.endings.close)


@pytest.fixture(scope="session")
def group_numbers() -> Iterator[int]:
    return itertools.count(1)


class GrowingFile:
    """A file that gets numbered lines from a thread until it is closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        self._ended = threading.Event()
        path.touch()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        with self.path.open("a", buffering=1) as file:
            while not self._ended.wait(0.01):
                file.write(f"line {self.lines}\n")
                self.lines += 1

    def close(self) -> None:
        """Write no more."""
        self._ended.set()
        self._thread.join()

    def expected(self) -> list[str]:
        """What it holds."""
        return [f"line {number}" for number in range(self.lines)]


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[GrowingFile]:
    file = GrowingFile(tmp_path / "growing.txt")
    yield file
    file.close()


@pytest.fixture
def read_committed(kafka: EmbeddedKafka) -> Iterator[Callable[[str], Callable[[], list[str]]]]:
    """`read_committed(topic)` gives a function that returns what was committed to partition 0 so far."""
    with contextlib.ExitStack() as endings:

        def open_reader(topic: str) -> Callable[[], list[str]]:
            settings: Mapping[str, Any] = {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": "outside",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
            consumer, seen = Consumer(settings), list[str]()
            endings.callback(consumer.close)
            consumer.assign([TopicPartition(topic, 0, 0)])

            def values() -> list[str]:
                messages = consumer.consume(10_000, 0.2)  # once: while lines are written there is always one more
                seen.extend((one.value() or b"").decode() for one in messages if one.error() is None)
                return seen

            return values

        yield open_reader
