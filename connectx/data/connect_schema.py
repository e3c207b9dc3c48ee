"""Connect's schemas, as JsonConverter spells them, and Arrow types.

Mirrors JsonConverter.asJsonSchema and asConnectSchema with the logical types Decimal, Date, Time and Timestamp.
Connect's times have milliseconds where ours have microseconds. Time is written, and read as an int32 of milliseconds,
since Spark 4.0 has no such type.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import is_binary, is_list, is_text, lengths_of
from connectx.errors.plugins import ConversionError
from connectx.values import Value

_LOGICAL: Final = "org.apache.kafka.connect.data."
_PRECISION: Final = "connect.decimal.precision"
_NAMES: Final = (
    (pa.types.is_int8, "int8"),
    (pa.types.is_int16, "int16"),
    (pa.types.is_int32, "int32"),
    (pa.types.is_int64, "int64"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_boolean, "boolean"),
    (is_text, "string"),
    (is_binary, "bytes"),
    (pa.types.is_decimal, "bytes"),
    (pa.types.is_date32, "int32"),
    (pa.types.is_time, "int32"),
    (pa.types.is_timestamp, "int64"),
)
DECIMAL_NAME: Final = f"{_LOGICAL}Decimal"
DATE_NAME: Final = f"{_LOGICAL}Date"
TIME_NAME: Final = f"{_LOGICAL}Time"
TIMESTAMP_NAME: Final = f"{_LOGICAL}Timestamp"
_LOGICAL_NAMES: Final = (
    (pa.types.is_date32, DATE_NAME),
    (pa.types.is_time, TIME_NAME),
    (pa.types.is_timestamp, TIMESTAMP_NAME),
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


class SchemaName(Value):
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
        """The schema in a column's metadata."""
        metadata = field.metadata
        if not metadata:
            return NO_NAME
        version = metadata.get(_VERSION)
        return cls(
            metadata.get(_NAME, b"").decode(),
            None if version is None else int(version),
            metadata.get(_DOC, b"").decode(),
            tuple(json.loads(metadata.get(_PARAMETERS, b"{}")).items()),
        )

    @classmethod
    def from_json(cls, name: Any, version: Any, doc: Any, parameters: Any) -> SchemaName:
        """Of what the JSON of a schema holds; values of other types than these must have are left out."""
        pairs = parameters.items() if isinstance(parameters, dict) else ()
        return cls(
            name if isinstance(name, str) else "",
            version if isinstance(version, int) else None,
            doc if isinstance(doc, str) else "",
            tuple((key, value) for key, value in pairs if isinstance(value, str)),
        )

    def on(self, field: pa.Field) -> pa.Field:
        """The column's field with all of this in its metadata."""
        metadata = {**(field.metadata or {})}
        metadata |= {_NAME: self.name.encode()} if self.name else {}
        metadata |= {} if self.version is None else {_VERSION: str(self.version).encode()}
        metadata |= {_DOC: self.doc.encode()} if self.doc else {}
        metadata |= {_PARAMETERS: json.dumps(dict(self.parameters)).encode()} if self.parameters else {}
        return field.with_metadata(metadata)

    def over(self, other: SchemaName) -> SchemaName:
        """This, and from the other what is missing here."""
        return SchemaName(
            self.name or other.name,
            other.version if self.version is None else self.version,
            self.doc or other.doc,
            tuple((dict(other.parameters) | dict(self.parameters)).items()),
        )

    def to_json(self) -> dict[str, Any]:
        """Keys of a schema as JsonConverter spells it, in the order that Java writes."""
        made: dict[str, Any] = {"name": self.name} if self.name else {}
        made |= {} if self.version is None else {"version": self.version}
        made |= {"doc": self.doc} if self.doc else {}
        return made | ({"parameters": dict(self.parameters)} if self.parameters else {})

    def __bool__(self) -> bool:
        return self != NO_NAME


Speller: TypeAlias = Callable[[pa.DataType, Any], Any]

NO_NAME: Final = SchemaName()
"""Of a schema without name, version, documentation and parameters."""


class ColumnSchema(Value):
    """What a converter has to know of the schema of a column's values, beside their type.

    Attributes:
        optional: null is a valid value.
        default: replaces null, as JsonConverter spells it; None without one.
        has_nulls: a null of the column has this schema, so it is a value. Otherwise it is a tombstone.
    """

    name: SchemaName = NO_NAME
    optional: bool = False
    default: Any = None
    has_nulls: bool = False

    @classmethod
    def of(cls, field: pa.Field, *, has_nulls: bool) -> ColumnSchema:
        """The schema of a column of records. One whose nulls are tombstones is required."""
        return cls(SchemaName.of(field), has_nulls and field.nullable, default_of(field), has_nulls)


NO_SCHEMA: Final = ColumnSchema()
"""Of a required column without name and default, whose nulls are tombstones."""


def logical_name(kind: pa.DataType) -> SchemaName:
    """Name of the schema that a type has in Connect: Decimal, Date, Time or Timestamp. Other types have none."""
    if pa.types.is_decimal(kind):
        return SchemaName(DECIMAL_NAME, 1, "", (("scale", str(kind.scale)), (_PRECISION, str(kind.precision))))
    name = next((name for fits, name in _LOGICAL_NAMES if fits(kind)), None)
    return NO_NAME if name is None else SchemaName(name, 1)


def name_of(field: pa.Field) -> SchemaName:
    """Name of the schema of a field's values: of its metadata, and of its type."""
    return SchemaName.of(field).over(logical_name(field.type))


