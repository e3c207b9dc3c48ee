"""The order of writing rows with different columns, so that the outcome is that of one row after the other."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import is_text
from connectx.data.shapes import divided, nulls_of


def runs(flags: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Start and length of each run of equal neighbours."""
    start = 0
    for at in range(1, len(flags) + 1):
        if at == len(flags) or flags[at] != flags[start]:
            yield start, at - start
            start = at


def shapes_of(rows: pa.Table) -> list[int]:
    """The number of the shape of each row."""
    shapes = [0] * rows.num_rows
    for shape, (numbers, _) in enumerate(divided(rows)):
        for number in numbers.tolist():
            shapes[number] = shape
    return shapes


def in_layers(rows: pa.Table, keys: Sequence[Hashable]) -> Iterator[tuple[bool, pa.Table]]:
    """(is without value, rows of one shape): each record comes after those of its key that differ in either.

    Rows with the same key and shape stay together, in order: the last of them counts.

    Args:
        keys: what identifies each row.
    """
    kinds = list(zip(tombstones(rows).to_pylist(), shapes_of(rows), strict=True))
    for group in layered(kinds, keys):
        ((_, part),) = divided(rows.take(pa.array(group)))
        yield kinds[group[0]][0], part


def layered(kinds: Sequence[Hashable], keys: Sequence[Hashable]) -> list[list[int]]:
    """Numbers of rows of one kind each; a row whose key had another kind before comes after that row."""
    last: dict[Hashable, tuple[int, Hashable]] = {}
    groups: dict[tuple[int, Hashable], list[int]] = {}
    for row, (key, kind) in enumerate(zip(keys, kinds, strict=True)):
        layer, before = last.get(key, (0, kind))
        last[key] = layer + (before != kind), kind
        groups.setdefault(last[key], []).append(row)
    return [groups[group] for group in sorted(groups, key=lambda group: (group[0], groups[group][0]))]


def last_of_each(keys: pa.Table) -> pa.Array:
    """Numbers of the rows that hold a key for the last time, in order."""
    return _aggregated(keys)[1]


def repeated(keys: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Numbers of the rows whose key no other row has, and of the rest, both in order.

    Keys that differ in case alone count as one: a collation may take them for one.
    """
    folded = [pc.utf8_lower(column) if is_text(column.type) else column for column in keys.columns]
    first, last = (each.to_numpy() for each in _aggregated(pa.table(folded, keys.column_names)))
    once = np.zeros(keys.num_rows, bool)
    once[last[np.isin(last, first, assume_unique=True)]] = True
    return pa.array(np.flatnonzero(once)), pa.array(np.flatnonzero(~once))


def occurrences(keys: pa.Table) -> Iterator[pa.Array]:
    """Numbers of the rows that hold a key for the first time, then of those that hold it for the second, and so on."""
    left = np.arange(keys.num_rows)
    while len(left):
        first = np.sort(_aggregated(keys.take(pa.array(left)))[0].to_numpy())
        yield pa.array(left[first])
        left = np.delete(left, first)


def _aggregated(keys: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Numbers of the rows that hold each key for the first time, and for the last time, in ascending order each."""
    names = [str(at) for at in range(keys.num_columns)]
    numbered = pa.table([*keys.columns, pa.array(range(keys.num_rows), pa.int64())], [*names, "row"])
    found = numbered.group_by(names, use_threads=False).aggregate([("row", "min"), ("row", "max")])
    first, last = (np.sort(found[name].to_numpy()) for name in ("row_min", "row_max"))
    return pa.array(first), pa.array(last)


def tombstones(rows: pa.Table) -> pa.Array:
    """True where a record has no value."""
    return nulls_of(rows["value"])
