"""Text of values as Java's toString of Connect's objects, which is what FileStreamSink prints.

A struct is `Struct{a=1,b=x}` without its null fields, a map `{a=1, b=null}` in the order of java.util.HashMap, and a
moment is java.util.Date's text in UTC. Bytes are UTF-8 text, where Java prints the address of an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import (
    enclosed,
    entry_lists,
    is_binary,
    is_list,
    is_text,
    joined_lists,
    lengths_of,
    where_valid,
)
from connectx.data.connect_schema import is_schemaless
from connectx.data.shapes import parts_of
from connectx.data.transforms.columns import TIMESTAMP, hash_bucket, hash_capacity, in_java_order, java_hash, moments
from connectx.data.transforms.date_format import DateFormat
from connectx.data.transforms.texts import java_double, java_float

_DATE: Final = DateFormat("EEE MMM dd HH:mm:ss z y")
_NULL: Final = "null"


def object_texts(values: pa.Array | pa.ChunkedArray, *, schemaless: bool) -> pa.Array:
    """Each value as Java's String.valueOf; null is the word.

    Args:
        schemaless: structs stand for Java's maps.
    """
    parts = parts_of(values)
    if len(parts) == 1:
        return pc.fill_null(_texts(parts[0][1], schemaless=schemaless), _NULL)
    places = np.argsort(np.concatenate([rows for rows, _ in parts]))
    texts = pa.concat_arrays([pc.fill_null(_texts(part, schemaless=schemaless), _NULL) for _, part in parts])
    return texts.take(pa.array(places))


def _texts(values: pa.Array, *, schemaless: bool) -> pa.Array:
    """Values of one type; null may stay null."""
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        return _texts(values.cast(kind.value_type), schemaless=schemaless)
    if types.is_null(kind):
        return pa.nulls(len(values), pa.string())
    if is_text(kind) or types.is_integer(kind) or types.is_boolean(kind):
        return values.cast(pa.string())
    if types.is_union(kind):
        return object_texts(values, schemaless=schemaless)
    if types.is_struct(kind):
        return _struct_texts(values, schemaless=schemaless or is_schemaless(kind))
    if types.is_map(kind):
        return _map_texts(values, schemaless=schemaless)
    if is_list(kind):
        return _list_texts(values, schemaless=schemaless)
    if types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind):
        return _DATE.format(_milliseconds(values))
    spell: Callable[[Any], str] = str
    if is_binary(kind):
        spell = _utf8
    elif types.is_float64(kind):
        spell = java_double
    elif types.is_floating(kind):
        spell = java_float
    return pa.array([None if value is None else spell(value) for value in values.to_pylist()], pa.string())


def _struct_texts(values: pa.Array, *, schemaless: bool) -> pa.Array:
    fields = {
        field.name: _texts(moments((field, values.field(at))), schemaless=schemaless)
        for at, field in enumerate(values.type)
    }
    names = in_java_order(fields) if schemaless else fields
    head, separator = ("{", ", ") if schemaless else ("Struct{", ",")
    spelled = [pc.fill_null(fields[name], _NULL) if schemaless else fields[name] for name in names]
    named = [
        pc.fill_null(enclosed(f"{separator}{name}=", texts, ""), "") for name, texts in zip(names, spelled, strict=True)
    ]
    inside = pc.binary_join_element_wise(*named, "") if named else pa.array([""] * len(values))
    return where_valid(values, enclosed(head, pc.utf8_slice_codeunits(inside, len(separator)), "}"))


def _map_texts(values: pa.Array, *, schemaless: bool) -> pa.Array:
    entries = entry_lists(values)
    keys, items = entries.flatten().flatten()
    order, start = [], 0
    hashes = _hashes(keys)
    for count in lengths_of(entries).to_pylist():
        capacity = hash_capacity(count)
        buckets = {at: hash_bucket(hashes[at], capacity) for at in range(start, start + count)}
        order += sorted(buckets, key=buckets.__getitem__)
        start += count
    spelled = [
        pc.fill_null(_texts(part, schemaless=schemaless), _NULL)
        for part in (keys, moments((values.type.item_field, items)))
    ]
    pairs = pc.binary_join_element_wise(*spelled, "=").take(pa.array(order, pa.int64()))
    return enclosed("{", joined_lists(entries, pairs, ", "), "}")


def _hashes(keys: pa.Array) -> list[int]:
    """Java's hashCode of keys, as far as it does not depend on addresses."""
    kind, types = keys.type, pa.types
    if types.is_boolean(kind):
        return [1231 if key else 1237 for key in keys.to_pylist()]
    if types.is_float32(kind):
        return [int(code) for code in keys.to_numpy().view(np.int32)]
    if types.is_float64(kind) or types.is_int64(kind):
        return [int(code) ^ int(code) >> 32 for code in keys.to_numpy().view(np.int64)]
    return [key if isinstance(key, int) else java_hash(str(key)) for key in keys.to_pylist()]


def _list_texts(values: pa.Array, *, schemaless: bool) -> pa.Array:
    elements = moments((values.type.value_field, values.flatten()))
    return enclosed("[", joined_lists(values, object_texts(elements, schemaless=schemaless), ", "), "]")


def _milliseconds(values: pa.Array) -> pa.Array:
    """Milliseconds since 1970."""
    kind = values.type
    if pa.types.is_date(kind):
        return values.cast(pa.date64()).cast(pa.int64())
    if pa.types.is_time(kind):
        return values.cast(pa.time32("ms"), safe=False).cast(pa.int32()).cast(pa.int64())
    floored = pc.floor_temporal(values.cast(TIMESTAMP, safe=False), unit="millisecond")
    return floored.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())


def _utf8(value: bytes) -> str:
    return value.decode("utf-8", "replace")
