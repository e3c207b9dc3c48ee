"""Arrow arrays of text and nested values, for several converters."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def is_list(kind: pa.DataType) -> bool:
    """True for the list types of Arrow; a map is none."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def enclosed(head: str, texts: pa.Array, tail: str) -> pa.Array:
    """Each text between `head` and `tail`; null stays null."""
    return pc.binary_join_element_wise(head, texts, tail, "", null_handling="emit_null")


def entry_lists(maps: pa.Array) -> pa.Array:
    """Maps as lists of structs {key, value}, for which Arrow has more functions."""
    kind = maps.type
    entry = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
    return maps.cast(pa.list_(entry))


def joined_lists(lists: pa.Array, texts: pa.Array, separator: str) -> pa.Array:
    """Texts of all elements of `lists`, joined list by list; null stays null."""
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths_of(lists))])
    return where_valid(lists, pc.binary_join(pa.ListArray.from_arrays(offsets, texts), separator))


def lengths_of(lists: pa.Array) -> pa.Array:
    """Length of each list, int32; 0 of null."""
    return pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())


def where_valid(of: pa.Array, values: pa.Array) -> pa.Array:
    """`values`, null where `of` is null."""
    return pc.if_else(of.is_valid(), values, pa.scalar(None, values.type)) if of.null_count else values
