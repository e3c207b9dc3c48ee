"""JdbcSource: rows of tables, or of a query, become records; new and changed rows follow.

Keys, source partitions and source offsets are those of Confluent's JDBC source connector, so that either can continue
where the other stopped. Rows are read into Arrow in pages that start after the last row's position (keyset pagination),
each in a separate transaction.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from connectx.connectors.jdbc.criteria import TIMESTAMP, Criteria, Position
from connectx.connectors.jdbc.database import DatabaseSettings
from connectx.connectors.jdbc.dialects import open_database
from connectx.connectors.jdbc.source_config import (
    CONFIG,
    bulk_obstacle,
    executor_connections,
    in_patterns,
    problems,
    single_query,
)
from connectx.connectors.jdbc.tables import QUERY_PARTITION, Column, ColumnMapping, Selection, TableName, groups
from connectx.errors.databases import DatabaseError, DatabaseUnavailableError, TableMismatchError, TableMissingError
from connectx.model.places import Place, database_of, query, tables
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.model.states import TransactionBoundary
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.contexts import ConnectorContext, SourceTaskContext
from connectx.plugins.errors import RetriableError
from connectx.plugins.slices import BulkSlice, Slice
from connectx.plugins.tasks import SourceTask
from connectx.version import VERSION

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from connectx.connectors.jdbc.pages import Page
    from connectx.connectors.jdbc.reading import Reading

log = logging.getLogger(__name__)

_TABLES: Final = "tables"
_PAGE_SLICES: Final = 5
"""Slices of one query: enough that sorting without an index is rare, few enough to hold in memory."""
_MUCH_BYTES: Final = 1 << 20
"""An estimate of so many bytes is compared with what was found."""


class JdbcSource(SourceConnector):
    """Reads tables of SQLite, PostgreSQL, DuckDB, MySQL or MariaDB, exactly once in all modes but bulk."""

    summary = (
        "tables or a query of SQLite, PostgreSQL, MySQL, MariaDB and DuckDB; keys and offsets of Confluent's "
        "JDBC source"
    )
    java_class = "io.confluent.connect.jdbc.JdbcSourceConnector"
    version = VERSION
    offsets_in_kafka = True
    config = CONFIG

    def start(self, config: Mapping[str, str], context: ConnectorContext) -> None:
        """Find the tables.

        Raises:
            TableMissingError: a table of table.whitelist does not exist.
            DatabaseUnavailableError, DatabasePermissionError, DatabaseError
        """
        super().start(config, context)
        self._context = context
        self._values = CONFIG.parse(config)
        self._selection = Selection.of(self._values)
        self._tables: list[TableName] = [] if self._values["query"] else self._find(check=True)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """A query has one task; tables are divided among tasks. Without tables there are no tasks."""
        if self._values["query"]:
            return [self.settings]
        divided = groups(self._tables, max_tasks)
        return [
            {**self.settings, _TABLES: json.dumps([[t.schema, t.name, t.catalog] for t in group])} for group in divided
        ]

    def monitor_interval_ms(self) -> int | None:
        """table.poll.interval.ms."""
        return None if self._values["query"] else int(self._values["table.poll.interval.ms"])

    def monitor(self) -> None:
        """Divide the tables again when some are new or gone."""
        try:
            found = self._find(check=False)
        except DatabaseUnavailableError as error:
            log.warning("%s The list of tables stays as it is.", error.message)
            return
        if found != self._tables:
            self._tables = found
            self._context.request_task_reconfiguration()

    @override
    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> Sequence[Place]:
        database = database_of(config.get("connection.url"))
        named = (config.get(key) for key in ("table.include.list", "table.whitelist"))
        return [*(place for names in named for place in tables(names, database)), *query(config.get("query"), database)]

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Lists exclude each other, and modes need their columns."""
        return problems(config)

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str | None]) -> bool | None:
        """True; in mode bulk a load is exact when it is one transaction (transaction.boundary=connector)."""
        boundary = (config.get("transaction.boundary") or "").lower()
        return config.get("mode") != "bulk" or boundary == TransactionBoundary.CONNECTOR

    @classmethod
    def can_define_transaction_boundaries(cls, config: Mapping[str, str | None]) -> bool | None:
        """In mode bulk a load is a transaction."""
        return config.get("mode") == "bulk"

    @classmethod
    def check_offsets(
        cls, config: Mapping[str, str | None], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> None:
        """A partition names a table or the query; an offset has whole numbers."""
        for partition, offset in offsets:
            if "table" not in partition and partition != QUERY_PARTITION:
                raise ValueError("Partition objects should contain the key 'table', or be {'query': 'query'}")
            for key, value in (offset or {}).items():
                if key not in ("incrementing", "timestamp", "timestamp_nanos", "load", "rows"):
                    raise ValueError(f"Offset objects have no key '{key}'")
                if not isinstance(value, int) or isinstance(value, bool):
                    raise ValueError(f"The value for the '{key}' key in the offset is expected to be a Long value")

    def _find(self, *, check: bool) -> list[TableName]:
        values = self._values
        database = open_database(DatabaseSettings.of(values, "connectx tables"))
        try:
            everything = database.tables(values["table.types"])
        finally:
            database.close()
        if check and (missing := self._selection.missing(everything)):
            raise TableMissingError(
                f"The database has no table {', '.join(missing)}, which table.whitelist names.",
                next_step="Create it, or correct table.whitelist or table.types, and restart the connector.",
            )
        return [t for t in everything if self._selection.takes(t) and in_patterns(values, t.schema, t.catalog)]

    class Task(SourceTask):
        """Source partitions `{"protocol": "1", "table": <schema.table>}`, or `{"query": "query"}`.

        Source offsets have `incrementing`, `timestamp` (ms) and `timestamp_nanos` as the mode needs them; in mode bulk
        they count the loads, and the rows of the last one.
        """

        rows_may_change = True

        def start(self, config: Mapping[str, str], context: SourceTaskContext) -> None:
            """Take the configuration; the database is opened by the first poll."""
            super().start(config, context)
            self._values = values = CONFIG.parse(config)
            self._database = open_database(DatabaseSettings.of(values, f"connectx {context.task}"))
            self._query = single_query(values["query"])
            if self._query:
                self._feeds = [_Feed(None, QUERY_PARTITION, values["topic.prefix"])]
            else:
                named = [TableName(*names) for names in json.loads(config[_TABLES])]
                self._feeds = [_Feed(t, t.partition, f"{values['topic.prefix']}{t.name}") for t in named]
            self.partition = self._feeds[0].partition
            self._modes = set(values["mode"].split("+"))
            self.bulk_obstacle = bulk_obstacle(values, config) or self._database.bulk_obstacle

        def partitions(self) -> Sequence[SourcePartition]:
            """One for each table."""
            return [feed.partition for feed in self._feeds]

        def poll(self, spark: SparkSession, offset: SourceOffset | None) -> Slice | None:
            """The next rows of a table that is due.

            Raises:
                RetriableError: the database cannot be reached, or a file is locked.
                TableMissingError, TableMismatchError, DatabasePermissionError, DatabaseError
            """
            with self._errors():
                return self._poll()

        def waiting_bytes(self, offset: SourceOffset | None) -> int | None:
            """Estimated size of the rows of the table that is due, by the statistics of the database."""
            feed = self._due(time.monotonic())
            if feed is None:
                return 0
            if feed.page is None:
                try:
                    reading = self._bulk_reading(feed)
                    if reading is None:
                        return None
                    found = self._estimate(feed, reading, self._after(self._offset(feed)))
                except BaseException:
                    self._database.close()
                    raise
                feed.excess_bytes = min(feed.excess_bytes, found)
                feed.waiting_bytes = max(1, found - feed.excess_bytes)
            return feed.waiting_bytes

        def poll_bulk(self, spark: SparkSession, offset: SourceOffset | None, max_bytes: int) -> BulkSlice | None:
            """About `max_bytes` of a table that is due, in parts that executors read."""
            with self._errors():
                return self._poll_bulk(max_bytes)

        def bulk_ended(self) -> None:
            """Executors have read what the worker held for them."""
            self._database.release()

        def reread_partition(
            self, spark: SparkSession, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset | None
        ) -> Iterator[Slice] | None:
            """Rows between two positions; None in mode bulk, and when a table has no rows of that time any more."""
            if "bulk" in self._modes:
                return None
            feed = next(feed for feed in self._feeds if dict(feed.partition) == dict(partition))
            return self._reread(feed, Position.of(start), None if end is None else Position.of(end))

        def idle(self, offset: SourceOffset | None) -> None:
            """Wait until a table is due."""
            left_s = min(feed.due_s for feed in self._feeds) - time.monotonic()
            self.context.wait(max(1, int(left_s * 1000) + 1))

        def stop(self) -> None:
            """Close the connection."""
            self._database.close()

        def abandon(self) -> None:
            """Drop the connection, so that a file of DuckDB is free and a server ends what it holds for this task."""
            self._database.close()

        @contextmanager
        def _errors(self) -> Iterator[None]:
            try:
                yield
            except DatabaseUnavailableError as error:
                self._drop_pages(self._values["connection.backoff.ms"] / 1000)
                raise RetriableError(error.message, next_step=error.next_step) from error
            except BaseException:
                self._drop_pages(0)
                raise

        def _poll_bulk(self, max_bytes: int) -> BulkSlice | None:
            from connectx.connectors.jdbc.parts import PartReader, divided

            feed, database, values = self._due(time.monotonic()), self._database, self._values
            if feed is None:
                return None
            feed.page = feed.last = None  # a page that the worker has read is dropped
            after, before_us = self._after(self._offset(feed)), self._before_us()
            try:
                moment = database.hold()
            except DatabaseUnavailableError:
                raise
            except DatabaseError as error:
                database.close()
                self.bulk_obstacle = f"{database.label} does not share a snapshot: {error.message}"
                return None
            reading = self._bulk_reading(feed)
            if reading is None:
                database.release()
                return None
            size = database.estimate(reading.statement(database, after, before_us), feed.table, len(reading.fields))
            rows = max(1, max_bytes // size.row_bytes)
            parts = divided(
                reading, database, after, before_us, rows, executor_connections(values, self.settings), size.row_bytes
            )
            if not parts:
                self._rest(feed)
                return None
            if sum(part.rows for part in parts) < rows:  # these are all
                feed.excess_bytes = self._estimate(feed, reading, parts[-1].until)
            reader = PartReader(
                replace(database.settings, name=f"{database.settings.name} executor"),
                feed.schema_name,
                moment,
                tuple(reading.statement(database, part.after, until=part.until) for part in parts),
                tuple(part.rows for part in parts),
                tuple(reading.fields),
                values["batch.max.rows"],
            )
            reached = feed.partition, parts[-1].until.offset
            return BulkSlice(feed.topic, len(parts), reader.read, lambda _: [reached])

        def _bulk_reading(self, feed: _Feed) -> Reading | None:
            """What executors read of a table; None, with an obstacle, if its rows have no fixed order."""
            reading = self._reading(feed)
            if reading.criteria.is_repeatable:
                return reading
            where = feed.table.full if feed.table else "the query"
            self.bulk_obstacle = f"{where} has no primary key that orders rows with the same timestamp"
            return None

        def _estimate(self, feed: _Feed, reading: Reading, after: Position) -> int:
            sql = reading.statement(self._database, after, self._before_us())
            found = self._database.estimate(sql, feed.table, len(reading.fields))
            return found.rows * found.row_bytes

        def _before_us(self) -> int | None:
            """Rows with this timestamp or a later one are not read yet."""
            if "timestamp" not in self._modes:
                return None
            return self._database.now_us() - int(self._values["timestamp.delay.interval.ms"]) * 1000

        def _rest(self, feed: _Feed) -> None:
            """All rows of a table were read."""
            feed.due_s = time.monotonic() + self._values["poll.interval.ms"] / 1000
            self._database.release()
            self._database.rest()

        def _poll(self) -> Slice | None:
            now_s = time.monotonic()
            while (feed := self._due(now_s)) is not None:
                if feed.page is None:
                    feed.page = self._open(feed)
                rows = feed.page.next()
                if rows is not None:
                    return self._slice(feed, rows)
                page, feed.page = feed.page, None
                feed.whole = page.is_stuck
                if page.is_full:
                    continue
                if feed.waiting_bytes >= _MUCH_BYTES:
                    after = self._after(self._offset(feed))
                    feed.excess_bytes = self._estimate(feed, self._reading(feed), after)
                self._rest(feed)
                if "bulk" in self._modes and self.context.transaction is not None:
                    self.context.transaction.commit_transaction()
                    return None
            return None

        def _due(self, now_s: float) -> _Feed | None:
            """The table that is being read, unless its last slice must be polled again; otherwise the one due first."""
            for feed in self._feeds:
                if feed.page is not None:
                    if feed.last is None or self.context.offset(feed.partition) == feed.last:
                        return feed
                    feed.page.close()
                    feed.page = None
            first = min(self._feeds, key=lambda feed: feed.due_s)
            return first if first.due_s <= now_s else None

        def _drop_pages(self, wait_s: float) -> None:
            for feed in self._feeds:
                if feed.page is not None:
                    feed.page.close()
                    if feed.last is not None and "bulk" in self._modes and self.context.transaction is not None:
                        self.context.transaction.abort_transaction()
                feed.page, feed.due_s = None, max(feed.due_s, time.monotonic() + wait_s)
            self._database.close()

        def _offset(self, feed: _Feed) -> SourceOffset | None:
            """Where a table stands, also under the names that other versions of Confluent's connector gave it."""
            partitions = [feed.partition, *(feed.table.older_partitions if feed.table else [])]
            return next((found for one in partitions if (found := self.context.offset(one)) is not None), None)

        def _open(self, feed: _Feed) -> Page:
            from connectx.connectors.jdbc.pages import Page

            offset = self._offset(feed)
            reading = self._reading(feed)
            feed.last, slice_rows = None, self._values["batch.max.rows"]
            if "bulk" in self._modes:
                feed.loads, feed.rows = int((offset or {}).get("load", 0)) + 1, 0
                return Page(reading.rows(self._database, slice_rows, Position(), None), slice_rows)
            after, before_us = self._after(offset), self._before_us()
            together = TIMESTAMP if "incrementing" not in self._modes else None
            limit = None if feed.whole else _PAGE_SLICES * slice_rows
            rows = list(
                reading.rows(self._database, slice_rows, after, before_us, limit=limit)
            )  # then nothing is locked
            return Page(iter(rows), slice_rows, limit, together)

        def _after(self, offset: SourceOffset | None) -> Position:
            initial = self._values["timestamp.initial"]
            if offset is not None or initial is None or "timestamp" not in self._modes:
                return Position.of(offset)
            return Position(self._database.now_us() if initial == -1 else initial * 1000)

        def _slice(self, feed: _Feed, rows: pa.Table) -> Slice:
            from connectx.connectors.jdbc.reading import as_value, position_of

            if "bulk" in self._modes:
                feed.rows += rows.num_rows
                feed.last = {"load": feed.loads, "rows": feed.rows}
            else:
                feed.last = position_of(rows).offset
            return Slice(as_value(rows, feed.schema_name), feed.last, topic=feed.topic, partition=feed.partition)

        def _reread(self, feed: _Feed, after: Position, until: Position | None) -> Iterator[Slice]:
            from connectx.connectors.jdbc.reading import as_value, position_of

            reading = self._reading(feed)
            for rows in reading.rows(self._database, self._values["batch.max.rows"], after, None, until=until):
                if rows.num_rows:
                    offset, values = position_of(rows).offset, as_value(rows, feed.schema_name)
                    yield Slice(values, offset, topic=feed.topic, partition=feed.partition)

        def _reading(self, feed: _Feed) -> Reading:
            """Columns and SQL of a table as it is now.

            Raises:
                TableMismatchError: a tracked column is missing, nullable or of a type that cannot be tracked.
            """
            from connectx.connectors.jdbc.reading import Reading

            database, query = self._database, self._query
            columns = database.columns(feed.table) if feed.table else database.query_columns(query)
            by_name = {column.name: column for column in columns}
            where = feed.table.full if feed.table else "the query"
            stamps = [_tracked(by_name, name, where) for name in self._timestamp_columns(feed)]
            number = self._incrementing_column(feed, by_name, where)
            if feed.table and self._values["validate.non.null"]:
                _check_nulls(where, stamps, number)
            keys = tuple(database.column(column.name) for column in columns if column.is_key)
            criteria = Criteria(
                database.timestamp(stamps) if stamps else None,
                database.incrementing(number) if number else None,
                keys if stamps and not number else (),
            )
            return Reading(database.source(feed.table, query), [database.field(column) for column in columns], criteria)

        def _timestamp_columns(self, feed: _Feed) -> Sequence[str]:
            if "timestamp" not in self._modes:
                return ()
            named: Sequence[str] = self._values["timestamp.column.name"]
            key = "timestamp.columns.mapping"
            if not named and feed.table:
                named = ColumnMapping.parse(key, self._values[key]).columns(feed.table)
            if not named:
                raise _unmapped(feed, key)
            return named

        def _incrementing_column(self, feed: _Feed, columns: Mapping[str, Column], where: str) -> Column | None:
            if "incrementing" not in self._modes:
                return None
            name = self._values["incrementing.column.name"]
            key = "incrementing.column.mapping"
            if not name and feed.table and self._values[key]:
                (name,) = ColumnMapping.parse(key, self._values[key]).columns(feed.table)[:1] or ("",)
                if not name:
                    raise _unmapped(feed, key)
            if name:
                return _tracked(columns, name, where)
            found = next((column for column in columns.values() if column.is_auto), None)
            if found is None:
                raise TableMismatchError(
                    f"{where} has no column that the database counts up itself.",
                    next_step="Name a column in incrementing.column.name, and restart the task.",
                )
            return found


@dataclass(slots=True)
class _Feed:
    """One table, or the query, and how far it is read.

    `page` is being read, `last` the offset of its last slice, `due_s` when to read again (monotonic clock), `whole`
    whether the next page has no limit. `loads` and `rows` count in mode bulk. `waiting_bytes` were estimated when the
    page began, less `excess_bytes`, which the database estimates although there are no rows.
    """

    table: TableName | None
    partition: SourcePartition
    topic: str
    page: Page | None = None
    last: SourceOffset | None = None
    due_s: float = 0.0
    whole: bool = False
    loads: int = 0
    rows: int = 0
    waiting_bytes: int = 0
    excess_bytes: int = 0

    @property
    def schema_name(self) -> str | None:
        """Name of the schema of values."""
        return self.table.name if self.table else None


def _tracked(columns: Mapping[str, Column], name: str, where: str) -> Column:
    found = columns.get(name) or next((c for c in columns.values() if c.name.lower() == name.lower()), None)
    if found is None:
        raise TableMismatchError(
            f"{where} has no column {name}; its columns are {', '.join(columns)}.",
            next_step="Correct incrementing.column.name or timestamp.column.name, and restart the task.",
        )
    return found


def _check_nulls(where: str, stamps: Sequence[Column], number: Column | None) -> None:
    nullable = [number.name] if number is not None and number.is_nullable else []
    if stamps and all(column.is_nullable for column in stamps):
        nullable += [column.name for column in stamps]
    if nullable:
        raise TableMismatchError(
            f"Column {', '.join(nullable)} of {where} may be null, and such rows would never be read.",
            next_step="Make it NOT NULL, or set validate.non.null=false, and restart the task.",
        )


def _unmapped(feed: _Feed, key: str) -> TableMismatchError:
    return TableMismatchError(
        f"{key} names no column for the table {feed.table.full if feed.table else 'of a query'}.",
        next_step=f"Add an entry to {key}, or exclude the table, and restart the task.",
    )
