"""Reads rows of a table or a query between two positions, and shapes them for slices.

It decides which statements read them; when, and how many, is the task's decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from connectx.connectors.jdbc.criteria import INCREMENTING, TIMESTAMP, Criteria, Position
from connectx.connectors.jdbc.database import Database, Field
from connectx.data.connect_schema import NO_NAME, SchemaName
from connectx.errors.databases import TableMismatchError


@dataclass(frozen=True, slots=True)
class Reading:
    """What to select from where."""

    source: str
    fields: list[Field]
    criteria: Criteria

    def rows(
        self,
        database: Database,
        slice_rows: int,
        after: Position,
        before_us: int | None,
        *,
        until: Position | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.Table]:
        """Rows after a position; the tracked values are additional columns."""
        added = self._added
        sql = self.criteria.query(
            _selected(database, [*self.fields, *added]),
            self.source,
            after,
            before_us=before_us,
            until=until,
            limit=limit,
        )
        return database.read(sql, [*self.fields, *added], slice_rows)

    def statement(
        self, database: Database, after: Position, before_us: int | None = None, *, until: Position | None = None
    ) -> str:
        """SELECT of the rows between two positions, in order, without the tracked values."""
        return self.criteria.query(
            _selected(database, self.fields), self.source, after, before_us=before_us, until=until
        )

    def position(self, database: Database, after: Position, before_us: int | None, number: int) -> Position | None:
        """Where the row of this number after a position is, from 1; None if there are fewer rows."""
        sql = self.criteria.query(
            _selected(database, self._added), self.source, after, before_us=before_us, limit=1, skip=number - 1
        )
        found = pa.concat_tables(list(database.read(sql, self._added, 1)) or [pa.table({})])
        return position_of(found) if found.num_rows else None

    def count(
        self,
        database: Database,
        after: Position,
        before_us: int | None = None,
        *,
        until: Position | None = None,
        limit: int | None = None,
    ) -> int:
        """How many rows are between two positions; counts no further than `limit`."""
        sql = self.criteria.count(self.source, after, before_us, until=until, limit=limit)
        (found,) = database.read(sql, [Field("rows", "count(*)", pa.int64())], 1)
        return int(found["rows"][0].as_py())

    @property
    def _added(self) -> list[Field]:
        return [Field(name, sql) for name, sql in self.criteria.added]


def position_of(rows: pa.Table) -> Position:
    """Of the last row.

    Raises:
        TableMismatchError: its number is none, or its timestamp is no date, as 0000-00-00 of MySQL.
    """
    names = rows.column_names
    stamp = rows[TIMESTAMP][-1].as_py() if TIMESTAMP in names else None
    if TIMESTAMP in names and stamp is None:
        raise TableMismatchError(
            "The timestamp column has a value that is no date.",
            next_step="Correct the value or timestamp.column.name, and restart the task.",
        )
    number = rows[INCREMENTING][-1].as_py() if INCREMENTING in names else None
    if INCREMENTING in names and (number is None or int(number) != number):
        raise TableMismatchError(
            f"The incrementing column has the value {number!r}, which is no whole number.",
            next_step="Correct the value or incrementing.column.name, and restart the task.",
        )
    return Position(None if stamp is None else int(stamp), None if number is None else int(number))


def as_value(rows: pa.Table, table: str | None) -> pa.Table:
    """Rows as the column `value`, a struct, so that no column is taken for a key or a topic.

    The schema has the name of the table, as in Confluent's connector.
    """
    kept = rows.drop_columns([name for name in (TIMESTAMP, INCREMENTING) if name in rows.column_names])
    struct = pa.struct(list(kept.schema))
    values = pa.chunked_array(kept.combine_chunks().to_struct_array().chunks, type=struct)
    name = SchemaName(table) if table else NO_NAME
    return pa.table([values], schema=pa.schema([name.on(pa.field("value", struct))]))


def _selected(database: Database, fields: list[Field]) -> str:
    return ", ".join(f"{field.sql} AS {database.quote(field.name)}" for field in fields)
