"""The interface of a database that a sink writes: transactions, tables, and rows written into them."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.jdbc.database import DatabaseSettings
from connectx.connectors.shared.sql import identifier, literal
from connectx.data.arrays import is_list
from connectx.data.connect_schema import default_of, default_value
from connectx.errors.databases import TableMismatchError

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """How a target is reached and written.

    Attributes:
        database: URL, login, quoting, and the time zone of columns that have none.
        name_prefix: common start of the names of the group's sessions; `database.name` starts with it.
        lock_timeout_ms: how long a statement waits for a lock.
        idle_timeout_ms: after this time the database ends a session that is idle within a transaction.
        batch_rows: most rows of one statement, where rows are sent as values of statements.
    """

    database: DatabaseSettings
    name_prefix: str = "connectx"
    lock_timeout_ms: int = 2_000
    idle_timeout_ms: int = 30_000
    batch_rows: int = 3_000


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """One column that may be written.

    Attributes:
        type: the database's name of its type.
        arrow: type in which values are sent; None: as they are.
        is_cast: values are sent as text, and the database casts them.
        also: other families of types that it accepts than that of `arrow`.
        in_key: it is part of the primary key.
    """

    name: str
    type: str
    arrow: pa.DataType | None
    is_cast: bool = False
    has_default: bool = False
    in_key: bool = False
    also: tuple[str, ...] = ()

    def takes(self, kind: pa.DataType) -> bool:
        """Whether values of this type may be written."""
        given = family(kind)
        if self.arrow is None:
            return given in ("null", "number", "text", "bytes", "timestamp", "date", "time", "bool")
        return given in ("null", family(self.arrow), *self.also)

    def fit(self, values: pa.ChunkedArray, zone: ZoneInfo) -> pa.ChunkedArray:
        """Values in the type in which they are sent. Raises pa.ArrowInvalid when one does not fit."""
        wanted = self.arrow
        if wanted is None or (pa.types.is_boolean(wanted) and family(values.type) == "number"):
            return values
        is_aware = pa.types.is_timestamp(values.type) and values.type.tz is not None
        if is_aware and str(zone) != "UTC" and getattr(wanted, "tz", None) is None:
            values = pc.local_timestamp(values.cast(pa.timestamp("us", str(zone))))
        if pa.types.is_decimal(wanted) and pa.types.is_integer(values.type):
            # For integers Arrow wants a decimal with room for 64 bits, whatever the values are.
            values = values.cast(pa.decimal256(76, wanted.scale))
        return values.cast(wanted)

    def cast(self, sent: str) -> str:
        """Values that were sent, an expression in SQL, as values of the column."""
        return sent


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A table that exists, with the columns that may be written; `quoted` is its name in SQL."""

    schema: str
    name: str
    quoted: str
    columns: Mapping[str, TargetColumn]

    @property
    def key(self) -> tuple[str, ...]:
        """Columns of the primary key."""
        return tuple(column.name for column in self.columns.values() if column.in_key)

    def value_type(self, without: Sequence[str] = ()) -> pa.DataType:
        """What a record's value should have, as an Arrow struct."""
        fields = [(name, column.arrow or pa.string()) for name, column in self.columns.items() if name not in without]
        return pa.struct(fields)

    def key_type(self, key: Sequence[str]) -> pa.DataType | None:
        """What a record's key should have, as an Arrow struct; None where the table lacks one of these columns."""
        if not key or not set(key) <= set(self.columns):
            return None
        return pa.struct([pa.field(name, self.columns[name].arrow or pa.string(), nullable=False) for name in key])

    def missing(self, rows: pa.Table) -> list[str]:
        """Columns of `rows` that the table does not have."""
        return [name for name in rows.column_names if name not in self.columns]

    def refusal(self, rows: pa.Table) -> str | None:
        """Why the table does not take such rows: it lacks a column, or has one of another type. None: it takes them."""
        if missing := self.missing(rows):
            return self.lacking(missing)
        for field in rows.schema:
            column = self.columns[field.name]
            if not column.takes(field.type):
                return (
                    f"its field {field.name} is of type {field.type}, and the column of {self.quoted} is of type "
                    f"{column.type}"
                )
        return None

    def lacking(self, names: Sequence[str]) -> str:
        """Why a record is refused that has fields without columns."""
        return (
            f"it has the field {', '.join(names)}, for which {self.quoted} has no column: add the column, set "
            "auto.evolve=true, or leave the field out with fields.whitelist"
        )

    def optional(self, rows: pa.Table, keep: Sequence[str] = ()) -> list[str]:
        """Columns in which null stands for the column's default.

        Not those that `keep` names, nor those whose records have a schema with a default.
        """
        return [
            name
            for name in rows.column_names
            if name not in keep
            and default_of(rows.schema.field(name)) is None
            and self.columns[name].has_default
            and rows[name].null_count
        ]

    def fit(self, rows: pa.Table, zone: ZoneInfo, *, keep: Sequence[str] = ()) -> pa.Table:
        """Rows in the types in which they are sent; a column that is null in every row is left to its default.

        `keep` names columns that stay in any case, as those do whose records have a schema with a default.

        Raises:
            pa.ArrowInvalid: a value does not fit.
        """
        left_out = [name for name in self.optional(rows, keep) if rows[name].null_count == rows.num_rows]
        kept = [name for name in rows.column_names if name not in left_out]
        return pa.table({name: self.columns[name].fit(rows[name], zone) for name in kept})


