"""JSON written by Arrow in the worker, for types whose text is beyond doubt: a small slice then takes no Spark job.

Text, integers, booleans, dates, times and structs of these, with the bytes that `connectx.data.json.writer` has Spark
write. Fractions are left to Spark: how Java spells them is Java's secret.
"""

from __future__ import annotations

import json
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_SHORT: Final = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_LONG: Final = {chr(code): f"\\u{code:04X}" for code in range(32) if chr(code) not in _SHORT}
_TICKS_PER_MS: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}


def writes(kind: pa.DataType) -> bool:
    """True for a type that this module writes."""
    types = pa.types
    if types.is_struct(kind):
        return kind.num_fields > 0 and all(writes(field.type) for field in kind)
    if types.is_dictionary(kind):
        return writes(kind.value_type)
    if types.is_timestamp(kind):
        return kind.unit in _TICKS_PER_MS
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_signed_integer(kind)
        or types.is_boolean(kind)
        or types.is_date32(kind)
        or types.is_null(kind)
    )


def json_text(values: pa.Array) -> pa.Array:
    """JSON of each value, as string; null stays null. The type must be one that `writes` allows."""
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        return json_text(values.cast(kind.value_type))
    if types.is_struct(kind):
        return _objects(values)
    if types.is_timestamp(kind):
        return _milliseconds(values).cast(pa.string())
    if types.is_date32(kind):
        return values.cast(pa.int32()).cast(pa.string())
    if types.is_signed_integer(kind) or types.is_boolean(kind) or types.is_null(kind):
        return values.cast(pa.string())
    return enclosed('"', _escaped(values.cast(pa.string())), '"')


def enclosed(head: str, texts: pa.Array, tail: str) -> pa.Array:
    """Each text between `head` and `tail`; null stays null."""
    return pc.binary_join_element_wise(head, texts, tail, "", null_handling="emit_null")


def _objects(values: pa.StructArray) -> pa.Array:
    parts: list[object] = []
    for index, field in enumerate(values.type):
        name = json.dumps(field.name, ensure_ascii=False)
        parts += [f"{'{' if index == 0 else ','}{name}:", pc.fill_null(json_text(values.field(index)), "null")]
    texts = pc.binary_join_element_wise(*parts, "}", "", null_handling="emit_null")
    return texts if not values.null_count else pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string()))


def _escaped(texts: pa.Array) -> pa.Array:
    """Jackson's escapes: the short ones, and upper-case hexadecimal digits for other control characters."""
    if not pc.any(pc.match_substring_regex(texts, r'[\x00-\x1f"\\]')).as_py():
        return texts
    for character, escape in _SHORT.items():
        texts = pc.replace_substring(texts, character, escape)
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        for character, escape in _LONG.items():
            texts = pc.replace_substring(texts, character, escape)
    return texts


def _milliseconds(values: pa.Array) -> pa.Array:
    """Milliseconds since 1970, rounded down also before 1970."""
    ticks, per_ms = values.cast(pa.int64()), _TICKS_PER_MS[values.type.unit]
    towards_zero = pc.divide(ticks, per_ms)
    below = pc.less(ticks, pc.multiply(towards_zero, per_ms))
    return pc.subtract(towards_zero, below.cast(pa.int64()))
