"""PostgreSQL read by ADBC: what Arrow has no type for travels as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from connectx.connectors.jdbc.criteria import TimestampSql
from connectx.connectors.jdbc.database import (
    Database,
    DatabaseSettings,
    Estimate,
    Field,
    not_whole,
    numeric_type,
    rows_of,
    unreadable,
)
from connectx.connectors.jdbc.postgres.types import arrow_type
from connectx.connectors.jdbc.tables import Column, TableName
from connectx.connectors.shared.postgres import INFINITE_US, PostgresSession, libpq_uri, literal
from connectx.errors.databases import RowRefusedError, TableMismatchError

_KINDS: Final = {"TABLE": "'r', 'p', 'f'", "VIEW": "'v'", "MATERIALIZED VIEW": "'m'"}
_PRECISION: Final = re.compile(r"^(timestamp)\(\d\)")  # timestamp(3) with time zone is a timestamp, too
_NUMERIC: Final = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?")
_SQL_TYPES: Final = {"int8": "smallint", "int16": "smallint", "int32": "integer", "int64": "bigint"}
_FIRST_US: Final = -210_866_803_200_000_000
"""Microseconds since 1970 of the first timestamp that PostgreSQL has, in 4713 BC."""
_LAST_DAY: Final = "294247-01-10"
_SINCE_2000_US: Final = 946_684_800_000_000
_INFINITE: Final = {
    _SINCE_2000_US - (1 << 63) - 1: INFINITE_US["infinity"],
    _SINCE_2000_US - (1 << 63): INFINITE_US["-infinity"],
}
"""Infinite timestamps: the driver adds 30 years to the server's largest and smallest number, and wraps."""
_ONE_MOMENT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_NAMES: Final = (
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_float32, "real"),
    (pa.types.is_floating, "double precision"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_date, "date"),
)


