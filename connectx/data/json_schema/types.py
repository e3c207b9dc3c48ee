"""JSON Schemas as trees of Connect's types, and the Arrow types of their values.

Follows Confluent's JsonSchemaData: `connect.type` and the titles of Decimal, Date, Time and Timestamp, `connect.index`
for the order of fields, `oneOf` with null for optional values, maps, and a struct for a union of several types. Names,
versions, documentation, parameters and defaults of schemas are metadata of fields.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from connectx.data.connect_schema import NO_NAME, SchemaName, described, logical_type
from connectx.data.json_schema.nodes import Node
from connectx.errors.plugins import ConversionError
from connectx.values import Value

_ONE_OF: Final = "io.confluent.connect.json.OneOf.field."
_UNION_FIELD: Final = "connect_union_field_"
_NUMBERS: Final = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bytes": pa.binary(),
}
_CONNECT_TYPES: Final = {"int32": "int32", "int64": "int64", "bytes": "bytes"}


class JsonType(Value):
    """A type of Connect.

    Attributes:
        kind: scalar, struct, list, map, entries (a map as a list of keys and values) or union.
        scalar: Arrow type of a scalar; text that may be any JSON is a string.
        parts: item of a list, value of a map, key and value of entries, fields of a struct, or branches of a union.
        names: of the fields or branches.
        optional: null is a value.
        must: the value must be there, and not null.
        schema: title, `connect.version`, description and `connect.parameters`.
        default: JSON of the schema's default, None without one.
        accepts: JSON types that a scalar takes, to find the branch of a union: number, integer, string, boolean.
    """

    kind: str
    scalar: pa.DataType | None = None
    parts: tuple[JsonType, ...] = ()
    names: tuple[str, ...] = ()
    optional: bool = False
    must: bool = False
    schema: SchemaName = NO_NAME
    default: Any = None
    accepts: str = ""


def type_of(node: Node, *, generalized: bool = False, flatten: bool = True) -> JsonType:
    """The type of a schema.

    Args:
        generalized: fields of unions are named as with `generalized.sum.type.support`.
        flatten: a union of one type is that type (`flatten.singleton.unions`).

    Raises:
        ConversionError: a recursive schema, which no column can hold, or one that Connect has no type for.
    """
    return _Types(_UNION_FIELD if generalized else _ONE_OF, flatten, ()).of(node)


class _Types(Value):
    """How unions are named, and the nodes that are being translated."""

    prefix: str
    flatten: bool
    within: tuple[Node, ...]

    def of(self, node: Node) -> JsonType:
        if any(one is node for one in self.within):
            raise ConversionError(
                "The JSON Schema is recursive, which no column can hold.",
                next_step="Read the topic with JsonConverter and schemas.enable=false, or change the schema.",
            )
        inner = replace(self, within=(*self.within, node))
        match node.kind:
            case "combined":
                return inner._combined(node)
            case "object":
                made = inner._object(node)
            case "array":
                made = inner._array(node)
            case _:
                made = JsonType("scalar", _scalar(node), accepts=_accepted(node))
        named = (node.keywords.get(key) for key in ("title", "connect.version", "description", "connect.parameters"))
        return replace(made, schema=SchemaName.from_json(*named), default=node.keywords.get("default"))

    def _combined(self, node: Node) -> JsonType:
        if node.criterion == "allOf":
            return self._all_of(node)
        if len(node.parts) == 1 and self.flatten:
            return self.of(node.parts[0])
        branches = node.branches
        optional = len(branches) < len(node.parts)
        if not branches:
            raise ConversionError("A JSON Schema of null alone has no type in Kafka Connect.")
        if len(branches) == 1 and optional:
            return replace(self.of(branches[0]), optional=True)
        parts = tuple(replace(self.of(one), optional=True) for one in branches)
        names = tuple(f"{self.prefix}{number}" for number in range(len(parts)))
        return JsonType("union", parts=parts, names=names, optional=optional)

    def _all_of(self, node: Node) -> JsonType:
        """Objects are merged; of other schemas the one with the most keywords of its type counts."""
        properties: dict[str, tuple[Node, bool]] = {}
        _collect(node, properties, [])
        if properties:
            found = [(name, self.of(one), must) for name, (one, must) in properties.items()]
            return _struct(found)
        by_kind = {part.kind: part for part in node.parts}
        if "combined" in by_kind:
            return self.of(by_kind["combined"])
        if "enum" in by_kind and "string" in by_kind:
            return self.of(by_kind["enum"])
        order = ("number", "string", "boolean", "array", "object", "enum", "const")
        found_kind = next((kind for kind in order if kind in by_kind), None)
        if found_kind is None:
            raise ConversionError("A JSON Schema of kind allOf has no type that Kafka Connect knows.")
        return self.of(by_kind[found_kind])

    def _object(self, node: Node) -> JsonType:
        if node.keywords.get("connect.type") == "map":
            value = (
                JsonType("scalar", pa.string(), optional=True) if node.additional is None else self.of(node.additional)
            )
            return JsonType("map", parts=(value,))
        places: dict[int, tuple[str, Node]] = {}
        raw = node.keywords.get("properties") or {}
        for name, one in node.properties.items():
            spelled = raw.get(name)
            index = spelled.get("connect.index") if isinstance(spelled, dict) else None
            places[len(places) if index is None or index in places else int(index)] = name, one
        ordered = [places[place] for place in sorted(places)]
        return _struct([(name, self.of(one), name in node.required) for name, one in ordered])

    def _array(self, node: Node) -> JsonType:
        if node.items is None:
            raise ConversionError("A JSON Schema of an array does not define its items.")
        if node.keywords.get("connect.type") == "map" and node.items.kind == "object":
            entry = node.items.properties
            if entry.keys() == {"key", "value"}:
                return JsonType(
                    "entries", parts=(self.of(entry["key"]), self.of(entry["value"])), names=("key", "value")
                )
        return JsonType("list", parts=(self.of(node.items),))


def _struct(fields: list[tuple[str, JsonType, bool]]) -> JsonType:
    parts = tuple(replace(one, must=must and not one.optional) for _, one, must in fields)
    return JsonType("struct", parts=parts, names=tuple(name for name, _, _ in fields))


def _collect(node: Node, found: dict[str, tuple[Node, bool]], seen: list[Node]) -> None:
    if any(one is node for one in seen):
        return
    seen.append(node)
    if node.kind == "combined" and node.criterion == "allOf":
        for part in node.parts:
            _collect(part, found, seen)
    elif node.kind == "object":
        found |= {name: (one, name in node.required) for name, one in node.properties.items()}


def _scalar(node: Node) -> pa.DataType:
    keywords = node.keywords
    connect_type = str(keywords.get("connect.type") or "")
    if node.kind == "boolean":
        return pa.bool_()
    if node.kind in ("number", "string"):
        schema = {
            "type": _CONNECT_TYPES.get(connect_type, ""),
            "name": keywords.get("title"),
            "parameters": keywords.get("connect.parameters"),
        }
        logical = logical_type(schema)
        if logical is not None:
            return logical
    if node.kind == "number":
        if connect_type and connect_type not in _NUMBERS:
            raise ConversionError(f"A number of a JSON Schema has the connect.type {connect_type}, which is unknown.")
        return _NUMBERS[connect_type] if connect_type else pa.int64() if node.is_integer else pa.float64()
    if node.kind == "string" and connect_type == "bytes":
        return pa.binary()
    if node.kind in ("string", "enum", "const", "empty"):
        return pa.string()
    raise ConversionError(f"A JSON Schema of kind {node.kind} has no type in Kafka Connect.")


def _accepted(node: Node) -> str:
    if node.kind == "number":
        return "integer" if node.is_integer else "number"
    return "string" if node.kind in ("string", "enum", "const") else "any" if node.kind == "empty" else node.kind


def value_type(one: JsonType) -> pa.DataType:
    """Arrow type of the values that sinks see."""
    return _arrow(one, entries=False)


def document_type(one: JsonType) -> pa.DataType:
    """Arrow type as which documents are read: maps with other keys than text are lists of keys and values.

    Fields that must be there are not nullable, and have their defaults in their metadata.
    """
    return _arrow(one, entries=True)


def _arrow(one: JsonType, *, entries: bool) -> pa.DataType:
    parts = [_arrow(part, entries=entries) for part in one.parts]
    if one.kind in ("struct", "union"):
        return pa.struct(
            [_field(name, part, kind) for name, part, kind in zip(one.names, one.parts, parts, strict=True)]
        )
    if one.kind == "list":
        return pa.list_(_inner("item", one.parts[0], parts[0]))
    if one.kind == "map":
        return pa.map_(pa.string(), _inner("value", one.parts[0], parts[0]))
    if one.kind == "entries":
        key, value = pa.field("key", parts[0], False), _inner("value", one.parts[1], parts[1])
        return pa.list_(pa.struct([key, value])) if entries else pa.map_(parts[0], value)
    assert one.scalar is not None
    return one.scalar


def _inner(name: str, one: JsonType, kind: pa.DataType) -> pa.Field:
    return described(pa.field(name, kind, one.optional), one.schema)


def _field(name: str, one: JsonType, kind: pa.DataType) -> pa.Field:
    default = one.default if one.kind == "scalar" else None
    return described(pa.field(name, kind, not one.must or default is not None), one.schema, default)
