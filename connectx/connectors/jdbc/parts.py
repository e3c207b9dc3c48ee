"""Parts of a table that Spark's executors read, each over its connection.

The worker decides where parts begin and end. All parts together are the rows that the worker would read there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from connectx.connectors.jdbc.criteria import Position
from connectx.connectors.jdbc.database import Database, DatabaseSettings, Field
from connectx.connectors.jdbc.dialects import open_database
from connectx.connectors.jdbc.reading import Reading, as_value
from connectx.errors.databases import TableMismatchError

_PART_BYTES: Final = 8 << 20
_MOST: Final = 64
"""Parts of a slice."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows after a position up to another one; `rows` is how many the worker has found there."""

    after: Position
    until: Position
    rows: int


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads parts on executors; Python can pickle it.

    Attributes:
        table: name of the table without its schema; None: a query.
        moment: what the database shows to all of them; None: the rows that are there when a part is read.
        statements: one for each part, and `rows` how many rows each must give.
        batch_rows: about how many rows are in memory at a time.
    """

    settings: DatabaseSettings = field(repr=False)
    table: str | None
    moment: str | None
    statements: tuple[str, ...]
    rows: tuple[int, ...]
    fields: tuple[Field, ...]
    batch_rows: int

    def read(self, number: int) -> Iterator[tuple[int, pa.Table]]:
        """Rows of a part, as the records of a bulk slice that is one part of the source.

        Raises:
            TableMismatchError: the part has more or fewer rows than the worker has found.
            DatabaseUnavailableError, DatabaseError
        """
        found, database = 0, open_database(self.settings)
        try:
            if self.moment is not None:
                database.join(self.moment)
            for rows in database.read(self.statements[number], self.fields, self.batch_rows):
                found += rows.num_rows
                if rows.num_rows:
                    yield 0, as_value(rows, self.table)
        finally:
            database.close()
        expected, where = self.rows[number], self.table or "the query"
        if found != expected:
            raise TableMismatchError(
                f"An executor read {found} rows of {where} where the worker had found {expected}: rows were added "
                "or deleted meanwhile, or share a value of the incrementing column.",
                next_step="The worker reads them.",
            )


def divided(
    reading: Reading, database: Database, after: Position, before_us: int | None, rows: int, most: int, row_bytes: int
) -> list[Part]:
    """The first `rows` rows after a position, or as many as there are, in about equal parts, `most` at the most.

    Rows with the same timestamp stay in one part if nothing else is tracked.
    """
    left = reading.count(database, after, before_us, limit=rows)
    count = min(most, _MOST, max(2, -(-left * row_bytes // _PART_BYTES)))
    size, found = -(-left // count), list[Part]()
    while left > 0:
        here = min(size, left)
        until = reading.position(database, after, before_us, here)
        if until is None:  # rows were deleted meanwhile
            break
        if reading.criteria.ties:
            here = max(here, reading.count(database, after, until=until))
        found.append(Part(after, until, here))
        after, left = until, left - here
    return found
