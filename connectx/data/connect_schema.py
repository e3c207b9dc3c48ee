"""Connect's schemas, as JsonConverter spells them, and Spark types.

Mirrors JsonConverter.asJsonSchema and asConnectSchema with the logical types Decimal, Date, Time and Timestamp.
Connect's times have milliseconds where Spark's have microseconds. Spark 4.0 has no time of day: Time is an INT of
milliseconds.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from connectx.errors import ConversionError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_LOGICAL: Final = "org.apache.kafka.connect.data."
_PRECISION: Final = "connect.decimal.precision"
_NAMES: Final = {
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "binary": "bytes",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

DEFAULT: Final = "connect.default"
"""Key of a field's metadata that holds its default in JSON form."""


def schema_of(kind: DataType, *, optional: bool = True) -> dict[str, Any]:
    """Connect's schema of a Spark type, with the order of keys that Java writes.

    Raises:
        ConversionError: Connect has no such type.
    """
    schema = _body(kind) | {"optional": optional}
    name = kind.typeName()
    if name == "decimal":
        scale, precision = str(kind.scale), str(kind.precision)  # type: ignore[attr-defined]
        parameters = {"scale": scale, _PRECISION: precision}
        return schema | {"name": f"{_LOGICAL}Decimal", "version": 1, "parameters": parameters}
    if name == "date":
        return schema | {"name": f"{_LOGICAL}Date", "version": 1}
    if name in ("timestamp", "timestamp_ntz"):
        return schema | {"name": f"{_LOGICAL}Timestamp", "version": 1}
    return schema


def _body(kind: DataType) -> dict[str, Any]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        fields = [schema_of(f.dataType, optional=f.nullable) | {"field": f.name} for f in kind.fields]
        return {"type": "struct", "fields": fields}
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": schema_of(kind.elementType, optional=kind.containsNull)}
    if isinstance(kind, MapType):
        values = schema_of(kind.valueType, optional=kind.valueContainsNull)
        return {"type": "map", "keys": schema_of(kind.keyType, optional=False), "values": values}
    name = kind.typeName()
    base = {"decimal": "bytes", "date": "int32", "timestamp": "int64", "timestamp_ntz": "int64"}.get(name)
    connect_type = base or _NAMES.get(name) or ("string" if name in ("char", "varchar") else None)
    if connect_type is None:
        raise ConversionError(f"Connect's schemas have no type for Spark's {kind.simpleString()}.")
    return {"type": connect_type}


def is_optional(schema: Mapping[str, Any]) -> bool:
    """True when values of the schema may be null; required is the default."""
    return schema.get("optional") is True


def type_of(schema: Any) -> DataType:
    """Spark type of a Connect schema; defaults of fields are kept in their metadata.

    Raises:
        ConversionError: not a schema that Connect knows.
    """
    from pyspark.sql import types as t

    if not isinstance(schema, dict) or not isinstance(schema.get("type"), str):
        raise ConversionError("Schema must contain 'type' field.")
    match schema["type"]:
        case "struct":
            return t.StructType([_field_of(field) for field in _list(schema.get("fields"))])
        case "array":
            items = schema.get("items")
            return t.ArrayType(type_of(items), is_optional(items or {}))
        case "map":
            keys, values = schema.get("keys"), schema.get("values")
            if not isinstance(type_of(keys), t.StringType):
                raise ConversionError("Maps with keys that are not strings cannot be read.")
            return t.MapType(t.StringType(), type_of(values), is_optional(values or {}))
    logical = _logical_type(schema)
    if logical is not None:
        return logical
    simple: dict[str, DataType] = {
        "int8": t.ByteType(),
        "int16": t.ShortType(),
        "int32": t.IntegerType(),
        "int64": t.LongType(),
        "float": t.FloatType(),
        "double": t.DoubleType(),
        "boolean": t.BooleanType(),
        "string": t.StringType(),
        "bytes": t.BinaryType(),
    }
    if schema["type"] not in simple:
        raise ConversionError(f"Unknown schema type: {schema['type']}.")
    return simple[schema["type"]]


def _logical_type(schema: Mapping[str, Any]) -> DataType | None:
    from pyspark.sql import types as t

    match schema["type"], str(schema.get("name") or "").removeprefix(_LOGICAL):
        case "bytes", "Decimal":
            parameters = schema.get("parameters") or {}
            try:
                scale = int(parameters["scale"])
                precision = min(int(parameters.get(_PRECISION, 38)), 38)
            except (KeyError, TypeError, ValueError):
                raise ConversionError("A Decimal schema needs the parameter 'scale', a number.") from None
            if not 0 <= scale <= 38:
                raise ConversionError(f"A Decimal of scale {scale} cannot be read: Spark has scales from 0 to 38.")
            return t.DecimalType(max(precision, scale), scale)
        case "int32", "Date":
            return t.DateType()
        case "int64", "Timestamp":
            return t.TimestampType()
    return None


def _field_of(field: Any) -> Any:
    from pyspark.sql.types import StructField

    if not isinstance(field, dict) or not isinstance(field.get("field"), str):
        raise ConversionError("Struct schema's field name not specified properly.")
    metadata = {DEFAULT: field["default"]} if field.get("default") is not None else {}
    return StructField(field["field"], type_of(field), is_optional(field), metadata)


def _list(fields: Any) -> list[Any]:
    if not isinstance(fields, list):
        raise ConversionError('Struct schema\'s "fields" argument is not an array.')
    return fields


def default_value(kind: DataType, default: Any) -> Any:
    """A schema's default as a Python value for a Spark literal.

    Raises:
        ConversionError: the default is not of the type, or the type is a struct, array or map.
    """
    try:
        match kind.typeName():
            case "struct" | "array" | "map":
                raise ConversionError(f"Defaults of type {kind.typeName()} are not supported.")
            case "binary":
                return base64.b64decode(default, validate=True)
            case "date":
                return date(1970, 1, 1) + timedelta(days=default)
            case "timestamp":
                return _EPOCH + timedelta(milliseconds=default)
            case "decimal":
                unscaled = default
                if isinstance(default, str):
                    unscaled = int.from_bytes(base64.b64decode(default, validate=True), "big", signed=True)
                    return Decimal(f"{unscaled}E-{kind.scale}")  # type: ignore[attr-defined]
                return Decimal(str(unscaled))
    except (ValueError, TypeError, OverflowError) as error:
        raise ConversionError(f"A schema's default {default!r} is no {kind.simpleString()}: {error}.") from error
    return default
