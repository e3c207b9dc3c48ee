"""Avro schemas as trees, and the Arrow types that their values have.

A schema has two Arrow types: the one of its encoding, which knows no logical types, and the one that sinks see. The
second follows Confluent's AvroData: Decimal, Date, Time and Timestamp in milliseconds are logical types, others such as
timestamp-micros stay numbers; an enum is a string; a union of several types is a struct with a field for each. Names,
versions, documentation, parameters and defaults of schemas are metadata of fields.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from connectx.data.avro.schemas import NAMESPACE
from connectx.data.connect_schema import NO_NAME, TIME_NAME, SchemaName, described
from connectx.errors.plugins import ConversionError
from connectx.values import Value

MAP_ENTRY: Final = f"{NAMESPACE}.MapEntry"
"""Full name of the record that holds a key and a value of a map whose keys are not strings."""

ENCODED: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
"""Arrow types of Avro types without a logical type."""
_NARROW: Final = {"int8": pa.int8(), "int16": pa.int16()}
_UNNAMED: Final = f"{NAMESPACE}.ConnectDefault"
"""Names of records that have none in Connect begin so."""

_MOST_DIGITS: Final = 38
_UNION: Final = "io.confluent.connect.avro.Union"
"""Name of the schema of a struct that stands for a union of several types, as in AvroData."""
_NAMED: Final = ("record", "enum", "fixed", "error")
_PRIMITIVE: Final = frozenset(ENCODED) - set(_NAMED)


class AvroField(Value):
    """A field of a record.

    Attributes:
        default: its JSON value, and None without one or where it is null.
        parameters: `connect.parameters` of the field, of a record that is defined elsewhere.
    """

    name: str
    type: AvroType
    default: Any = None
    has_default: bool = False
    parameters: tuple[tuple[str, str], ...] = ()


class AvroType(Value):
    """A schema with all names resolved.

    Attributes:
        kind: Avro's name of the type: `int`, `record`, `union`.
        name: full name of a record, enum or fixed.
        label: name of its field in the struct that stands for a union.
        logical: `logicalType`, empty without one.
        connect_type: `connect.type`: int8 or int16.
        internal_type: `connect.internal.type`.
        fields: of a record.
        parts: items of an array, values of a map, or branches of a union.
        symbols: of an enum.
        size: bytes of a fixed.
        precision: digits of a decimal, `scale` those after the point.
        schema: `connect.name`, `connect.version`, `connect.doc` and `connect.parameters`.
        default: `connect.default`.
    """

    kind: str
    name: str = ""
    label: str = ""
    logical: str = ""
    connect_type: str = ""
    internal_type: str = ""
    fields: tuple[AvroField, ...] = ()
    parts: tuple[AvroType, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    precision: int = 0
    scale: int = 0
    schema: SchemaName = NO_NAME
    default: Any = None

    @property
    def is_optional(self) -> bool:
        """True when a value may be null."""
        return self.kind == "null" or (self.kind == "union" and any(part.kind == "null" for part in self.parts))

    @property
    def branches(self) -> tuple[AvroType, ...]:
        """Types that a value may have, without null."""
        return tuple(part for part in self.parts if part.kind != "null") if self.kind == "union" else (self,)

    @property
    def only(self) -> AvroType | None:
        """The type of values that are not null; None when there are several, or none."""
        found = self.branches
        return found[0] if len(found) == 1 else None

    @property
    def is_map_entries(self) -> bool:
        """True for an array of keys and values, which is a map whose keys are not strings."""
        if self.kind != "array":
            return False
        (entry,) = self.parts
        names = tuple(one.name for one in entry.fields)
        return (entry.name == MAP_ENTRY or entry.internal_type == "MapEntry") and names == ("key", "value")


def refuse_free_items(avro: AvroType) -> None:
    """Refuse arrays of items that take no bytes: the number before them costs nothing, and may be any (CVE-2023-39410).

    Raises:
        ConversionError: the schema has such an array.
    """
    if avro.kind == "array" and takes_no_bytes(avro.parts[0]):
        raise ConversionError(
            "Arrays whose items take no bytes cannot be read: a few bytes can claim any number of them.",
            next_step="Read the topic with ByteArrayConverter, or change the schema.",
        )
    for part in (*avro.parts, *(one.type for one in avro.fields)):
        refuse_free_items(part)


def takes_no_bytes(avro: AvroType) -> bool:
    """Whether values of a type are written as nothing."""
    if avro.kind == "record":
        return all(takes_no_bytes(one.type) for one in avro.fields)
    return avro.kind == "null" or (avro.kind == "fixed" and not avro.size)


def parse(text: str, references: Iterable[str] = (), *, full_labels: bool = False) -> AvroType:
    """The tree of a schema.

    Args:
        references: texts of schemas whose names it uses, those that they use themselves first.
        full_labels: branches of unions are labelled with full names (`enhanced.avro.schema.support`).

    Raises:
        ConversionError: not a schema, or a recursive one, which no Arrow type can hold.
    """
    try:
        parser = _Parser(full_labels)
        for one in references:
            parser.parsed(json.loads(one), "")
        return parser.parsed(json.loads(text), "")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConversionError(f"Not a valid Avro schema: {error!r}.") from error


@dataclass(slots=True)
class _Parser:
    """Names that were defined so far; None while their definition is being read."""

    full_labels: bool
    names: dict[str, AvroType | None] = field(default_factory=dict)

    def parsed(self, schema: Any, namespace: str) -> AvroType:
        if isinstance(schema, str):
            return AvroType(schema, label=schema) if schema in _PRIMITIVE else self._known(schema, namespace)
        if isinstance(schema, list):
            parts = tuple(self.parsed(part, namespace) for part in schema)
            return AvroType("union", parts=parts, schema=SchemaName(_UNION))
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.parsed(kind, namespace)
        if kind in _NAMED:
            return self._defined(schema, namespace)
        if kind in ("array", "map"):
            inner = self.parsed(schema["items" if kind == "array" else "values"], namespace)
            return AvroType(kind, label=kind, parts=(inner,), **_connect(schema))
        return AvroType(kind, label=kind, **_logical(schema)) if kind in _PRIMITIVE else self._known(kind, namespace)

    def _defined(self, schema: Mapping[str, Any], namespace: str) -> AvroType:
        name = _full_name(str(schema["name"]), str(schema.get("namespace", namespace) or ""))
        self.names[name] = None
        inner, simple = name.rpartition(".")[::2]
        made = AvroType(
            "record" if schema["type"] == "error" else str(schema["type"]),
            name,
            label=name if self.full_labels else simple,
            internal_type=str(schema.get("connect.internal.type") or ""),
            fields=tuple(self._field(one, inner) for one in schema.get("fields", ())),
            symbols=tuple(schema.get("symbols", ())),
            size=int(schema.get("size", 0)),
            **(_logical(schema) if schema["type"] == "fixed" else _connect(schema)),
        )
        if not made.schema.name and not name.startswith(_UNNAMED) and made.logical != "decimal":
            made = replace(made, schema=made.schema.over(SchemaName(name)))
        self.names[name] = made
        return made

    def _field(self, one: Mapping[str, Any], namespace: str) -> AvroField:
        parameters = SchemaName.from_json("", None, "", one.get("connect.parameters")).parameters
        kind = self.parsed(one["type"], namespace)
        return AvroField(one["name"], kind, one.get("default"), "default" in one, parameters)

    def _known(self, name: str, namespace: str) -> AvroType:
        full = _full_name(name, namespace)
        full = full if full in self.names else name
        if full not in self.names:
            raise ConversionError(f"The Avro schema names the type {name}, which neither it nor its references define.")
        found = self.names[full]
        if found is None:
            raise ConversionError(
                f"The Avro schema is recursive in {full}, which no column can hold.",
                next_step="Read the topic with ByteArrayConverter, or change the schema.",
            )
        return found


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _logical(schema: Mapping[str, Any]) -> dict[str, Any]:
    logical = schema.get("logicalType")
    found: dict[str, Any] = {
        "logical": logical if isinstance(logical, str) else "",
        "connect_type": str(schema.get("connect.type") or ""),
        **_connect(schema),
    }
    if (schema["type"], logical) == ("int", "time-millis") and not found["schema"].name:
        found["schema"] = found["schema"].over(SchemaName(TIME_NAME, 1))
    if logical == "decimal" and schema["type"] in ("bytes", "fixed"):
        found |= {"precision": int(schema.get("precision", _MOST_DIGITS)), "scale": int(schema.get("scale", 0))}
    return found


def _connect(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Connect's name and default of a type."""
    given = (schema.get(f"connect.{key}") for key in ("name", "version", "doc", "parameters"))
    name = SchemaName.from_json(*given)
    return {"schema": name, "default": schema.get("connect.default")}


