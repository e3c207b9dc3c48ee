"""Columns whose values have several types, because the records of a topic may have several shapes.

A shape is the type of a key or value: fields in order, and their types. A column of one shape is an ordinary Arrow
array. A column of several is a dense union with one child per shape, so that rows keep their order, a field that a
record does not have stays missing, and 12 beside 12.5 stays an integer. Code that works on one type divides such
columns first and unites its results. Null has no type: it is in the child of some other shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from connectx.data.chunks import one_chunk

Part: TypeAlias = tuple[Any, pa.Array]
"""Row numbers as a numpy array, and the values of those rows."""

_MOST_CHILDREN: Final = 127
"""Arrow's unions have no more; the children of a larger one are unions."""


def is_united(kind: pa.DataType) -> bool:
    """Whether values of the type have several shapes."""
    return bool(pa.types.is_union(kind))


def parts_of(values: pa.Array | pa.ChunkedArray) -> list[Part]:
    """The values of each shape, in ascending order of rows."""
    if isinstance(values, pa.ChunkedArray):
        values = one_chunk(values)
    if not is_united(values.type):
        return [(np.arange(len(values)), values)]
    codes, offsets = _places(values)
    order = np.argsort(codes, kind="stable")
    parts = []
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if len(rows):
            child = values.field(int(codes[rows[0]])).take(pa.array(offsets[rows]))
            parts += [(rows[inner], part) for inner, part in parts_of(child)]
    return parts


def nulls_of(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """True where a value is null. Arrow's `is_null` finds none in a union before Arrow 26."""
    if isinstance(values, pa.ChunkedArray):
        values = one_chunk(values)
    if not is_united(values.type):
        return values.is_null()
    codes, offsets = _places(values)
    found = np.zeros(len(values), bool)
    for code in range(values.type.num_fields):
        rows = np.flatnonzero(codes == code)
        found[rows] = nulls_of(values.field(code)).to_numpy(zero_copy_only=False)[offsets[rows]]
    return pa.array(found)


def united(parts: Iterable[Part]) -> pa.Array:
    """One array of all parts in the order of rows: a union if their types differ."""
    by_type: dict[bytes, list[Part]] = {}
    empty: list[Part] = []
    for rows, values in _flat(parts):
        if values.null_count == len(values):
            empty.append((rows, values))
        else:
            by_type.setdefault(_key(values.type), []).append((rows, values))
    if not by_type:
        kind = next((values.type for _, values in empty if not pa.types.is_null(values.type)), pa.null())
        return pa.nulls(sum(len(rows) for rows, _ in empty), kind)
    first = next(iter(by_type.values()))
    first += [(rows, pa.nulls(len(rows), first[0][1].type)) for rows, _ in empty]
    return _in_rows([_joined(same) for same in by_type.values()])


def mapped(function: Callable[[pa.Array], pa.Array], values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """What the function makes of the values, which it gets shape by shape."""
    return united([(rows, function(part)) for rows, part in parts_of(values)])


def divided(table: pa.Table) -> list[tuple[Any, pa.Table]]:
    """Rows of a table by the shapes of their keys and values, with their numbers, in ascending order."""
    mixed = [field.name for field in table.schema if field.name in ("key", "value") and is_united(field.type)]
    if not mixed or not table.num_rows:
        return [(np.arange(table.num_rows), table)]
    codes = np.zeros(table.num_rows, np.int64)
    pieces: dict[str, list[Part]] = {}
    places: dict[str, Any] = {}
    for name in mixed:
        pieces[name], places[name] = parts_of(table[name]), np.empty(table.num_rows, np.int64)
        codes *= len(pieces[name])
        for number, (rows, _) in enumerate(pieces[name]):
            codes[rows] += number
            places[name][rows] = np.arange(len(rows))
    order = np.argsort(codes, kind="stable")
    made = []
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        code, found = int(codes[rows[0]]), {}
        for name in reversed(mixed):
            code, number = divmod(code, len(pieces[name]))
            found[name] = pieces[name][number][1].take(pa.array(places[name][rows]))
        columns = [found[name] if name in found else table[name].take(pa.array(rows)) for name in table.column_names]
        fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
        made.append((rows, pa.table(columns, pa.schema(fields))))
    return made


def _places(values: pa.UnionArray) -> tuple[Any, Any]:
    """Per row its child, and its row there. Arrow's `type_codes` and `offsets` of a slice are those of the whole."""
    _, codes, offsets, *_ = values.buffers()
    rows = slice(values.offset, values.offset + len(values))
    return np.frombuffer(codes, np.int8)[rows], np.frombuffer(offsets, np.int32)[rows]


def _flat(parts: Iterable[Part]) -> Iterator[Part]:
    """Parts of one type each. Arrow counts rows without a sign: differences of these are never negative."""
    for numbers, values in parts:
        rows = numbers.astype(np.int64)
        if is_united(values.type):
            yield from ((rows[inner], part) for inner, part in parts_of(values))
        else:
            yield rows, values


def _key(kind: pa.DataType) -> bytes:
    """Equal for types with the same fields and the same metadata of fields."""
    return bytes(pa.schema([pa.field("", kind)]).serialize())


def _joined(parts: Sequence[Part]) -> Part:
    """Parts of one type as one, in the order of rows."""
    rows, values = parts[0]
    if len(parts) > 1:
        rows = np.concatenate([rows for rows, _ in parts])
        values = pa.concat_arrays([values for _, values in parts])
    if (np.diff(rows) >= 0).all():
        return rows, values
    order = np.argsort(rows)
    return rows[order], values.take(pa.array(order))


def _in_rows(parts: Sequence[Part]) -> pa.Array:
    """Parts of different types as one array."""
    if len(parts) == 1:
        return parts[0][1]
    if len(parts) > _MOST_CHILDREN:
        size = -(-len(parts) // _MOST_CHILDREN)
        groups = [parts[first : first + size] for first in range(0, len(parts), size)]
        return _in_rows([_as_one(group) for group in groups])
    every = np.concatenate([rows for rows, _ in parts])
    codes = np.repeat(np.arange(len(parts), dtype=np.int8), [len(rows) for rows, _ in parts])
    offsets = np.concatenate([np.arange(len(rows), dtype=np.int32) for rows, _ in parts])
    order = np.argsort(every)
    return pa.UnionArray.from_dense(pa.array(codes[order]), pa.array(offsets[order]), [values for _, values in parts])


def _as_one(parts: Sequence[Part]) -> Part:
    """Parts of different types, with the numbers of all of their rows."""
    rows = np.sort(np.concatenate([rows for rows, _ in parts]))
    return rows, _in_rows([(np.searchsorted(rows, each), values) for each, values in parts])
