"""Changes of rows that keep values: columns whose values in a record are placeholders, which stand for the old value.

Pure. A kept value is null in its column, and the column's name is in the column `KEPT` of the row. The old value is
that of the change before, or of the row in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.shared.unavailable import unavailable
from connectx.data.chunks import rows_where
from connectx.errors.databases import TableMismatchError

KEPT: Final = "_connectx_kept"
"""Column of changes with the names of the columns that keep their values; no column of a table."""

KEPT_FIELD: Final = pa.field(KEPT, pa.list_(pa.string()))

NO_OLD_VALUE: Final = (
    "the record does not have the value of {names}, because the source did not change it, and the table has no row "
    "with the key to keep it of; with REPLICA IDENTITY FULL of the source's table records have all values"
)


def with_kept(columns: pa.Table, key: Sequence[str]) -> pa.Table:
    """Columns without placeholders, and with `KEPT` if there were any."""
    names: list[list[str] | None] = [None] * columns.num_rows
    for at, name in enumerate(columns.column_names):
        if name in key:
            continue
        values = columns[name].combine_chunks()
        found = unavailable(values)
        if not found.true_count:
            continue
        columns = columns.set_column(at, name, pc.if_else(found, pa.scalar(None, values.type), values))
        for row in rows_where(found).to_pylist():
            names[row] = [*(names[row] or ()), name]
    return columns.append_column(KEPT_FIELD, pa.array(names, KEPT_FIELD.type)) if any(names) else columns


def from_earlier(rows: pa.Table, key: Sequence[str], deleted: str | None = None) -> pa.Table:
    """Rows, in the order of their records, with the kept values that an earlier one with the same key has.

    Args:
        deleted: column that marks rows that are deleted.
    """
    if KEPT not in rows.column_names:
        return rows
    kept = rows[KEPT].to_pylist()
    dead = rows[deleted].to_pylist() if deleted is not None else [False] * rows.num_rows
    sources = {name: list(range(rows.num_rows)) for name in {name for names in kept for name in names or ()}}
    last: dict[tuple[object, ...], int] = {}
    for row, of_row in enumerate(_keys(rows, key)):
        before = last.get(of_row)
        if kept[row] and before is not None and not dead[before]:
            for name in kept[row]:
                sources[name][row] = sources[name][before]
            kept[row] = [name for name in kept[row] if name in (kept[before] or ())]
        last[of_row] = row
    for name, numbers in sources.items():
        rows = rows.set_column(
            rows.column_names.index(name), rows.schema.field(name), rows[name].take(pa.array(numbers))
        )
    rows = rows.drop_columns([KEPT])
    return rows.append_column(KEPT_FIELD, pa.array(kept, KEPT_FIELD.type)) if any(kept) else rows


def kept_rows(rows: pa.Table, key: Sequence[str]) -> tuple[pa.Table, list[str]]:
    """Keys of rows that keep values, and the names of all columns that some of them keep."""
    found = rows.filter(pc.greater(pc.fill_null(pc.list_value_length(rows[KEPT]), 0), 0))
    return found.select(list(key)), sorted({name for names in found[KEPT].to_pylist() for name in names})


def from_table(rows: pa.Table, stored: pa.Table, key: Sequence[str], table: str) -> pa.Table:
    """Rows without `KEPT`, with the kept values that the rows of a table have.

    Args:
        stored: rows of the table; each key is there once.

    Raises:
        TableMismatchError: the table has no row with such a key.
    """
    places = {of_row: row for row, of_row in enumerate(_keys(stored, key))}
    kept = rows[KEPT].to_pylist()
    sources: dict[str, list[int]] = {}
    for row, of_row in enumerate(_keys(rows, key)):
        for name in kept[row] or ():
            if of_row not in places:
                raise TableMismatchError(
                    f"The table {table} does not have what a record leaves out: {NO_OLD_VALUE.format(names=name)}.",
                    next_step="Run ALTER TABLE ... REPLICA IDENTITY FULL on the source's table, take a new snapshot of "
                    "it, and restart the task.",
                )
            sources.setdefault(name, list(range(rows.num_rows)))[row] = rows.num_rows + places[of_row]
    for name, numbers in sources.items():
        both = pa.chunked_array([*rows[name].chunks, *stored[name].cast(rows[name].type).chunks], rows[name].type)
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), both.take(pa.array(numbers)))
    return rows.drop_columns([KEPT])


def _keys(rows: pa.Table, key: Sequence[str]) -> list[tuple[object, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in key), strict=True))
