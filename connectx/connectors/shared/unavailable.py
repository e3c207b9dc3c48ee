"""Placeholders of values that a change does not hold, as Debezium writes them for unchanged out-of-line values (TOAST).

Pure. PostgreSQL does not send a long value that an update did not change. Its column then has a placeholder, and a sink
that updates rows leaves the column as it is. Debezium has forms for texts, bytes, hstore and arrays of texts, bytes,
uuid, int4, date and int8, and null for other types. Those have a form here that follows the same rule.
Source: UnchangedToastedPlaceholder of Debezium 3.6.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

PLACEHOLDER: Final = "__debezium_unavailable_value"
"""Debezium's default of unavailable.value.placeholder."""

_BYTE_DIGITS: Final = 3
_INT_BITS: Final = 32
_VARIABLE_SCALE: Final = {"scale", "value"}
"""Fields of io.debezium.data.VariableScaleDecimal."""


def placeholder(kind: pa.DataType, mark: str = PLACEHOLDER) -> Any:
    """The placeholder of a column of a type: `mark` as text or bytes; None if the type has none.

    A number without a scale has the bytes as its unscaled value. An array of texts, bytes or such numbers has one
    element, an array of other numbers or times one for each byte, and an array of booleans one for each bit.
    """
    if pt.is_string(kind) or pt.is_large_string(kind):
        return mark
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return mark.encode()
    if pt.is_map(kind):
        return [(mark, mark)]
    if _is_variable_scale(kind):
        return {"scale": 0, "value": mark.encode()}
    if pt.is_list(kind) or pt.is_large_list(kind):
        return _placeholder_list(kind.value_type, mark)
    return None


def uuid_placeholder(mark: str = PLACEHOLDER) -> list[str]:
    """The placeholder of an array of uuid: Java's UUID.nameUUIDFromBytes of the bytes."""
    return [str(uuid.UUID(bytes=hashlib.md5(mark.encode(), usedforsecurity=False).digest(), version=3))]


def json_placeholder(mark: str = PLACEHOLDER) -> str:
    """The placeholder of an hstore that is written as JSON."""
    return json.dumps({mark: mark}, ensure_ascii=False, separators=(",", ":"))


def is_placeholder(value: Any, mark: str = PLACEHOLDER) -> bool:
    """Whether a value of a record is a placeholder, in the forms of all converters."""
    data = mark.encode()
    match value:
        case str():
            return value in _texts(mark)
        case bytes():
            return value == data
        case dict():
            return value == {mark: mark} or (value.keys() == _VARIABLE_SCALE and is_placeholder(value["value"], mark))
        case [single]:
            return single == (mark, mark) or single in uuid_placeholder(mark) or is_placeholder(single, mark)
        case list():
            return value in (list(data), _bits(data))
        case _:
            return False


def unavailable(values: pa.Array | pa.ChunkedArray, mark: str = PLACEHOLDER) -> pa.BooleanArray:
    """Mask of the values of a column that are placeholders, in the forms of all converters; it has no nulls."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    kind = values.type
    if pt.is_string(kind) or pt.is_large_string(kind):
        return pc.is_in(values, pa.array(_texts(mark), kind))
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return pc.is_in(values, pa.array([mark.encode()], kind))
    if pt.is_struct(kind) and (_is_variable_scale(kind) or kind.get_field_index(mark) >= 0):
        inner = pc.struct_field(values, "value" if _is_variable_scale(kind) else mark)
        return unavailable(inner, mark)
    found = np.zeros(len(values), bool)
    if pt.is_map(kind) or pt.is_list(kind) or pt.is_large_list(kind):
        item = kind if pt.is_map(kind) else kind.value_type
        which = np.flatnonzero(np.diff(values.offsets) == _length(item, len(mark.encode())))
        taken = values.take(pa.array(which))
        if pt.is_temporal(item):
            taken = taken.cast(pa.list_(pa.int32() if item.bit_width == _INT_BITS else pa.int64()))
        found[which] = [is_placeholder(value, mark) for value in taken.to_pylist()]
    return pa.array(found)


def _placeholder_list(item: pa.DataType, mark: str) -> list[Any] | None:
    data = mark.encode()
    if pt.is_boolean(item):
        return _bits(data)
    if pt.is_decimal(item):
        return list(data) if item.precision - item.scale >= _BYTE_DIGITS else None
    if pt.is_integer(item) or pt.is_floating(item) or pt.is_temporal(item):
        return list(data)
    single = placeholder(item, mark)
    return None if single is None else [single]


def _length(item: pa.DataType, size: int) -> int:
    """How many elements the placeholder of a list has; `size` is that of its bytes."""
    if pt.is_boolean(item):
        return size * 8
    return size if pt.is_primitive(item) or pt.is_decimal(item) else 1


def _bits(data: bytes) -> list[bool]:
    bits: list[bool] = np.unpackbits(np.frombuffer(data, np.uint8)).astype(bool).tolist()
    return bits


def _texts(mark: str) -> tuple[str, ...]:
    """Forms of texts and bytes: as they are, in base64, in hexadecimal digits, and an hstore as JSON."""
    data = mark.encode()
    return mark, base64.b64encode(data).decode(), data.hex(), json_placeholder(mark)


def _is_variable_scale(kind: pa.DataType) -> bool:
    return pt.is_struct(kind) and {field.name for field in kind} == _VARIABLE_SCALE
