"""JdbcSource without Kafka: its connector and tasks, and databases to read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from connectx.connectors.jdbc.source import JdbcSource
from connectx.model.ids import TaskId
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.plugins.slices import Slice
from tests.support.profiles import dotted
from tests.support.waiting import until


class Boundaries:
    """Keeps what a task asked of its transactions."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def commit_transaction(self, row: int | None = None, offset: SourceOffset | None = None) -> None:
        self.asked.append("commit")

    def abort_transaction(self, row: int | None = None, offset: SourceOffset | None = None) -> None:
        self.asked.append("abort")


class Context:
    """What a runner would offer to a task; `stored` are the committed offsets, by partition as JSON."""

    def __init__(
        self, offsets: Mapping[str, SourceOffset] | None = None, transaction: Boundaries | None = None
    ) -> None:
        self.task = TaskId("j", 0)
        self.transaction = transaction
        self.stored = dict(offsets or {})
        self.asked_for = 0
        self.waited_ms: list[int] = []

    def offset(self, partition: SourcePartition) -> SourceOffset | None:
        return self.stored.get(json.dumps(dict(partition)))

    def offsets(self, partitions: Sequence[SourcePartition]) -> list[SourceOffset | None]:
        self.asked_for += len(partitions)
        return [self.offset(partition) for partition in partitions]

    def wait(self, timeout_ms: int) -> bool:
        self.waited_ms.append(timeout_ms)
        return True

    def remember(self, piece: Slice) -> None:
        assert piece.partition is not None
        self.remember_offset(piece.partition, piece.offset)

    def remember_offset(self, partition: SourcePartition, offset: SourceOffset) -> None:
        self.stored[json.dumps(dict(partition))] = offset


class Asked:
    """A connector's context."""

    def __init__(self) -> None:
        self.reconfigurations = 0

    def request_task_reconfiguration(self) -> None:
        self.reconfigurations += 1

    def raise_error(self, error: BaseException) -> None:
        raise error


def values_of(piece: Slice) -> list[dict[str, Any]]:
    """Values of the rows of a slice."""
    rows: Any = piece.rows
    found: list[dict[str, Any]] = rows["value"].to_pylist()
    return found


def source_config(url: str, mode: str, **more: Any) -> dict[str, str]:
    return {"connection.url": url, "mode": mode, "topic.prefix": "t-", "poll.interval.ms": "1"} | {
        key: str(value) for key, value in dotted(more).items()
    }


class Source:
    """The tasks of one connector; each keeps its context over restarts."""

    def __init__(self, config: Mapping[str, str], max_tasks: int = 1, context: Context | None = None) -> None:
        self.connector = JdbcSource()
        self.asked = Asked()
        self.connector.start(config, self.asked)
        self.configs = self.connector.task_configs(max_tasks)
        self.context = context or Context()
        self.task = self.restart()

    def restart(self) -> JdbcSource.Task:
        self.task = JdbcSource.Task()
        self.task.start(self.configs[0], self.context)
        return self.task

    def slices(self, most: int = 1_000_000) -> Iterator[Slice]:
        """Slices until there is nothing now, or `most`."""
        for _ in range(most):
            piece = self.task.poll(None, None)  # type: ignore[arg-type]  # JDBC tasks use no Spark
            if piece is None:
                return
            self.context.remember(piece)
            yield piece

    def values(self, most: int = 1_000_000) -> list[dict[str, Any]]:
        """Values of the rows of these slices."""
        return [value for piece in self.slices(most) for value in values_of(piece)]


def sqlite(path: Path, *statements: str) -> str:
    """Run statements in a database file and return its URL."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return f"jdbc:sqlite:{path}"


def duckdb_file(path: Path, *statements: str) -> str:
    """Run statements in a file of DuckDB, as soon as nothing else has it open, and return its URL."""

    def connected() -> duckdb.DuckDBPyConnection | None:
        try:
            return duckdb.connect(str(path))
        except duckdb.Error:
            return None

    with until(connected, "the file to be free") as connection:
        for statement in statements:
            connection.execute(statement)
    return f"jdbc:duckdb:{path}"
