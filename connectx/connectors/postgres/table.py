"""A table of PostgreSQL: what its columns take, and how Arrow columns are brought to that.

COPY in binary form needs exactly the column's type: what Arrow has a type for is cast to it here; everything else
(uuid, jsonb, enums, ...) travels as text through a temporary table and is cast by PostgreSQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from connectx.connectors.postgres.session import PostgresSession, identifier, literal
from connectx.errors import TableMismatchError

_ARROW: Final[Mapping[str, pa.DataType]] = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "name": pa.string(),
    "json": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}
_NUMERIC: Final = re.compile(r"numeric\((\d+),(\d+)\)")
_TEXT: Final = re.compile(r"(character varying|character|\"char\")(\(\d+\))?")
_CREATED: Final = (
    *((pa.types.is_boolean, "boolean"), (pa.types.is_int8, "smallint"), (pa.types.is_int16, "smallint")),
    *((pa.types.is_int32, "integer"), (pa.types.is_integer, "bigint"), (pa.types.is_float32, "real")),
    *((pa.types.is_floating, "double precision"), (pa.types.is_date, "date")),
    *((pa.types.is_string, "text"), (pa.types.is_large_string, "text")),
    *((pa.types.is_binary, "bytea"), (pa.types.is_large_binary, "bytea")),
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `type` is PostgreSQL's name; `arrow` is what COPY takes, None where only text will do."""

    name: str
    type: str
    arrow: pa.DataType | None
    has_default: bool

    @property
    def staged(self) -> pa.DataType:
        """Type in which values travel."""
        return pa.string() if self.arrow is None else self.arrow


@dataclass(frozen=True, slots=True)
class Table:
    """A table that exists, with the columns that may be written."""

    schema: str
    name: str
    columns: Mapping[str, Column]

    @property
    def quoted(self) -> str:
        """The table's name in SQL."""
        return f"{identifier(self.schema)}.{identifier(self.name)}"

    def value_type(self, without: Sequence[str] = ()) -> pa.DataType:
        """What a record's value should have, as an Arrow struct."""
        return pa.struct([(name, column.staged) for name, column in self.columns.items() if name not in without])

    def check(self, rows: pa.Table) -> None:
        """Raise TableMismatchError unless every column of `rows` is one of the table and of a type that fits."""
        missing = [name for name in rows.column_names if name not in self.columns]
        if missing:
            raise TableMismatchError(
                f"The table {self.quoted} has no column {', '.join(missing)}, which the records have.",
                next_step="Add the column, and restart the task.",
            )
        for field in rows.schema:
            column = self.columns[field.name]
            if _family(field.type) not in ("null", _family(column.staged), *_ALSO.get(column.type, ())):
                raise TableMismatchError(
                    f"Column {field.name} of {self.quoted} is of type {column.type}, the records have {field.type}.",
                    next_step="Correct the column's type or the converter, and restart the task.",
                )

    def fit(self, rows: pa.Table) -> pa.Table:
        """Rows in the types of the columns; a column that is null in every row is left to its default.

        Raises:
            pa.ArrowInvalid: a value does not fit.
        """
        kept = [
            name
            for name in rows.column_names
            if not (self.columns[name].has_default and rows[name].null_count == rows.num_rows)
        ]
        columns = {name: rows[name].cast(self.columns[name].staged) for name in kept}
        return pa.table(columns)


# Families that a column takes besides its own.
_ALSO: Final[Mapping[str, tuple[str, ...]]] = {
    "numeric": ("number",),
    "timestamp without time zone": ("date",),
    "timestamp with time zone": ("date",),
}


def split_name(pattern: str, topic: str, default_schema: str) -> tuple[str, str]:
    """(schema, table) of table.name.format; dots of the topic are part of the table's name."""
    schema, _, name = pattern.rpartition(".")
    return (schema or default_schema).replace("${topic}", topic), name.replace("${topic}", topic)


def describe(session: PostgresSession, schema: str, name: str) -> Table | None:
    """The table, or None when there is none."""
    rows = session.query(
        "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), a.atthasdef OR a.attidentity <> '' "
        "FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE n.nspname = {literal(schema)} AND c.relname = {literal(name)} AND c.relkind IN ('r', 'p', 'v', 'f') "
        "AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attidentity <> 'a' ORDER BY a.attnum"
    )
    columns = {column: Column(column, kind, arrow_type(kind), bool(default)) for column, kind, default in rows}
    return Table(schema, name, columns) if columns else None


def arrow_type(kind: str) -> pa.DataType | None:
    """What COPY takes for a type of PostgreSQL; None: text, to be cast."""
    if numeric := _NUMERIC.fullmatch(kind):
        precision, scale = int(numeric[1]), int(numeric[2])
        return pa.decimal128(precision, scale) if precision <= 38 else None
    return pa.string() if _TEXT.fullmatch(kind) else _ARROW.get(kind)


def create_statement(schema: str, name: str, rows: pa.Table, key: Sequence[str]) -> str:
    """CREATE TABLE for these columns (auto.create).

    Raises:
        TableMismatchError: a column has no type of its own in PostgreSQL.
    """
    lines = [
        f"{identifier(field.name)} {_created(field)}{' NOT NULL' if field.name in key else ''}" for field in rows.schema
    ]
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(map(identifier, key))})")
    return f"CREATE TABLE IF NOT EXISTS {identifier(schema)}.{identifier(name)} ({', '.join(lines)})"


def _created(field: pa.Field) -> str:
    kind = field.type
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp without time zone" if kind.tz is None else "timestamp with time zone"
    for fits, name in _CREATED:
        if fits(kind):
            return name
    raise TableMismatchError(
        f"auto.create has no column type for field {field.name} of type {kind}.",
        next_step="Create the table yourself, and restart the task.",
    )


def _family(kind: pa.DataType) -> str:
    if pa.types.is_null(kind):
        return "null"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "bytes"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return "date" if pa.types.is_date(kind) else str(kind)
