"""Joins rows that were read in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.chunks import one_chunk
from connectx.data.converter import Decoded
from connectx.errors.plugins import ConversionError


def joined(parts: Sequence[tuple[pa.Array, Decoded]]) -> Decoded:
    """Parts (row numbers, results of those rows) in the order of rows, in one type.

    Raises:
        ConversionError: no one type holds the values of all parts.
    """
    if len(parts) == 1:
        return parts[0][1]
    good = [where(part.error.is_null(), part.value) for _, part in parts]
    values = [pa.nulls(len(value)) if value.null_count == len(value) else value for value in good]
    tables = [
        pa.table({"row": rows, "value": value, "error": part.error})
        for (rows, part), value in zip(parts, values, strict=True)
    ]
    kinds = {str(value.type) for value in values if not pa.types.is_null(value.type)}
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as cause:
        raise ConversionError(
            f"One batch holds values of types that do not fit together: {' and '.join(sorted(kinds))}.",
            next_step="Lower consumer.override.max.poll.records, or give the sink one type of values.",
        ) from cause
    table = table.sort_by("row").combine_chunks()
    value, error = (one_chunk(table[name]) for name in ("value", "error"))
    return Decoded(value, error)


def read_by_halves(bodies: pa.Array, read: Callable[[pa.Array], pa.Array], kind: pa.DataType) -> Decoded:
    """Values of bodies, read in one call; one that cannot be read is found by halves, and has an error.

    Args:
        read: raises ConversionError when one of them cannot be read.
        kind: type of the values.
    """
    try:
        return Decoded.of(read(bodies))
    except ConversionError as error:
        if len(bodies) == 1:
            return Decoded(pa.nulls(1, kind), pa.array([error.message], pa.string()))
    half = len(bodies) // 2
    parts = read_by_halves(bodies[:half], read, kind), read_by_halves(bodies[half:], read, kind)
    numbers = pa.array(range(half), pa.uint64()), pa.array(range(half, len(bodies)), pa.uint64())
    return joined(list(zip(numbers, parts, strict=True)))


def where(good: pa.Array, values: pa.Array) -> pa.Array:
    """Values of good rows, null for others."""
    return values if pc.all(good).as_py() is not False else pc.if_else(good, values, pa.scalar(None, values.type))
