"""JSON as Connect's JsonConverter writes it, on whole columns.

The bytes are those of Jackson on Java 19 or later:
- no spaces, null fields written, characters beyond U+FFFF as two escapes;
- dates in days and timestamps in milliseconds since 1970;
- bytes in base64, decimals in base64 of their unscaled bytes unless `decimal.format` is NUMERIC.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import enclosed, entry_lists, is_binary, is_list, is_text, joined_lists, where_valid
from connectx.data.base64_columns import encode_base64, unscaled_bytes
from connectx.data.java_numbers import java_text
from connectx.data.shapes import is_united, mapped
from connectx.errors.plugins import ConversionError

_PER_MS: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_SPECIAL: Final = r'[\x00-\x1f"\\\x{10000}-\x{10ffff}]'
_SHORT: Final = {"\\": "\\", '"': '"', "\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r"}
_ASTRAL: Final = 0xF0
"""Bytes from here on begin the UTF-8 of a character beyond U+FFFF."""


def _escapes() -> list[bytes]:
    """What each byte becomes; nothing for the first byte of an astral character."""
    escapes = [bytes([byte]) for byte in range(_ASTRAL)] + [b""] * (256 - _ASTRAL)
    escapes[:32] = [f"\\u{byte:04X}".encode() for byte in range(32)]
    for character, letter in _SHORT.items():
        escapes[ord(character)] = f"\\{letter}".encode()
    return escapes


_ESCAPES: Final = _escapes()
_WIDTHS: Final = np.array([len(escape) or 12 for escape in _ESCAPES])
_IS_SPECIAL: Final = _WIDTHS != 1
_IS_RARE: Final = _IS_SPECIAL & ~np.isin(np.arange(256), [ord('"'), ord("\\")])
_LONGEST: Final = 6
_ESCAPED: Final = np.frombuffer(b"".join(escape.ljust(_LONGEST) for escape in _ESCAPES), np.uint8).reshape(-1, _LONGEST)
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def json_text(values: pa.Array, *, base64_decimals: bool) -> pa.Array:
    """JSON of each value, as string; null stays null.

    Raises:
        ConversionError: a type that JSON as Connect writes it does not have.
    """
    kind, types = values.type, pa.types

    def inner(part: pa.Array) -> pa.Array:
        return pc.fill_null(json_text(part, base64_decimals=base64_decimals), "null")

    if is_united(kind):
        return mapped(lambda part: json_text(part, base64_decimals=base64_decimals), values)
    if types.is_dictionary(kind):
        return json_text(values.cast(kind.value_type), base64_decimals=base64_decimals)
    if types.is_struct(kind):
        parts = [values.field(index) for index in range(kind.num_fields)]
        texts = [inner(part[:1])[0].as_py() if _is_constant(part) else inner(part) for part in parts]
        return _objects(values, [quoted(field.name) for field in kind], texts)
    if types.is_map(kind):
        values = entry_lists(values)
        keys, items = map(inner, values.flatten().flatten())
        if not is_text(kind.key_type):
            pairs = enclosed("[", pc.binary_join_element_wise(keys, items, ","), "]")
            return enclosed("[", joined_lists(values, pairs, ","), "]")
        return enclosed("{", joined_lists(values, pc.binary_join_element_wise(keys, items, ":"), ","), "}")
    if is_list(kind):
        return enclosed("[", joined_lists(values, inner(values.flatten()), ","), "]")
    return _scalars(values, base64_decimals)


def _scalars(values: pa.Array, base64_decimals: bool) -> pa.Array:
    kind, types = values.type, pa.types
    if is_text(kind):
        return enclosed('"', _escaped(values.cast(pa.string())), '"')
    if types.is_signed_integer(kind) or types.is_boolean(kind) or types.is_null(kind):
        return values.cast(pa.string())
    if types.is_float32(kind) or types.is_float64(kind):
        texts = java_text(values)
        return pc.if_else(pc.is_finite(values), texts, enclosed('"', texts, '"'))
    if types.is_date32(kind):
        return values.cast(pa.int32()).cast(pa.string())
    if types.is_time(kind):
        return values.cast(pa.time32("ms"), safe=False).cast(pa.int32()).cast(pa.string())
    if types.is_timestamp(kind):
        return _milliseconds(values).cast(pa.string())
    if is_binary(kind):
        return enclosed('"', encode_base64(values), '"')
    if types.is_decimal128(kind):
        if base64_decimals:
            return enclosed('"', encode_base64(unscaled_bytes(values)), '"')
        return values.cast(pa.string())
    raise ConversionError(
        f"JsonConverter cannot write values of type {kind}.", next_step="Cast the column to another type."
    )


def quoted(text: str) -> str:
    """A text as a JSON string, with Jackson's escapes."""
    return as_jackson(json.dumps(text, ensure_ascii=False))