def encoded_type(avro: AvroType) -> pa.DataType:
    """Arrow type of the encoding: numbers, text, bytes, and what is made of them.

    Raises:
        ConversionError: a union of several types.
    """
    if avro.kind == "union":
        only = avro.only
        if only is None:
            raise ConversionError("A union of several types has no encoding of one type.")
        return encoded_type(only)
    if avro.kind == "record":
        return pa.struct([pa.field(one.name, encoded_type(one.type), one.type.is_optional) for one in avro.fields])
    if avro.kind == "array":
        return pa.list_(pa.field("item", encoded_type(avro.parts[0]), avro.parts[0].is_optional))
    if avro.kind == "map":
        return pa.map_(pa.string(), pa.field("value", encoded_type(avro.parts[0]), avro.parts[0].is_optional))
    return ENCODED[avro.kind]


def value_type(avro: AvroType) -> pa.DataType:
    """Arrow type of the values that sinks see.

    Raises:
        ConversionError: a decimal with more digits after its point than Arrow's have, or a standalone null.
    """
    if avro.kind == "union":
        only = avro.only
        if only is not None:
            return value_type(only)
        return pa.struct([_value_field(branch.label, branch).with_nullable(True) for branch in avro.branches])
    if avro.kind == "record":
        return pa.struct([_value_field(one.name, one.type, one.default, one.parameters) for one in avro.fields])
    if avro.is_map_entries:
        key, value = avro.parts[0].fields
        return pa.map_(value_type(key.type), _value_field("value", value.type))
    if avro.kind == "array":
        return pa.list_(_value_field("item", avro.parts[0]))
    if avro.kind == "map":
        return pa.map_(pa.string(), _value_field("value", avro.parts[0]))
    if avro.kind == "null":
        raise ConversionError("Standalone null schemas are not supported by AvroConverter.")
    return _scalar_type(avro)


