"""PostgresCdcSource: rows of tables, then every change of them, as Debezium's PostgreSQL connector writes them.

Configuration keys, records, source partition and source offsets have Debezium's format. Changes come from a logical
replication slot, which moves only after the changes are committed in Kafka.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from connectx.connectors.cdc.catalog import Catalog, TableFilter
from connectx.connectors.cdc.columns import ColumnFilter
from connectx.connectors.cdc.config import CONFIG, CONNECTION_KEYS, problems, uri
from connectx.connectors.cdc.errors import ReplicationSlotMismatchError
from connectx.connectors.cdc.events import HEARTBEAT_SCHEMAS, Changes, Origin, named_table, topic_name
from connectx.connectors.cdc.positions import Position, check_offset
from connectx.connectors.cdc.reading import SlotReader
from connectx.connectors.cdc.replay import is_reached, row_change
from connectx.connectors.cdc.replication import ReplicationStream
from connectx.connectors.cdc.resuming import Resumption
from connectx.connectors.cdc.snapshot import Snapshot
from connectx.connectors.cdc.stream import after_wal
from connectx.connectors.cdc.values import Modes
from connectx.connectors.shared.postgres import PostgresSession
from connectx.errors.databases import DatabaseUnavailableError
from connectx.model.places import Place, tables
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.contexts import SourceTaskContext
from connectx.plugins.errors import RetriableError
from connectx.plugins.slices import Slice
from connectx.plugins.stored import Held
from connectx.plugins.tasks import SourceTask
from connectx.version import VERSION

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_MOST_IDLE_MS: Final = 100
"""A stop may come while the task waits for changes."""

_WITHOUT_STREAM: Final = "initial_only"
"""The snapshot.mode that needs neither slot nor publication."""

_UNTIL_STOPPED: Final = "If that is the task's successor, do nothing: this instance tries again until it is stopped."
_NO_STREAM: Final = "All rows were read, and snapshot.mode=initial_only reads no changes."


class PostgresCdcSource(SourceConnector):
    """Reads changes of tables of PostgreSQL from a logical replication slot; one task."""

    summary = (
        "the rows and then every change of PostgreSQL's tables; keys, records and offsets of Debezium's "
        "PostgreSQL connector"
    )
    java_class = "io.debezium.connector.postgresql.PostgresConnector"
    version = VERSION
    exactly_once = True
    config = CONFIG
    requires = (("postgres", "adbc_driver_postgresql"),)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """A slot has one reader."""
        return [self.settings]

    @override
    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> Sequence[Place]:
        database = (
            f"{config.get('database.hostname')}:{config.get('database.port') or 5432}/{config.get('database.dbname')}"
        )
        slot = config.get("slot.name") or CONFIG.keys["slot.name"].default
        return [
            Place(f"replication slot {slot} of {database}", is_exclusive=True),
            *tables(config.get("table.include.list"), database),
        ]

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Keys of Debezium that are not supported."""
        return problems(config)

    @classmethod
    def check_offsets(
        cls, config: Mapping[str, str | None], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> None:
        """A partition is `{"server": <topic.prefix>}`, an offset has Debezium's keys."""
        for partition, offset in offsets:
            if set(partition) != {"server"} or not isinstance(partition["server"], str):
                raise ValueError("Partition objects should contain only the key 'server', a String")
            check_offset(offset)

    class Task(SourceTask):
        """Source partition `{"server": <topic.prefix>}`; source offsets are those of Debezium."""

        def start(self, config: Mapping[str, str], context: SourceTaskContext) -> None:
            """Take the configuration; the database is opened by the first poll."""
            super().start(config, context)
            self._values = values = CONFIG.parse(config)
            self.partition = {"server": values["topic.prefix"]}
            self._slot: str = values["slot.name"]
            self._origin = Origin(VERSION, values["topic.prefix"], values["database.dbname"])
            settings = {"application_name": f"connectx {context.task}"[:63]}
            self._connect = partial(PostgresSession, uri(values), settings, CONNECTION_KEYS)
            self._stream = partial(
                ReplicationStream,
                uri(values),
                settings,
                CONNECTION_KEYS,
                slot=self._slot,
                publication=values["publication.name"],
                most=values["max.queue.size"],
                interval_s=max(10, min(values["status.update.interval.ms"], values["slot.advance.interval.ms"])) / 1000,
            )
            self._session = self._connect()
            self._catalog = Catalog(self._session, Modes.of(values), TableFilter.of(values), ColumnFilter.of(values))
            self._snapshot: Snapshot | None = None
            self._reader: SlotReader | None = None
            self._has_begun = False
            self._begins_again = values["snapshot.mode"] == "always"  # until a part of the snapshot is committed
            self._forget()

        def poll(self, spark: SparkSession, offset: SourceOffset | None) -> Slice | None:
            """The next rows of the snapshot, or the next transactions.

            Raises:
                RetriableError: the database cannot be reached, or another reader has the slot.
                ReplicationSlotMissingError, ReplicationSlotMismatchError: see offset.mismatch.strategy.
                DatabasePermissionError, DatabaseError, TableMismatchError, ReplicationMessageError
            """
            try:
                return self._poll(offset)
            except DatabaseUnavailableError as error:
                self.waits = error.message
                self._forget()
                self._session.close()
                raise RetriableError(error.message, next_step=error.next_step) from error
            except BaseException:
                self._forget()
                self._session.close()
                raise

        def held(self, spark: SparkSession) -> Held | None:
            """All rows, unless snapshot.mode, skipped.operations or message.key.columns let records leave others."""
            values = self._values
            skips = not set(values["skipped.operations"]) <= {"t", "none"}
            if values["snapshot.mode"] not in ("initial", "when_needed") or skips or values["message.key.columns"]:
                return None
            self._snapshot = snapshot = self._new_snapshot(1)  # stop closes it
            replay = partial(row_change, placeholder=values["unavailable.value.placeholder"])
            return Held(self._rows_of(snapshot), replay, partial(is_reached, lsn=snapshot.visible.until))

        def _rows_of(self, snapshot: Snapshot) -> Iterator[Slice]:
            changes, position = snapshot.next(snapshot.begin(0))
            while changes is not None:
                yield self._slice([changes], position)
                changes, position = snapshot.next(position)

        def idle(self, offset: SourceOffset | None) -> None:
            """Wait for changes of a replication connection; without one for poll.interval.ms."""
            interval_ms = self._values["poll.interval.ms"]
            if self._reader is None or not self._reader.wait(min(interval_ms, _MOST_IDLE_MS) / 1000):
                self.context.wait(interval_ms)

        def committed(self, offset: SourceOffset) -> None:
            """Let the next reading move the slot."""
            self._begins_again = False
            if self._reader is not None and (position := Position.of(offset)) is not None:
                self._reader.committed(position)

        def stop(self) -> None:
            """Close all connections."""
            self._forget()
            self._session.close()

        def abandon(self) -> None:
            """Close all connections, so that the slot is free. It moves at most to what is committed in Kafka."""
            self.stop()

        def _forget(self) -> None:
            """Drop everything but the configuration: the next poll begins at the offset that it is given."""
            self._end_snapshot()
            reader, self._reader = self._reader, None
            if reader is not None:
                reader.close()
            self._position: Position | None = None
            self._polled: SourceOffset | None = None
            self._waits = ""
            self._advance_s = self._beat_s = time.monotonic()

        def _end_snapshot(self) -> None:
            snapshot, self._snapshot = self._snapshot, None
            if snapshot is not None:
                snapshot.close()
            self._catalog.keep = False  # also after a snapshot that could not begin

        def _poll(self, offset: SourceOffset | None) -> Slice | None:
            if self._position is None or self._polled != offset:
                self._forget()
                self._session.rollback()
                self._resume(offset)
            if (piece := self._next()) is not None:
                self._polled = piece.offset
            self.waits = self._waits
            return piece

        def _resume(self, offset: SourceOffset | None) -> None:
            values, catalog = self._values, self._catalog
            is_first = not self._has_begun
            if is_first:
                catalog.end_zombie(self._slot)
                self._has_begun = True
            mode, strategy = values["snapshot.mode"], values["offset.mismatch.strategy"]
            if mode != _WITHOUT_STREAM:
                self._find_publication()
            resumption = Resumption(catalog, self._slot, mode, strategy, values["database.dbname"])
            try:
                self._position, begins = resumption.resume(offset)
            except ReplicationSlotMismatchError as error:
                if is_first or not catalog.is_elsewhere():
                    raise
                raise DatabaseUnavailableError(
                    f"{error.message} Another instance of the task is connected.", next_step=_UNTIL_STOPPED
                ) from error
            begins = begins or self._begins_again
            self._polled = offset
            state = self._position.snapshot
            if begins or (state is not None and not state.finished):
                self._snapshot = self._new_snapshot(values["snapshot.max.threads"])
                if begins:
                    self._position = self._snapshot.begin(self._position.lsn)
            if mode != _WITHOUT_STREAM:
                self._reader = SlotReader(self._session, catalog, values, self._slot, self._stream, self._connect)

        def _find_publication(self) -> None:
            values, catalog = self._values, self._catalog
            publication, autocreate = values["publication.name"], values["publication.autocreate.mode"]
            catalog.ensure_publication(publication, autocreate, via_root=values["publish.via.partition.root"])
            self._waits = catalog.unchosen(publication)
            if self._waits:
                log.warning(self._waits)

        def _new_snapshot(self, threads: int) -> Snapshot:
            values, catalog = self._values, self._catalog
            tables = partial(catalog.tables, values["publication.name"])
            if values["snapshot.mode"] == _WITHOUT_STREAM:
                tables = partial(catalog.chosen_tables, via_root=values["publish.via.partition.root"])
            return Snapshot(self._session, catalog, tables, values["snapshot.fetch.size"], threads, self._connect)

        def _next(self) -> Slice | None:
            assert self._position is not None, "a position was resumed"
            if self._snapshot is not None:
                changes, self._position = self._snapshot.next(self._position)
                if changes is not None:
                    return self._slice([changes], self._position)
                self._end_snapshot()
            if self._reader is None:
                self._waits = _NO_STREAM
                ends = self._position.offset != self._polled
                return Slice((), self._position.offset, commits_offset=True) if ends else None
            found = self._reader.next(self._position)
            if found is not None:
                self._position, self._waits = found.position, ""
                return self._slice(found.parts, found.position)
            return self._idle_slice(self._reader)

        def _slice(self, parts: Sequence[Changes], position: Position) -> Slice:
            now_us = time.time_ns() // 1000
            prefix = self._values["topic.prefix"]
            tables = tuple(part.table(topic_name(prefix, part.shape.full), self._origin, now_us) for part in parts)
            return Slice(tables, position.offset)

        def _idle_slice(self, reader: SlotReader) -> Slice | None:
            """A heartbeat, or an offset alone, when one is due: afterwards the slot can move on."""
            assert self._position is not None, "a position was resumed"
            now_s, beat_s = time.monotonic(), self._values["heartbeat.interval.ms"] / 1000
            beats = bool(beat_s) and now_s >= self._beat_s + beat_s
            moved = after_wal(self._position, reader.reached)
            due = not reader.is_whole or now_s >= self._advance_s + self._values["slot.advance.interval.ms"] / 1000
            ends_snapshot = self._position.snapshot is not None and moved.snapshot is None
            if not beats and not ends_snapshot and not (due and moved != self._position):
                return None
            self._advance_s, self._position = now_s, moved
            if beats:
                self._beat_s = now_s
                return Slice((self._heartbeat(),), moved.offset)
            return Slice((), moved.offset, commits_offset=True)

        def _heartbeat(self) -> pa.Table:
            import pyarrow as pa

            prefix, moment_ms = self._values["topic.prefix"], time.time_ns() // 1_000_000
            key = pa.array([{"serverName": prefix}], pa.struct([pa.field("serverName", pa.string(), False)]))
            value = pa.array([{"ts_ms": moment_ms}], pa.struct([pa.field("ts_ms", pa.int64(), False)]))
            topic = f"{self._values['topic.heartbeat.prefix']}.{prefix}"
            return named_table({"key": key, "value": value, "topic": pa.array([topic], pa.string())}, HEARTBEAT_SCHEMAS)