def described(field: pa.Field, schema: SchemaName, default: Any = None) -> pa.Field:
    """A field with the name of its schema, as far as its type does not imply it, and its default as JSON."""
    implied = logical_name(field.type)
    if implied and schema.name == implied.name:
        known = dict(implied.parameters)
        more = tuple((name, value) for name, value in schema.parameters if name not in known)
        schema = SchemaName(doc=schema.doc, parameters=more)
    made = field if default is None else field.with_metadata({DEFAULT: json.dumps(default)})
    return schema.on(made) if schema else made


def schema_of(
    kind: pa.DataType, *, optional: bool = True, name: SchemaName = NO_NAME, spell: Speller | None = None
) -> dict[str, Any]:
    """Connect's schema of an Arrow type, with the order of keys that Java writes.

    Args:
        name: of the schema, in addition to what the type implies.
        spell: spells the defaults of fields of a type; by default they stay as they were read.

    Raises:
        ConversionError: Connect has no such type.
    """
    if pa.types.is_dictionary(kind):
        return schema_of(kind.value_type, optional=optional, name=name, spell=spell)
    return _body(kind, spell) | {"optional": optional} | name.over(logical_name(kind)).to_json()


def _body(kind: pa.DataType, spell: Speller | None) -> dict[str, Any]:
    types = pa.types
    if types.is_struct(kind):
        return {"type": "struct", "fields": [_schema_within(field, spell) | {"field": field.name} for field in kind]}
    if is_list(kind):
        return {"type": "array", "items": _schema_within(kind.value_field, spell)}
    if types.is_map(kind):
        values = _schema_within(kind.item_field, spell)
        return {"type": "map", "keys": schema_of(kind.key_type, optional=False), "values": values}
    connect_type = next((name for fits, name in _NAMES if fits(kind)), None)
    if connect_type is None:
        raise ConversionError(f"Connect's schemas have no type for {kind}.")
    return {"type": connect_type}


def _schema_within(field: pa.Field, spell: Speller | None) -> dict[str, Any]:
    """Schema of a field of another type, with its name and its default."""
    schema = schema_of(field.type, optional=field.nullable, name=SchemaName.of(field), spell=spell)
    default = default_of(field)
    if default is None:
        return schema
    return schema | {"default": default if spell is None else spell(field.type, default)}


def default_of(field: pa.Field) -> Any:
    """A field's default as JsonConverter spells it; None without one."""
    found = (field.metadata or {}).get(DEFAULT.encode())
    return None if found is None else json.loads(found)


def is_optional(schema: Mapping[str, Any]) -> bool:
    """True when values of the schema may be null; required is the default."""
    return schema.get("optional") is True


def type_of(schema: Any) -> pa.DataType:
    """Arrow type of a Connect schema; names and defaults of inner schemas are metadata of their fields.

    Raises:
        ConversionError: not a schema that Connect knows.
    """
    if not isinstance(schema, dict) or not isinstance(schema.get("type"), str):
        raise ConversionError("Schema must contain 'type' field.")
    match schema["type"]:
        case "struct":
            return _struct([_field_of(_name_in(field), field) for field in _list(schema.get("fields"))])
        case "array":
            return pa.list_(_field_of("item", schema.get("items")))
        case "map":
            return pa.map_(type_of(schema.get("keys")), _field_of("value", schema.get("values")))
        case _:
            pass  # a scalar
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
        case _:
            return None


def is_schemaless(kind: pa.DataType) -> bool:
    """True of a struct with a field without any type: it stands for a map that has no schema."""
    return pa.types.is_struct(kind) and any(pa.types.is_null(field.type) or is_schemaless(field.type) for field in kind)


def _struct(fields: list[pa.Field]) -> pa.DataType:
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise ConversionError(f"Cannot create field because of field name duplication {name}.")
    return pa.struct(fields)


def _name_in(field: Any) -> str:
    if not isinstance(field, dict) or not isinstance(field.get("field"), str):
        raise ConversionError("Struct schema's field name not specified properly.")
    return str(field["field"])


def _field_of(name: str, schema: Any) -> pa.Field:
    """A field of values of a schema."""
    made = pa.field(name, type_of(schema), is_optional(schema))
    named = (schema.get(key) for key in ("name", "version", "doc", "parameters"))
    return described(made, SchemaName.from_json(*named), schema.get("default"))


def _list(fields: Any) -> list[Any]:
    if not isinstance(fields, list):
        raise ConversionError('Struct schema\'s "fields" argument is not an array.')
    return fields


def with_default(values: pa.Array, default: Any) -> pa.Array:
    """Values with a default in place of null; defaults of structs, arrays and maps are not used.

    Raises:
        ConversionError: the default is not of the type.
    """
    if default is None or not values.null_count or pa.types.is_nested(values.type):
        return values
    return pc.fill_null(values, pa.scalar(default_value(values.type, default), values.type))


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


def with_defaults(values: pa.Array) -> pa.Array:
    """Values with the defaults of fields and elements in place of null, at every depth of structs and lists.

    Raises:
        ConversionError: a default is not of its field's type.
    """
    kind = values.type
    if not _has_defaults(kind):
        return values
    mask = values.is_null() if values.null_count else None
    if pa.types.is_struct(kind):
        columns = [_filled(values.field(number), field) for number, field in enumerate(kind)]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths_of(values))])
    return pa.ListArray.from_arrays(offsets, _filled(values.flatten(), kind.value_field), type=kind, mask=mask)


def _filled(values: pa.Array, field: pa.Field) -> pa.Array:
    return with_default(with_defaults(values), default_of(field))


def _has_defaults(kind: pa.DataType) -> bool:
    fields = list(kind) if pa.types.is_struct(kind) else [kind.value_field] if pa.types.is_list(kind) else []
    return any(DEFAULT.encode() in (field.metadata or ()) or _has_defaults(field.type) for field in fields)
