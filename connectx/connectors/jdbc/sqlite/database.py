"""SQLite, read by Python's sqlite3 module: types of columns, and errors.

SQLite's columns take any value: the declared type decides their Arrow type. Timestamps are texts in ISO 8601, or
milliseconds since 1970 as SQLite's JDBC driver writes them, or Julian days; they are compared in milliseconds.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from connectx.connectors.jdbc.criteria import TimestampSql
from connectx.connectors.jdbc.database import (
    Database,
    Field,
    not_a_time,
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

_UTC: Final = ZoneInfo("UTC")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS_1970: Final = 2_440_587.5
"""The Julian day of _EPOCH."""
_DAY_MS: Final = 86_400_000.0
_MILLIS: Final = "connectx_millis"
_BUSY_S: Final = 0.5
_PASSING: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR)
_ROW: Final = (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG)
_NUMERIC: Final = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


class SqliteDatabase(FileConnection, Database):
    """A database file, opened for reading."""

    label = "SQLite"
    clock = "SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"
    bulk_obstacle = "a database of SQLite is a file on the worker's machine, where one connection reads it"

    _connection: sqlite3.Connection | None = None
    _unreadable: str = ""

    @override
    def tables(self, kinds: Sequence[str]) -> list[TableName]:
        listed = ", ".join(f"'{kind.lower()}'" for kind in kinds if kind.upper() in ("TABLE", "VIEW"))
        rows = self.query(
            f"SELECT name FROM sqlite_master WHERE type IN ({listed}) AND name NOT LIKE 'sqlite!_%' "
            "ESCAPE '!' ORDER BY name"
        )
        return [TableName("", name) for (name,) in rows]

    def found_columns(self, table: TableName) -> list[Column]:
        """As in Database. The rowid's alias is counted up and never null."""
        return self._columns(table.name)

    @override
    def query_columns(self, query: str) -> list[Column]:
        self._execute("DROP VIEW IF EXISTS temp.connectx_query")
        self._execute(f"CREATE TEMP VIEW connectx_query AS {query}")
        return self._columns("connectx_query")

    @override
    def field(self, column: Column) -> Field:
        return Field(column.name, self.column(column.name), self._type(column.type), column.is_nullable)

    def timestamp(self, columns: Sequence[Column]) -> TimestampSql:
        """As in Database: milliseconds, whatever the column holds."""
        for column in columns:
            if self._type(column.type) not in (pa.timestamp("us"), pa.date32(), pa.int64(), None):
                raise not_a_time(column)
        millis = [self._millis(column.name) for column in columns]
        value = millis[0] if len(millis) == 1 else f"coalesce({', '.join(millis)})"
        return TimestampSql(value, f"{value} * 1000", lambda micros: str(round(micros / 1000)))

    @override
    def incrementing(self, column: Column) -> str:
        if self._type(column.type) not in (pa.int64(), pa.int32(), pa.int16(), pa.int8(), None):
            raise not_whole(column)
        return self.column(column.name)

    @override
    def read(self, sql: str, fields: Sequence[Field], rows: int) -> Iterator[pa.Table]:
        cursor = self._execute(sql)
        while found := self._call(lambda: cursor.fetchmany(rows)):
            columns = zip(zip(*found, strict=True), fields, strict=True)
            yield rows_of(fields, [_array(values, field, self.settings.zone) for values, field in columns])

    def _columns(self, name: str) -> list[Column]:
        rows = self.query(
            f'SELECT name, type, "notnull", pk FROM pragma_table_xinfo({literal(name)}) WHERE hidden <> 1'
        )
        is_alias = sum(pk > 0 for *_, pk in rows) == 1
        return [
            Column(column, kind, not (notnull or rowid), rowid)
            for column, kind, notnull, pk in rows
            for rowid in [bool(is_alias and pk and kind.upper() == "INTEGER")]
        ]

    def _type(self, declared: str) -> pa.DataType | None:
        return declared_type(declared, self.settings.numeric_mapping)

    def _live(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._call(
                lambda: sqlite3.connect(
                    f"file:{quote(self.settings.path)}?mode=ro",
                    uri=True,
                    timeout=_BUSY_S,
                    isolation_level=None,
                    check_same_thread=False,
                )
            )
            self._connection.create_function(_MILLIS, 2, self._millis_of, deterministic=True)
        return self._connection

    def _millis(self, column: str) -> str:
        """A column in milliseconds since 1970. SQLite itself reads texts in UTC that begin with a date."""
        name = self.column(column)
        read = f"{_MILLIS}({name}, {literal(column)})"
        days = f"CAST(round(({{}} - {_DAYS_1970}) * {_DAY_MS}) AS INTEGER)"
        if self.settings.zone.key == "UTC":
            by_sqlite = days.format(f"julianday({name})")
            read = f"coalesce(CASE WHEN {name} GLOB '[0-9][0-9][0-9][0-9]-[0-9]*' THEN {by_sqlite} END, {read})"
        return (
            f"CASE typeof({name}) WHEN 'null' THEN NULL WHEN 'integer' THEN {name} "
            f"WHEN 'real' THEN {days.format(name)} ELSE {read} END"
        )

    def _millis_of(self, value: Any, column: str) -> int:
        """A function of SQL: without it, rows with texts that SQLite cannot read would be left out."""
        try:
            return round((_moment(value, self.settings.zone) - _EPOCH) / timedelta(milliseconds=1))
        except (TypeError, ValueError, OverflowError):
            self._unreadable = f"Column {column} has the value {value!r}, which is not a timestamp in ISO 8601."
            raise

    def _execute(self, sql: str) -> sqlite3.Cursor:
        connection = self._live()
        cursor: sqlite3.Cursor = self._call(lambda: connection.execute(sql))
        return cursor

    @override
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self._execute(sql)
        rows: list[tuple[Any, ...]] = self._call(cursor.fetchall)
        return rows

    def _call(self, function: Any) -> Any:
        try:
            return function()
        except sqlite3.Error as error:
            problem, self._unreadable = self._unreadable, ""
            if problem:
                raise TableMismatchError(
                    problem, next_step="Correct the rows with this value, and restart the task."
                ) from error
            raise unreadable(self.label, sqlite_error(error, self.settings.path)) from error


def declared_type(declared: str, numeric_mapping: str) -> pa.DataType | None:
    """SQLite's rules of affinity (datatype3.html), and Boolean, dates and times; None: as values are."""
    kind = declared.upper()
    if "BOOL" in kind:
        return pa.bool_()
    if "TIME" in kind and kind.partition("(")[0] != "TIME":
        return pa.timestamp("us")
    if kind == "DATE":
        return pa.date32()
    if "INT" in kind:
        return pa.int64()
    if any(part in kind for part in ("CHAR", "CLOB", "TEXT", "TIME", "JSON", "UUID")):
        return pa.string()
    if "BLOB" in kind:
        return pa.binary()
    if (found := _NUMERIC.match(kind)) and numeric_mapping != "none":
        mapped = numeric_type(numeric_mapping, int(found[1]), int(found[2] or 0))
        return getattr(pa, mapped)() if mapped.startswith("int") else pa.float64()
    if any(part in kind for part in ("REAL", "FLOA", "DOUB", "NUMERIC", "DECIMAL")):
        return pa.float64()
    return None


def _array(values: tuple[Any, ...], field: Field, zone: ZoneInfo) -> pa.Array:
    """Values of one column as Arrow.

    Raises:
        TableMismatchError: a value that its declared type does not allow.
    """
    kind = field.type
    try:
        if kind is None:
            found = pa.array(values)
            return found.cast(pa.string()) if pa.types.is_null(found.type) else found
        if pa.types.is_timestamp(kind):
            return _times(values, kind, zone)
        if pa.types.is_date(kind):
            return _times(values, kind, _UTC)
        if pa.types.is_boolean(kind):
            return pa.array([None if value is None else bool(value) for value in values], kind)
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, OverflowError) as error:
        raise TableMismatchError(
            f"Column {field.name} has a value that its declared type does not allow: {error}.",
            next_step="Correct the value, or read the column by `query` with a CAST, and restart the task.",
        ) from error


