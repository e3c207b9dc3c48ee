"""Connect's schemas, as JsonConverter spells them, and Arrow types.

Mirrors JsonConverter.asJsonSchema and asConnectSchema with the logical types Decimal, Date, Time and Timestamp.
Connect's times have milliseconds where ours have microseconds. Time is written, and read as an int32 of milliseconds,
since Spark 4.0 has no such type.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from connectx.data.arrays import is_binary, is_list, is_text
from connectx.errors import ConversionError

_LOGICAL: Final = "org.apache.kafka.connect.data."
_PRECISION: Final = "connect.decimal.precision"
_NAMES: Final = (
    *((pa.types.is_int8, "int8"), (pa.types.is_int16, "int16"), (pa.types.is_int32, "int32")),
    *((pa.types.is_int64, "int64"), (pa.types.is_float32, "float"), (pa.types.is_float64, "double")),
    *((pa.types.is_boolean, "boolean"), (is_text, "string"), (is_binary, "bytes"), (pa.types.is_decimal, "bytes")),
    *((pa.types.is_date32, "int32"), (pa.types.is_time, "int32"), (pa.types.is_timestamp, "int64")),
)
_SIMPLE: Final = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_NAME: Final = b"connect.name"
_VERSION: Final = b"connect.version"
_DOC: Final = b"connect.doc"
_PARAMETERS: Final = b"connect.parameters"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

DEFAULT: Final = "connect.default"
"""Key of a field's metadata that holds its default as JSON."""


@dataclass(frozen=True, slots=True)
class SchemaName:
    """Name of a schema and what belongs to it, which Arrow keeps in the metadata of the column or field.

    Attributes:
        parameters: pairs of a name and a text.
    """

    name: str = ""
    version: int | None = None
    doc: str = ""
    parameters: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, field: pa.Field) -> SchemaName:
        """What a column's metadata says."""
        metadata = field.metadata or {}
        version = metadata.get(_VERSION)
        return cls(
            metadata.get(_NAME, b"").decode(),
            None if version is None else int(version),
            metadata.get(_DOC, b"").decode(),
            tuple(json.loads(metadata.get(_PARAMETERS, b"{}")).items()),
        )

    def on(self, field: pa.Field) -> pa.Field:
        """The column's field with all of this in its metadata."""
        metadata = {**(field.metadata or {}), _NAME: self.name.encode()}
        metadata |= {} if self.version is None else {_VERSION: str(self.version).encode()}
        metadata |= {_DOC: self.doc.encode()} if self.doc else {}
        metadata |= {_PARAMETERS: json.dumps(dict(self.parameters)).encode()} if self.parameters else {}
        return field.with_metadata(metadata)

    def to_json(self) -> dict[str, Any]:
        """Keys of a schema as JsonConverter spells it, in the order that Java writes."""
        made: dict[str, Any] = {"name": self.name} if self.name else {}
        made |= {} if self.version is None else {"version": self.version}
        made |= {"doc": self.doc} if self.doc else {}
        return made | ({"parameters": dict(self.parameters)} if self.parameters else {})

    def __bool__(self) -> bool:
        return bool(self.name) or self.version is not None


def schema_of(kind: pa.DataType, *, optional: bool = True) -> dict[str, Any]:
    """Connect's schema of an Arrow type, with the order of keys that Java writes.

    Raises:
        ConversionError: Connect has no such type.
    """
    if pa.types.is_dictionary(kind):
        return schema_of(kind.value_type, optional=optional)
    schema = _body(kind) | {"optional": optional}
    if pa.types.is_decimal(kind):
        parameters = {"scale": str(kind.scale), _PRECISION: str(kind.precision)}
        return schema | {"name": f"{_LOGICAL}Decimal", "version": 1, "parameters": parameters}
    if pa.types.is_date32(kind):
        return schema | {"name": f"{_LOGICAL}Date", "version": 1}
    if pa.types.is_time(kind):
        return schema | {"name": f"{_LOGICAL}Time", "version": 1}
    if pa.types.is_timestamp(kind):
        return schema | {"name": f"{_LOGICAL}Timestamp", "version": 1}
    return schema


def _body(kind: pa.DataType) -> dict[str, Any]:
    types = pa.types
    if types.is_struct(kind):
        return {"type": "struct", "fields": [_schema_within(field) | {"field": field.name} for field in kind]}
    if is_list(kind):
        return {"type": "array", "items": _schema_within(kind.value_field)}
    if types.is_map(kind):
        values = _schema_within(kind.item_field)
        return {"type": "map", "keys": schema_of(kind.key_type, optional=False), "values": values}
    connect_type = next((name for fits, name in _NAMES if fits(kind)), None)
    if connect_type is None:
        raise ConversionError(f"Connect's schemas have no type for {kind}.")
    return {"type": connect_type}


