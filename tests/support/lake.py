"""Tables in files, written by tasks without Kafka and read by DuckDB."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from connectx.connectors.lake.task import LakeTask
from connectx.model.ids import TaskId, TopicPartition
from connectx.plugins.errors import CommitRefusedError
from connectx.plugins.slices import SinkBatch
from tests.support.profiles import dotted

ROW = pa.struct([("id", pa.int64()), ("name", pa.string())])


class Context:
    """What a runner offers to a task; keeps what was reported."""

    def __init__(self, group_id: str, tolerate: bool) -> None:
        self.group_id = group_id
        self.task = TaskId(group_id.removeprefix("connect-"), 0)
        self.assignment: Sequence[TopicPartition] = ()
        self.reported: list[str] = []
        self._tolerate = tolerate

    def timeout(self, timeout_ms: int) -> None:
        """Not asked for by these sinks."""

    def spark(self) -> Any:
        raise AssertionError("this sink needs no Spark")

    def report(self, partition: TopicPartition, offset: int, error: Exception) -> None:
        if not self._tolerate:
            raise error
        self.reported.append(f"{partition}@{offset}")


class Lake:
    """Tables of one sink connector in a directory, and tasks that write to them."""

    def __init__(self, task: type[LakeTask], settings: Mapping[str, str]) -> None:
        self._task = task
        self._settings = dict(settings)

    def task(self, *, tolerate: bool = False, group: str = "connect-lake", **settings: str) -> LakeTask:
        """A started task; underscores in names of settings are dots."""
        task = self._task()
        task.start({**self._settings, **dotted(settings)}, Context(group, tolerate))
        return task

    def opened(self, *partitions: TopicPartition, **settings: Any) -> LakeTask:
        """A task that owns partitions."""
        task = self.task(**settings)
        task.open(partitions)
        return task


def partition(number: int = 0, topic: str = "rows") -> TopicPartition:
    return TopicPartition(topic, number)


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"row {number}"} for number in ids]


def batch(
    first: int,
    values: Sequence[Any],
    kind: pa.DataType = ROW,
    *,
    place: TopicPartition | None = None,
    end: int | None = None,
    keys: pa.Array | None = None,
) -> SinkBatch:
    """Values of one partition at the offsets from `first` on."""
    at, count = place or partition(), len(values)
    table = pa.table(
        {
            "topic": pa.array([at.topic] * count, pa.string()),
            "partition": pa.array([at.partition] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.int64()),
            "key": pa.nulls(count) if keys is None else keys,
            "value": pa.array(values, kind),
        }
    )
    return SinkBatch(table, {at: (first, first + count if end is None else end)})


def write(task: LakeTask, *batches: SinkBatch) -> None:
    """Put and commit."""
    for one in batches:
        task.put(one)
    task.flush()


def refusal(call: Callable[[], Any]) -> CommitRefusedError:
    """The refusal that a call raises."""
    try:
        call()
    except CommitRefusedError as refused:
        return refused
    raise AssertionError("the commit was not refused")


def delta_files(table: Path) -> list[str]:
    """The data files of a Delta table, by its log alone."""
    files: dict[str, None] = {}
    for log in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, log.read_text().splitlines()):
            if "add" in action:
                files[action["add"]["path"]] = None
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
    return [str(table / unquote(path)) for path in files]


def iceberg_files(catalog: Mapping[str, str], table: str) -> list[str]:
    """The data files of the current snapshot of an Iceberg table."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    try:
        tasks = load_catalog("iceberg", **catalog).load_table(table).scan().plan_files()
    except NoSuchTableError:
        return []
    return [task.file.file_path.removeprefix("file://") for task in tasks]
