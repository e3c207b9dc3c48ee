"""Text of values as Java's toString and Connect's Values.convertToString spell it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import enclosed, entry_lists, is_binary, is_list, is_text, joined_lists, where_valid
from connectx.data.connect_schema import default_of, with_default
from connectx.data.transforms.columns import in_java_order, moments, name_of
from connectx.errors.plugins import TransformError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def as_text(values: pa.Array, what: str, *, schemaless: bool = False) -> pa.Array:
    """Each value as string, null as null.

    Args:
        what: the purpose, for errors.
        schemaless: structs stand for Java's maps, in whose order their fields are then.

    Raises:
        TransformError: the type has no text.
    """
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        return as_text(values.cast(kind.value_type), what, schemaless=schemaless)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind) or types.is_boolean(kind):
        return values.cast(pa.string())
    if types.is_null(kind):
        return pa.nulls(len(values), pa.string())
    if types.is_nested(kind):
        return where_valid(values, nested_text(values, what, schemaless=schemaless))
    spell: Callable[[Any], str] | None = None
    if types.is_float64(kind):
        spell = java_double
    elif types.is_float32(kind):
        spell = java_float
    elif types.is_binary(kind) or types.is_large_binary(kind):
        spell = _base64
    elif types.is_decimal(kind):
        spell = str
    elif types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind):
        spell = _java_date
        if not types.is_date(kind):
            milliseconds = pa.time32("ms") if types.is_time(kind) else pa.timestamp("ms", "UTC")
            values = values.cast(milliseconds, safe=False)
    if spell is None:
        raise TransformError(f"Values of type {name_of(kind)} cannot be used for [{what}]")
    distinct = values.dictionary_encode()
    spelled = pa.array([spell(value) for value in distinct.dictionary.to_pylist()], pa.string())
    return pc.take(spelled, distinct.indices)


def nested_text(values: pa.Array, what: str, *, schemaless: bool = False) -> pa.Array:
    """Each value as a part of the text of a struct, map or array: `{"id":1,"name":"a"}`, null as the word.

    Raises:
        TransformError: the type has no text.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        named = {
            field.name: moments((field, with_default(values.field(at), default_of(field))))
            for at, field in enumerate(kind)
        }
        names = in_java_order(named) if schemaless else named
        fields = [
            enclosed(f"{_quoted(name)}:", nested_text(named[name], what, schemaless=schemaless), "") for name in names
        ]
        inside = pc.binary_join_element_wise(*fields, ",") if fields else pa.array([""] * len(values))
        texts = where_valid(values, enclosed("{", inside, "}"))
    elif pa.types.is_map(kind):
        values = entry_lists(values)
        keys, items = (nested_text(part, what, schemaless=schemaless) for part in values.flatten().flatten())
        pairs = pc.binary_join_element_wise(keys, items, ":")
        texts = enclosed("{", joined_lists(values, pairs, ","), "}")
    elif is_list(kind):
        elements = moments((kind.value_field, values.flatten()))
        texts = enclosed("[", joined_lists(values, nested_text(elements, what, schemaless=schemaless), ","), "]")
    else:
        texts = as_text(values, what)
        if is_text(kind) or is_binary(kind):
            texts = enclosed('"', pc.replace_substring_regex(texts, r'(["\\])', r"\\\1"), '"')
    return pc.fill_null(texts, "null")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def java_double(value: float) -> str:
    """Double.toString: the shortest digits, with an exponent below 0.001 and from ten millions on."""
    return _spelled(repr(value))


def java_float(value: float) -> str:
    """Float.toString, as `java_double`."""
    import numpy as np

    return _spelled(str(np.float32(value)))


def _spelled(text: str) -> str:
    if text in ("nan", "inf", "-inf"):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[text]
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int), "finite"
    shown = "".join(map(str, digits)).rstrip("0")
    minus = "-" if sign else ""
    if not shown:
        return f"{minus}0.0"
    point = len(digits) + exponent  # digits before the decimal point
    if -3 < point <= 7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{shown}"
        whole = shown.ljust(point, "0")
        return f"{minus}{whole[:point]}.{whole[point:] or '0'}"
    return f"{minus}{shown[0]}.{shown[1:] or '0'}E{point - 1}"


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _java_date(value: date | datetime | time) -> str:
    """Values.dateFormatFor: within the first day of 1970 a time, at midnight a date, otherwise both."""
    if isinstance(value, time):
        value = datetime.combine(_EPOCH, value, UTC)
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day, tzinfo=UTC)
    clock = f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
    if moment < _EPOCH + timedelta(days=1):
        return clock
    day = f"{moment.year:04d}-{moment:%m-%d}"
    return day if clock == "00:00:00.000Z" else f"{day}T{clock}"
