"""Protobuf schemas as descriptors of a file, of .proto text or of the base64 that Confluent's Python client registers.

Names of types stay as the text spells them: a pool of descriptors resolves them. Services, extensions and options that
the encoding does not need are left out.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from connectx.errors.plugins import ConversionError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )

META: Final = "confluent/meta.proto"
_SCALARS: Final = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
_NAMES: Final = {number: name for name, number in _SCALARS.items()}
_OPTIONAL, _REQUIRED, _REPEATED = 1, 2, 3
_META_OPTION: Final = "confluent.field_meta"
_END: Final = 2**29
"""The number after the largest of a field."""


def file_of(text: str) -> FileDescriptorProto:
    """The descriptor of a schema, without a file name.

    Raises:
        ConversionError: neither .proto text nor base64 of a descriptor.
    """
    return _decoded(text) or _parsed(text)


def plain_text(text: str) -> str:
    """The .proto text of a schema: as it is given, or of base64.

    Raises:
        ConversionError: neither .proto text nor base64 of a descriptor.
    """
    file = _decoded(text)
    return text if file is None else text_of(file)


def params_of(field: FieldDescriptorProto) -> Mapping[str, str]:
    """Confluent's parameters of a field, such as `connect.type`, `precision` and `scale`."""
    return dict(_meta(field).params)


def set_params(field: FieldDescriptorProto, params: Mapping[str, str]) -> None:
    """Set Confluent's parameters of a field."""
    _meta(field).params.update(params)


def _meta(field: FieldDescriptorProto) -> Any:
    from confluent_kafka.schema_registry.confluent import meta_pb2

    extensions: Any = meta_pb2
    return field.options.Extensions[extensions.field_meta]


def _decoded(text: str) -> FileDescriptorProto | None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return FileDescriptorProto.FromString(base64.b64decode("".join(text.split()), validate=True)) if text else None
    except (binascii.Error, ValueError, DecodeError):
        return None


def encoded(file: FileDescriptorProto) -> str:
    """A descriptor in base64: the format `serialized` of a schema registry."""
    return base64.b64encode(file.SerializeToString()).decode()


def _parsed(text: str) -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from proto_schema_parser import ast
    from proto_schema_parser.parser import Parser

    try:
        parsed = Parser(setup_lexer=_refuse_errors, setup_parser=_refuse_errors).parse(text)
    except Exception as error:  # the parser's errors derive from Exception alone
        raise ConversionError(f"Not a valid Protobuf schema: {error}.") from error
    if parsed.edition is not None:
        raise ConversionError("Protobuf schemas with an edition cannot be read: those of proto2 and proto3 can.")
    made = FileDescriptorProto(syntax=parsed.syntax or "proto2")
    is_new = made.syntax == "proto3"
    for one in parsed.file_elements:
        if isinstance(one, ast.Package):
            made.package = one.name
        elif isinstance(one, ast.Import):
            if one.public:
                made.public_dependency.append(len(made.dependency))
            made.dependency.append(one.name)
        elif isinstance(one, ast.Message):
            _read_message(made.message_type.add(name=one.name), one, is_new)
        elif isinstance(one, ast.Enum):
            _read_enum(made.enum_type.add(name=one.name), one)
    return made


class _Refusing:
    """Raises the first error of a text. The parser's own listener prints the text, and the parser guesses."""

    def syntaxError(self, recognizer: Any, symbol: Any, line: int, column: int, message: str, error: Any) -> None:
        raise ValueError(f"line {line}, column {column}: {message}")

    def ignore(self, *_: Any) -> None:
        return

    reportAmbiguity = reportAttemptingFullContext = reportContextSensitivity = ignore


def _refuse_errors(recognizer: Any) -> None:
    recognizer.removeErrorListeners()
    recognizer.addErrorListener(_Refusing())


def _read_message(made: DescriptorProto, message: Any, is_new: bool) -> None:
    from proto_schema_parser import ast

    for one in message.elements:
        if isinstance(one, ast.Field):
            _read_field(made, one)
        elif isinstance(one, ast.MapField):
            _read_map(made, one)
        elif isinstance(one, ast.OneOf):
            number = len(made.oneof_decl)
            made.oneof_decl.add(name=one.name)
            for inner in one.elements:
                if isinstance(inner, ast.Field):
                    _read_field(made, inner).oneof_index = number
        elif isinstance(one, ast.Message):
            _read_message(made.nested_type.add(name=one.name), one, is_new)
        elif isinstance(one, ast.Enum):
            _read_enum(made.enum_type.add(name=one.name), one)
        elif isinstance(one, ast.Reserved):
            made.reserved_name.extend(name.strip('"') for name in one.names)
            for start, end in map(_range, one.ranges):
                made.reserved_range.add(start=start, end=end + 1)
        elif isinstance(one, ast.Group):
            raise ConversionError(f"The group {one.name} of a Protobuf schema cannot be read.")
        elif isinstance(one, ast.Option) and one.name == "map_entry":
            made.options.map_entry = bool(one.value)
    if is_new:
        _add_synthetic(made, [one for one in message.elements if isinstance(one, ast.Field)])


def _add_synthetic(made: DescriptorProto, fields: list[Any]) -> None:
    """A separate oneof for each `optional` field of proto3, after all others, as protoc makes it."""
    optional = {one.name for one in fields if one.cardinality == "OPTIONAL"}
    for field in made.field:
        if field.name in optional:
            field.proto3_optional = True
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field.name}")


