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

import pyarrow as pa

from connectx.data.arrays import is_binary, is_list, is_text
from connectx.errors import ConversionError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_LOGICAL: Final = "org.apache.kafka.connect.data."
_PRECISION: Final = "connect.decimal.precision"
_NAMES: Final = (
    *((pa.types.is_int8, "int8"), (pa.types.is_int16, "int16"), (pa.types.is_int32, "int32")),
    *((pa.types.is_int64, "int64"), (pa.types.is_float32, "float"), (pa.types.is_float64, "double")),
    *((pa.types.is_boolean, "boolean"), (is_text, "string"), (is_binary, "bytes"), (pa.types.is_decimal, "bytes")),
    *((pa.types.is_date32, "int32"), (pa.types.is_timestamp, "int64")),
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

DEFAULT: Final = "connect.default"
"""Key of a field's metadata that holds its default in JSON form."""


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
    if pa.types.is_timestamp(kind):
        return schema | {"name": f"{_LOGICAL}Timestamp", "version": 1}
    return schema


def _body(kind: pa.DataType) -> dict[str, Any]:
    types = pa.types
    if types.is_struct(kind):
        fields = [schema_of(field.type, optional=field.nullable) | {"field": field.name} for field in kind]
        return {"type": "struct", "fields": fields}
    if is_list(kind):
        return {"type": "array", "items": schema_of(kind.value_type, optional=kind.value_field.nullable)}
    if types.is_map(kind):
        values = schema_of(kind.item_type, optional=kind.item_field.nullable)
        return {"type": "map", "keys": schema_of(kind.key_type, optional=False), "values": values}
    connect_type = next((name for fits, name in _NAMES if fits(kind)), None)
    if connect_type is None:
        raise ConversionError(f"Connect's schemas have no type for {kind}.")
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
