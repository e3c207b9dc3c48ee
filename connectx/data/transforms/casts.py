"""Cast: fields, or whole keys and values, as another type.

Mirrors org.apache.kafka.connect.transforms.Cast with Java's narrowing: bits of integers are cut off, fractions towards
zero, and only text that is no number of the type is an error.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.chunks import one_chunk
from connectx.data.connect_schema import NO_NAME, TIME_NAME, SchemaName, default_of, default_value, described
from connectx.data.transforms.api import KAFKA
from connectx.data.transforms.columns import Column, moments, name_of, replaced
from connectx.data.transforms.fields import NULLS, SideTransform, parts_of
from connectx.data.transforms.texts import as_text
from connectx.errors.plugins import TransformError
from connectx.model.configdef import JAVA_BLANKS, ConfigDef, Validator

_TARGETS: Final = {
    "INT8": pa.int8(),
    "INT16": pa.int16(),
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "FLOAT32": pa.float32(),
    "FLOAT64": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "STRING": pa.string(),
}
_CONNECT_TYPES: Final = (*_TARGETS, "BYTES", "ARRAY", "MAP", "STRUCT")
_NO_CONSTANT: Final = "java.lang.IllegalArgumentException: No enum constant org.apache.kafka.connect.data.Schema.Type."
_SUPPORTED: Final = "[INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, STRING]"
_JAVA_FLOAT: Final = re.compile(
    r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?)[fFdD]?|[+-]?(NaN|Infinity)", re.ASCII
)


def _spec_problem(value: Any) -> str | None:
    if not value:
        return "Must specify at least one field to cast."
    for mapping in value:
        parts = parts_of(mapping)
        if len(parts) > 2:
            return f"Invalid value [{', '.join(value)}] for configuration renames: Invalid rename mapping: {mapping}"
        target = parts[-1].strip().upper()
        if target not in _CONNECT_TYPES:
            return (
                f"Invalid value {_NO_CONSTANT}{target} for configuration Invalid type found in casting spec: "
                f"{parts[-1].strip()}"
            )
        if target not in _TARGETS:
            return f"Cast transformation does not support casting to {target}; supported types are {_SUPPORTED}"
    if len(value) > 1 and any(len(parts_of(mapping)) == 1 for mapping in value):
        return (
            "Cast transformations that specify a type to cast the entire value to may only specify a single cast in "
            "their spec"
        )
    return None


class Cast(SideTransform):
    """Casts fields, or the whole."""

    java_class = f"{KAFKA}Cast"
    config = (
        ConfigDef()
        .define(
            "spec",
            list,
            importance="HIGH",
            doc="Pairs field:type, or one type for the whole: int8 to int64, float32, float64, boolean, string.",
            validator=Validator(
                _spec_problem, "list of colon-delimited pairs, e.g. foo:bar,abc:xyz", whole_message=True
            ),
        )
        .define("replace.null.with.default", bool, True, doc=NULLS)
    )

    def configure(self) -> None:
        """Take the pairs apart."""
        pairs = [["", *parts_of(mapping)][-2:] for mapping in self.settings["spec"]]
        self._types = {name.strip(): _TARGETS[kind.strip().upper()] for name, kind in pairs}

    def apply(self, table: pa.Table) -> pa.Table:
        """Nulls stay, optional fields stay optional."""
        if "" in self._types:
            values, field = one_chunk(table[self.side]), table.schema.field(self.side)
            if values.null_count == len(values):
                return table
            field, values = _cast((field, values), self._types[""], SchemaName.of(field))
            return replaced(table, self.side, values, field)
        fields = self.fields(table, "cast types")
        if fields.empty:
            return table
        return fields.back(
            [
                _cast(column, self._types[name], NO_NAME) if name in self._types else column
                for name, column in fields.with_missing(self._types).items()
            ]
        )


def _cast(column: Column, target: pa.DataType, name: SchemaName) -> Column:
    """A column of another type, whose schema has this name, and whose default is cast as values are."""
    field, _ = column
    default = default_of(field)
    if default is not None:
        value = pa.array([default_value(field.type, default)], field.type)
        default = cast(moments((field, value)), target)[0].as_py()
    name = NO_NAME if name.name == TIME_NAME else name
    made = described(pa.field(field.name, target, field.nullable), name, default)
    return made, cast(moments(column), target)


def cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Values as Java casts them.

    Raises:
        TransformError: a type that cannot be cast, or a text that is no such number.
    """
    kind, types = values.type, pa.types
    if values.null_count == len(values):
        return pa.nulls(len(values), target)
    if types.is_dictionary(kind):
        return cast(values.cast(kind.value_type), target)
    if types.is_nested(kind):
        raise TransformError(f"Cast transformation does not support casting from {name_of(kind)}")
    if types.is_string(target):
        return as_text(values, "cast types")
    if types.is_date32(kind):
        values = values.cast(pa.int32())
    elif types.is_time(kind):
        values = values.cast(pa.time32("ms"), safe=False).cast(pa.int32())
    elif types.is_timestamp(kind):
        values = values.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
    if types.is_string(kind) or types.is_large_string(kind):
        return _of_text(values, target)
    if types.is_decimal(kind):
        return _of_decimal(values, target)
    if not (types.is_integer(values.type) or types.is_floating(values.type) or types.is_boolean(values.type)):
        raise TransformError(f"Unexpected type in Cast transformation: {kind}")
    return _of_numbers(values, target)


