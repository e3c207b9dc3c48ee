"""Protobuf schemas of Arrow types, as Confluent's ProtobufData writes those of Connect's schemas.

A struct is a message with the last part of its schema's name, nested in the message that has the field. Messages
without a name are `ConnectDefault1`, `ConnectDefault2`; a field's number is its place. A single value is one of
Google's wrappers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from connectx.data.arrays import is_binary, is_list, is_text
from connectx.data.connect_schema import (
    DATE_NAME,
    DECIMAL_NAME,
    NO_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    SchemaName,
    name_of,
)
from connectx.data.protobuf.files import META, set_params, text_of
from connectx.data.protobuf.pools import DECIMAL
from connectx.errors.plugins import ConversionError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

_VALID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WRAPPERS: Final = "google/protobuf/wrappers.proto"
_OPTIONAL, _REPEATED, _MESSAGE = 1, 3, 11
_SCALARS: Final = (
    (pa.types.is_int8, 5, "Int32"),
    (pa.types.is_int16, 5, "Int32"),
    (pa.types.is_int32, 5, "Int32"),
    (pa.types.is_int64, 3, "Int64"),
    (pa.types.is_float32, 2, "Float"),
    (pa.types.is_float64, 1, "Double"),
    (pa.types.is_boolean, 8, "Bool"),
    (is_text, 9, "String"),
    (is_binary, 12, "Bytes"),
)
_LOGICAL: Final = {
    DATE_NAME: ("google/type/date.proto", ".google.type.Date"),
    TIME_NAME: ("google/type/timeofday.proto", ".google.type.TimeOfDay"),
    TIMESTAMP_NAME: ("google/protobuf/timestamp.proto", ".google.protobuf.Timestamp"),
    DECIMAL_NAME: (DECIMAL, ".confluent.type.Decimal"),
}


def schema_of(
    kind: pa.DataType,
    name: SchemaName = NO_NAME,
    *,
    optional: bool = False,
    wrapped: bool = False,
    scrub: bool = False,
) -> tuple[str, str]:
    """(text, full name of the message) of the Protobuf schema of values of an Arrow type.

    Args:
        name: of the outermost schema; a message without one is `ConnectDefault1`.
        optional: fields that may be null are `optional` (`optional.for.nullables`).
        wrapped: fields that may be null are wrappers (`wrapper.for.nullables`).
        scrub: make names valid that Protobuf does not take (`scrub.invalid.names`).

    Raises:
        ConversionError: Connect or Protobuf has no such type, or Protobuf does not take a name.
    """
    if not pa.types.is_struct(kind):
        return _wrapper(kind)
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(syntax="proto3")
    made = _Schema(file, optional, wrapped, scrub)
    file.package, _, _ = ".".join(map(made.named, name.name.split("."))).rpartition(".") if name.name else ("", "", "")
    message = file.message_type.add(name=made.message_name(name))
    made.fill(message, kind, message.name)
    file.dependency.sort()
    return text_of(file), f"{file.package}.{message.name}".lstrip(".")


def scrubbed(name: str) -> str:
    made = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return made if _VALID.fullmatch(made) and not made.startswith("_") else f"x{made}"


def _wrapper(kind: pa.DataType) -> tuple[str, str]:
    found = next((wrapper for fits, _, wrapper in _SCALARS if fits(kind)), None)
    if found is None:
        raise _refused(kind)
    from google.protobuf import wrappers_pb2
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto.FromString(wrappers_pb2.DESCRIPTOR.serialized_pb)
    return text_of(file), f"google.protobuf.{found}Value"


@dataclass(slots=True)
class _Schema:
    file: FileDescriptorProto
    optional: bool
    wrapped: bool
    scrub: bool
    count: int = 0
    messages: dict[str, pa.DataType] = field(default_factory=dict)
    """Structs of nested messages, by the path of the message."""

    def fill(self, message: DescriptorProto, kind: pa.StructType, path: str) -> None:
        """Add fields to a message; `path` is its name after those that it is nested in."""
        for number, one in enumerate(kind, 1):
            name = self.named(one.name)
            field = message.field.add(name=name, number=number, label=_OPTIONAL)
            if is_list(one.type):
                field.label = _REPEATED
                self._set_type(message, field, one.type.value_field.with_nullable(False), path)
            elif pa.types.is_map(one.type):
                self._map(message, field, one.type, path)
            else:
                self._set_type(message, field, one, path)
                field.proto3_optional = self.optional and one.nullable
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def message_name(self, name: SchemaName) -> str:
        """Name of a message: the last part of its schema's, or a new one."""
        if name.name:
            return self.named(name.name.rpartition(".")[2])
        self.count += 1
        return f"ConnectDefault{self.count}"

    def named(self, name: str) -> str:
        """A valid name of a field or message."""
        made = scrubbed(name) if self.scrub and not _VALID.fullmatch(name) else name
        if not _VALID.fullmatch(made):
            raise ConversionError(
                f"Protobuf does not take the name {name!r}.",
                next_step="Rename the field, or set scrub.invalid.names=true for the converter.",
            )
        return made

    def _set_type(self, message: DescriptorProto, field: FieldDescriptorProto, one: pa.Field, path: str) -> None:
        kind = one.type.value_type if pa.types.is_dictionary(one.type) else one.type
        if pa.types.is_struct(kind):
            self._set_message(message, field, one, path)
            return
        logical = _LOGICAL.get(name_of(one.with_type(kind)).name)
        if logical is not None:
            imported, type_name = logical
            self._import(imported)
            field.type, field.type_name = _MESSAGE, type_name
            if pa.types.is_decimal(kind):
                self._import(META)
                set_params(field, {"precision": str(kind.precision), "scale": str(kind.scale)})
            return
        found = next(((number, wrapper) for fits, number, wrapper in _SCALARS if fits(kind)), None)
        if found is None:
            raise _refused(kind)
        if self.wrapped and one.nullable:
            self._import(_WRAPPERS)
            field.type, field.type_name = _MESSAGE, f".google.protobuf.{found[1]}Value"
            return
        field.type = found[0]
        if pa.types.is_int8(kind) or pa.types.is_int16(kind):
            self._import(META)
            set_params(field, {"connect.type": f"int{kind.bit_width}"})

    def _set_message(self, message: DescriptorProto, field: FieldDescriptorProto, one: pa.Field, path: str) -> None:
        """A struct's message, which is nested once for all fields of the schema's name."""
        name = self.message_name(SchemaName.of(one))
        field.type_name = f"{name}Message" if name == field.name else name
        inner = f"{path}.{field.type_name}"
        if inner not in self.messages:
            self.messages[inner] = one.type
            self.fill(message.nested_type.add(name=field.type_name), one.type, inner)
        elif self.messages[inner] != one.type:
            raise ConversionError(
                f"Two structs of different fields have the name {inner} in a Protobuf schema.",
                next_step="Give one of them another name.",
            )

    def _map(self, message: DescriptorProto, field: FieldDescriptorProto, kind: pa.MapType, path: str) -> None:
        types, key_type = pa.types, kind.key_type
        entry = message.nested_type.add(name=f"{self.message_name(NO_NAME)}Entry")
        plain = (is_text, types.is_int32, types.is_int64, types.is_boolean)
        can_be_map = any(fits(key_type) for fits in plain)
        entry.options.map_entry = can_be_map
        field.label, field.type_name = _REPEATED, entry.name
        path = path if can_be_map else f"{path}.{entry.name}"
        for number, (name, one) in enumerate((("key", kind.key_field), ("value", kind.item_field)), 1):
            part = entry.field.add(name=name, number=number, label=_OPTIONAL)
            self._set_type(message if can_be_map else entry, part, one.with_nullable(False), path)

    def _import(self, name: str) -> None:
        if name not in self.file.dependency:
            self.file.dependency.append(name)


def _refused(kind: pa.DataType) -> ConversionError:
    return ConversionError(
        f"ProtobufConverter cannot write values of type {kind}.", next_step="Cast the column to another type."
    )
