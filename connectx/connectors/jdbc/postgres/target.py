"""PostgreSQL as a target: rows arrive by COPY, straight into the table or through a temporary one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
from typing_extensions import override

from connectx.connectors.jdbc.ordering import repeated
from connectx.connectors.jdbc.postgres.types import array_texts, arrow_type, created_type
from connectx.connectors.jdbc.target import Target, TargetColumn, TargetSettings, TargetTable
from connectx.connectors.shared.postgres import PostgresSession, libpq_uri, literal
from connectx.data.arrays import is_list
from connectx.errors.databases import RowRefusedError

_LONGEST_PENALTY_BATCHES: Final = 64
# Other families that a column accepts.
_ALSO: Final = {
    "numeric": ("number",),
    "money": ("number",),
    "oid": ("number",),
    "timestamp without time zone": ("date",),
    "timestamp with time zone": ("date",),
    "time without time zone": ("time",),
}


@dataclass(slots=True)
class _Tries:
    """What is known of copying straight into a table that is upserted."""

    batches_to_skip: int = 0
    penalty_batches: int = 1


@dataclass(frozen=True, slots=True)
class PostgresColumn(TargetColumn):
    """A column of PostgreSQL; of a domain it has the base type.

    Attributes:
        plain: its type without length or precision. A cast to those cuts values, which an assignment refuses.
    """

    plain: str = ""

    @override
    def fit(self, values: pa.ChunkedArray, zone: ZoneInfo) -> pa.ChunkedArray:
        return array_texts(values) if is_list(values.type) else TargetColumn.fit(self, values, zone)

    @override
    def cast(self, sent: str) -> str:
        if not self.is_cast:
            return sent
        if self.type == "money":  # its own texts depend on the locale, also in how they read a point
            return f"CASE WHEN {sent} ~ '^[-+.0-9eE]+$' THEN {sent}::numeric::money ELSE {sent}::money END"
        if self.plain.endswith("[]"):  # JSON without schemas has [1,2], and PostgreSQL {1,2}
            elements = f"SELECT e FROM json_array_elements_text({sent}::json) WITH ORDINALITY e (e, n) ORDER BY n"
            array = f"ARRAY({elements})::{self.plain}"
            return f"CASE WHEN {sent} ~ '^\\s*\\[.*\\]\\s*$' THEN {array} ELSE {sent}::{self.plain} END"
        return f"{sent}::{self.plain}"


class PostgresTarget(Target):
    """A session that writes."""

    label = "PostgreSQL"
    bulk_obstacle = None
    lock_clause = " FOR UPDATE"
    booleans = ("false", "true")
    keeps_zones = True

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__(settings)
        database = settings.database
        self._session = PostgresSession(
            libpq_uri(database.uri, database.user, database.password),
            {
                "application_name": database.name[:63],
                "lock_timeout": str(settings.lock_timeout_ms),
                "idle_in_transaction_session_timeout": str(settings.idle_timeout_ms),
            },
        )
        self._tries: dict[str, _Tries] = {}
        self._stages: list[TargetTable] = []
        self._filled: set[str] = set()

    @override
    def execute(self, sql: str) -> None:
        self._session.execute(sql)

    @override
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return self._session.query(sql)

    @override
    def commit(self) -> None:
        self._session.commit()
        self._filled.clear()

    @override
    def rollback(self) -> None:
        self._filled.clear()
        self._session.rollback()

    @override
    def cancel(self) -> None:
        self._session.cancel()

    @override
    def close(self) -> None:
        self._session.close()

    @override
    def check_immediately(self) -> None:
        self.execute("SET CONSTRAINTS ALL IMMEDIATE")

    @override
    def default_schema(self) -> str:
        ((schema,),) = self.query("SELECT current_schema()::text")
        return schema or "public"

    @override
    def describe(self, schema: str, name: str) -> TargetTable | None:
        rows = self.query(
            "WITH RECURSIVE place AS (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = {literal(schema)} AND c.relname = {literal(name)} "
            "AND c.relkind IN ('r', 'p', 'v', 'f')), "
            "types AS (SELECT a.attnum, 0 AS depth, a.atttypid AS kind, a.atttypmod AS modifier FROM pg_attribute a "
            "WHERE a.attrelid IN (SELECT oid FROM place) AND a.attnum > 0 AND NOT a.attisdropped "
            "AND a.attgenerated = '' AND a.attidentity <> 'a' UNION ALL "
            "SELECT s.attnum, s.depth + 1, t.typbasetype, t.typtypmod FROM types s JOIN pg_type t ON t.oid = s.kind "
            "WHERE t.typtype = 'd') "
            "SELECT a.attname::text, format_type(s.kind, s.modifier), format_type(s.kind, -1), "
            "a.atthasdef OR a.attidentity <> '', "
            "EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisprimary "
            "AND a.attnum = ANY (i.indkey)) FROM types s JOIN pg_type t ON t.oid = s.kind AND t.typtype <> 'd' "
            "JOIN pg_attribute a ON a.attnum = s.attnum AND a.attrelid IN (SELECT oid FROM place) ORDER BY a.attnum"
        )
        columns = {
            column: PostgresColumn(
                column,
                kind,
                arrow or pa.string(),
                is_cast=arrow is None,
                has_default=bool(default),
                in_key=bool(in_key),
                also=("list",) if plain.endswith("[]") else _ALSO.get(plain, ()),
                plain=plain,
            )
            for column, kind, plain, default, in_key in rows
            for arrow in [arrow_type(plain if plain.startswith("timestamp") else kind)]
        }
        return TargetTable(schema, name, self.place(schema, name), columns) if columns else None

    @override
    def type_name(self, kind: pa.DataType, *, in_key: bool) -> str | None:
        return created_type(kind)

    def stored_name(self, name: str) -> str:
        """As in Target: PostgreSQL keeps names without quotes in lower case."""
        return name if self.settings.database.quotes else name.lower()

    @override
    def insert(self, table: TargetTable, rows: pa.Table) -> None:
        if _is_copied(table, rows):
            self._session.ingest(table.schema, table.name, rows)
        else:
            self.execute(self._insert_from(table, rows, self._stage(table, rows)))

    @override
    def upsert(self, table: TargetTable, rows: pa.Table, key: Sequence[str], *, in_part: bool) -> None:
        conflict = self.on_conflict(rows.column_names, key)
        once, again = repeated(rows.select(list(key)))
        if len(again):
            listed = ", ".join(map(self.quoted, rows.column_names))
            values = ", ".join(self._staged(table, name) for name in rows.column_names)
            self._in_order(
                table, rows.take(again), f"INSERT INTO {table.quoted} ({listed}) VALUES ({values}) {conflict}"
            )
            rows = rows.take(once)
        if not rows.num_rows or (not in_part and _is_copied(table, rows) and self._all_new(table, rows)):
            return
        self.execute(f"{self._insert_from(table, rows, self._stage(table, rows))} {conflict}")

    @override
    def update(self, table: TargetTable, rows: pa.Table, key: Sequence[str]) -> None:
        changes = ", ".join(
            f"{self.quoted(name)} = {self._staged(table, name)}" for name in rows.column_names if name not in key
        )
        once, again = repeated(rows.select(list(key)))
        if len(again):
            statement = f"UPDATE {table.quoted} t SET {changes} WHERE {self._same_key(table, key)}"
            self._in_order(table, rows.take(again), statement)
            rows = rows.take(once)
        if rows.num_rows:
            stage = self._stage(table, rows)
            self.execute(f"UPDATE {table.quoted} t SET {changes} FROM {stage} s WHERE {self._same_key(table, key)}")

    @override
    def held(self, table: TargetTable, keys: pa.Table) -> int:
        stage = self._stage(table, keys)
        same = self._same_key(table, keys.column_names)
        ((count,),) = self.query(f"SELECT count(*) FROM {table.quoted} t JOIN {stage} s ON {same}")
        return int(count)

    @override
    def delete(self, table: TargetTable, keys: pa.Table) -> None:
        stage = self._stage(table, keys)
        self.execute(f"DELETE FROM {table.quoted} t USING {stage} s WHERE {self._same_key(table, keys.column_names)}")

    @override
    def end_holders(self, offsets_table: str, condition: str) -> list[str]:
        prefix = literal(self.settings.name_prefix)
        with self.transaction():
            ended = self.query(
                "SELECT a.application_name::text, pg_terminate_backend(a.pid) FROM pg_stat_activity a "
                f"WHERE a.backend_xid IN (SELECT xmax FROM {offsets_table} WHERE {condition}) "
                f"AND a.pid <> pg_backend_pid() AND starts_with(a.application_name, {prefix})"
            )
        return sorted(name for name, _ in ended)

    @override
    def bytes_default(self, data: bytes) -> str:
        return f"'\\x{data.hex()}'"

    @override
    def _constant(self, value: pa.ChunkedArray) -> str:
        return self.text_default(array_texts(value)[0].as_py()) if is_list(value.type) else super()._constant(value)

    def _all_new(self, table: TargetTable, rows: pa.Table) -> bool:
        """Rows with new keys can be copied straight into the table, twice as fast; try, and learn from failures.

        False when a row has a key that exists, or is refused for another reason. After each failure in a row twice
        as many batches go by before the next try, because the rows that were copied until then remain as dead rows.
        """
        known = self._tries.setdefault(table.quoted, _Tries())
        if known.batches_to_skip:
            known.batches_to_skip -= 1
            return False
        self.execute("SAVEPOINT connectx_new")
        try:
            self._session.ingest(table.schema, table.name, rows)
        except RowRefusedError:
            self.execute("ROLLBACK TO SAVEPOINT connectx_new")
            known.batches_to_skip = known.penalty_batches
            known.penalty_batches = min(_LONGEST_PENALTY_BATCHES, known.penalty_batches * 2)
            return False
        self.execute("RELEASE SAVEPOINT connectx_new")
        known.penalty_batches = 1
        return True

    def _in_order(self, table: TargetTable, rows: pa.Table, statement: str) -> None:
        """Run a statement for each row, which it calls s, one after the other: no statement writes a key twice."""
        stage = self._stage(table, rows)
        loop = f"FOR s IN SELECT * FROM {stage} ORDER BY ctid LOOP {statement}; END LOOP;"
        body = f"#variable_conflict use_column\nDECLARE s record; BEGIN {loop} END"
        self.execute(f"DO {literal(body)}")

    def _stage(self, table: TargetTable, rows: pa.Table) -> str:
        """Copy rows into a temporary table of the table's columns; returns its name in SQL."""
        if table not in self._stages:
            self._stages.append(table)
        name = f"connectx_stage_{self._stages.index(table)}"
        types = ", ".join(
            f"{self.quote(column.name)} {'text' if column.is_cast else column.type}"
            for column in table.columns.values()
        )
        self.execute(f"CREATE TEMP TABLE IF NOT EXISTS {name} ({types}) ON COMMIT DELETE ROWS")
        if name in self._filled:
            self.execute(f"DELETE FROM pg_temp.{name}")
        self._filled.add(name)
        self._session.ingest(None, name, rows)
        return f"pg_temp.{name}"

    def _insert_from(self, table: TargetTable, rows: pa.Table, stage: str) -> str:
        listed = ", ".join(map(self.quoted, rows.column_names))
        values = ", ".join(self._staged(table, name) for name in rows.column_names)
        return f"INSERT INTO {table.quoted} ({listed}) SELECT {values} FROM {stage} s"

    def _staged(self, table: TargetTable, name: str) -> str:
        return table.columns[name].cast(f"s.{self.quote(name)}")

    def _same_key(self, table: TargetTable, key: Sequence[str]) -> str:
        return " AND ".join(f"t.{self.quoted(name)} = {self._staged(table, name)}" for name in key)


def _is_copied(table: TargetTable, rows: pa.Table) -> bool:
    """Whether COPY takes the values of all columns as they are."""
    return not any(table.columns[name].is_cast for name in rows.column_names)
