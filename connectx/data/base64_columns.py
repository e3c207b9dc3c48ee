"""Base64, and Connect's Decimal in bytes, on whole columns.

Connect's Decimal is the unscaled value in big-endian two's complement, as short as possible (BigInteger.toByteArray).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ALPHABET: Final = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_PAD: Final = ord("=")
_INVALID: Final = 255
_SIXES: Final = np.full(256, _INVALID, np.uint8)
_SIXES[_ALPHABET] = np.arange(64)
_DECIMAL_BYTES: Final = 16


def encode_base64(values: pa.Array) -> pa.Array:
    """Text of binary values, with padding and without line ends; null stays null."""
    offsets, data = _parts(values.cast(pa.binary()))
    lengths = np.diff(offsets)
    groups = (lengths + 2) // 3
    ends = np.cumsum(groups)
    row = np.repeat(np.arange(len(values)), groups)
    at = 3 * (np.arange(len(row)) - (ends - groups)[row])
    left = lengths[row] - at
    padded = np.concatenate([data, np.zeros(3, np.uint8)])
    first, second, third = (padded[offsets[row] + at + place] for place in range(3))
    second, third = np.where(left > 1, second, 0), np.where(left > 2, third, 0)
    text = np.empty((len(row), 4), np.uint8)
    text[:, 0] = _ALPHABET[first >> 2]
    text[:, 1] = _ALPHABET[(first & 3) << 4 | second >> 4]
    text[:, 2] = np.where(left > 1, _ALPHABET[(second & 15) << 2 | third >> 6], _PAD)
    text[:, 3] = np.where(left > 2, _ALPHABET[third & 63], _PAD)
    return _where(values.is_valid(), _array(pa.string(), 4 * ends, text))


def decode_base64(texts: pa.Array) -> pa.Array:
    """Bytes of base64 texts; null where a text is null or not base64 with padding."""
    fits = pc.fill_null(pc.equal(pc.bit_wise_and(pc.binary_length(texts), 3), 0), False)
    offsets, data = _parts(pc.if_else(fits, texts, ""))
    ends = offsets[1:] - offsets[0]
    groups = data[offsets[0] : offsets[-1]].reshape(-1, 4)
    last = np.zeros(len(groups), bool)
    last[(ends[np.diff(offsets) > 0] // 4) - 1] = True
    pads = np.where(last, np.where(groups[:, 2:] == _PAD, 1, 0) @ np.array([1, 1]), 0)
    pads = np.where((groups[:, 3] != _PAD) & (pads > 0), 4, pads)  # "AA=A" is none
    sixes = _SIXES[groups]
    allowed = sixes != _INVALID
    allowed[:, 3] |= pads >= 1
    allowed[:, 2] |= pads == 2
    wrong = np.concatenate([[0], np.cumsum(~allowed.all(axis=1))])
    right = wrong[ends // 4] == wrong[(offsets[:-1] - offsets[0]) // 4]
    sixes = np.where(sixes == _INVALID, 0, sixes)
    decoded = np.empty((len(groups), 3), np.uint8)
    decoded[:, 0] = sixes[:, 0] << 2 | sixes[:, 1] >> 4
    decoded[:, 1] = (sixes[:, 1] & 15) << 4 | sixes[:, 2] >> 2
    decoded[:, 2] = (sixes[:, 2] & 3) << 6 | sixes[:, 3]
    kept = np.arange(3) < (3 - np.minimum(pads, 3))[:, None]
    sizes = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return _where(pc.and_(fits, pa.array(right)), _array(pa.binary(), sizes[ends // 4], decoded[kept]))


def unscaled_bytes(values: pa.Array) -> pa.Array:
    """Connect's bytes of decimals of up to 38 digits; null stays null."""
    kind = pa.decimal128(38, values.type.scale)
    digits = _decimal_bytes(pc.if_else(values.is_valid(), values.cast(kind), pa.scalar(Decimal(0), kind)))
    negative = digits[:, 0] >> 7
    same = (digits == (negative * 255)[:, None])[:, :-1] & (digits[:, 1:] >> 7 == negative[:, None])
    skipped = np.logical_and.accumulate(same, axis=1).sum(axis=1)
    kept = np.arange(_DECIMAL_BYTES) >= skipped[:, None]
    return _where(values.is_valid(), _array(pa.binary(), np.cumsum(_DECIMAL_BYTES - skipped), digits[kept]))


def decimals_of_unscaled(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decimals of type `kind` of Connect's bytes; null where the bytes are null, empty or hold a larger number."""
    offsets, data = _parts(values)
    lengths = np.diff(offsets)
    fits = (lengths > 0) & (lengths <= _DECIMAL_BYTES)
    padded = np.concatenate([np.zeros(_DECIMAL_BYTES, np.uint8), data])
    starts = np.where(fits, offsets[:-1] + _DECIMAL_BYTES, 0)
    ends = starts + np.where(fits, lengths, 1)
    digits = padded[ends[:, None] - np.arange(_DECIMAL_BYTES, 0, -1)] if len(values) else np.empty((0, 16), np.uint8)
    fill = (padded[starts] >> 7) * np.uint8(255)
    digits = np.where(np.arange(_DECIMAL_BYTES) < (_DECIMAL_BYTES - (ends - starts))[:, None], fill[:, None], digits)
    raw = pa.py_buffer(np.ascontiguousarray(digits[:, ::-1].astype(np.uint8)))
    wide = pa.Array.from_buffers(pa.decimal128(38, kind.scale), len(values), [None, raw])
    return fitting(_where(pc.and_(pa.array(fits), values.is_valid()), wide), kind)


def fitting(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decimals of the same scale as `kind`, null where they have more digits."""
    largest = pa.scalar(Decimal(f"{10**kind.precision - 1}E-{kind.scale}"), pa.decimal128(38, kind.scale))
    smallest = pa.scalar(Decimal(f"{1 - 10**kind.precision}E-{kind.scale}"), pa.decimal128(38, kind.scale))
    within = pc.and_(pc.less_equal(values, largest), pc.greater_equal(values, smallest))
    return _where(pc.fill_null(within, False), values).cast(kind)


def _decimal_bytes(values: pa.Array) -> Any:
    raw = np.frombuffer(values.buffers()[1], np.uint8).reshape(-1, _DECIMAL_BYTES)
    return raw[values.offset : values.offset + len(values), ::-1]


def _parts(values: pa.Array) -> tuple[Any, Any]:
    """(offsets, data) of a text or binary array; null is empty."""
    values = pc.fill_null(values, "" if pa.types.is_string(values.type) else b"")
    _, offsets, data = values.buffers()
    if not len(values):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return starts, np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)


def _array(kind: pa.DataType, ends: Any, data: Any) -> pa.Array:
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    parts = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(kind, len(offsets) - 1, parts)


def _where(valid: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(valid, values, pa.scalar(None, values.type))
