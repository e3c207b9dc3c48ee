"""Values of several shapes as columns of one table.

A field that a record does not have is null in its column. A column has the type that holds the values of all shapes,
by the rules that let a table's columns evolve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from connectx.connectors.shared.columns import common_type
from connectx.data.arrays import as_type, is_list
from connectx.data.chunks import one_chunk
from connectx.data.shapes import Part, divided, is_united, parts_of, united
from connectx.errors.databases import TableMismatchError

VALUE = "value"
"""Column of a value without fields."""


def columns_of(values: pa.ChunkedArray) -> pa.Table:
    """Fields of struct values as columns; other values as one column.

    Columns without any value are left out: they have no type.

    Raises:
        TableMismatchError: no one type holds the values of a field.
    """
    if not is_united(values.type):
        return _fields_of(values)
    return united_tables([(rows, _fields_of(pa.chunked_array([part]))) for rows, part in parts_of(values)])


def by_shape(records: pa.Table, function: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """What the function makes of records, row by row: it gets keys and values of one shape at a time.

    Raises:
        TableMismatchError: no one type holds the values of a column.
    """
    parts = divided(records)
    if len(parts) == 1:
        return function(parts[0][1])
    return united_tables([(rows, function(part)) for rows, part in parts])


def united_tables(parts: Sequence[tuple[Any, pa.Table]]) -> pa.Table:
    """Tables, with the numbers of their rows, as one in the order of rows.

    Raises:
        TableMismatchError: no one type holds the values of a column.
    """
    columns: dict[str, list[Part]] = {}
    count = sum(len(rows) for rows, _ in parts)
    for rows, table in sorted(parts, key=lambda part: part[0][0]):
        for name in table.column_names:
            columns.setdefault(name, []).append((rows, one_chunk(table[name])))
    arrays = {name: _column(found, name, count) for name, found in columns.items()}
    # Without columns a table cannot say how many rows it has.
    return pa.table(arrays) if arrays else pa.table({"no": pa.nulls(count)}).select([])


def united_columns(tables: Sequence[pa.Table]) -> pa.Table:
    """Columns of all tables without rows, each in the type that holds its values, or in the first if none does."""
    if len(tables) == 1:
        return tables[0]
    fields: dict[str, pa.Field] = {}
    for field in (field for table in tables for field in table.schema):
        known = fields.setdefault(field.name, field)
        wider = common_type(known.type, field.type) or common_type(field.type, known.type)
        fields[field.name] = known if wider is None else known.with_type(wider)
    return pa.schema(list(fields.values())).empty_table()


def _column(parts: Sequence[Part], name: str, count: int) -> pa.Array:
    held = np.concatenate([rows for rows, _ in parts])
    missing = np.setdiff1d(np.arange(count), held)
    return of_one_type(united([*parts, (missing, pa.nulls(len(missing)))]), name)


def of_one_type(values: pa.Array, name: str) -> pa.Array:
    """Values in the type that holds all of their shapes, at every depth; `name` is the field's, for messages.

    Raises:
        TableMismatchError: there is none.
    """
    kind = values.type
    if not _has_union(kind):
        return values
    if is_united(kind):
        in_order = sorted(parts_of(values), key=lambda part: part[0][0])
        parts = [(rows, of_one_type(part, name)) for rows, part in in_order]
        common = parts[0][1].type
        for _, part in parts[1:]:
            wider = common_type(common, part.type) or common_type(part.type, common)
            if wider is None:
                raise TableMismatchError(
                    f"The field {name} is of type {common} in some records, and of type {part.type} in others.",
                    next_step="Correct the records, for example with a Cast transformation, and restart the task.",
                )
            common = wider
        return united([(rows, as_type(part, common)) for rows, part in parts])
    mask = values.is_null() if values.null_count else None
    if is_list(kind):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        elements = of_one_type(values.values[first:last], name)
        ends = values.offsets.to_numpy() - first
        return pa.ListArray.from_arrays(pa.array(ends), elements, mask=mask)
    members = list(zip(kind, values.flatten(), strict=True))
    columns = [of_one_type(column, f"{name}.{field.name}") for field, column in members]
    fields = [field.with_type(column.type) for field, column in zip(kind, columns, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def _has_union(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_union(field.type) for field in kind)
    return _has_union(kind.value_type) if is_list(kind) else is_united(kind)


def _fields_of(values: pa.ChunkedArray) -> pa.Table:
    table = pa.table({VALUE: values})
    if pa.types.is_struct(values.type):
        arrays = values.chunks or [pa.array([], values.type)]
        table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(array) for array in arrays])
    for at, field in enumerate(table.schema):
        if _has_union(field.type):
            column = of_one_type(one_chunk(table[at]), field.name)
            table = table.set_column(at, field.with_type(column.type), column)
    return table.select([field.name for field in table.schema if not pa.types.is_null(field.type)])
