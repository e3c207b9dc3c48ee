"""Joins rows that were read in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.converter import Decoded
from connectx.data.shapes import united
from connectx.errors.plugins import ConversionError


def joined(parts: Sequence[tuple[pa.Array, Decoded]]) -> Decoded:
    """Parts (row numbers, results of those rows) in the order of rows; values of several types keep theirs."""
    if len(parts) == 1:
        return parts[0][1]
    numbered = [(rows.to_numpy().astype(np.int64), part) for rows, part in parts]
    values = united((rows, where(part.error.is_null(), part.value)) for rows, part in numbered)
    return Decoded(values, united((rows, part.error.cast(pa.string())) for rows, part in numbered))


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
    if pc.all(good).as_py() is not False:
        return values
    return values.take(pc.if_else(good, pa.array(np.arange(len(values))), pa.scalar(None, pa.int64())))
