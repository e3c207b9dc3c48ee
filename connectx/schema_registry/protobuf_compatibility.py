"""Whether records of one Protobuf schema are read with another.

Follows the differences that Confluent's ProtobufSchema names. Fields are compared by their numbers; names, new fields
and enums may change. Not compared: services, extensions, options, and reserved numbers and names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectx.schema_registry import levels
from connectx.schema_registry.levels import Level
from connectx.values import Value

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

_KINDS: Final = {
    **dict.fromkeys((3, 4, 5, 8, 13, 14), "GENERAL_NUMBER"),
    **dict.fromkeys((17, 18), "SIGNED_NUMBER"),
    **dict.fromkeys((9, 12), "STRING_OR_BYTES"),
    **dict.fromkeys((7, 15), "FIXED32"),
    **dict.fromkeys((6, 16), "FIXED64"),
    1: "DOUBLE",
    2: "FLOAT",
}
"""Scalar types by number, in groups whose encodings are the same."""
_OPTIONAL, _REQUIRED, _REPEATED = "OPTIONAL", "REQUIRED", "REPEATED"


def problems(level: Level, new: FileDescriptor, old: FileDescriptor) -> list[str]:
    """Why a new schema is not compatible with an old one at a level; empty when it is."""
    return levels.problems(level, new, old, lambda original, update: _Comparison().files(original, update))


@dataclass(slots=True)
class _Comparison:
    """One direction. `met` are messages that were compared."""

    met: set[tuple[str, str]] = field(default_factory=set)

    def files(self, original: FileDescriptor, update: FileDescriptor) -> Iterator[tuple[str, str]]:
        """(name, path) of every change that is not compatible."""
        if original.package != update.package:
            yield "PACKAGE_CHANGED", "#/"
        yield from self._all(original.message_types_by_name.values(), update.message_types_by_name.values(), "#/")

    def _all(self, before: Any, after: Any, path: str) -> Iterator[tuple[str, str]]:
        found = {one.name: one for one in after}
        for one in before:
            if one.GetOptions().map_entry:
                continue
            if one.name not in found:
                yield "MESSAGE_REMOVED", f"{path}{one.name}"
            else:
                yield from self._messages(one, found[one.name], f"{path}{one.name}/")

    def _messages(self, original: Descriptor, update: Descriptor, path: str) -> Iterator[tuple[str, str]]:
        if (original.full_name, update.full_name) in self.met:
            return
        self.met.add((original.full_name, update.full_name))
        before, after = _Fields.of(original), _Fields.of(update)
        yield from _oneofs(before, after, path)
        deleted = before.deleted_oneofs(after)
        for number in sorted(before.by_number.keys() | after.by_number.keys()):
            was, now = before.by_number.get(number), after.by_number.get(number)
            if was is not None and now is not None:
                yield from self._fields(was, now, before.labels[was.name], after.labels[now.name], f"{path}{number}")
            elif was is not None and number in before.oneof_of:
                if before.oneof_of[number] not in deleted:
                    yield "ONEOF_FIELD_REMOVED", f"{path}{before.oneof_of[number]}/{number}"
            elif was is not None and before.labels[was.name] == _REQUIRED:
                yield "REQUIRED_FIELD_REMOVED", f"{path}{number}"
            elif now is not None and after.labels[now.name] == _REQUIRED:
                yield "REQUIRED_FIELD_ADDED", f"{path}{number}"
        yield from self._all(original.nested_types, update.nested_types, path)

    def _fields(
        self, original: FieldDescriptor, update: FieldDescriptor, before: str, after: str, path: str
    ) -> Iterator[tuple[str, str]]:
        kinds = _kind(original), _kind(update)
        if kinds[0] != kinds[1]:
            yield "FIELD_KIND_CHANGED", path
        elif kinds[0] == "MAP":
            for number in (0, 1):
                was, now = (one.message_type.fields[number] for one in (original, update))
                yield from self._fields(was, now, "", "", path)
        elif kinds[0] == "MESSAGE":
            was, now = original.message_type, update.message_type
            if _local_name(was) != _local_name(now) or list(self._messages(was, now, f"{path}/")):
                yield "FIELD_NAMED_TYPE_CHANGED", path
        elif _KINDS.get(original.type) != _KINDS.get(update.type):
            yield "FIELD_SCALAR_KIND_CHANGED", path
        elif before and after and before != after and _KINDS.get(original.type) != "STRING_OR_BYTES":
            yield "FIELD_NUMERIC_LABEL_CHANGED", path


class _Fields(Value):
    """Fields of a message by number, their oneofs by number, and their labels by name, as the text has them."""

    by_number: dict[int, Any]
    oneof_of: dict[int, str]
    labels: dict[str, str]

    @classmethod
    def of(cls, message: Descriptor) -> _Fields:
        from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

        proto, file = DescriptorProto(), FileDescriptorProto()
        message.CopyToProto(proto)
        message.file.CopyToProto(file)
        labels: dict[str, str] = {}
        oneofs: dict[int, str] = {}
        for one, spelled in zip(message.fields, proto.field, strict=True):
            is_member = spelled.HasField("oneof_index") and not spelled.proto3_optional
            if is_member:
                oneofs[one.number] = proto.oneof_decl[spelled.oneof_index].name
            is_spelled = spelled.proto3_optional or (file.syntax != "proto3" and not is_member)
            labels[one.name] = (
                _REPEATED if one.is_repeated else _REQUIRED if one.is_required else _OPTIONAL if is_spelled else ""
            )
        return cls({one.number: one for one in message.fields}, oneofs, labels)

    def deleted_oneofs(self, after: _Fields) -> set[str]:
        """Oneofs of which neither the name nor any member is left."""
        left = {name for number, name in self.oneof_of.items() if number in after.by_number}
        return set(self.oneof_of.values()) - left - set(after.oneof_of.values())


def _oneofs(before: _Fields, after: _Fields, path: str) -> Iterator[tuple[str, str]]:
    """Oneofs that exclude each other's fields where these could be set together before."""
    for name in sorted(set(after.oneof_of.values())):
        members = [number for number, oneof in after.oneof_of.items() if oneof == name and number in before.by_number]
        alone = [number for number in members if number not in before.oneof_of]
        groups = {before.oneof_of.get(number, number) for number in members}
        if len(groups) > 1:
            yield (
                ("MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(alone) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"),
                f"{path}{name}",
            )


def _kind(one: FieldDescriptor) -> str:
    if one.message_type is None:
        return "SCALAR"
    return "MAP" if one.message_type.GetOptions().map_entry else "MESSAGE"


def _local_name(message: Descriptor) -> str:
    return str(message.full_name).removeprefix(f"{message.file.package}.")