def _of_numbers(values: pa.Array, target: pa.DataType) -> pa.Array:
    valid = values.is_valid()
    filled = values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values
    numbers = filled.fill_null(0).to_numpy(zero_copy_only=False)
    if np.issubdtype(numbers.dtype, np.floating) and not pa.types.is_floating(target):
        numbers = _whole(numbers, 64 if pa.types.is_int64(target) or pa.types.is_boolean(target) else 32)
    made = numbers != 0 if pa.types.is_boolean(target) else numbers.astype(target.to_pandas_dtype())
    return pa.array(made, target, mask=~valid.to_numpy(zero_copy_only=False))


def _whole(numbers: Any, bits: int) -> Any:
    """Java's (int) and (long) of a fraction: towards zero, the nearest number there is, 0 for NaN."""
    limit = 2.0 ** (bits - 1)
    cut = np.trunc(np.nan_to_num(numbers.astype(np.float64), nan=0.0, posinf=limit, neginf=-limit))
    inside = np.clip(cut, -limit, np.nextafter(limit, 0)).astype(np.int64)
    return np.where(cut >= limit, 2 ** (bits - 1) - 1, inside)


def _of_decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_floating(target):
        # by their texts, since Arrow's own cast is not exact
        return pa.array([None if value is None else str(value) for value in values.to_pylist()]).cast(target)
    whole = [None if value is None else int(value) & (2**64 - 1) for value in values.to_pylist()]
    signed = [None if value is None else value - 2**64 if value >= 2**63 else value for value in whole]
    return _of_numbers(pa.array(signed, pa.int64()), target)


def _of_text(texts: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(target):
        return pc.equal(pc.utf8_lower(texts), "true")
    if pa.types.is_floating(target):
        return pa.array([None if text is None else _java_float(text) for text in texts.to_pylist()], target)
    if not pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
        texts = pa.array([None if text is None else _in_ascii(text) for text in texts.to_pylist()], pa.string())
    wrong = pc.filter(texts, pc.invert(pc.fill_null(pc.match_substring_regex(texts, r"^[+-]?[0-9]+$"), True)))
    if len(wrong):
        raise _out_of_range(wrong[0].as_py())
    try:
        return pc.utf8_ltrim(texts, "+").cast(target)
    except pa.ArrowInvalid as error:
        raise TransformError(f"A text was out of range for requested data type {target}: {error}") from error


def _in_ascii(text: str) -> str:
    """Digits of other scripts as those of ASCII, as far as Java's Character.digit knows them in one char."""
    return "".join(str(unicodedata.decimal(char, char)) if char <= "\uffff" else char for char in text)


def _java_float(text: str) -> float:
    trimmed = text.strip(JAVA_BLANKS)
    if not _JAVA_FLOAT.fullmatch(trimmed):
        raise _out_of_range(text)
    return float(trimmed.rstrip("fFdD") if not trimmed.endswith("Infinity") else trimmed)


def _out_of_range(text: str) -> TransformError:
    return TransformError(f"Value ({text}) was out of range for requested data type")