def _read_field(made: DescriptorProto, one: Any) -> FieldDescriptorProto:
    label = {"REQUIRED": _REQUIRED, "REPEATED": _REPEATED}.get(one.cardinality or "", _OPTIONAL)
    field = made.field.add(name=one.name, number=one.number, label=label)
    _set_type(field, one.type)
    for option in one.options:
        value = getattr(option.value, "name", option.value)
        value = _unescaped(value) if isinstance(value, str) else value
        match option.name:
            case "default":
                field.default_value = str(value).lower() if isinstance(value, bool) else str(value)
            case "packed":
                field.options.packed = bool(value)
            case "json_name":
                field.json_name = str(value)
            case name if name.startswith(f"({_META_OPTION})"):
                set_params(field, dict(_params(value, within=name.endswith(".params"))))
            case _:
                pass  # other options say nothing of the format
    return field


def _set_type(field: FieldDescriptorProto, name: str) -> None:
    if name in _SCALARS:
        field.type = _SCALARS[name]
    else:
        field.type_name = name


def _read_map(made: DescriptorProto, one: Any) -> None:
    name = "".join(part[:1].upper() + part[1:] for part in one.name.split("_")) + "Entry"
    entry = made.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, (part, kind) in enumerate((("key", one.key_type), ("value", one.value_type)), 1):
        _set_type(entry.field.add(name=part, number=number, label=_OPTIONAL), kind)
    made.field.add(name=one.name, number=one.number, label=_REPEATED, type_name=name)


def _read_enum(made: EnumDescriptorProto, one: Any) -> None:
    from proto_schema_parser import ast

    for part in one.elements:
        if isinstance(part, ast.EnumValue):
            made.value.add(name=part.name, number=part.number)
        elif isinstance(part, ast.Option) and part.name == "allow_alias":
            made.options.allow_alias = bool(part.value)


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition(" to ")
    return int(first), _END - 1 if last == "max" else int(last or first)


def _unescaped(text: str) -> str:
    """A string of .proto text without its escapes, which the parser leaves in it."""
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")


def _params(value: Any, *, within: bool) -> Iterator[tuple[str, str]]:
    """Pairs of `{key: "a", value: "b"}`, alone or in a list, or in the member `params` of the option's value."""
    for one in value if isinstance(value, list) else [value]:
        members = {part.name: part.value for part in getattr(one, "elements", ()) if hasattr(part, "value")}
        if within and "key" in members:
            yield _unescaped(str(members["key"])), _unescaped(str(members.get("value", "")))
        elif not within and "params" in members:
            yield from _params(members["params"], within=True)


def text_of(file: FileDescriptorProto) -> str:
    """The .proto text of a descriptor."""
    lines = [f'syntax = "{file.syntax or "proto2"}";']
    lines += [f"package {file.package};"] if file.package else []
    lines += [f'import "{name}";' for name in file.dependency]
    is_new = file.syntax == "proto3"
    for message in file.message_type:
        lines += ["", *_message_lines(message, is_new)]
    for enum in file.enum_type:
        lines += ["", *_enum_lines(enum)]
    return "\n".join(lines) + "\n"


def _message_lines(message: DescriptorProto, is_new: bool) -> list[str]:
    entries = {one.name: one for one in message.nested_type if one.options.map_entry}
    lines, opened = [], set[int]()
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            number = field.oneof_index
            if number not in opened:
                opened.add(number)
                members = [one for one in message.field if one.HasField("oneof_index") and one.oneof_index == number]
                inner = [f"  {_field_line(one, is_new, entries)}" for one in members]
                lines += [f"oneof {message.oneof_decl[number].name} {{", *inner, "}"]
        else:
            lines.append(_field_line(field, is_new, entries))
    for reserved in message.reserved_range:
        lines.append(f"reserved {reserved.start} to {reserved.end - 1};")
    lines += [f'reserved "{name}";' for name in message.reserved_name]
    for one in message.nested_type:
        lines += [] if one.name in entries else _message_lines(one, is_new)
    for enum in message.enum_type:
        lines += _enum_lines(enum)
    return [f"message {message.name} {{", *(f"  {line}" for line in lines), "}"]


def _field_line(field: FieldDescriptorProto, is_new: bool, entries: Mapping[str, DescriptorProto]) -> str:
    kind, label = field.type_name or _NAMES[field.type], ""
    entry = entries.get(field.type_name.rpartition(".")[2]) if field.label == _REPEATED else None
    if entry is not None:
        inner = [part.type_name or _NAMES[part.type] for part in entry.field]
        kind = f"map<{', '.join(inner)}>"
    elif field.label == _REPEATED:
        label = "repeated "
    elif field.label == _REQUIRED:
        label = "required "
    elif field.proto3_optional or (not is_new and not field.HasField("oneof_index")):
        label = "optional "
    options = []
    if field.HasField("default_value"):
        is_text = field.type in (_SCALARS["string"], _SCALARS["bytes"])
        options.append(f"default = {_quoted(field.default_value) if is_text else field.default_value}")
    if field.options.HasField("packed"):
        options.append(f"packed = {str(field.options.packed).lower()}")
    if params := params_of(field):
        pairs = ", ".join(f"{{key: {_quoted(key)}, value: {_quoted(params[key])}}}" for key in sorted(params))
        options.append(f"({_META_OPTION}) = {{params: [{pairs}]}}")
    tail = f" [{', '.join(options)}]" if options else ""
    return f"{label}{kind} {field.name} = {field.number}{tail};"


def _enum_lines(enum: EnumDescriptorProto) -> list[str]:
    alias = ["  option allow_alias = true;"] if enum.options.allow_alias else []
    return [f"enum {enum.name} {{", *alias, *(f"  {one.name} = {one.number};" for one in enum.value), "}"]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