def as_jackson(document: str) -> str:
    """A document that Python wrote without ASCII escapes, with the escapes that Jackson writes."""

    def upper(escape: re.Match[str]) -> str:
        digits = escape[1]
        return f"\\u{digits.upper()}" if digits else escape[0]

    document = re.sub(r"\\(?:u([0-9a-f]{4})|.)", upper, document)
    return re.sub("[\U00010000-\U0010ffff]", lambda found: _surrogates(found[0]), document)


def _surrogates(character: str) -> str:
    pair = character.encode("utf-16-be").hex().upper()
    return f"\\u{pair[:4]}\\u{pair[4:]}"


def _objects(values: pa.StructArray, names: list[str], texts: list[pa.Array | str]) -> pa.Array:
    """Objects of members, whose texts are columns, or one text for all."""
    parts: list[pa.Array | str] = ["{"]
    for number, (name, text) in enumerate(zip(names, texts, strict=True)):
        parts[-1] += f"{',' if number else ''}{name}:"
        if isinstance(text, str):
            parts[-1] += text
        else:
            parts += [text, ""]
    parts[-1] += "}"
    if len(parts) == 1:
        return where_valid(values, pa.repeat(parts[0], len(values)))
    return where_valid(values, pc.binary_join_element_wise(*parts, ""))


def _is_constant(values: pa.Array) -> bool:
    """Whether all values are the same, and have the same text. Floats do not count, since 0.0 equals -0.0."""
    kind, count, types = values.type, len(values), pa.types
    if count and values.null_count == count:
        return True
    if count < 2 or values.null_count or values[0] != values[count - 1]:
        return False
    if not (types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_temporal(kind)):
        return False
    return bool(pc.all(pc.equal(values, values[0])).as_py())


def _escaped(texts: pa.Array) -> pa.Array:
    """Texts with Jackson's escapes. Only those that need some are touched."""
    _, offsets, data = texts.buffers()
    first, last = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]] if len(texts) else (0, 0)
    content = np.frombuffer(data, np.uint8)[first:last] if first < last else np.empty(0, np.uint8)
    if not _IS_SPECIAL[content].any():
        return texts
    if not _IS_RARE[content].any():
        return pc.replace_substring(pc.replace_substring(texts, "\\", r"\\"), '"', r"\"")
    special = pc.fill_null(pc.match_substring_regex(texts, _SPECIAL), False)
    if not pc.any(special).as_py():
        return texts
    found = pa.concat_arrays([texts.filter(special)])
    _, offsets, data = found.buffers()
    raw, ends = np.frombuffer(data, np.uint8), np.frombuffer(offsets, np.int32)[: len(found) + 1]
    raw = raw[: ends[-1]]
    widths = _WIDTHS[raw]
    astral = np.flatnonzero(raw >= _ASTRAL)
    for place in (1, 2, 3):
        widths[astral + place] = 0
    stops = np.concatenate([[0], np.cumsum(widths)])
    written = np.empty(stops[-1], np.uint8)
    for place in range(_LONGEST):
        those = np.flatnonzero((widths > place) & (widths <= _LONGEST))
        written[stops[those] + place] = _ESCAPED[raw[those], place]
    for place, column in enumerate(_astral_escapes(raw, astral)):
        written[stops[astral] + place] = column
    buffers = [None, pa.py_buffer(stops[ends].astype(np.int32)), pa.py_buffer(written)]
    return pc.replace_with_mask(texts, special, pa.StringArray.from_buffers(len(found), *buffers[1:]))


def _astral_escapes(raw: Any, at: Any) -> list[Any]:
    """The twelve characters of each astral character's escape, column by column."""
    first, second, third, fourth = (raw[at + place].astype(np.uint32) for place in range(4))
    code = ((first & 7) << 18 | (second & 63) << 12 | (third & 63) << 6 | fourth & 63) - 0x10000
    columns: list[Any] = []
    for half in (0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF)):
        columns += [np.uint8(ord("\\")), np.uint8(ord("u")), *(_HEX[half >> shift & 15] for shift in (12, 8, 4, 0))]
    return columns


def _milliseconds(values: pa.Array) -> pa.Array:
    """Milliseconds since 1970, rounded down also before 1970."""
    ticks = values.cast(pa.int64())
    if values.type.unit == "s":
        return pc.multiply_checked(ticks, 1_000)
    per_ms = _PER_MS[values.type.unit]
    towards_zero = pc.divide(ticks, per_ms)
    below = pc.less(ticks, pc.multiply(towards_zero, per_ms))
    return pc.subtract(towards_zero, below.cast(pa.int64()))