def _schema_within(field: pa.Field) -> dict[str, Any]:
    """Schema of a field of another type, with its name and its default."""
    schema = schema_of(field.type, optional=field.nullable)
    if not field.metadata:
        return schema
    default = field.metadata.get(DEFAULT.encode())
    named = schema | SchemaName.of(field).to_json()
    return named if default is None else named | {"default": json.loads(default)}


def is_optional(schema: Mapping[str, Any]) -> bool:
    """True when values of the schema may be null; required is the default."""
    return schema.get("optional") is True


def type_of(schema: Any) -> pa.DataType:
    """Arrow type of a Connect schema; defaults of fields are kept in their metadata.

    Raises:
        ConversionError: not a schema that Connect knows.
    """
    if not isinstance(schema, dict) or not isinstance(schema.get("type"), str):
        raise ConversionError("Schema must contain 'type' field.")
    match schema["type"]:
        case "struct":
            return _struct([_field_of(field) for field in _list(schema.get("fields"))])
        case "array":
            items = schema.get("items")
            return pa.list_(pa.field("item", type_of(items), is_optional(items or {})))
        case "map":
            keys, values = schema.get("keys"), schema.get("values")
            if not pa.types.is_string(type_of(keys)):
                raise ConversionError("Maps with keys that are not strings cannot be read.")
            return pa.map_(pa.string(), pa.field("value", type_of(values), is_optional(values or {})))
    logical = logical_type(schema)
    if logical is not None:
        return logical
    if schema["type"] not in _SIMPLE:
        raise ConversionError(f"Unknown schema type: {schema['type']}.")
    return _SIMPLE[schema["type"]]


def logical_type(schema: Mapping[str, Any]) -> pa.DataType | None:
    """Arrow type of a schema with the name of a logical type; None without one, and for Time.

    Raises:
        ConversionError: a Decimal without a scale, or with one that no Arrow type has.
    """
    match schema["type"], str(schema.get("name") or "").removeprefix(_LOGICAL):
        case "bytes", "Decimal":
            parameters = schema.get("parameters") or {}
            try:
                scale = int(parameters["scale"])
                precision = min(int(parameters.get(_PRECISION, 38)), 38)
            except (KeyError, TypeError, ValueError):
                raise ConversionError("A Decimal schema needs the parameter 'scale', a number.") from None
            if not 0 <= scale <= 38:
                raise ConversionError(f"A Decimal of scale {scale} cannot be read: scales from 0 to 38 can.")
            return pa.decimal128(max(precision, scale), scale)
        case "int32", "Date":
            return pa.date32()
        case "int64", "Timestamp":
            return pa.timestamp("us", "UTC")
    return None


def _struct(fields: list[pa.Field]) -> pa.DataType:
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise ConversionError(f"Cannot create field because of field name duplication {name}.")
    return pa.struct(fields)


def _field_of(field: Any) -> pa.Field:
    if not isinstance(field, dict) or not isinstance(field.get("field"), str):
        raise ConversionError("Struct schema's field name not specified properly.")
    metadata = {DEFAULT: json.dumps(field["default"])} if field.get("default") is not None else None
    return pa.field(field["field"], type_of(field), is_optional(field), metadata)


def _list(fields: Any) -> list[Any]:
    if not isinstance(fields, list):
        raise ConversionError('Struct schema\'s "fields" argument is not an array.')
    return fields


def default_value(kind: pa.DataType, default: Any) -> Any:
    """A schema's default as a Python value of an Arrow type.

    Raises:
        ConversionError: the default is not of the type, or the type is a struct, array or map.
    """
    types = pa.types
    try:
        if types.is_nested(kind):
            raise ConversionError(f"Defaults of type {kind} are not supported.")
        if types.is_binary(kind):
            return base64.b64decode(default, validate=True)
        if types.is_date(kind):
            return date(1970, 1, 1) + timedelta(days=default)
        if types.is_timestamp(kind):
            return _EPOCH + timedelta(milliseconds=default)
        if types.is_decimal(kind):
            if isinstance(default, str):
                unscaled = int.from_bytes(base64.b64decode(default, validate=True), "big", signed=True)
                return Decimal(f"{unscaled}E-{kind.scale}")
            return Decimal(str(default))
        pa.scalar(default, kind)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise ConversionError(f"A schema's default {default!r} is no {kind}: {error}.") from error
    return default
