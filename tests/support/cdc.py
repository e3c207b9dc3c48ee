"""A database whose changes are captured, PostgresCdcSource without Kafka, and what its records say in the end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa

from connectx.connectors.postgres.cdc.source import PostgresCdcSource
from connectx.model.ids import TaskId
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.plugins.api import Slice
from tests.support.profiles import dotted

_numbers = itertools.count(1)


class Captured:
    """A separate database, and the slots that were made for it."""

    def __init__(self, uri: str) -> None:
        from adbc_driver_postgresql import dbapi

        self.name = f"captured{next(_numbers)}"
        self._server = dbapi.connect(uri, autocommit=True)
        self._on_server(f"CREATE DATABASE {self.name}")
        parts = urlsplit(uri)
        self.host = parse_qs(parts.query)["host"][0]
        self._connection = dbapi.connect(uri.replace("/postgres?", f"/{self.name}?"), autocommit=True)

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, and return the rows of the last one."""
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def transaction(self, *statements: str) -> None:
        """Run statements as one transaction."""
        self.sql("BEGIN", *statements, "COMMIT")

    def config(self, **more: Any) -> dict[str, str]:
        """A configuration; keys have underscores for dots."""
        given = {
            "connector.class": "PostgresCdcSource",
            "database.hostname": self.host,
            "database.user": "postgres",
            "database.dbname": self.name,
            "topic.prefix": self.name,
            "slot.name": self.name,
        }
        return given | {key: str(value) for key, value in dotted(more).items()}

    def slot_lsn(self) -> int:
        """Confirmed position of the slot."""
        ((lsn,),) = self.sql(
            f"SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = '{self.name}'"
        )
        return int(lsn)

    def drop_slot(self) -> None:
        self.sql(f"SELECT pg_drop_replication_slot('{self.name}')::text")

    def close(self) -> None:
        """Drop slots and the database."""
        for (slot,) in self._on_server(
            f"SELECT slot_name::text FROM pg_replication_slots WHERE database = '{self.name}'"
        ):
            self._on_server(f"SELECT pg_drop_replication_slot('{slot}')::text")
        self._connection.close()
        self._on_server(f"DROP DATABASE {self.name} WITH (FORCE)")
        self._server.close()

    def _on_server(self, statement: str) -> list[tuple[Any, ...]]:
        with self._server.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []


class Capture:
    """A task, polled by the test: each slice is committed as soon as it was polled."""

    transaction = None

    def __init__(self, captured: Captured, offset: SourceOffset | None = None, **settings: Any) -> None:
        self.task_id = TaskId("cdc", 0)
        self.config = captured.config(**settings)
        assert PostgresCdcSource.validate(self.config) == {}
        self.stored = offset
        self.start()

    @property
    def task(self) -> TaskId:
        return self.task_id

    def offset(self, partition: SourcePartition) -> SourceOffset | None:
        return self.stored

    def wait(self, timeout_ms: int) -> bool:
        return True

    def start(self) -> None:
        """Start a new instance of the task at the stored offset."""
        self._task = PostgresCdcSource.Task()
        self._task.start(self.config, self)

    def restart(self) -> None:
        """Drop the connection without any farewell, and start again."""
        self._task.stop()
        self.start()

    def poll(self) -> Slice | None:
        """Poll once, and commit."""
        piece = self._task.poll(None, self.stored)  # type: ignore[arg-type]
        if piece is not None:
            self.stored = dict(piece.offset)
            self._task.committed(self.stored)
        return piece

    def slices(self, most: int = 1000) -> list[Slice]:
        """Poll until there is nothing, or so many slices."""
        found: list[Slice] = []
        while len(found) < most and (piece := self.poll()) is not None:
            found.append(piece)
        return found

    def records(self, most: int = 1000) -> list[dict[str, Any]]:
        """Key, value and topic of the records of all slices."""
        return [row for piece in self.slices(most) for row in rows_of(piece)]

    def stop(self) -> None:
        self._task.stop()


def rows_of(piece: Slice) -> list[dict[str, Any]]:
    """The rows of a slice in order."""
    tables: tuple[pa.Table, ...] = piece.rows if isinstance(piece.rows, tuple) else (piece.rows,)
    return [row for table in tables for row in table.to_pylist()]


def ops(records: Iterable[Mapping[str, Any]]) -> list[str | None]:
    """The operations; None for a tombstone."""
    return [None if record["value"] is None else record["value"]["op"] for record in records]


def replayed(records: Iterable[Mapping[str, Any]], key: str = "id") -> dict[Any, Mapping[str, Any]]:
    """The rows, by a column of the key, that are left when all records are applied in order."""
    rows: dict[Any, Mapping[str, Any]] = {}
    for record in records:
        value = record["value"]
        if value is None or value["op"] == "d":
            rows.pop(record["key"][key], None)
        else:
            rows[value["after"][key]] = value["after"]
    return rows
