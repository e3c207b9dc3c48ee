"""SQLite as a target. A transaction locks the whole file for writing; readers of the file are not disturbed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from typing_extensions import override

from connectx.connectors.jdbc.file_connection import FileConnection
from connectx.connectors.jdbc.sqlite.database import declared_type, sqlite_error
from connectx.connectors.jdbc.target import Target, TargetColumn, TargetTable
from connectx.errors.databases import RowRefusedError

_Result = TypeVar("_Result")
_CREATED = (
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_integer, "INTEGER"),
    (pa.types.is_floating, "REAL"),
    (pa.types.is_string, "TEXT"),
    (pa.types.is_large_string, "TEXT"),
    (pa.types.is_binary, "BLOB"),
    (pa.types.is_large_binary, "BLOB"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_timestamp, "TIMESTAMP"),
    (pa.types.is_time, "TIME"),
    (pa.types.is_decimal, "NUMERIC"),
)


class SqliteTarget(FileConnection, Target):
    """A database file, created when it is missing."""

    label = "SQLite"

    _connection: sqlite3.Connection | None = None

    @override
    def execute(self, sql: str) -> None:
        connection = self._begun()
        self._call(lambda: connection.execute(sql))

    @override
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        connection = self._begun()
        rows: list[tuple[Any, ...]] = self._call(lambda: connection.execute(sql).fetchall())
        return rows

    @override
    def commit(self) -> None:
        self.execute("COMMIT")

    @override
    def rollback(self) -> None:
        if self._connection is None or not self._connection.in_transaction:
            return
        try:
            self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()

    @override
    def cancel(self) -> None:
        if (connection := self._connection) is not None:
            connection.interrupt()

    def default_schema(self) -> str:
        """As in Target: SQLite calls a file's own schema main."""
        return ""

    @override
    def describe(self, schema: str, name: str) -> TargetTable | None:
        place = ", ".join(self.literal(part) for part in (name, schema) if part)
        rows = self.query(
            f"SELECT name, type, dflt_value IS NOT NULL, pk FROM pragma_table_xinfo({place}) WHERE hidden = 0"
        )
        has_alias = sum(pk > 0 for *_, pk in rows) == 1
        columns = {
            column: TargetColumn(
                column,
                kind,
                _arrow_type(kind),
                has_default=bool(default) or (has_alias and pk > 0 and kind.upper() == "INTEGER"),
                in_key=pk > 0,
                also=("number",) if "BOOL" in kind.upper() else ("date",) if "TIME" in kind.upper() else (),
            )
            for column, kind, default, pk in rows
        }
        return TargetTable(schema, name, self.place(schema, name), columns) if columns else None

    @override
    def type_name(self, kind: pa.DataType, *, in_key: bool) -> str | None:
        return next((name for fits, name in _CREATED if fits(kind)), None)

    @override
    def insert(self, table: TargetTable, rows: pa.Table) -> None:
        for column in table.columns.values():  # SQLite itself takes null in a primary key
            name = column.name
            if column.in_key and not column.has_default and (name not in rows.column_names or rows[name].null_count):
                raise RowRefusedError(f"column {name} of the primary key is null")
        self._many(self._inserting(table, rows), rows)

    @override
    def upsert(self, table: TargetTable, rows: pa.Table, key: Sequence[str], *, in_part: bool) -> None:
        self._many(f"{self._inserting(table, rows)} {self.on_conflict(rows.column_names, key)}", rows)

    @override
    def update(self, table: TargetTable, rows: pa.Table, key: Sequence[str]) -> None:
        others = [name for name in rows.column_names if name not in key]
        changes = ", ".join(f"{self.quoted(name)} = ?" for name in others)
        self._many(f"UPDATE {table.quoted} SET {changes} WHERE {self._same(key)}", rows.select([*others, *key]))

    @override
    def held(self, table: TargetTable, keys: pa.Table) -> int:
        connection, sql = self._begun(), f"SELECT 1 FROM {table.quoted} WHERE {self._same(keys.column_names)}"
        values = list(zip(*(_bound(column).to_pylist() for column in keys.columns), strict=True))
        return self._call(lambda: sum(connection.execute(sql, key).fetchone() is not None for key in values))

    @override
    def delete(self, table: TargetTable, keys: pa.Table) -> None:
        self._many(f"DELETE FROM {table.quoted} WHERE {self._same(keys.column_names)}", keys)

    def _inserting(self, table: TargetTable, rows: pa.Table) -> str:
        listed = ", ".join(map(self.quoted, rows.column_names))
        return f"INSERT INTO {table.quoted} ({listed}) VALUES ({', '.join('?' * rows.num_columns)})"

    def _same(self, key: Sequence[str]) -> str:
        return " AND ".join(f"{self.quoted(name)} = ?" for name in key)

    def _many(self, sql: str, rows: pa.Table) -> None:
        connection = self._begun()
        values = list(zip(*(_bound(column).to_pylist() for column in rows.columns), strict=True))
        self._call(lambda: connection.executemany(sql, values))

    def _begun(self) -> sqlite3.Connection:
        connection = self._connection
        if connection is None:
            path, wait_s = self.settings.database.path, self.settings.lock_timeout_ms / 1000
            connection = self._connection = self._call(
                lambda: sqlite3.connect(path, timeout=wait_s, isolation_level=None, check_same_thread=False)
            )
        if not connection.in_transaction:
            begun = connection
            self._call(lambda: begun.execute("BEGIN IMMEDIATE"))
        return connection

    def _call(self, function: Callable[[], _Result]) -> _Result:
        try:
            return function()
        except sqlite3.Error as error:
            raise sqlite_error(error, self.settings.database.path) from error


def _arrow_type(declared: str) -> pa.DataType | None:
    """As a source reads it, but that decimals stay as they are."""
    found = declared_type(declared, "none")
    is_exact = any(part in declared.upper() for part in ("NUMERIC", "DECIMAL"))
    return None if is_exact else found


def _bound(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times and decimals as texts, in the form that SQL knows; booleans as numbers."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    return column