class Target(ABC):
    """One connection for writing, made when first used, by one thread.

    A statement outside a transaction begins one. All methods that talk to the database raise RowRefusedError when it
    refuses a row, LockTimeoutError when another session holds a lock, DatabaseUnavailableError when the same call may
    succeed later, and otherwise DatabaseError or one of its kinds. After an error call `rollback`.
    """

    label: ClassVar[str]
    """The database's name in messages."""
    bulk_obstacle: ClassVar[str | None] = "only tables of PostgreSQL are written by executors"
    """Why Spark's executors do not write it; None: they do, by way of staging tables."""
    lock_clause: ClassVar[str] = ""
    """Ends a SELECT whose rows are to stay locked until the transaction ends."""
    key_text: ClassVar[str] = "text"
    """Type of texts in a primary key."""
    table_options: ClassVar[str] = ""
    """Ends a CREATE TABLE."""
    booleans: ClassVar[tuple[str, str]] = ("0", "1")
    """False and true in SQL."""
    keeps_zones: ClassVar[bool] = False
    """New columns for timestamps with a time zone have one."""
    insert_ignore: ClassVar[tuple[str, str]] = ("INSERT INTO", "ON CONFLICT DO NOTHING")
    """Begin and end of an INSERT that leaves out rows whose key exists."""

    def __init__(self, settings: TargetSettings) -> None:
        self.settings = settings

    @abstractmethod
    def execute(self, sql: str) -> None:
        """Run a statement within the transaction."""

    @abstractmethod
    def query(self, sql: str) -> list[tuple[object, ...]]:
        """Rows of a query within the transaction."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the transaction. When this fails it may have been committed all the same."""

    @abstractmethod
    def rollback(self) -> None:
        """End the transaction; a connection that cannot do that is dropped."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit at the end; roll back after an error."""
        try:
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise

    @abstractmethod
    def cancel(self) -> None:
        """From another thread: end the statement that runs now."""

    @abstractmethod
    def close(self) -> None:
        """Drop the connection; an open transaction is rolled back."""

    def rest(self) -> None:  # noqa: B027
        """Nothing is written for a while: release what others may wait for."""

    def begin_part(self) -> None:
        """Mark a place in the transaction; marks are not nested."""
        self.execute("SAVEPOINT connectx_part")

    def keep_part(self) -> None:
        """Forget the mark."""
        self.execute("RELEASE SAVEPOINT connectx_part")

    def drop_part(self) -> None:
        """Undo what was done since the mark, and forget it."""
        self.execute("ROLLBACK TO SAVEPOINT connectx_part")
        self.execute("RELEASE SAVEPOINT connectx_part")

    def check_immediately(self) -> None:  # noqa: B027
        """Check constraints with each statement of this transaction, not when it is committed."""

    @abstractmethod
    def default_schema(self) -> str:
        """Schema of tables that are named without one; empty where the database has none."""

    @abstractmethod
    def describe(self, schema: str, name: str) -> TargetTable | None:
        """The table, or None when there is none. Raises TableMismatchError for one without transactions."""

    @abstractmethod
    def type_name(self, kind: pa.DataType, *, in_key: bool) -> str | None:
        """Type of a new column (auto.create, auto.evolve); None when there is none for this Arrow type."""

    def create(self, schema: str, name: str, rows: pa.Table, key: Sequence[str]) -> str:
        """CREATE TABLE for these columns.

        Raises:
            TableMismatchError: this database has no type for a column.
        """
        lines = [self._definition(field, in_key=field.name in key) for field in rows.schema]
        if key:
            lines.append(f"PRIMARY KEY ({', '.join(map(self.quoted, key))})")
        return f"CREATE TABLE IF NOT EXISTS {self.place(schema, name)} ({', '.join(lines)}){self.table_options}"

    def add_column(self, table: TargetTable, field: pa.Field) -> str:
        """ALTER TABLE for a column that the table does not have, without a default: rows that exist keep null.

        Raises TableMismatchError as `create`.
        """
        return f"ALTER TABLE {table.quoted} ADD COLUMN {self._definition(field.remove_metadata(), in_key=False)}"

    def check_key(self, table: TargetTable, key: Sequence[str]) -> None:
        """Raise TableMismatchError unless a unique index has these columns."""
        listed = ", ".join(map(self.quoted, key))
        self.execute(
            f"INSERT INTO {table.quoted} ({listed}) SELECT {listed} FROM {table.quoted} WHERE false "
            f"ON CONFLICT ({listed}) DO NOTHING"
        )

    @abstractmethod
    def insert(self, table: TargetTable, rows: pa.Table) -> None:
        """Add rows."""

    @abstractmethod
    def upsert(self, table: TargetTable, rows: pa.Table, key: Sequence[str], *, in_part: bool) -> None:
        """Add rows, or replace those with the same key, in order: keys may repeat. `in_part`: after `begin_part`."""

    @abstractmethod
    def update(self, table: TargetTable, rows: pa.Table, key: Sequence[str]) -> None:
        """Change rows that exist, in order: keys may repeat."""

    @abstractmethod
    def held(self, table: TargetTable, keys: pa.Table) -> int:
        """How many rows have one of these keys. Keys differ."""

    @abstractmethod
    def delete(self, table: TargetTable, keys: pa.Table) -> None:
        """Delete rows by key."""

    def end_holders(self, offsets_table: str, condition: str) -> list[str]:
        """End sessions of the same group that lock rows of the table of offsets, where the database can name them.

        Returns the names of the sessions that were ended. Commits.
        """
        return []

    def quoted(self, name: str) -> str:
        """An identifier in SQL.

        Raises:
            TableMismatchError: quote.sql.identifiers=never, and the name needs quotes.
        """
        if self.settings.database.quotes:
            return self.quote(name)
        if not _PLAIN_NAME.fullmatch(name):
            raise TableMismatchError(
                f"The name {name!r} cannot be written without quotes.",
                next_step="Set quote.sql.identifiers=always, and restart the task.",
            )
        return name

    def on_conflict(self, names: Sequence[str], key: Sequence[str]) -> str:
        """End of an INSERT of these columns that replaces rows with the same key."""
        changes = ", ".join(f"{self.quoted(name)} = excluded.{self.quoted(name)}" for name in names if name not in key)
        action = f"UPDATE SET {changes}" if changes else "NOTHING"
        return f"ON CONFLICT ({', '.join(map(self.quoted, key))}) DO {action}"

    def stored_name(self, name: str) -> str:
        """A name as the database keeps it, which depends on quotes."""
        return name

    def quote(self, name: str) -> str:
        """A quoted identifier."""
        return identifier(name)

    def literal(self, text: str) -> str:
        """A text in SQL."""
        return literal(text)

    def text_default(self, text: str) -> str:
        """A text in SQL, as the default of a column."""
        return self.literal(text)

    def bytes_default(self, data: bytes) -> str:
        """Bytes in SQL, as the default of a column."""
        return f"x'{data.hex()}'"

    def place(self, schema: str, name: str) -> str:
        """A table's name in SQL."""
        return ".".join(self.quoted(part) for part in (schema, name) if part)

    def _definition(self, field: pa.Field, *, in_key: bool) -> str:
        kind = self.type_name(field.type, in_key=in_key)
        if kind is None:
            raise TableMismatchError(
                f"{self.label} has no column type for field {field.name} of type {field.type}.",
                next_step="Create the table or the column yourself, and restart the task.",
            )
        return f"{self.quoted(field.name)} {kind}{self._default(field)}{' NOT NULL' if in_key else ''}"

    def _default(self, field: pa.Field) -> str:
        """DEFAULT for the default of a field's schema; empty without one, and for a number that is not finite."""
        found = default_of(field)
        if found is None or (isinstance(found, float) and not math.isfinite(found)):
            return ""
        value = pa.chunked_array([pa.array([default_value(field.type, found)], field.type)])
        return f" DEFAULT {self._constant(value)}"

    def _constant(self, value: pa.ChunkedArray) -> str:
        """A single value in SQL, in the form that a write gives it."""
        kind = family(value.type)
        if kind == "bool":
            return self.booleans[value[0].as_py()]
        if kind == "bytes":
            return self.bytes_default(value[0].as_py())
        if kind == "timestamp" and not self.keeps_zones:
            value = TargetColumn("", "", pa.timestamp("us")).fit(value, self.settings.database.zone)
        text = value.cast(pa.string())[0].as_py()
        return text if kind == "number" else self.text_default(text)


def split_name(pattern: str, topic: str, default_schema: str) -> tuple[str, str]:
    """(schema, table) of table.name.format; dots of the topic are part of the table's name."""
    schema, _, name = pattern.rpartition(".")
    return (schema or default_schema).replace("${topic}", topic), name.replace("${topic}", topic)


def family(kind: pa.DataType) -> str:
    """Types that fit each other: null, bool, number, text, bytes, timestamp, date, time or list.

    Others have their own name.
    """
    types = pa.types
    if types.is_null(kind):
        return "null"
    if types.is_boolean(kind):
        return "bool"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "bytes"
    if types.is_timestamp(kind):
        return "timestamp"
    if types.is_time(kind):
        return "time"
    if is_list(kind):
        return "list"
    return "date" if types.is_date(kind) else str(kind)
