"""JdbcSink: writes the values of records to tables of a database, exactly once.

Each put is one transaction that holds the rows and the offsets after them. The offsets in the database are the fence
against tasks that do not know yet that they lost their partitions. Keys are those of Confluent's JDBC sink connector.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from typing_extensions import override

from connectx.connectors.jdbc.database import DatabaseSettings
from connectx.connectors.jdbc.dialects import open_database, open_target, target_class
from connectx.connectors.jdbc.offsets import OffsetsTable, Ranges
from connectx.connectors.jdbc.postgres.staging import StagedRows, StagingArea, StagingTarget, refused_rows, stage
from connectx.connectors.jdbc.postgres.target import PostgresTarget
from connectx.connectors.jdbc.rows import KAFKA_KEY, TableRows
from connectx.connectors.jdbc.sink_config import CONFIG, problems, row_settings, target_settings
from connectx.connectors.jdbc.tables import TableName
from connectx.connectors.jdbc.target import Target, TargetSettings, split_name
from connectx.errors.databases import (
    DatabaseError,
    DatabaseUnavailableError,
    LockTimeoutError,
    RowRefusedError,
    TableMissingError,
)
from connectx.model.configdef import ConfigDef
from connectx.model.ids import TopicPartition
from connectx.model.places import Place, database_of, tables
from connectx.model.validators import non_empty
from connectx.plugins.connectors import SinkConnector
from connectx.plugins.contexts import SinkTaskContext
from connectx.plugins.slices import SinkBatch
from connectx.plugins.stored import Stored
from connectx.plugins.tasks import SinkTask
from connectx.version import VERSION

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_READ_ROWS: Final = 50_000


class JdbcSink(SinkConnector):
    """Writes topics to tables of a database, exactly once."""

    summary = (
        "tables of PostgreSQL, MySQL, MariaDB, SQLite and DuckDB; offsets in the same transaction; keys of "
        "Confluent's JDBC sink"
    )
    java_class = "io.confluent.connect.jdbc.JdbcSinkConnector"
    version = VERSION
    config = CONFIG

    @override
    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> Sequence[Place]:
        database, pattern = database_of(config.get("connection.url")), config.get("table.name.format") or "${topic}"
        return [place for topic in topics for place in tables(pattern.replace("${topic}", topic), database)]

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Modes need a primary key."""
        return problems(config)

    @classmethod
    def stored(cls, config: Mapping[str, str | None], topic: str) -> Stored | None:
        """The rows of the topic's table."""
        values, rows = cls.config.parse(config), row_settings(cls.config.parse(config))
        key = rows.key_columns or (KAFKA_KEY if rows.pk_mode == "kafka" else ())
        found = stored_table(
            target_settings(values),
            rows.table_format,
            topic,
            key=key,
            has_key=rows.delete or (rows.insert_mode != "insert" and rows.pk_mode != "kafka"),
            may_be_missing=rows.auto_create,
            key_in_record_key=rows.pk_mode == "record_key",
            left_out=key if rows.pk_mode == "kafka" else (),
        )
        return replace(found, change=partial(rows.change, found.key)) if found.key else found

    @override
    @classmethod
    def key_fields(cls, config: Mapping[str, str | None]) -> Sequence[str] | None:
        rows = row_settings(cls.config.parse(config))
        return rows.key_columns if rows.pk_mode == "record_key" else None

    @classmethod
    def bulk_obstacle(cls, config: Mapping[str, str | None]) -> str | None:
        """That of the dialect; staged rows keep no order of inserts and deletes."""
        values = cls.config.parse(config)
        if obstacle := cls.target_class(values["connection.url"]).bulk_obstacle:
            return obstacle
        if values["delete.enabled"] and values["insert.mode"] == "insert":
            return "inserts with delete.enabled=true are written by the worker"
        return None

    @classmethod
    def target_class(cls, url: str) -> type[Target]:
        """The dialect that writes to a URL. Raises ConfigError for an unknown one."""
        return target_class(url)

    class Task(SinkTask):
        """One connection; every put and every commit of staged rows is one transaction."""

        exactly_once = True
        reads_fields = True
        connector: ClassVar[type[JdbcSink]]

        def start(self, config: Mapping[str, str], context: SinkTaskContext) -> None:
            """Take the configuration; the connection is made when partitions come."""
            super().start(config, context)
            values = self.connector.config.parse(config)
            prefix = f"connectx {context.group_id} "[:55]
            name = f"{prefix}{context.task} {uuid.uuid4().hex[:6]}"
            self._target_settings, self._row_settings = target_settings(values, name, prefix), row_settings(values)
            self._target = self.connector.target_class(values["connection.url"])(self._target_settings)
            offsets_name = values["offsets.table.name"]
            self._offsets = OffsetsTable(self._target, offsets_name, context.group_id)
            self._rows = TableRows(self._target, self._row_settings, context.report)
            schema = offsets_name.rpartition(".")[0]
            self._staging = StagingArea(self._target, schema, context.group_id, context.task)
            self._max_retries, self._failures = values["max.retries"], 0
            self._backoff_ms = values["retry.backoff.ms"]
            self._cancelled = False

        def key_type(self, topic: str) -> pa.DataType | None:
            """The table's columns of the key."""
            with self._target.transaction():
                return self._rows.key_type(topic)

        def value_type(self, topic: str) -> pa.DataType | None:
            """The table's columns."""
            with self._target.transaction():
                return self._rows.value_type(topic)

        def open(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
            """Offsets that the database holds. Staging tables of an instance that died are dropped."""
            held = self._offsets.open(partitions)
            if self._target.bulk_obstacle is None:
                self._staging.drop_leftovers()
            self._target.rest()
            return held

        def put(self, batch: SinkBatch) -> None:
            """Write rows and offsets in one transaction.

            Raises:
                CommitRefusedError: the database holds other offsets: another task wrote there.
                DatabaseUnavailableError: try again later.
                RecordRejectedError: a row is refused, with errors.tolerance=none.
                TableMissingError, TableMismatchError, DatabasePermissionError
                DatabaseError: also when the database could not be used max.retries times.
            """
            self._guarded(batch.ranges, lambda: self._put(batch, carefully=False))

        def plan(self, token: str, topic: str) -> tuple[str, str]:
            """Schema of the job's staging tables, and begin of their names."""
            with self._target.transaction():
                return self._staging.begin(token)

        def stage(self, plan: tuple[str, str], token: str, batches: Iterator[SinkBatch]) -> Sequence[StagedRows]:
            """On an executor: see `connectx.connectors.jdbc.postgres.staging.stage`."""
            note = f"Rows of {self.context.task} that are not committed; job {token}"
            return stage(StagingTarget(self._target_settings, *plan, note), self._row_settings, self.context, batches)

        def commit(self, token: str, ranges: Ranges, messages: Sequence[StagedRows]) -> None:
            """Move staged rows and offsets in one transaction, which also drops the staging tables.

            Raises:
                NotStageableError: the table refuses a row, or staged rows are gone.
                CommitRefusedError, DatabaseUnavailableError, DatabaseError: as `put`.
            """
            self._guarded(ranges, lambda: self._commit(token, ranges, messages))
            self._staging.end(token)

        def discard(self, token: str, messages: Sequence[StagedRows]) -> None:
            """Drop the staging tables of a job."""
            self._staging.end(token)
            with self._target.transaction():
                self._staging.drop(token)

        def stop(self) -> None:
            """Close the connection."""
            self._target.close()

        def abandon(self) -> None:
            """Drop the connection; the database rolls back."""
            self._target.close()

        def cancel(self) -> None:
            """End the statement that runs; nothing is committed any more."""
            self._cancelled = True
            self._target.cancel()

        def _commit(self, token: str, ranges: Ranges, messages: Sequence[StagedRows]) -> None:
            self._offsets.lock(ranges)
            for staged in messages:
                self._staging.move(staged)
            self._offsets.move(ranges)
            self._staging.drop(token)
            try:
                self._end_transaction()
            except RowRefusedError as error:  # by a constraint that is checked last
                raise refused_rows(error) from error

        def _put(self, batch: SinkBatch, *, carefully: bool) -> None:
            """In one go; if that shows that a row is refused, again in parts, to find it."""
            try:
                refused = self._rows.prepare(batch.rows) if batch.rows.num_rows else {}
                carefully = carefully or bool(refused)
                self._offsets.lock(batch.ranges)
                if batch.rows.num_rows:
                    self._rows.write(batch.rows, refused, carefully=carefully)
                self._offsets.move(batch.ranges)
                self._end_transaction()
            except RowRefusedError:
                if carefully:
                    raise
                self._target.rollback()
                self._put(batch, carefully=True)

        def _end_transaction(self) -> None:
            if self._cancelled:
                raise DatabaseUnavailableError("The task was cancelled before it committed.")
            self._target.commit()

        def _guarded(self, ranges: Ranges, write: Callable[[], None]) -> None:
            """Run a transaction; after an error roll back, end zombies that hold its locks, and count the tries."""
            try:
                write()
                self._target.rest()
            except LockTimeoutError as error:
                self._target.rollback()
                for name in self._offsets.end_holders(ranges):
                    log.warning("%s ended the session %r, which held its offsets", self.context.task, name)
                self._count(error)
                raise
            except DatabaseUnavailableError as error:
                self._target.rollback()
                self._count(error)
                raise
            except BaseException:
                self._target.rollback()
                raise
            finally:
                if self._cancelled:
                    self._target.close()
            self._failures = 0

        def _count(self, error: DatabaseUnavailableError) -> None:
            self._failures += 1
            self.context.timeout(self._backoff_ms)
            if 0 <= self._max_retries < self._failures and not self._cancelled:
                raise DatabaseError(
                    f"{error.message} It was tried {self._failures} times (max.retries={self._max_retries}).",
                    next_step="Restart the task when the database can be used again, or raise max.retries.",
                ) from error


JdbcSink.Task.connector = JdbcSink


def _postgres_config() -> ConfigDef:
    keys = dict(CONFIG.keys)
    keys["connection.url"] = replace(
        keys["connection.url"],
        doc="The database: postgresql://host:port/database, as libpq takes it. A JDBC URL works as well.",
        validator=non_empty(),
    )
    keys["max.retries"] = replace(keys["max.retries"], default=-1)
    keys["retry.backoff.ms"] = replace(keys["retry.backoff.ms"], default=500)
    return ConfigDef.of(keys.values())


class PostgresSink(JdbcSink):
    """A JdbcSink for PostgreSQL that tries again until the database can be used."""

    summary = "as JdbcSink, for PostgreSQL alone, with unlimited retries"
    other_names = ("connectx.connectors.postgres.sink.PostgresSink",)
    requires = (("postgres", "adbc_driver_postgresql"),)
    config = _postgres_config()

    class Task(JdbcSink.Task):
        """As of JdbcSink."""

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Upsert names its primary key."""
        found = dict(problems(config))
        if config.get("insert.mode") == "upsert" and not (config.get("pk.fields") or "").strip():
            found.setdefault("pk.fields", ["insert.mode=upsert needs the columns of the primary key in pk.fields"])
        return found

    @classmethod
    def target_class(cls, url: str) -> type[Target]:
        """PostgreSQL, whatever the URL looks like."""
        return PostgresTarget


PostgresSink.Task.connector = PostgresSink


def stored_table(
    settings: TargetSettings,
    pattern: str,
    topic: str = "",
    *,
    key: tuple[str, ...] = (),
    has_key: bool = False,
    key_in_record_key: bool = False,
    left_out: tuple[str, ...] = (),
    may_be_missing: bool = False,
) -> Stored:
    """A table as `cluster.check` reads it. Raises TableMissingError when there is none.

    Args:
        key: columns of the primary key; empty: as the table has it.
        has_key: the target keeps one row for each key.
        left_out: columns that the records do not have.
        may_be_missing: a table that does not exist holds no rows yet.
    """
    target = open_target(settings)
    try:
        schema, table_name = map(target.stored_name, split_name(pattern, topic, target.default_schema()))
        table = target.describe(schema, table_name)
    finally:
        target.close()
    if table is None and not may_be_missing:
        raise TableMissingError(f"The table {pattern} does not exist.", next_step="Check its name.")
    name, key = TableName(schema, table_name), key or (table.key if table is not None else ())
    in_record_key = key if key_in_record_key else left_out

    def read() -> Iterator[pa.Table]:
        database = open_database(settings.database)
        try:
            try:
                columns = [column for column in database.columns(name) if column.name not in left_out]
            except TableMissingError:
                if may_be_missing:
                    return
                raise
            fields = [database.field(column) for column in columns]
            selected = ", ".join(f"{field.sql} AS {database.quoted(field.name)}" for field in fields)
            yield from database.read(f"SELECT {selected} FROM {database.source(name, '')}", fields, _READ_ROWS)
        finally:
            database.close()

    return Stored(
        f"table {table_name}",
        read,
        key=key if has_key else (),
        key_in_record_key=has_key and key_in_record_key,
        key_type=table.key_type(key) if table is not None and key_in_record_key else None,
        value_type=None if table is None else table.value_type(in_record_key),
    )


def table_of(uri: str, name: str) -> Stored:
    """A table by its database's URL and its name, as `target=` of a check names it."""
    return stored_table(TargetSettings(DatabaseSettings(uri)), name)
