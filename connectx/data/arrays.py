"""Arrow arrays of text and nested values, for several converters."""

from __future__ import annotations

import numpy as np
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


def offsets_of(lists: pa.Array) -> pa.Array:
    """Offsets of lists or maps from 0, null where they are null."""
    lengths = lengths_of(lists if is_list(lists.type) else entry_lists(lists))
    ends = np.concatenate([[0], np.cumsum(lengths.to_numpy())]).astype(np.int32)
    if not lists.null_count:
        return pa.array(ends)
    return pa.array(ends, mask=np.append(lists.is_null().to_numpy(zero_copy_only=False), False))


def as_type(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Values cast to a type whose structs may have their fields in another order, and more of them.

    Raises:
        pyarrow.ArrowInvalid: a value does not fit.
        pyarrow.ArrowNotImplementedError: Arrow has no such cast.
    """
    if values.type == kind:
        return values
    try:
        return values.cast(kind)
    except pa.ArrowTypeError:
        if not pa.types.is_nested(kind):
            raise
        # Arrow 19 wants the fields that the values have in their order.
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([as_type(chunk, kind) for chunk in values.chunks], kind)
    if pa.types.is_struct(kind):
        found = {field.name: column for field, column in zip(values.type, values.flatten(), strict=True)}
        columns = [
            as_type(found[field.name], field.type) if field.name in found else pa.nulls(len(values), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=values.is_null())
    if pa.types.is_map(kind):
        keys, items = entry_lists(values).flatten().flatten()
        return pa.MapArray.from_arrays(offsets_of(values), keys, as_type(items, kind.item_type)).cast(kind)
    return pa.ListArray.from_arrays(offsets_of(values), as_type(values.flatten(), kind.value_type)).cast(kind)


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
