"""Protobuf messages as trees of Connect's types.

Follows Confluent's ProtobufData: a oneof is a struct with a field for each member, unsigned numbers are int64, an enum
is a string, wrappers are structs unless `wrapper.for.nullables` is set, and Decimal, Date, TimeOfDay and Timestamp are
the logical types. Messages, enums and oneofs give their schemas names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from connectx.data.connect_schema import NO_NAME, TIME_NAME, SchemaName
from connectx.data.protobuf.files import params_of
from connectx.errors.plugins import ConversionError
from connectx.model.decoding import whole_number
from connectx.values import Value

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_DECIMAL: Final = "confluent.type.Decimal"
_LOGICAL: Final = {
    "google.protobuf.Timestamp": "timestamp",
    "google.type.Date": "date",
    "google.type.TimeOfDay": "time",
    "google.protobuf.Duration": "duration",
}
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_SCALARS: Final = {
    1: "double",
    2: "float",
    3: "int64",
    4: "int64",
    5: "int32",
    6: "int64",
    7: "int64",
    8: "bool",
    9: "string",
    12: "binary",
    13: "int64",
    15: "int32",
    16: "int64",
    17: "int32",
    18: "int64",
}
_WIRES: Final = {4: "uint64", 6: "uint64", 7: "uint32", 13: "uint32"}
ENUM: Final = 14
_INT32: Final = (5, 15, 17)
_MOST_DIGITS: Final = 38
_UNION: Final = "io.confluent.connect.protobuf.Union"


class Options(Value):
    """Settings of the converter that types depend on."""

    int_for_enums: bool = False
    wrapper_for_nullables: bool = False
    flatten_unions: bool = False
    index_for_unions: bool = True
    wrapper_for_raw_primitives: bool = True
    full_names: bool = False

    def name(self, named: Any) -> SchemaName:
        return SchemaName(named.full_name if self.full_names else named.name)


class ProtoType(Value):
    """A field, or a message as a whole.

    Attributes:
        name: of the field; of a oneof as Connect names it.
        kind: scalar, enum, decimal, timestamp, date, time, duration, wrapper, message, list, map, entries or oneof.
        scalar: Arrow's name of a scalar's type; `wire` is that of its encoding.
        parts: fields of a message, members of a oneof, item of a list, key and value of a map.
        symbols: of an enum.
        precision: digits of a decimal, `scale` those after the point.
        schema: name of the schema of the values.
    """

    name: str
    kind: str
    scalar: str = ""
    wire: str = ""
    parts: tuple[ProtoType, ...] = ()
    symbols: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0
    schema: SchemaName = NO_NAME


def type_of(message: Descriptor, options: Options) -> ProtoType:
    """The tree of a message. A wrapper alone is a scalar with the name `value`.

    Raises:
        ConversionError: a recursive message, which no column can hold.
    """
    if options.wrapper_for_raw_primitives and message.full_name in WRAPPERS:
        return _scalar(message.fields[0], {}, options)
    return _message("", message, options, ())


def _message(name: str, message: Descriptor, options: Options, within: tuple[str, ...]) -> ProtoType:
    if message.full_name in within:
        raise ConversionError(
            f"The Protobuf schema is recursive in {message.full_name}, which no column can hold.",
            next_step="Read the topic with ByteArrayConverter, or change the schema.",
        )
    from google.protobuf.descriptor_pb2 import DescriptorProto

    proto = DescriptorProto()
    message.CopyToProto(proto)
    inner = (*within, message.full_name)
    params = {one.name: params_of(one) for one in proto.field}
    synthetic = {one.oneof_index for one in proto.field if one.proto3_optional}
    parts: list[ProtoType] = []
    members: set[str] = set()
    for number, oneof in enumerate(message.oneofs):
        if number in synthetic:
            continue
        members |= {one.name for one in oneof.fields}
        found = [_field(one, params[one.name], options, inner) for one in oneof.fields]
        named = f"{oneof.name}_{number}" if options.index_for_unions else oneof.name
        union = SchemaName(f"{_UNION}.{options.name(oneof).name}")
        parts += found if options.flatten_unions else [ProtoType(named, "oneof", parts=tuple(found), schema=union)]
    parts += [_field(one, params[one.name], options, inner) for one in message.fields if one.name not in members]
    return ProtoType(name, "message", parts=tuple(parts), schema=options.name(message))


def _field(field: FieldDescriptor, params: Any, options: Options, within: tuple[str, ...]) -> ProtoType:
    one = _single(field, params, options, within)
    if not field.is_repeated or one.kind in ("map", "entries"):
        return one
    return ProtoType(field.name, "list", parts=(replace(one, name="item"),))


def _single(field: FieldDescriptor, params: Any, options: Options, within: tuple[str, ...]) -> ProtoType:
    message = field.message_type
    if message is None:
        return _scalar(field, params, options)
    if message.full_name == _DECIMAL:
        scale = _number(params.get("scale"), 0)
        precision = min(_number(params.get("precision"), _MOST_DIGITS), _MOST_DIGITS)
        if not 0 <= scale <= _MOST_DIGITS:
            raise ConversionError(f"A decimal of scale {scale} cannot be read: scales from 0 to 38 can.")
        return ProtoType(field.name, "decimal", precision=max(precision, scale, 1), scale=scale)
    if message.full_name in _LOGICAL:
        kind = _LOGICAL[message.full_name]
        return ProtoType(field.name, kind, schema=SchemaName(TIME_NAME, 1) if kind == "time" else NO_NAME)
    if message.full_name in WRAPPERS:
        kind = "scalar" if options.wrapper_for_nullables else "wrapper"
        return replace(_scalar(message.fields[0], {}, options), name=field.name, kind=kind)
    if field.is_repeated and _is_entry(message):
        key, value = (_field(one, {}, options, within) for one in message.fields)
        return ProtoType(field.name, "map" if message.GetOptions().map_entry else "entries", parts=(key, value))
    return _message(field.name, message, options, within)


def _is_entry(message: Descriptor) -> bool:
    """True for the message of a map, with the option or only by its name, as Confluent's converters write it."""
    fields: Sequence[Any] = message.fields
    named = message.name.endswith("Entry") and [one.name for one in fields] == ["key", "value"]
    return bool(message.GetOptions().map_entry or (named and not any(one.is_repeated for one in fields)))


def _scalar(field: FieldDescriptor, params: Any, options: Options) -> ProtoType:
    if field.type == ENUM:
        name = options.name(field.enum_type)
        if options.int_for_enums:
            return ProtoType(field.name, "scalar", "int32", "int32", schema=name)
        return ProtoType(field.name, "enum", symbols=tuple(one.name for one in field.enum_type.values), schema=name)
    connect_type = params.get("connect.type") if field.type in _INT32 else None
    narrow = connect_type if connect_type in ("int8", "int16") else None
    if field.type not in _SCALARS:
        raise ConversionError(f"The group {field.name} of a Protobuf schema cannot be read.")
    return ProtoType(field.name, "scalar", narrow or _SCALARS[field.type], wire_of(field.type))


def wire_of(field_type: int) -> str:
    """The type of a scalar's numbers or bytes in messages, by the number of its type in descriptors."""
    return _WIRES.get(field_type) or _SCALARS[field_type]


def _number(text: str | None, default: int) -> int:
    number = whole_number((text or "").removeprefix("-"))
    return default if number is None else -number if text and text.startswith("-") else number
