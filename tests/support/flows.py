"""Flows whose every record is known: numbered lines of a file, and rows of a generator."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import connectx as cx
from tests.support.clusters import owner_of
from tests.support.profiles import JSON, dotted
from tests.support.records import Reader
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from connectx.api.workers import Worker


class Lines:
    """A file of numbered lines, the source connector that reads it, and its topic as seen from outside."""

    def __init__(self, cluster: cx.Cluster, name: str, folder: Path, partitions: int) -> None:
        self.cluster = cluster
        self.name = name
        self.topic = create_topic(cluster.bootstrap_servers, f"{name}-topic", partitions)
        self.path = folder / f"{name}.txt"
        self.path.touch()
        self.count = 0
        self.committed = Reader(cluster.bootstrap_servers, self.topic, partitions)
        self.written = Reader(cluster.bootstrap_servers, self.topic, partitions, "read_uncommitted")

    @property
    def task(self) -> str:
        return f"{self.name}-0"

    def start(self, **settings: str) -> cx.Connector:
        """Create the source connector; keys have underscores for dots."""
        given = {"connector.class": "FileStreamSource", "file": str(self.path), "topic": self.topic}
        return self.cluster.create(self.name, {**given, **dotted(settings)}).wait("RUNNING", WAIT_S)

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
        """Return the healthy worker that runs the source task now."""
        return owner_of(self.cluster, self.task)

    def close(self) -> None:
        self.committed.close()
        self.written.close()


def _number(value: str) -> int:
    return int(value.rpartition(" ")[2])


class Rows:
    """A Generator with two tasks: task t makes the ids t, t + 2, ... indefinitely, for a topic of one partition."""

    def __init__(self, cluster: cx.Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.topic = create_topic(cluster.bootstrap_servers, f"{name}-rows")
        self._reader = Reader(cluster.bootstrap_servers, self.topic)

    def start(self, tasks: int = 2, **settings: str) -> cx.Connector:
        """Create the connector; keys have underscores for dots."""
        given = {"connector.class": "Generator", "topic": self.topic, "tasks.max": str(tasks), "rate": "20",
                 "fields": "id:long", **JSON, **dotted(settings)}  # fmt: skip
        return self.cluster.create(self.name, given).wait("RUNNING", WAIT_S)

    def ids(self, task: int | None = None, of: int = 2) -> list[int]:
        """Return ids committed up to now in the order of the topic, of one task or of all. Rows never cease."""
        seen = [int(json.loads(value)["id"]) for value in self._reader.poll()]
        return seen if task is None else [number for number in seen if number % of == task]

    def wait_for_more(self, task: int = 0, count: int = 3, of: int = 2) -> None:
        """Until a task has committed some more rows."""
        before = len(self.ids(task, of))
        until(lambda: len(self.ids(task, of)) >= before + count, f"{count} more rows of {self.name}-{task}")

    def check_exactly_once(self, tasks: int = 2) -> None:
        """Each task's ids are all there up to the last one, once, in order."""
        for task in range(tasks):
            ids = self.ids(task, tasks)
            assert ids == [task + tasks * number for number in range(len(ids))], f"{self.name}-{task}"
            assert ids, f"{self.name}-{task} wrote something"

    def close(self) -> None:
        self._reader.close()


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
        """Return the lines that it holds."""
        return [f"line {number}" for number in range(self.lines)]