def _scalar_type(avro: AvroType) -> pa.DataType:
    match avro.kind, avro.logical:
        case (("bytes" | "fixed"), "decimal"):
            if not 0 <= avro.scale <= _MOST_DIGITS:
                raise ConversionError(f"A decimal of scale {avro.scale} cannot be read: scales from 0 to 38 can.")
            return pa.decimal128(min(max(avro.precision, avro.scale, 1), _MOST_DIGITS), avro.scale)
        case "int", "date":
            return pa.date32()
        case "long", "timestamp-millis":
            return pa.timestamp("us", "UTC")
        case "int", "":
            return _NARROW.get(avro.connect_type, pa.int32())
        case _:
            return ENCODED[avro.kind]


def _value_field(
    name: str, avro: AvroType, default: Any = None, parameters: tuple[tuple[str, str], ...] = ()
) -> pa.Field:
    """A field of values; `default` is that of a record's field, which counts more than the one of its type."""
    kind, only = value_type(avro), avro.only or avro
    default = only.default if default is None else default
    if default is not None and pa.types.is_nested(kind):
        default = None
    elif default is not None and (pa.types.is_binary(kind) or pa.types.is_decimal(kind)):
        default = base64.b64encode(str(default).encode("latin-1")).decode()
    return described(
        pa.field(name, kind, avro.is_optional), SchemaName(parameters=parameters).over(only.schema), default
    )


def encoded_schema(avro: AvroType) -> Any:
    """The schema of the encoding, as JSON: without logical types, defaults, documentation or Connect's properties."""
    return _spelled(avro, set())


def _spelled(avro: AvroType, seen: set[str]) -> Any:
    if avro.kind == "union":
        return [_spelled(part, seen) for part in avro.parts]
    if avro.kind == "array":
        return {"type": "array", "items": _spelled(avro.parts[0], seen)}
    if avro.kind == "map":
        return {"type": "map", "values": _spelled(avro.parts[0], seen)}
    if not avro.name:
        return avro.kind
    if avro.name in seen:
        return avro.name
    seen.add(avro.name)
    # The name is given in full: a namespace of an outer type does not reach it.
    head = {"type": avro.kind, "name": avro.name, "namespace": avro.name.rpartition(".")[0]}
    if avro.kind == "enum":
        return {**head, "symbols": list(avro.symbols)}
    if avro.kind == "fixed":
        return {**head, "size": avro.size}
    return {**head, "fields": [{"name": one.name, "type": _spelled(one.type, seen)} for one in avro.fields]}


def kinds(avro: AvroType) -> set[str]:
    """All kinds of types within a schema; `union` only for those of several types."""
    inner: Sequence[AvroType] = (*(one.type for one in avro.fields), *avro.parts)
    found = set().union(*(kinds(part) for part in inner)) if inner else set()
    if avro.kind == "union":
        return (found - {"null"}) | ({"union"} if avro.only is None else set())
    return found | {avro.kind}
