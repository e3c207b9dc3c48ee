"""SQL statements and their values, for drivers that take Python objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

Quote = Callable[[str], str]


def bound_rows(rows: pa.Table) -> list[tuple[object, ...]]:
    """Rows as tuples. Times and decimals are texts, in the form that SQL knows; booleans are numbers."""
    return list(zip(*(_bound(column).to_pylist() for column in rows.columns), strict=True))


def inserting(table: str, names: Sequence[str], quote: Quote, mark: str) -> str:
    """INSERT of one row; `mark` stands for a value."""
    listed = ", ".join(map(quote, names))
    return f"INSERT INTO {table} ({listed}) VALUES ({', '.join([mark] * len(names))})"


def _bound(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    return column
