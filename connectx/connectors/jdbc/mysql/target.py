"""MySQL and MariaDB as targets: rows arrive in INSERT statements of many rows, whose text Arrow makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from connectx.connectors.jdbc.mysql.database import arrow_type
from connectx.connectors.jdbc.mysql.session import MySqlSession, identifier, literal
from connectx.connectors.jdbc.target import Target, TargetColumn, TargetSettings, TargetTable
from connectx.errors.databases import RowRefusedError, TableMismatchError

_STATEMENT_BYTES: Final = 4_000_000
_LONGEST_KEY: Final = 255
_ALSO: Final = {"tinyint": ("bool",), "datetime": ("date",), "timestamp": ("date",), "time": ("time",)}
_CREATED: Final = (
    (pa.types.is_boolean, "tinyint(1)"),
    (pa.types.is_int8, "tinyint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "int"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_float32, "float"),
    (pa.types.is_floating, "double"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time(6)"),
    (pa.types.is_timestamp, "datetime(6)"),
)


class MySqlTarget(Target):
    """A session that writes. Its tables must be of an engine with transactions."""

    label = "MySQL"
    lock_clause = " FOR UPDATE"
    key_text = "varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    table_options = " ENGINE=InnoDB"
    insert_ignore = ("INSERT IGNORE INTO", "")

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__(settings)
        idle_s = max(1, settings.idle_timeout_ms // 1000) if settings.idle_timeout_ms else 0
        self._session = MySqlSession(
            settings.database,
            {
                "innodb_lock_wait_timeout": str(max(1, settings.lock_timeout_ms // 1000)),
                "lock_wait_timeout": str(max(1, settings.lock_timeout_ms // 1000)),
                "tx_isolation": "'READ-COMMITTED'",
                "transaction_isolation": "'READ-COMMITTED'",
                "idle_transaction_timeout": str(idle_s),
            },
        )
        self._in_transaction = False

    @override
    def execute(self, sql: str) -> None:
        self._begin()
        self._session.execute(sql)

    @override
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        self._begin()
        return self._session.query(sql)

    @override
    def commit(self) -> None:
        if self._in_transaction:
            self._session.execute("COMMIT")
            self._in_transaction = False

    @override
    def rollback(self) -> None:
        if not self._in_transaction:
            return
        self._in_transaction = False
        try:
            self._session.execute("ROLLBACK")
        except Exception:
            self._session.close()

    @override
    def cancel(self) -> None:
        self._session.cancel()

    @override
    def close(self) -> None:
        self._in_transaction = False
        self._session.close()

    def default_schema(self) -> str:
        """As in Target: the database that connection.url names."""
        if not self._session.database:
            raise TableMismatchError(
                "connection.url names no database.",
                next_step="Write it as mysql://host:port/database, and restart the task.",
            )
        return self._session.database

    def describe(self, schema: str, name: str) -> TargetTable | None:
        """As in Target. Without a default MariaDB shows the text NULL, and MySQL null.

        A default that is an expression is DEFAULT_GENERATED in MySQL, and columns that cannot be written are STORED or
        VIRTUAL GENERATED.
        """
        where = f"table_schema = {self.literal(schema)} AND table_name = {self.literal(name)}"
        rows = self.query(
            "SELECT column_name, column_type, "
            "COALESCE(column_default, 'NULL') <> 'NULL' OR extra LIKE '%auto_increment%', "
            f"column_key = 'PRI' FROM information_schema.columns WHERE {where} AND extra NOT LIKE '% GENERATED%' "
            "ORDER BY ordinal_position"
        )
        if not rows:
            return None
        engines = self.query(
            "SELECT e.engine FROM information_schema.tables t JOIN information_schema.engines e ON e.engine = t.engine "
            f"WHERE {where} AND e.transactions <> 'YES'"
        )
        if engines:
            raise TableMismatchError(
                f"The table {self.place(schema, name)} has the engine {engines[0][0]}, which has no transactions.",
                next_step="Run ALTER TABLE ... ENGINE=InnoDB, and restart the task.",
            )
        columns = {
            column: TargetColumn(
                column,
                kind,
                arrow_type(kind),
                has_default=bool(default) and kind != "timestamp",
                in_key=bool(in_key),
                also=_ALSO.get(kind.partition("(")[0].partition(" ")[0], ()),
            )
            for column, kind, default, in_key in rows
        }
        return TargetTable(schema, name, self.place(schema, name), columns)

    def type_name(self, kind: pa.DataType, *, in_key: bool) -> str | None:
        """As in Target; a text or bytes in a key have a length."""
        if pa.types.is_decimal(kind):
            return f"decimal({kind.precision},{kind.scale})" if kind.precision <= 65 and kind.scale <= 30 else None
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return self.key_text if in_key else "longtext CHARACTER SET utf8mb4"
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return f"varbinary({_LONGEST_KEY})" if in_key else "longblob"
        return next((name for fits, name in _CREATED if fits(kind)), None)

    def check_key(self, table: TargetTable, key: Sequence[str]) -> None:
        """As in Target: ON DUPLICATE KEY would not notice."""
        rows = self.query(
            "SELECT index_name, column_name FROM information_schema.statistics WHERE non_unique = 0 "
            f"AND table_schema = {self.literal(table.schema)} AND table_name = {self.literal(table.name)}"
        )
        indexes: dict[str, set[str]] = {}
        for index, column in rows:
            indexes.setdefault(index, set()).add(column)
        if set(key) not in indexes.values():
            raise TableMismatchError(
                f"The table {table.quoted} has no unique index of {', '.join(key)}.",
                next_step="Create one, or correct pk.fields, and restart the task.",
            )

    @override
    def insert(self, table: TargetTable, rows: pa.Table) -> None:
        self._insert(table, rows, "")

    @override
    def upsert(self, table: TargetTable, rows: pa.Table, key: Sequence[str], *, in_part: bool) -> None:
        changed = [name for name in rows.column_names if name not in key] or list(key)
        changes = ", ".join(f"{self.quoted(name)} = VALUES({self.quoted(name)})" for name in changed)
        self._insert(table, rows, f" ON DUPLICATE KEY UPDATE {changes}")

    def update(self, table: TargetTable, rows: pa.Table, key: Sequence[str]) -> None:
        """As in Target, by one statement for each row."""
        values = {name: _literals(rows[name]).to_pylist() for name in rows.column_names}
        others = [name for name in rows.column_names if name not in key]
        for at in range(rows.num_rows):
            changes = ", ".join(f"{self.quoted(name)} = {values[name][at]}" for name in others)
            same = " AND ".join(f"{self.quoted(name)} = {values[name][at]}" for name in key)
            self.execute(f"UPDATE {table.quoted} SET {changes} WHERE {same}")

    @override
    def held(self, table: TargetTable, keys: pa.Table) -> int:
        listed = ", ".join(map(self.quoted, keys.column_names))
        sql = f"SELECT count(*) FROM {table.quoted} WHERE ({listed}) IN"
        return sum(int(count) for values in self._chunks(keys) for ((count,),) in [self.query(f"{sql} ({values})")])

    @override
    def delete(self, table: TargetTable, keys: pa.Table) -> None:
        listed = ", ".join(map(self.quoted, keys.column_names))
        for values in self._chunks(keys):
            self.execute(f"DELETE FROM {table.quoted} WHERE ({listed}) IN ({values})")

    @override
    def quote(self, name: str) -> str:
        return identifier(name)

    def literal(self, text: str) -> str:
        """As in Target: a backslash escapes."""
        return literal(text)

    def text_default(self, text: str) -> str:
        """As in Target: columns of long texts take an expression only."""
        return f"({literal(text)})"

    @override
    def bytes_default(self, data: bytes) -> str:
        return f"(x'{data.hex()}')"

    def _begin(self) -> None:
        if not self._in_transaction:
            self._session.execute("START TRANSACTION")
            self._in_transaction = True

    def _insert(self, table: TargetTable, rows: pa.Table, action: str) -> None:
        listed = ", ".join(map(self.quoted, rows.column_names))
        for values in self._chunks(rows):
            self.execute(f"INSERT INTO {table.quoted} ({listed}) VALUES {values}{action}")

    def _chunks(self, rows: pa.Table) -> Iterator[str]:
        """Rows as `(1, 'a'), (2, 'b')`, in texts of at most batch_rows rows and about 4 MB."""
        columns = [_literals(column) for column in rows.columns]
        joined = pc.binary_join_element_wise("(", pc.binary_join_element_wise(*columns, ", "), ")", "")
        size = max(1, pc.sum(pc.binary_length(joined)).as_py() // max(1, rows.num_rows))
        step = max(1, min(self.settings.batch_rows, _STATEMENT_BYTES // size))
        for start in range(0, rows.num_rows, step):
            yield ", ".join(joined.slice(start, step).to_pylist())


def _literals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as SQL. Raises RowRefusedError for a number that is none."""
    kind = column.type
    if pa.types.is_boolean(kind):
        texts = column.cast(pa.int8()).cast(pa.string())
    elif pa.types.is_integer(kind):
        texts = column.cast(pa.string())
    elif pa.types.is_floating(kind):
        if not pc.all(pc.is_finite(column)).as_py() and column.null_count < len(column):
            raise RowRefusedError("MySQL has no NaN and no infinite numbers.")
        texts = column.cast(pa.string())
    elif pa.types.is_decimal(kind):
        name = f"' AS DECIMAL({kind.precision},{max(0, kind.scale)}))"
        texts = pc.binary_join_element_wise("CAST('", column.cast(pa.string()), name, "")
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        texts = pa.chunked_array(
            [[None if value is None else f"x'{value.hex()}'" for value in column.to_pylist()]], pa.string()
        )
    elif pa.types.is_null(kind):
        texts = column.cast(pa.string())
    else:
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            column = column.cast(pa.timestamp(kind.unit))
        escaped = pc.replace_substring(column.cast(pa.string()), "\\", "\\\\")
        texts = pc.binary_join_element_wise("'", pc.replace_substring(escaped, "'", "''"), "'", "")
    return pc.fill_null(texts, "NULL")
