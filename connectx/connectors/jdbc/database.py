"""The interface of a database that a source reads."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final
from zoneinfo import ZoneInfo

from connectx.connectors.jdbc.criteria import TIMESTAMP, TimestampSql
from connectx.connectors.jdbc.tables import Column, TableName
from connectx.connectors.shared.sql import identifier
from connectx.errors.base import ConnectxError
from connectx.errors.databases import DatabaseError, RowRefusedError, TableMismatchError, TableMissingError

if TYPE_CHECKING:
    import pyarrow as pa

_UTC: Final = ZoneInfo("UTC")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

NUMERIC_MAPPINGS: Final = ("none", "precision_only", "best_fit", "best_fit_eager_double")


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """How to reach a database, and how its values are read.

    Attributes:
        uri: connection.url as it is.
        zone: time zone of timestamps that have none.
        numeric_mapping: one of NUMERIC_MAPPINGS.
        quotes: whether identifiers are quoted.
        name: shown by the database as the client's name.
    """

    uri: str = dataclasses.field(repr=False)
    user: str | None = None
    password: str | None = dataclasses.field(default=None, repr=False)
    zone: ZoneInfo = _UTC
    numeric_mapping: str = "none"
    quotes: bool = True
    name: str = "connectx"

    @classmethod
    def of(cls, values: Mapping[str, Any], name: str) -> DatabaseSettings:
        """From parsed values of a connector; `name` is what the database shows of this client."""
        secret = values["connection.password"]
        return cls(
            values["connection.url"].strip(),
            values["connection.user"],
            secret.value if secret else None,
            ZoneInfo(values["db.timezone"]),
            values.get("numeric.mapping", "none"),
            values["quote.sql.identifiers"] == "always",
            name,
        )

    @property
    def path(self) -> str:
        """The file of a database that is one."""
        rest = self.uri.removeprefix("jdbc:").partition(":")[2].partition("?")[0]
        return rest[2:] if rest.startswith("//") else rest


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a query: its name, the SQL that gives it, and the Arrow type that values get.

    Without a type values stay as the database gives them.
    """

    name: str
    sql: str
    type: pa.DataType | None = None
    is_nullable: bool = True


@dataclass(frozen=True, slots=True)
class Estimate:
    """How many rows a query gives, and the mean size of one, by the statistics of the database."""

    rows: int
    row_bytes: int


class Database(ABC):
    """One connection for reading, made when first used, by one thread. Statements see committed rows only.

    All methods that talk to the database raise DatabaseUnavailableError when the same call may succeed later, and
    otherwise DatabaseError or one of its kinds. After an error call `close`.
    """

    label: ClassVar[str]
    """The database's name in messages."""
    clock: ClassVar[str]
    """Query of the current time, in microseconds since 1970."""
    bulk_obstacle: ClassVar[str] = ""
    """Why Spark's executors do not read it."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self.settings = settings

    @abstractmethod
    def tables(self, kinds: Sequence[str]) -> list[TableName]:
        """Tables of these kinds, TABLE and VIEW, without those of the database itself; sorted."""

    def columns(self, table: TableName) -> list[Column]:
        """Columns in their order. Raises TableMissingError."""
        if found := self.found_columns(table):
            return found
        raise TableMissingError(
            f"The database has no table {table.full}.", next_step="Create it, or correct the list of tables."
        )

    @abstractmethod
    def found_columns(self, table: TableName) -> list[Column]:
        """Columns in their order; none if there is no such table."""

    @abstractmethod
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a query."""

    @abstractmethod
    def query_columns(self, query: str) -> list[Column]:
        """Columns that a query gives."""

    @abstractmethod
    def field(self, column: Column) -> Field:
        """How a column is read."""

    @abstractmethod
    def timestamp(self, columns: Sequence[Column]) -> TimestampSql:
        """The first of these columns that is not null."""

    @abstractmethod
    def incrementing(self, column: Column) -> str:
        """A column of whole numbers. Raises TableMismatchError for another one."""

    def now_us(self) -> int:
        """The database's clock, in microseconds since 1970."""
        ((micros,),) = self.query(self.clock)
        return int(micros)

    @abstractmethod
    def read(self, sql: str, fields: Sequence[Field], rows: int) -> Iterator[pa.Table]:
        """Rows of a query, as they come, about `rows` in each table."""

    @abstractmethod
    def close(self) -> None:
        """Drop the connection. From any thread."""

    def estimate(self, sql: str, table: TableName | None, columns: int) -> Estimate:
        """Estimate the rows of a statement that reads so many columns of a table, or of a query."""
        raise NotImplementedError(f"executors do not read {self.label}")

    def hold(self) -> str | None:
        """Show one moment until `release` or `close`, and return its name for `join`; None: it cannot be shared."""
        return None

    def release(self) -> None:  # noqa: B027
        """Show new rows again."""

    def join(self, moment: str) -> None:  # noqa: B027
        """Show the moment that another connection holds, until `close`."""

    def rest(self) -> None:  # noqa: B027
        """Nothing is read for a while: release what others may wait for."""

    def quoted(self, name: str) -> str:
        """An identifier in SQL."""
        return self.quote(name) if self.settings.quotes else name

    def quote(self, name: str) -> str:
        """A quoted identifier."""
        return identifier(name)

    def column(self, name: str) -> str:
        """A column of `source` in SQL; qualified, since ORDER BY prefers names of the select list."""
        return f"r.{self.quoted(name)}"

    def first_time(self, columns: Sequence[Column]) -> str:
        """The first value that is not null, in SQL.

        Raises:
            TableMismatchError: a column is no timestamp or date.
        """
        for column in columns:
            if not column.type.lower().startswith(("timestamp", "date")):
                raise not_a_time(column)
        names = [self.column(column.name) for column in columns]
        return names[0] if len(names) == 1 else f"coalesce({', '.join(names)})"

    def source(self, table: TableName | None, query: str) -> str:
        """What to select from: a table, or without one a query."""
        if table is None:
            return f"({query}\n) AS r"  # the query may end in a comment
        return ".".join(self.quoted(part) for part in (table.schema, table.name) if part) + " AS r"

    def local_text(self, micros: int) -> str:
        """`2026-01-31 12:00:00.000000` in the time zone of timestamps that have none."""
        moment = (_EPOCH + timedelta(microseconds=micros)).astimezone(self.settings.zone)
        return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")

    def utc_text(self, micros: int) -> str:
        """`2026-01-31 12:00:00.000000+00`."""
        moment = (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None)
        return f"{moment.isoformat(sep=' ', timespec='microseconds')}+00"


