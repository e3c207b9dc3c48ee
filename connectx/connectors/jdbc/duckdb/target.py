"""DuckDB as a target. Rows go in as Arrow; the file is released after each put, since one process can have it open."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from typing_extensions import override

from connectx.connectors.jdbc.duckdb.database import duckdb_error
from connectx.connectors.jdbc.file_connection import FileConnection
from connectx.connectors.jdbc.ordering import last_of_each, occurrences, repeated
from connectx.connectors.jdbc.target import Target, TargetColumn, TargetSettings, TargetTable
from connectx.errors.databases import DatabaseUnavailableError

_Result = TypeVar("_Result")
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_ARROW: Final = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
}
_ALSO: Final = {"TIMESTAMP": ("date",), "TIMESTAMP WITH TIME ZONE": ("date",), "HUGEINT": ("number",)}
_CREATED: Final = (
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_int8, "TINYINT"),
    (pa.types.is_int16, "SMALLINT"),
    (pa.types.is_int32, "INTEGER"),
    (pa.types.is_integer, "BIGINT"),
    (pa.types.is_float32, "FLOAT"),
    (pa.types.is_floating, "DOUBLE"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_string, "VARCHAR"),
    (pa.types.is_large_string, "VARCHAR"),
    (pa.types.is_binary, "BLOB"),
    (pa.types.is_large_binary, "BLOB"),
    (pa.types.is_time, "TIME"),
)
_ROWS: Final = "connectx_rows"


class DuckTarget(FileConnection, Target):
    """A database file, created when it is missing.

    DuckDB has no marks within a transaction: to drop a part, the transaction is rolled back and what was done before
    the mark is done again.
    """

    label = "DuckDB"
    booleans = ("false", "true")
    keeps_zones = True

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__(settings)
        self._in_transaction = False
        self._done: list[Callable[[], object]] = []
        self._mark = 0

    @override
    def execute(self, sql: str) -> None:
        self._do(lambda: self._connection.execute(sql))

    @override
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._do(lambda: self._connection.execute(sql).fetchall())
        return rows

    @override
    def commit(self) -> None:
        if self._in_transaction:
            self._call(lambda: self._connection.execute("COMMIT"))
            self._end()

    @override
    def rollback(self) -> None:
        if self._connection is None or not self._in_transaction:
            return
        self._end()
        try:
            self._connection.execute("ROLLBACK")
        except Exception:
            self.close()

    @override
    def cancel(self) -> None:
        if (connection := self._connection) is not None:
            connection.interrupt()

    @override
    def close(self) -> None:
        self._end()
        super().close()

    @override
    def rest(self) -> None:
        self.close()

    @override
    def begin_part(self) -> None:
        self._mark = len(self._done)

    @override
    def keep_part(self) -> None:
        pass  # the mark of the next part replaces this one's

    @override
    def drop_part(self) -> None:
        before = self._done[: self._mark]
        self.rollback()
        for statement in before:
            self._do(statement)

    @override
    def default_schema(self) -> str:
        ((schema,),) = self.query("SELECT current_schema()")
        return str(schema)

    @override
    def describe(self, schema: str, name: str) -> TargetTable | None:
        where = f"database_name = current_database() AND schema_name = {self.literal(schema)} "
        where += f"AND table_name = {self.literal(name)}"
        rows = self.query(
            "SELECT column_name, data_type, column_default IS NOT NULL, column_name IN (SELECT "
            f"unnest(constraint_column_names) FROM duckdb_constraints() WHERE {where} "
            f"AND constraint_type = 'PRIMARY KEY') FROM duckdb_columns() WHERE {where} ORDER BY column_index"
        )
        columns = {
            column: TargetColumn(
                column,
                kind,
                arrow or pa.string(),
                is_cast=arrow is None,
                has_default=default,
                in_key=in_key,
                also=_ALSO.get(kind, ()),
            )
            for column, kind, default, in_key in rows
            for arrow in [_arrow_type(kind)]
        }
        return TargetTable(schema, name, self.place(schema, name), columns) if columns else None

    @override
    def type_name(self, kind: pa.DataType, *, in_key: bool) -> str | None:
        if pa.types.is_decimal(kind):
            return f"DECIMAL({kind.precision},{kind.scale})" if kind.precision <= 38 else None
        if pa.types.is_timestamp(kind):
            return "TIMESTAMP" if kind.tz is None else "TIMESTAMP WITH TIME ZONE"
        return next((name for fits, name in _CREATED if fits(kind)), None)

    @override
    def insert(self, table: TargetTable, rows: pa.Table) -> None:
        self._with_rows(self._inserting(table, rows), rows)

    @override
    def upsert(self, table: TargetTable, rows: pa.Table, key: Sequence[str], *, in_part: bool) -> None:
        """As in Target. Of rows with one key a statement checks all, and writes the first, so the last come alone."""
        sql = f"{self._inserting(table, rows)} {self.on_conflict(rows.column_names, key)}"
        _, again = repeated(rows.select(list(key)))
        if len(again):
            self._with_rows(sql, rows)
            rows = rows.take(again)
            rows = rows.take(last_of_each(rows.select(list(key))))
        self._with_rows(sql, rows)

    @override
    def update(self, table: TargetTable, rows: pa.Table, key: Sequence[str]) -> None:
        changes = ", ".join(
            f"{self.quoted(name)} = {self._cast(table, name)}" for name in rows.column_names if name not in key
        )
        sql = f"UPDATE {table.quoted} AS t SET {changes} FROM {_ROWS} AS s WHERE {self._same(table, key)}"
        for numbers in occurrences(rows.select(list(key))):
            self._with_rows(sql, rows if len(numbers) == rows.num_rows else rows.take(numbers))

    @override
    def held(self, table: TargetTable, keys: pa.Table) -> int:
        def count() -> Any:
            self._connection.register(_ROWS, keys)
            return self._connection.execute(f"SELECT count(*) FROM {joined}").fetchall()

        joined = f"{table.quoted} AS t JOIN {_ROWS} AS s ON {self._same(table, keys.column_names)}"
        return int(self._do(count)[0][0])

    @override
    def delete(self, table: TargetTable, keys: pa.Table) -> None:
        same = self._same(table, keys.column_names)
        self._with_rows(f"DELETE FROM {table.quoted} AS t USING {_ROWS} AS s WHERE {same}", keys)

    @override
    def bytes_default(self, data: bytes) -> str:
        return f"unhex('{data.hex()}')"

    def _inserting(self, table: TargetTable, rows: pa.Table) -> str:
        listed = ", ".join(map(self.quoted, rows.column_names))
        values = ", ".join(self._cast(table, name) for name in rows.column_names)
        return f"INSERT INTO {table.quoted} ({listed}) SELECT {values} FROM {_ROWS} AS s"

    def _cast(self, table: TargetTable, name: str) -> str:
        return f"CAST(s.{self.quote(name)} AS {table.columns[name].type})"

    def _same(self, table: TargetTable, key: Sequence[str]) -> str:
        return " AND ".join(f"t.{self.quoted(name)} = {self._cast(table, name)}" for name in key)

    def _with_rows(self, sql: str, rows: pa.Table) -> None:
        def run() -> None:
            self._connection.register(_ROWS, rows)
            self._connection.execute(sql)

        self._do(run)

    def _do(self, statement: Callable[[], _Result]) -> _Result:
        """Run a statement within the transaction, and keep it for `drop_part`."""
        if self._connection is None:
            self._connection = self._call(self._connected)
        if not self._in_transaction:
            self._call(lambda: self._connection.execute("BEGIN TRANSACTION"))
            self._in_transaction = True
        result = self._call(statement)
        self._done.append(statement)
        return result

    def _connected(self) -> Any:
        import duckdb

        path = self.settings.database.path
        try:
            connection = duckdb.connect(path)
        except duckdb.ConnectionException as error:  # this process has it open for reading only
            raise DatabaseUnavailableError(
                f"The DuckDB file {path} is being read.", next_step="The task tries again."
            ) from error
        connection.execute("SET TimeZone = 'UTC'")
        return connection

    def _end(self) -> None:
        self._in_transaction, self._done, self._mark = False, [], 0

    def _call(self, function: Callable[[], _Result]) -> _Result:
        import duckdb

        try:
            return function()
        except duckdb.Error as error:
            raise duckdb_error(error, self.settings.database.path) from error


def _arrow_type(kind: str) -> pa.DataType | None:
    if decimal := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _ARROW.get(kind)
