"""A database whose changes are captured, PostgresCdcSource without Kafka, and what its records say in the end."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa

from connectx.connectors.cdc.reading import SlotReader
from connectx.connectors.cdc.source import PostgresCdcSource
from connectx.model.ids import TaskId
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.plugins.slices import Slice
from tests.support.databases import restart_postgres
from tests.support.profiles import dotted
from tests.support.waiting import WAIT_S

_numbers = itertools.count(1)


class Captured:
    """A separate database, and the slots that were made for it; `mode` is slot.read.mode."""

    def __init__(self, uri: str, mode: str = "sql") -> None:
        from adbc_driver_postgresql import dbapi

        self.mode = mode
        self.name = f"captured{next(_numbers)}"
        self._connect = partial(dbapi.connect, autocommit=True)
        self._server_uri = uri
        self._server = self._connect(uri)
        self._on_server(f"CREATE DATABASE {self.name}")
        parts = urlsplit(uri)
        self.host = parse_qs(parts.query)["host"][0]
        self.uri = uri.replace("/postgres?", f"/{self.name}?")
        self._connection = self._connect(self.uri)

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
            "slot.read.mode": self.mode,
        }
        return given | {key: str(value) for key, value in dotted(more).items()}

    def restart_server(self) -> None:
        """Restart the server, which ends all connections to it."""
        self._connection.close()
        self._server.close()
        restart_postgres(self.host)
        self._server, self._connection = self._connect(self._server_uri), self._connect(self.uri)

    def copies(self) -> list[str]:
        """Names of the temporary slots of the database."""
        found = self.sql("SELECT slot_name::text FROM pg_replication_slots "
                         f"WHERE temporary AND database = '{self.name}'")  # fmt: skip
        return [name for (name,) in found]

    def slot_lsn(self) -> int:
        """Confirmed position of the slot."""
        ((lsn,),) = self.sql(
            f"SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = '{self.name}'"
        )
        return int(lsn)

    def flushed_lsn(self) -> int:
        """End of the WAL."""
        ((lsn,),) = self.sql("SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint")
        return int(lsn)

    def end_readers(self) -> None:
        """End the replication connections that have a slot of the database."""
        self._on_server(f"SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots "
                        f"WHERE database = '{self.name}'")  # fmt: skip

    def drop_slot(self) -> None:
        """Drop the slot, also while a reader that has closed its connection still has it."""
        self.end_readers()
        self.sql(f"SELECT pg_drop_replication_slot('{self.name}')::text")

    def close(self) -> None:
        """Drop slots and the database."""
        self.end_readers()
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
    """A task, polled by the test: each slice is committed as soon as it was polled, unless `commits` is False."""

    transaction = None
    commits = True

    def __init__(self, captured: Captured, offset: SourceOffset | None = None, **settings: Any) -> None:
        self.task_id = TaskId("cdc", 0)
        self.captured = captured
        self.config = captured.config(**{"slot_advance_interval_ms": 1, **settings} if self.streams else settings)
        assert PostgresCdcSource.validate(self.config) == {}
        self.stored = offset
        self.start()

    @property
    def task(self) -> TaskId:
        return self.task_id

    def offset(self, partition: SourcePartition) -> SourceOffset | None:
        return self.stored

    def offsets(self, partitions: Sequence[SourcePartition]) -> list[SourceOffset | None]:
        return [self.stored] * len(partitions)

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
            if self.commits:
                self._task.committed(self.stored)
        return piece

    @property
    def waits(self) -> str:
        """Why the task has nothing to read."""
        return self._task.waits

    @property
    def reader(self) -> SlotReader:
        """What reads the slot, after the first poll."""
        assert self._task._reader is not None
        return self._task._reader

    @property
    def streams(self) -> bool:
        """Whether changes come some time after they were committed, so that a poll may have nothing yet."""
        return self.captured.mode != "sql"

    def slices(self, most: int = 1000) -> list[Slice]:
        """Poll until all that is in the WAL now was polled, or so many slices; of a stream those with rows."""
        found: list[Slice] = []
        end, deadline_s = self.captured.flushed_lsn() if self.streams else 0, time.monotonic() + WAIT_S
        while len(found) < most:
            piece = self.poll()
            if piece is not None and (piece.rows != () or not self.streams):
                found.append(piece)
            elif piece is None and not (self.streams and self._is_before(end)):
                break
            elif piece is None:
                self._task.idle(self.stored)
            assert time.monotonic() < deadline_s, f"{self.stored} does not reach {end}"
        return found

    def _is_before(self, lsn: int) -> bool:
        return self.stored is None or "snapshot" in self.stored or self.stored["lsn"] < lsn

    def records(self, most: int = 1000) -> list[dict[str, Any]]:
        """Key, value and topic of the records of all slices."""
        return [row for piece in self.slices(most) for row in rows_of(piece)]

    def stop(self) -> None:
        self._task.stop()


def tables_of(piece: Slice) -> tuple[pa.Table, ...]:
    """The tables of a slice in order."""
    return piece.rows if isinstance(piece.rows, tuple) else (piece.rows,)


def rows_of(piece: Slice) -> list[dict[str, Any]]:
    """The rows of a slice in order."""
    return [row for table in tables_of(piece) for row in table.to_pylist()]


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
