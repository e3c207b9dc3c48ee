"""PostgresSink: writes the values of records to tables of PostgreSQL, exactly once.

Each put is one transaction that holds the rows and the offsets behind them; the offsets in the database are the fence
against tasks that do not know yet that they lost their partitions. Keys are those of Confluent's JDBC sink where it
has them. Rows arrive by COPY, with upsert through a temporary table.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connectx.connectors.postgres.offsets import OffsetsTable
from connectx.connectors.postgres.rows import PostgresRows, TargetSettings
from connectx.connectors.postgres.session import LockTimeoutError, PostgresSession, RowRefusedError, libpq_uri
from connectx.connectors.postgres.table import describe, split_name
from connectx.errors import DatabaseUnavailableError, TableMissingError
from connectx.model.configdef import ConfigDef
from connectx.model.ids import TopicPartition
from connectx.model.validators import at_least, non_empty, one_of
from connectx.plugins.api import SinkBatch, SinkConnector, SinkTask, SinkTaskContext, Stored

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_CONNECTION = "Connection"
_WRITES = "Writes"


class PostgresSink(SinkConnector):
    """Writes topics to tables of PostgreSQL, exactly once."""

    version = "1"
    requires = (("postgres", "adbc_driver_postgresql"),)
    config = (
        ConfigDef()
        .define(
            "connection.url",
            str,
            doc="Where the database is: postgresql://host:port/database, as libpq takes it. A JDBC URL does, too.",
            group=_CONNECTION,
            importance="HIGH",
            validator=non_empty(),
        )
        .define("connection.user", str, None, doc="User, if not in the URL.", group=_CONNECTION, importance="HIGH")
        .define(
            "connection.password",
            str,
            None,
            doc="Password, if not in the URL.",
            group=_CONNECTION,
            importance="HIGH",
            secret=True,
        )
        .define(
            "table.name.format",
            str,
            "${topic}",
            doc="Table for a topic's records; may name a schema, as in public.${topic}.",
            group=_WRITES,
            validator=non_empty(),
        )
        .define(
            "insert.mode",
            str,
            "insert",
            doc="insert: every record is a new row. upsert: a record replaces the row with the same primary key.",
            group=_WRITES,
            importance="HIGH",
            validator=one_of("insert", "upsert"),
        )
        .define(
            "pk.mode",
            str,
            "none",
            doc="Where the primary key comes from: none, record_key or record_value (fields of it).",
            group=_WRITES,
            importance="HIGH",
            validator=one_of("none", "record_key", "record_value"),
        )
        .define("pk.fields", list, [], doc="Columns of the primary key.", group=_WRITES)
        .define(
            "auto.create",
            bool,
            False,
            doc="Create a missing table for the first records; needs records that carry their types.",
            group=_WRITES,
        )
        .define(
            "offsets.table.name",
            str,
            "connectx_offsets",
            doc="Table that holds the offsets behind what was written; it is created when it is missing.",
            group=_WRITES,
            importance="LOW",
            validator=non_empty(),
        )
        .define(
            "lock.timeout.ms",
            int,
            2_000,
            doc="How long to wait for the offsets of a partition that another session has locked, before a session of "
            "the same connector that holds them is ended.",
            group=_WRITES,
            importance="LOW",
            validator=at_least(1),
        )
        .define(
            "idle.in.transaction.session.timeout.ms",
            int,
            30_000,
            doc="After this time PostgreSQL ends a session of this connector that stands still within a transaction.",
            group=_WRITES,
            importance="LOW",
            validator=at_least(0),
        )
    )

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Every task gets the whole configuration; the consumer group divides the partitions."""
        return [self.settings] * max_tasks

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Upsert needs to know the primary key."""
        mode, fields = config.get("pk.mode") or "none", (config.get("pk.fields") or "").strip()
        if config.get("insert.mode") == "upsert" and mode == "none":
            return {"pk.mode": ["insert.mode=upsert needs pk.mode=record_key or pk.mode=record_value"]}
        if config.get("insert.mode") == "upsert" and not fields:
            return {"pk.fields": ["insert.mode=upsert needs the columns of the primary key in pk.fields"]}
        return {}

    @classmethod
    def stored(cls, config: Mapping[str, str | None], topic: str) -> Stored | None:
        """The rows of the topic's table."""
        values = cls.config.parse(config)
        secret = values["connection.password"]
        uri = libpq_uri(values["connection.url"], values["connection.user"], secret.value if secret else None)
        target = _target(values)
        key = target.key_columns if target.upsert else ()
        return stored_table(uri, values["table.name.format"], topic, key, target.key_from_record_key)

    class Task(SinkTask):
        """One connection; every put is one transaction."""

        exactly_once = True

        def start(self, config: Mapping[str, str], context: SinkTaskContext) -> None:
            """Take the configuration; the connection is made when partitions come."""
            super().start(config, context)
            values = PostgresSink.config.parse(config)
            secret = values["connection.password"]
            self._name_prefix = f"connectx {context.group_id} "[:55]
            name = f"{self._name_prefix}{context.task} {uuid.uuid4().hex[:6]}"
            self._session = PostgresSession(
                libpq_uri(values["connection.url"], values["connection.user"], secret.value if secret else None),
                {
                    "application_name": name[:63],
                    "lock_timeout": str(values["lock.timeout.ms"]),
                    "idle_in_transaction_session_timeout": str(values["idle.in.transaction.session.timeout.ms"]),
                    "timezone": "UTC",
                },
            )
            self._offsets = OffsetsTable(self._session, values["offsets.table.name"], context.group_id)
            self._rows = PostgresRows(self._session, _target(values), context.report)
            self._cancelled = False

        def value_type(self, topic: str) -> pa.DataType | None:
            """The table's columns."""
            try:
                found = self._rows.value_type(topic)
                self._session.commit()
            except BaseException:
                self._session.rollback()
                raise
            return found

        def open(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
            """Offsets that the database holds."""
            return self._offsets.open(partitions)

        def put(self, batch: SinkBatch) -> None:
            """Write rows and offsets in one transaction.

            Raises:
                CommitRefusedError: the database holds other offsets: another task wrote there.
                DatabaseUnavailableError: try again later.
                RecordRejectedError: a row is refused, with errors.tolerance=none.
                TableMissingError, TableMismatchError, DatabasePermissionError, DatabaseError
            """
            try:
                self._put(batch, carefully=bool(batch.rows["value"].null_count))
            except LockTimeoutError:
                self._session.rollback()
                self._end_zombies(batch)
                raise
            except BaseException:
                self._session.rollback()
                raise
            finally:
                if self._cancelled:
                    self._session.close()

        def stop(self) -> None:
            """Close the connection."""
            self._session.close()

        def abandon(self) -> None:
            """Drop the connection; PostgreSQL rolls back."""
            self._session.close()

        def cancel(self) -> None:
            """End the statement that runs; nothing is committed any more."""
            self._cancelled = True
            self._session.cancel()

        def _put(self, batch: SinkBatch, *, carefully: bool) -> None:
            """In one go; if that shows that a row is refused, again in parts, to find it."""
            try:
                self._offsets.lock(batch.ranges)
                if batch.rows.num_rows:
                    self._rows.write(batch.rows, carefully=carefully)
                self._offsets.move(batch.ranges)
                if self._cancelled:
                    raise DatabaseUnavailableError("The task was cancelled before it committed.")
                self._session.commit()
            except RowRefusedError:
                if carefully:
                    raise
                self._session.rollback()
                self._put(batch, carefully=True)

        def _end_zombies(self, batch: SinkBatch) -> None:
            ended = self._offsets.end_holders(batch.ranges, self._name_prefix)
            for name in ended:
                log.warning("%s ended the session %r, which held its offsets", self.context.task, name)


def stored_table(
    uri: str, pattern: str, topic: str = "", key: tuple[str, ...] = (), key_in_record_key: bool = False
) -> Stored:
    """A table as `cluster.check` reads it. Raises TableMissingError when there is none."""
    session = PostgresSession(uri, {"timezone": "UTC"})
    try:
        ((schema,),) = session.query("SELECT current_schema()::text")
        table = describe(session, *split_name(pattern, topic, schema or "public"))
    finally:
        session.close()
    if table is None:
        raise TableMissingError(f"The table {pattern} does not exist.", next_step="Check its name.")
    quoted, value_type = table.quoted, table.value_type(key if key_in_record_key else ())

    def read() -> Iterator[pa.Table]:
        reading = PostgresSession(uri, {"timezone": "UTC"})
        try:
            yield from reading.read(f"SELECT * FROM {quoted}")
        finally:
            reading.close()

    return Stored(f"table {table.name}", read, key=key, key_in_record_key=key_in_record_key, value_type=value_type)


def _target(values: Mapping[str, Any]) -> TargetSettings:
    return TargetSettings(
        table_format=values["table.name.format"],
        upsert=values["insert.mode"] == "upsert",
        key_from_record_key=values["pk.mode"] == "record_key",
        key_columns=tuple(values["pk.fields"]) if values["pk.mode"] != "none" else (),
        auto_create=values["auto.create"],
    )
