"""DuckDB read as Arrow; the file is released while nothing is read, since DuckDB lets one process write at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from typing_extensions import override

from connectx.connectors.jdbc.criteria import TimestampSql
from connectx.connectors.jdbc.database import (
    Database,
    Field,
    not_whole,
    numeric_type,
    rows_of,
    unreadable,
)
from connectx.connectors.jdbc.file_connection import FileConnection
from connectx.connectors.jdbc.tables import Column, TableName
from connectx.connectors.shared.sql import literal
from connectx.errors.base import ConnectxError
from connectx.errors.databases import (
    DatabaseError,
    DatabaseUnavailableError,
    RowRefusedError,
    TableMismatchError,
    TableMissingError,
)

_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_WHOLE: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT")
_AS: Final = {
    "UTINYINT": "SMALLINT",
    "USMALLINT": "INTEGER",
    "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(20,0)",
    "HUGEINT": "DECIMAL(38,0)",
    "UHUGEINT": "VARCHAR",
    "UUID": "VARCHAR",
    "TIME": "VARCHAR",
    "BIT": "VARCHAR",
    "INTERVAL": "VARCHAR",
    "JSON": "VARCHAR",
    "TIME WITH TIME ZONE": "VARCHAR",
    "BIGNUM": "VARCHAR",
    "TIMESTAMP_S": "TIMESTAMP",
    "TIMESTAMP_MS": "TIMESTAMP",
    "TIMESTAMP_NS": "TIMESTAMP",
}
_SQL_TYPES: Final = {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "double": "DOUBLE"}


class DuckDatabase(FileConnection, Database):
    """A database file, opened for reading where no other part of the process has it open for writing."""

    label = "DuckDB"
    clock = "SELECT epoch_us(now())"
    bulk_obstacle = "a database of DuckDB is a file on the worker's machine, which one process has open at a time"

    @override
    def tables(self, kinds: Sequence[str]) -> list[TableName]:
        listed = {"TABLE": "'BASE TABLE'", "VIEW": "'VIEW'"}
        wanted = ", ".join(listed[kind.upper()] for kind in kinds if kind.upper() in listed)
        rows = self.query(
            "SELECT table_schema, table_name, table_catalog FROM information_schema.tables "
            f"WHERE table_type IN ({wanted}) AND table_catalog = current_database() ORDER BY 1, 2"
        )
        return [TableName(schema, name, catalog) for schema, name, catalog in rows]

    @override
    def found_columns(self, table: TableName) -> list[Column]:
        rows = self.query(
            "SELECT column_name, data_type, is_nullable, coalesce(column_default, '') LIKE 'nextval(%' "
            "FROM duckdb_columns() WHERE database_name = current_database() "
            f"AND schema_name = {literal(table.schema)} AND table_name = {literal(table.name)} ORDER BY column_index"
        )
        return [Column(*row) for row in rows]

    @override
    def query_columns(self, query: str) -> list[Column]:
        return [Column(row[0], row[1]) for row in self.query(f"DESCRIBE {query}")]

    def field(self, column: Column) -> Field:
        """As in Database; DuckDB casts what Connect has no type for."""
        name, kind = self.column(column.name), column.type
        wanted = "VARCHAR" if kind.startswith(("ENUM", "UNION")) else _AS.get(kind)
        if decimal := _DECIMAL.fullmatch(kind):
            mapped = numeric_type(self.settings.numeric_mapping, int(decimal[1]), int(decimal[2]))
            wanted = _SQL_TYPES.get(mapped)
        if kind == "TIMESTAMP" and str(self.settings.zone) != "UTC":
            return Field(column.name, self._aware(name), None, column.is_nullable)
        return Field(column.name, f"CAST({name} AS {wanted})" if wanted else name, None, column.is_nullable)

    @override
    def timestamp(self, columns: Sequence[Column]) -> TimestampSql:
        value = self.first_time(columns)
        if any(column.type == "TIMESTAMP WITH TIME ZONE" for column in columns):
            return TimestampSql(value, f"epoch_us({value})", lambda micros: f"TIMESTAMPTZ '{self.utc_text(micros)}'")
        plain = f"CAST({value} AS TIMESTAMP)"
        micros = f"epoch_us({plain if str(self.settings.zone) == 'UTC' else self._aware(plain)})"
        return TimestampSql(value, micros, lambda micros: f"TIMESTAMP '{self.local_text(micros)}'")

    @override
    def incrementing(self, column: Column) -> str:
        decimal = _DECIMAL.fullmatch(column.type)
        if column.type not in _WHOLE and not (decimal and decimal[2] == "0"):
            raise not_whole(column)
        return f"CAST({self.column(column.name)} AS HUGEINT)" if decimal else self.column(column.name)

    @override
    def read(self, sql: str, fields: Sequence[Field], rows: int) -> Iterator[pa.Table]:
        reader = self._call(lambda: self._live().sql(sql).to_arrow_reader(rows))
        while (batch := self._call(lambda: next(reader, None))) is not None:
            yield rows_of(fields, [_plain(column) for column in batch.columns])

    def rest(self) -> None:
        """Close the file, so that another process can write to it."""
        self.close()

    def _aware(self, value: str) -> str:
        return f"({value} AT TIME ZONE {literal(str(self.settings.zone))})"

    @override
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._call(lambda: self._live().execute(sql).fetchall())
        return rows

    def _live(self) -> Any:
        if self._connection is None:
            self._connection = connect(self.settings.path, read_only=True)
            self._connection.execute("SET TimeZone = 'UTC'")
        return self._connection

    def _call(self, function: Any) -> Any:
        import duckdb

        try:
            return function()
        except duckdb.Error as error:
            raise unreadable(self.label, duckdb_error(error, self.settings.path)) from error


def connect(path: str, *, read_only: bool) -> Any:
    """A connection; one that may write where the process has the file open for writing already."""
    import duckdb

    try:
        return duckdb.connect(path, read_only=read_only)
    except duckdb.ConnectionException:
        return duckdb.connect(path)


def duckdb_error(error: Exception, path: str) -> ConnectxError:
    """What an error of DuckDB means."""
    import duckdb

    text = str(error).splitlines()[0]
    if isinstance(error, duckdb.IOException) and "lock" in text:
        return DatabaseUnavailableError(
            f"Another process has the DuckDB file {path} open: {text}", next_step="The task tries again."
        )
    if "file handle conflict" in text:
        return DatabaseUnavailableError(
            f"Another thread of this process opens or closes the DuckDB file {path}.", next_step="The task tries again."
        )
    if isinstance(error, duckdb.TransactionException):
        return DatabaseUnavailableError(f"DuckDB at {path}: {text}", next_step="The task tries again.")
    if isinstance(error, (duckdb.ConstraintException, duckdb.ConversionException, duckdb.OutOfRangeException)):
        return RowRefusedError(text)
    if isinstance(error, duckdb.CatalogException):
        return TableMissingError(f"DuckDB at {path}: {text}", next_step="Create it, and restart the task.")
    if isinstance(error, duckdb.BinderException):
        return TableMismatchError(f"DuckDB at {path}: {text}", next_step="Correct the column, and restart the task.")
    return DatabaseError(
        f"DuckDB at {path} refuses it: {text}", next_step="Correct connection.url or the query, and restart the task."
    )


def _plain(column: pa.Array) -> pa.Array:
    """Arrow's plain types of texts and bytes."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return column.dictionary_decode()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return column.cast(pa.binary())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return column.cast(pa.timestamp("us", "UTC"))
    return column
