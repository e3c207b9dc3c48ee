"""MySQL and MariaDB, read by PyMySQL as text that Arrow casts in whole columns."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from connectx.connectors.jdbc.criteria import INCREMENTING, TIMESTAMP, TimestampSql
from connectx.connectors.jdbc.database import (
    Database,
    DatabaseSettings,
    Estimate,
    Field,
    in_utc,
    not_whole,
    numeric_type,
    rows_of,
    unreadable,
)
from connectx.connectors.jdbc.mysql.session import MySqlSession, QueryColumn, identifier, literal
from connectx.connectors.jdbc.tables import Column, TableName
from connectx.errors.databases import RowRefusedError, TableMismatchError

_KINDS: Final = {"TABLE": "'BASE TABLE', 'SYSTEM VERSIONED'", "VIEW": "'VIEW'"}
_WHOLE: Final = {
    "tinyint": (pa.int8(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "mediumint": (pa.int32(), pa.int32()),
    "bigint": (pa.int64(), pa.decimal128(20, 0)),
    "year": (pa.int32(), pa.int32()),
}
"""Arrow types of whole numbers, with and without a sign."""
_OTHER: Final = {
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
}
_BINARY: Final = (
    "binary",
    "varbinary",
    "bit",
    "tinyblob",
    "blob",
    "mediumblob",
    "longblob",
    "vector",
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
    "geomcollection",
)
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_CODES: Final = {
    1: "tinyint",
    2: "smallint",
    3: "bigint",
    4: "float",
    5: "double",
    7: "timestamp",
    8: "bigint",
    9: "mediumint",
    10: "date",
    12: "datetime",
    13: "year",
}
"""Types by the codes that the protocol gives to the columns of a query."""
_SIGNED_CODES: Final = (1, 2, 8, 9)
"""Whole numbers that have another type without a sign; the one of code 3 is bigint with and without."""
_NEWDECIMAL: Final = 246
_ZERO_DATE: Final = "0000-00-00"
_VALUE_BYTES: Final = 8
"""Least mean size of a value: after a load the statistics of InnoDB have the new rows before their size."""
_SAMPLE: Final = 100
"""Rows of a query whose size is measured."""
_EPOCH: Final = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP '1970-01-01 00:00:00', {})"


class MySqlDatabase(Database):
    """A session that only reads. TIMESTAMP columns are points in time, DATETIME is in db.timezone."""

    label = "MySQL"
    clock = f"SELECT {_EPOCH.format('UTC_TIMESTAMP(6)')}"

    def __init__(self, settings: DatabaseSettings) -> None:
        super().__init__(settings)
        self._session = MySqlSession(settings, {"tx_read_only": "1", "transaction_read_only": "1"}, texts=True)
        self._stamps_are_local = True

    def tables(self, kinds: Sequence[str]) -> list[TableName]:
        """As in Database: those of the database that connection.url names."""
        listed = ", ".join(_KINDS[kind.upper()] for kind in kinds if kind.upper() in _KINDS)
        rows = self.query(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema = database() "
            f"AND table_type IN ({listed}) ORDER BY 1, 2"
        )
        return [TableName(schema, name) for schema, name in rows]

    @override
    def found_columns(self, table: TableName) -> list[Column]:
        rows = self.query(
            "SELECT column_name, column_type, is_nullable = 'YES', extra LIKE '%auto_increment%', column_key = 'PRI' "
            f"FROM information_schema.columns WHERE table_schema = {literal(table.schema)} "
            f"AND table_name = {literal(table.name)} ORDER BY ordinal_position"
        )
        return [Column(name, kind, *(flag == "1" for flag in flags)) for name, kind, *flags in rows]

    @override
    def query_columns(self, query: str) -> list[Column]:
        return [Column(column.name, _type_name(column)) for column in self._session.described(query)]

    @override
    def field(self, column: Column) -> Field:
        kind = None if column.type == "unknown" else arrow_type(column.type)
        if decimal := _DECIMAL.match(column.type):
            mapped = numeric_type(self.settings.numeric_mapping, int(decimal[1]), int(decimal[2]))
            kind = {"decimal": kind, "double": pa.float64()}.get(mapped) or getattr(pa, mapped)()
        name, nullable = self.column(column.name), column.is_nullable
        if kind == pa.float32():  # the server writes only 6 digits of a FLOAT
            return Field(column.name, f"({name} + 0e0)", kind, nullable)
        is_time = kind is not None and pa.types.is_temporal(kind)
        return Field(column.name, name, kind, nullable or (is_time and self._session.nulls_zero_dates))

    @override
    def timestamp(self, columns: Sequence[Column]) -> TimestampSql:
        value = self.first_time(columns)
        self._stamps_are_local = not any(column.type.startswith("timestamp") for column in columns)
        text = self.local_text if self._stamps_are_local else lambda micros: self.utc_text(micros).removesuffix("+00")
        return TimestampSql(value, _EPOCH.format(value), lambda micros: f"TIMESTAMP '{text(micros)}'")

    @override
    def incrementing(self, column: Column) -> str:
        decimal = _DECIMAL.match(column.type)
        if _base(column.type) not in _WHOLE and not (decimal and decimal[2] == "0"):
            raise not_whole(column)
        return self.column(column.name)

    @override
    def read(self, sql: str, fields: Sequence[Field], rows: int) -> Iterator[pa.Table]:
        found = self._session.read(sql, rows)
        while (batch := self._next(found)) is not None:
            arrays = [_array(*self._dated(*column, field), field) for column, field in zip(batch, fields, strict=True)]
            yield in_utc(rows_of(fields, arrays), str(self.settings.zone), stamps=self._stamps_are_local)

    def estimate(self, sql: str, table: TableName | None, columns: int) -> Estimate:
        """As in Database; of a query the first rows are read for their size."""
        plan = self._session.explained(sql)
        if table is None:
            joined = [int(step["rows"] or 0) for step in plan if step["id"] == plan[0]["id"]]
            rows = math.prod(joined)
            size = self._row_bytes(sql) if rows > _SAMPLE else 0
            return Estimate(rows, max(_VALUE_BYTES * columns, size))
        found = self.query(
            f"SELECT avg_row_length FROM information_schema.tables WHERE table_schema = {literal(table.schema)} "
            f"AND table_name = {literal(table.name)}"
        )
        sizes = [int(size) for (size,) in found if size is not None]
        return Estimate(int(plan[0]["rows"] or 0), max(_VALUE_BYTES * columns, *sizes))

    @override
    def close(self) -> None:
        self._session.close()

    @override
    def quote(self, name: str) -> str:
        return identifier(name)

    @override
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return self._session.query(sql)

    def _dated(self, values: pa.Array, is_text: bool, field: Field) -> tuple[pa.Array, bool]:
        """Values without zero dates, if the URL asks for it."""
        if field.type is None or not pa.types.is_temporal(field.type) or not self._session.nulls_zero_dates:
            return values, is_text
        is_zero = pc.starts_with(values.cast(pa.string()), _ZERO_DATE)
        return pc.if_else(is_zero, pa.scalar(None, values.type), values), is_text

    def _row_bytes(self, sql: str) -> int:
        size, rows = 0, 0
        for columns in self._session.read(f"{sql} LIMIT {_SAMPLE}", _SAMPLE):
            size += sum(column.nbytes for column, _ in columns)
            rows += len(columns[0][0])
        return size // max(1, rows)

    def _next(self, found: Iterator[list[tuple[pa.Array, bool]]]) -> list[tuple[pa.Array, bool]] | None:
        try:
            return next(found, None)
        except RowRefusedError as error:
            raise unreadable(self.label, error) from error


def arrow_type(kind: str) -> pa.DataType:
    """Arrow type for a column type of MySQL; what Arrow has no type for is text."""
    if decimal := _DECIMAL.match(kind):
        precision, scale = int(decimal[1]), int(decimal[2])
        return pa.decimal128(precision, scale) if precision <= 38 else pa.string()
    base = _base(kind)
    if base in _WHOLE:
        return _WHOLE[base]["unsigned" in kind]
    return pa.binary() if base in _BINARY else _OTHER.get(base, pa.string())


def _base(kind: str) -> str:
    return kind.partition("(")[0].partition(" ")[0]


def _type_name(column: QueryColumn) -> str:
    if column.code == _NEWDECIMAL:  # its text may have a sign and a point
        precision = column.length - (column.scale > 0) - (not column.is_unsigned)
        return f"decimal({min(precision, 65)},{column.scale})"
    name = _CODES.get(column.code, "unknown")
    return f"{name} unsigned" if column.is_unsigned and column.code in _SIGNED_CODES else name


def _array(values: pa.Array, is_text: bool, field: Field) -> pa.Array:
    """Values, which are binary, as the type of a column.

    Raises:
        TableMismatchError: a value that Arrow has no value for, as 0000-00-00.
    """
    if field.name in (TIMESTAMP, INCREMENTING):
        return values.cast(pa.string()).cast(pa.int64() if field.name == TIMESTAMP else pa.decimal128(38, 0))
    try:
        kind = field.type if field.type is not None else pa.string() if is_text else pa.binary()
        if pa.types.is_binary(kind):
            return values
        texts = values.cast(pa.string())
        return (texts.cast(pa.timestamp("us")) if pa.types.is_timestamp(kind) else texts).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TableMismatchError(
            f"Column {field.name} has a value that cannot be read: {error}.",
            next_step="Correct the value, or read the column by `query` with a CAST, and restart the task.",
        ) from error
