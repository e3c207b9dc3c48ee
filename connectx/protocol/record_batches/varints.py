"""Zigzag varints of whole columns, as numpy and Arrow arrays (Kafka's ByteUtils.writeVarlong)."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

_LONGEST: Final = 10
_SMALL: Final = 1 << 14


def varints(values: Any) -> Any:
    """Encode an int64 array; returns an Arrow binary array, or the bytes of one varint if all values are equal."""
    lowest, highest = (int(values.min()), int(values.max())) if len(values) else (0, -1)
    if lowest == highest:
        return varint(lowest)
    if lowest >= 0 and highest < _SMALL:
        return _small_varints().take(pa.array(values))
    return _encode(values)


def varints_below(count: int) -> Any:
    """Encode 0, 1, ..., count - 1, for counts above 1 as an Arrow binary array."""
    return _small_varints().slice(0, count) if 1 < count <= _SMALL else varints(np.arange(count, dtype=np.int64))


@cache
def _small_varints() -> Any:
    """Of lengths and offset deltas most are small: looking them up takes a fifth of the time of encoding them."""
    return _encode(np.arange(_SMALL, dtype=np.int64))


def _encode(values: Any) -> Any:
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    longest = max(1, (int(zigzag.max(initial=0)).bit_length() + 6) // 7)
    widths = np.ones(len(values), np.int32)
    for groups in range(1, longest):
        widths += zigzag >= np.uint64(1 << (7 * groups))
    columns = np.arange(longest, dtype=np.int32)
    groups_of_7 = (zigzag[:, None] >> (columns * 7).astype(np.uint64)) & np.uint64(0x7F)
    encoded = groups_of_7.astype(np.uint8) | ((columns < widths[:, None] - 1) * np.uint8(0x80))
    flat = encoded[columns < widths[:, None]]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(widths, out=offsets[1:])
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(flat)])


def varint(value: int) -> bytes:
    """Encode one number."""
    zigzag = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def read_varints(data: Any, at: Any) -> tuple[Any, Any]:
    """Decode the varint at each position of a uint8 array; returns int64 values and the positions after them.

    Positions beyond the end read the last byte, and a varint longer than 10 bytes ends there: check the results.
    """
    last = len(data) - 1
    byte = data.take(at, mode="clip")
    after = at + 1
    if len(byte) and byte.max() < 0x80:
        return (byte >> 1).astype(np.int64) ^ -(byte & 1).astype(np.int64), after
    zigzag = (byte & 0x7F).astype(np.uint64)
    rows = np.flatnonzero(byte >= 0x80)
    for group in range(1, _LONGEST):
        if not len(rows):
            break
        byte = data[np.minimum(after[rows], last)]
        zigzag[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * group)
        after[rows] += 1
        rows = rows[byte >= 0x80]
    signs = -(zigzag & np.uint64(1)).astype(np.int64)
    return (zigzag >> np.uint64(1)).astype(np.int64) ^ signs, after