class PostgresDatabase(Database):
    """A session that only reads."""

    label = "PostgreSQL"
    clock = "SELECT round(extract(epoch from clock_timestamp()) * 1000000)::bigint"

    def __init__(self, settings: DatabaseSettings) -> None:
        super().__init__(settings)
        self._is_held = False
        self._session = PostgresSession(
            libpq_uri(settings.uri, settings.user, settings.password),
            {"application_name": settings.name[:63], "default_transaction_read_only": "on"},
        )

    @override
    def tables(self, kinds: Sequence[str]) -> list[TableName]:
        listed = ", ".join(_KINDS[kind.upper()] for kind in kinds if kind.upper() in _KINDS)
        rows = self.query(
            "SELECT n.nspname::text, c.relname::text, current_database()::text FROM pg_class c "
            f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ({listed}) AND NOT c.relispartition "
            "AND n.nspname NOT LIKE 'pg!_%' ESCAPE '!' AND n.nspname <> 'information_schema' ORDER BY 1, 2"
        )
        return [TableName(schema, name, catalog) for schema, name, catalog in rows]

    @override
    def found_columns(self, table: TableName) -> list[Column]:
        rows = self.query(
            "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity <> '' OR "
            "coalesce(pg_get_expr(d.adbin, d.adrelid), '') LIKE 'nextval(%', EXISTS (SELECT FROM pg_index i "
            "WHERE i.indrelid = c.oid AND i.indisprimary AND a.attnum = ANY(i.indkey)) "
            "AND (c.relkind = 'p' OR NOT c.relhassubclass) FROM pg_attribute a "  # children may have the same keys
            "JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
            "LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
            f"WHERE n.nspname = {literal(table.schema)} AND c.relname = {literal(table.name)} "
            "AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
        )
        return [
            Column(name, _PRECISION.sub(r"\1", kind), not notnull, bool(auto), key)
            for name, kind, notnull, auto, key in rows
        ]

    def query_columns(self, query: str) -> list[Column]:
        """As in Database; types are those that the driver reports."""
        found = self._session.schema(query)
        self._end()
        return [Column(field.name, _kind_of(field)) for field in found]

    @override
    def field(self, column: Column) -> Field:
        name, kind = self.column(column.name), column.type
        if numeric := _NUMERIC.fullmatch(kind):
            return self._numeric(column, numeric)
        arrow = arrow_type(kind)
        if arrow is None or kind in ("json", "name"):
            return Field(column.name, f"{name}::text", pa.string(), column.is_nullable)
        if kind == "timestamp without time zone" and str(self.settings.zone) != "UTC":
            aware = f"{name} AT TIME ZONE {literal(str(self.settings.zone))}"
            return Field(column.name, aware, pa.timestamp("us", "UTC"), column.is_nullable)
        return Field(column.name, name, arrow, column.is_nullable)

    @override
    def timestamp(self, columns: Sequence[Column]) -> TimestampSql:
        value = self.first_time(columns)
        if any(column.type == "timestamp with time zone" for column in columns):
            epoch = f"extract(epoch from {value}::timestamptz)"
            return TimestampSql(value, _micros(epoch), lambda micros: f"TIMESTAMPTZ '{self.utc_text(micros)}'")
        zone = literal(str(self.settings.zone))
        epoch = f"extract(epoch from {value}::timestamp AT TIME ZONE {zone})"
        return TimestampSql(value, _micros(epoch), lambda micros: f"TIMESTAMP '{self.local_text(micros)}'")

    @override
    def incrementing(self, column: Column) -> str:
        numeric = _NUMERIC.fullmatch(column.type)
        if column.type not in ("smallint", "integer", "bigint") and not (numeric and numeric[2] in (None, "0")):
            raise not_whole(column)
        return self.column(column.name) + ("::bigint" if numeric else "")

    def read(self, sql: str, fields: Sequence[Field], rows: int) -> Iterator[pa.Table]:
        """As in Database, by COPY."""
        for table in self._tables(sql):
            yield rows_of(fields, [_array(*both) for both in zip(table.columns, fields, strict=True)])

    def estimate(self, sql: str, table: TableName | None, columns: int) -> Estimate:
        """As in Database, by the planner."""
        ((text,),) = self._session.explain(sql)
        self._end()
        plan = json.loads(text)[0]["Plan"]
        return Estimate(int(plan["Plan Rows"]), max(1, int(plan["Plan Width"])))

    def hold(self) -> str:
        """As in Database, by an exported snapshot."""
        self._session.rollback()
        self._session.execute(_ONE_MOMENT)
        ((moment,),) = self._session.query("SELECT pg_export_snapshot()")
        self._is_held = True
        return str(moment)

    @override
    def release(self) -> None:
        self._is_held = False
        self._session.rollback()

    @override
    def join(self, moment: str) -> None:
        self._session.execute(_ONE_MOMENT)
        self._session.execute(f"SET TRANSACTION SNAPSHOT {literal(moment)}")
        self._is_held = True

    @override
    def close(self) -> None:
        self._is_held = False
        self._session.close()

    def _numeric(self, column: Column, numeric: re.Match[str]) -> Field:
        name, nullable = self.column(column.name), column.is_nullable
        mapping = self.settings.numeric_mapping
        if numeric[1] is None:
            if mapping == "best_fit_eager_double":
                return Field(column.name, f"{name}::double precision", pa.float64(), nullable)
            return Field(column.name, f"{name}::text", pa.string(), nullable)
        precision, scale = int(numeric[1]), int(numeric[2])
        mapped = numeric_type(mapping, precision, scale)
        if mapped == "double":
            return Field(column.name, f"{name}::double precision", pa.float64(), nullable)
        if mapped != "decimal":
            return Field(column.name, f"{name}::{_SQL_TYPES[mapped]}", getattr(pa, mapped)(), nullable)
        kind = pa.decimal128(precision, scale) if precision <= 38 and scale >= 0 else pa.string()
        return Field(column.name, f"{name}::text", kind, nullable)

    @override
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        try:
            rows = self._session.query(sql)
            self._end()
        except RowRefusedError as error:
            raise unreadable(self.label, error) from error
        return rows

    def _tables(self, sql: str) -> Iterator[pa.Table]:
        try:
            yield from self._session.read(sql)
        except RowRefusedError as error:
            raise unreadable(self.label, error) from error
        finally:
            if not self._is_held:
                self._session.rollback()

    def _end(self) -> None:
        """End the transaction of a statement."""
        if not self._is_held:
            self._session.commit()


def _array(column: pa.ChunkedArray, field: Field) -> pa.ChunkedArray:
    """Values as the type of a column. Infinite timestamps have pgjdbc's numbers, which the driver does not know.

    Raises:
        TableMismatchError: a timestamp is beyond 64 bits of microseconds since 1970, which begin to wrap in 294247.
    """
    if field.type is not None:
        column = column.cast(field.type)
    if not pa.types.is_timestamp(column.type):
        return column
    micros = column.cast(pa.int64())
    wrapped = pc.less(micros, _FIRST_US)
    if not pc.any(wrapped).as_py():
        return column
    if not pc.all(pc.is_in(micros.filter(wrapped), pa.array(list(_INFINITE)))).as_py():
        raise TableMismatchError(
            f"Column {field.name} has a timestamp after {_LAST_DAY}, which a record cannot hold.",
            next_step="Correct the value, or read the column by `query` as text, and restart the task.",
        )
    for driver, known in _INFINITE.items():
        micros = pc.if_else(pc.equal(micros, driver), known, micros)
    return micros.cast(column.type)


def _micros(epoch: str) -> str:
    return f"round({epoch} * 1000000)::bigint"


def _kind_of(field: pa.Field) -> str:
    """PostgreSQL's name of the type that a field of a query came from; a name without an Arrow type is read as text."""
    if pa.types.is_timestamp(field.type):
        return "timestamp without time zone" if field.type.tz is None else "timestamp with time zone"
    named = (field.metadata or {}).get(b"ADBC:postgresql:typname", b"").decode()
    if named:
        return str(named)
    return next((name for fits, name in _NAMES if fits(field.type)), "text" if field.type == pa.string() else "unknown")