def _times(values: tuple[Any, ...], kind: pa.DataType, zone: ZoneInfo) -> pa.Array:
    """Points in time, with a time zone unless `zone`, that of texts without one, is UTC."""
    found = _read_times(values, kind, zone)
    return found if zone.key == "UTC" else found.cast(pa.timestamp("us", "UTC"))


def _read_times(values: tuple[Any, ...], kind: pa.DataType, zone: ZoneInfo) -> pa.Array:
    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {int}:
        return pa.array(values, pa.int64()).cast(pa.timestamp("ms")).cast(kind, safe=False)
    if kinds <= {str}:
        try:
            found = pa.array(values, pa.string()).cast(kind)
        except pa.ArrowInvalid:
            pass  # texts with a time zone, or dates with a time
        else:
            if zone.key == "UTC":
                return found
            return pc.assume_timezone(found, zone.key, ambiguous="earliest", nonexistent="earliest")
    made = [None if value is None else _moment(value, zone).replace(tzinfo=None) for value in values]
    return pa.array(made, pa.timestamp("us")).cast(kind, safe=False)


def _moment(value: Any, zone: ZoneInfo) -> datetime:
    """A point in time in UTC: milliseconds since 1970, a Julian day, or a text, by default in `zone`."""
    if isinstance(value, int | float):
        return _EPOCH + timedelta(milliseconds=value if isinstance(value, int) else (value - _DAYS_1970) * _DAY_MS)
    found = datetime.fromisoformat(value)
    return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)


def sqlite_error(error: sqlite3.Error, path: str) -> ConnectxError:
    """What an error of SQLite means."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    text = str(error)
    if code & 0xFF in _PASSING or "Cannot operate on a closed database" in text:
        return DatabaseUnavailableError(
            f"SQLite at {path} cannot do it now: {text}.", next_step="The task tries again."
        )
    if code & 0xFF in _ROW:
        return RowRefusedError(text)
    if "no such table" in text:
        return TableMissingError(f"SQLite at {path}: {text}.", next_step="Create it, and restart the task.")
    if "no such column" in text or "has no column" in text or "ON CONFLICT clause does not match" in text:
        return TableMismatchError(f"SQLite at {path}: {text}.", next_step="Correct the column, and restart the task.")
    return DatabaseError(
        f"SQLite at {path} refuses it: {text}.", next_step="Correct connection.url or the query, and restart the task."
    )
