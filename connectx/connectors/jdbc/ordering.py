"""The order of writing rows with different columns, so that the outcome is that of one row after the other."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import pyarrow as pa

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


def in_layers(rows: pa.Table, keys: Sequence[Hashable]) -> Iterator[pa.Table]:
    """Rows of one shape each. A row whose key had another shape before comes after that row.

    Rows with the same key and shape stay together, in order: the last of them counts.

    Args:
        keys: what identifies each row.
    """
    shapes = shapes_of(rows)
    last: dict[Hashable, tuple[int, int]] = {}
    groups: dict[tuple[int, int], list[int]] = {}
    for row, (key, shape) in enumerate(zip(keys, shapes, strict=True)):
        layer, before = last.get(key, (0, shape))
        last[key] = layer + (before != shape), shape
        groups.setdefault(last[key], []).append(row)
    for group in sorted(groups, key=lambda group: (group[0], groups[group][0])):
        ((_, part),) = divided(rows.take(pa.array(groups[group])))
        yield part


def after_deletion(keys: Sequence[Hashable], dead: pa.Array) -> list[int]:
    """Numbers of the rows that no later tombstone of the same key deletes."""
    flags = dead.to_pylist()
    deleted = {key: row for row, (key, is_dead) in enumerate(zip(keys, flags, strict=True)) if is_dead}
    return [row for row, key in enumerate(keys) if row > deleted.get(key, -1)]


def tombstones(rows: pa.Table) -> pa.Array:
    """True where a record has no value."""
    return nulls_of(rows["value"])
