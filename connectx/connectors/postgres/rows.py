"""Rows of records to rows of a table: by COPY straight into it, or through a temporary table.

It finds the rows that PostgreSQL refuses, and never commits or compares offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.postgres.session import PostgresSession, RowRefusedError, identifier
from connectx.connectors.postgres.table import Table, create_statement, describe, split_name
from connectx.errors import RecordRejectedError, TableMismatchError, TableMissingError
from connectx.model.ids import TopicPartition

_LONGEST_PENALTY_BATCHES = 64

Report = Callable[[TopicPartition, int, Exception], None]


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """How records become rows. `key_columns` is empty when the table's primary key is left alone."""

    table_format: str
    upsert: bool
    key_from_record_key: bool
    key_columns: tuple[str, ...]
    auto_create: bool


@dataclass(slots=True)
class _Tries:
    """What is known of copying straight into a table that is upserted."""

    batches_to_skip: int = 0
    penalty_batches: int = 1


class PostgresRows:
    """Writes rows within the session's transaction.

    Args:
        report: told of a record that is refused; raises when that is to fail the task.
    """

    def __init__(self, session: PostgresSession, target: TargetSettings, report: Report) -> None:
        self._session = session
        self._target = target
        self._report = report
        self._tables: dict[str, Table] = {}
        self._tries: dict[str, _Tries] = {}

    def value_type(self, topic: str) -> pa.DataType | None:
        """The columns of the topic's table that values are to have; None when the table is yet to be created.

        Raises:
            TableMissingError: there is none, and auto.create is off.
        """
        table = self._table(topic)
        if table is None:
            return None
        return table.value_type(self._target.key_columns if self._target.key_from_record_key else ())

    def write(self, rows: pa.Table, *, carefully: bool) -> None:
        """Write rows of any topics. With `carefully` refused rows are found and reported, and the others written.

        Raises:
            RowRefusedError: not carefully, and a row is refused: roll back, and begin again with care.
            RecordRejectedError: a row is refused, with errors.tolerance=none.
            TableMissingError, TableMismatchError
        """
        if carefully:
            rows = self._without_tombstones(rows)
            if rows.num_rows:
                self._session.execute("SET CONSTRAINTS ALL IMMEDIATE")
        topics = rows["topic"].unique().to_pylist()  # several only where transformations route records
        for topic in topics:
            mine = rows if len(topics) == 1 else rows.filter(pc.equal(rows["topic"], topic))
            if carefully:
                self._write_parts(self._table_for(mine), mine)
            else:
                self._load(self._table_for(mine), mine, part=False)

    # ------------------------------------------------------------------------------------------- refused records

    def _without_tombstones(self, rows: pa.Table) -> pa.Table:
        if not rows["value"].null_count:
            return rows
        missing = pc.is_null(rows["value"])
        for row in rows.filter(missing).select(["topic", "partition", "offset"]).to_pylist():
            self._refuse(row, "the record has no value (a tombstone), and this sink deletes nothing")
        return rows.filter(pc.invert(missing))

    def _write_parts(self, table: Table, rows: pa.Table) -> None:
        """Halve what is refused until single rows are left."""
        self._session.execute("SAVEPOINT connectx_part")
        try:
            self._load(table, rows, part=True)
            self._session.execute("RELEASE SAVEPOINT connectx_part")
        except RowRefusedError as error:
            self._session.execute("ROLLBACK TO SAVEPOINT connectx_part")
            if rows.num_rows == 1:
                row = rows.select(["topic", "partition", "offset"]).to_pylist()[0]
                self._refuse(row, error.message, table.quoted)
                return
            half = rows.num_rows // 2
            self._write_parts(table, rows.slice(0, half))
            self._write_parts(table, rows.slice(half))

    def _refuse(self, row: dict[str, object], cause: str, table: str = "") -> None:
        partition = TopicPartition(str(row["topic"]), int(str(row["partition"])))
        offset = int(str(row["offset"]))
        target = f"Table {table}" if table else "PostgreSQL"
        self._report(partition, offset, RecordRejectedError(str(partition), offset, target, cause))

    # ---------------------------------------------------------------------------------------------------- tables

    def _table(self, topic: str) -> Table | None:
        known = self._tables.get(topic)
        if known is not None:
            return known
        schema, name = self._name_of(topic)
        found = describe(self._session, schema, name)
        if found is not None:
            self._tables[topic] = found
        elif not self._target.auto_create:
            raise TableMissingError(
                f"The table {identifier(schema)}.{identifier(name)} for topic {topic} does not exist.",
                next_step="Create it, correct table.name.format, or set auto.create=true, and restart the task.",
            )
        return found

    def _name_of(self, topic: str) -> tuple[str, str]:
        ((default_schema,),) = self._session.query("SELECT current_schema()::text")
        return split_name(self._target.table_format, topic, default_schema or "public")

    def _table_for(self, rows: pa.Table) -> Table:
        """The topic's table, created if that is wanted; columns are checked."""
        topic = rows["topic"][0].as_py()
        table = self._table(topic)
        columns = self._columns(rows)
        if table is None:
            schema, name = self._name_of(topic)
            self._session.execute(create_statement(schema, name, columns, self._target.key_columns))
            table = describe(self._session, schema, name)
            assert table is not None, "just created"
        table.check(columns)
        return table

    def _columns(self, rows: pa.Table) -> pa.Table:
        """Fields of the value, and with pk.mode=record_key those of the key, as columns."""
        columns = _fields_of(rows["value"], "value")
        if self._target.key_from_record_key and self._target.key_columns:
            columns = {**columns, **self._key_columns(rows["key"])}
        missing = [name for name in self._target.key_columns if name not in columns]
        if missing:
            raise TableMismatchError(
                f"The records have no field {', '.join(missing)}, which pk.fields names.",
                next_step="Correct pk.fields or pk.mode, and restart the task.",
            )
        return pa.table(columns)

    def _key_columns(self, key: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
        names = self._target.key_columns
        if pa.types.is_struct(key.type):
            return {name: column for name, column in _fields_of(key, "key").items() if name in names}
        if len(names) != 1:
            raise TableMismatchError(
                f"The key of the records is a single {key.type}, but pk.fields names {len(names)} columns.",
                next_step="Name one column in pk.fields, or use keys with fields, and restart the task.",
            )
        return {names[0]: key}

    # ------------------------------------------------------------------------------------------------------ load

    def _load(self, table: Table, rows: pa.Table, *, part: bool) -> None:
        try:
            fitted = table.fit(self._columns(rows))
        except pa.ArrowInvalid as error:
            raise RowRefusedError(str(error)) from error
        if self._target.upsert:
            fitted = self._last_of_each_key(fitted)
        if all(table.columns[name].arrow is not None for name in fitted.column_names):
            if not self._target.upsert:
                self._session.ingest(table.schema, table.name, fitted)
                return
            if not part and self._all_new(table, fitted):
                return
        stage = f"connectx_{table.schema}_{table.name}"[:63]
        types = ", ".join(
            f"{identifier(column.name)} {column.type if column.arrow is not None else 'text'}"
            for column in table.columns.values()
        )
        self._session.execute(f"CREATE TEMP TABLE IF NOT EXISTS {identifier(stage)} ({types}) ON COMMIT DELETE ROWS")
        self._session.ingest(None, stage, fitted)
        self._session.execute(self._insert_statement(table, stage, fitted.column_names))
        if part:
            self._session.execute(f"DELETE FROM {identifier(stage)}")

    def _all_new(self, table: Table, rows: pa.Table) -> bool:
        """Rows with new keys can be copied straight into the table, twice as fast; try, and learn from failures.

        False when a row has a key that is there, or is refused for another reason. After each failure in a row twice
        as many batches go by before the next try, since what was copied until then is left behind as dead rows.
        """
        known = self._tries.get(table.quoted)
        if known is None:
            known = self._tries[table.quoted] = _Tries()
            key = ", ".join(map(identifier, self._target.key_columns))
            self._session.execute(  # refuses a key that no unique index has: COPY would not notice
                f"INSERT INTO {table.quoted} ({key}) SELECT {key} FROM {table.quoted} WHERE false "
                f"ON CONFLICT ({key}) DO NOTHING"
            )
        if known.batches_to_skip:
            known.batches_to_skip -= 1
            return False
        self._session.execute("SAVEPOINT connectx_new")
        try:
            self._session.ingest(table.schema, table.name, rows)
        except RowRefusedError:
            self._session.execute("ROLLBACK TO SAVEPOINT connectx_new")
            known.batches_to_skip = known.penalty_batches
            known.penalty_batches = min(_LONGEST_PENALTY_BATCHES, known.penalty_batches * 2)
            return False
        self._session.execute("RELEASE SAVEPOINT connectx_new")
        known.penalty_batches = 1
        return True

    def _insert_statement(self, table: Table, stage: str, names: Sequence[str]) -> str:
        listed = ", ".join(map(identifier, names))
        values = ", ".join(
            identifier(name)
            if table.columns[name].arrow is not None
            else f"{identifier(name)}::{table.columns[name].type}"
            for name in names
        )
        statement = f"INSERT INTO {table.quoted} ({listed}) SELECT {values} FROM pg_temp.{identifier(stage)}"
        if not self._target.upsert:
            return statement
        key = self._target.key_columns
        changes = ", ".join(f"{identifier(name)} = excluded.{identifier(name)}" for name in names if name not in key)
        action = f"UPDATE SET {changes}" if changes else "NOTHING"
        return f"{statement} ON CONFLICT ({', '.join(map(identifier, key))}) DO {action}"

    def _last_of_each_key(self, rows: pa.Table) -> pa.Table:
        """Of several rows with the same key the last one counts, as if they had come one after the other."""
        key = list(self._target.key_columns)
        numbered = rows.select(key).append_column("connectx_row", pa.array(range(rows.num_rows), pa.int64()))
        last = numbered.group_by(key, use_threads=False).aggregate([("connectx_row", "max")])["connectx_row_max"]
        return rows if len(last) == rows.num_rows else rows.take(last)


def _fields_of(column: pa.ChunkedArray, side: str) -> dict[str, pa.ChunkedArray]:
    if not pa.types.is_struct(column.type):
        raise TableMismatchError(
            f"The {side} of the records is of type {column.type} and has no fields, so there are no columns for it.",
            next_step=f"Use a {side}.converter that reads fields, for example JsonConverter, and restart the task.",
        )
    flat = [chunk.flatten() for chunk in column.chunks]
    names = [field.name for field in column.type]
    return {
        name: pa.chunked_array([fields[index] for fields in flat], column.type[index].type)
        for index, name in enumerate(names)
    }
