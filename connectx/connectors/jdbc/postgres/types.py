"""Types of PostgreSQL and of Arrow.

COPY in binary form needs exactly the column's type. What Arrow has no type for (uuid, jsonb, enums, ...) is sent as
text and cast by PostgreSQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import enclosed, is_binary, is_list, is_text, joined_lists
from connectx.data.json.writer import json_text

_ARROW: Final[Mapping[str, pa.DataType]] = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "name": pa.string(),
    "json": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}
_NUMERIC: Final = re.compile(r"numeric\((\d+),(\d+)\)")
_TEXT: Final = re.compile(r"(character varying|character|\"char\")(\(\d+\))?")
_CREATED: Final = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "smallint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_float32, "real"),
    (pa.types.is_floating, "double precision"),
    (pa.types.is_date, "date"),
    (pa.types.is_string, "text"),
    (pa.types.is_large_string, "text"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_large_binary, "bytea"),
    (pa.types.is_time, "time"),
)


def arrow_type(kind: str) -> pa.DataType | None:
    """What COPY takes for a type of PostgreSQL; None: text, to be cast."""
    if numeric := _NUMERIC.fullmatch(kind):
        precision, scale = int(numeric[1]), int(numeric[2])
        return pa.decimal128(precision, scale) if precision <= 38 else None
    return pa.string() if _TEXT.fullmatch(kind) else _ARROW.get(kind)


def created_type(kind: pa.DataType) -> str | None:
    """Type of a new column for values of an Arrow type; None when there is none."""
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if is_list(kind):
        element = created_type(kind.value_type)
        return element and f"{element.removesuffix('[]')}[]"  # PostgreSQL's arrays have any number of dimensions
    if pa.types.is_timestamp(kind):
        return "timestamp without time zone" if kind.tz is None else "timestamp with time zone"
    return next((name for fits, name in _CREATED if fits(kind)), None)


def array_texts(lists: pa.ChunkedArray) -> pa.ChunkedArray:
    """Lists as texts of arrays, `{1,NULL}`, which PostgreSQL casts to the type of any array."""
    return pa.chunked_array([_array_text(chunk) for chunk in lists.chunks], pa.string())


def _array_text(lists: pa.Array) -> pa.Array:
    elements = lists.flatten()
    if is_list(elements.type):
        texts = _array_text(elements)
    else:
        texts = enclosed('"', pc.replace_substring_regex(_text(elements), r'(["\\\\])', r"\\\1"), '"')
    return enclosed("{", joined_lists(lists, pc.fill_null(texts, "NULL"), ","), "}")


def _text(values: pa.Array) -> pa.Array:
    if is_text(values.type):
        return values.cast(pa.string())
    if is_binary(values.type):
        return pa.array([None if each is None else f"\\x{each.hex()}" for each in values.to_pylist()], pa.string())
    return json_text(values, base64_decimals=False) if pa.types.is_nested(values.type) else values.cast(pa.string())