def rows_of(fields: Sequence[Field], arrays: Sequence[pa.Array]) -> pa.Table:
    """Values of these fields as rows."""
    import pyarrow as pa

    named = [pa.field(f.name, a.type, f.is_nullable) for f, a in zip(fields, arrays, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(named))


def in_utc(table: pa.Table, zone: str, *, stamps: bool = True) -> pa.Table:
    """Rows whose timestamps without a time zone are local times of `zone`; `stamps`: the tracked timestamp, too."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if zone == "UTC":
        return table
    for at, field in enumerate(table.schema):
        tracked = field.name == TIMESTAMP and stamps
        if field.type == pa.timestamp("us") or tracked:
            local = table.column(at).cast(pa.timestamp("us"))
            aware = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
            kind = field.type if tracked else pa.timestamp("us", "UTC")
            table = table.set_column(at, field.with_type(kind), aware.cast(kind))
    return table


def numeric_type(mapping: str, precision: int, scale: int) -> str:
    """What a NUMERIC(precision, scale) becomes: int8, int16, int32, int64, double or decimal (numeric.mapping)."""
    if mapping == "none":
        return "decimal"
    if precision < 19 and (scale == 0 if mapping == "precision_only" else scale < 1):
        return "int8" if precision < 3 else "int16" if precision < 5 else "int32" if precision < 10 else "int64"
    eager = mapping == "best_fit_eager_double"
    return "double" if scale > 0 and (eager or (mapping == "best_fit" and precision < 19)) else "decimal"


def unreadable(label: str, error: ConnectxError) -> ConnectxError:
    """The error of reading rows: a row that a database refuses is none of a record's."""
    if not isinstance(error, RowRefusedError):
        return error
    return DatabaseError(
        f"{label} cannot read the rows: {error.message}",
        next_step="Correct the values or the query, and restart the task.",
    )


def not_whole(column: Column) -> TableMismatchError:
    """The tracked column does not hold whole numbers."""
    return TableMismatchError(
        f"The incrementing column {column.name} is of type {column.type}, not of whole numbers.",
        next_step="Correct incrementing.column.name, and restart the task.",
    )


def not_a_time(column: Column) -> TableMismatchError:
    """The tracked column does not hold timestamps."""
    return TableMismatchError(
        f"The timestamp column {column.name} is of type {column.type}, not a timestamp or date.",
        next_step="Correct timestamp.column.name, and restart the task.",
    )
