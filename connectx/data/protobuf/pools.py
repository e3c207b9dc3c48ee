"""Pools of Protobuf descriptors: a schema with those that it imports, by reference or as well-known files."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from connectx.data.protobuf.files import META, file_of
from connectx.errors.plugins import ConversionError

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

DECIMAL: Final = "confluent/type/decimal.proto"
_MAIN: Final = "connectx-schema.proto"
_WELL_KNOWN: Final = ("google/protobuf/", "google/type/")
_DECIMAL_TEXT: Final = """
syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""


def descriptor_of(schema: str | FileDescriptorProto, references: Sequence[tuple[str, str]] = ()) -> FileDescriptor:
    """The descriptor of a schema, with all names resolved.

    Args:
        references: (name, text) of the files that it imports, those that they import themselves first.

    Raises:
        ConversionError: not a valid Protobuf schema, or an import that is neither a reference nor well known.
    """
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    added: set[str] = set()
    for name, one in references:
        _add(pool, file_of(one), name, added)
    _add(pool, file_of(schema) if isinstance(schema, str) else schema, _MAIN, added)
    return pool.FindFileByName(_MAIN)


def _add(pool: Any, file: FileDescriptorProto, name: str, added: set[str]) -> None:
    if name in added:
        return
    added.add(name)
    for imported in file.dependency:
        if imported not in added:
            _add(pool, _well_known(imported), imported, added)
    named = type(file)()
    named.CopyFrom(file)
    named.name = name
    try:
        pool.AddSerializedFile(named.SerializeToString())
    except TypeError as error:
        reason = str(error).partition(":")[2].strip() or str(error)
        raise ConversionError(f"Not a valid Protobuf schema: {reason.rstrip('.')}.") from error


def _well_known(name: str) -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if name == DECIMAL:
        return file_of(_DECIMAL_TEXT)
    try:
        if name == META:
            found = import_module("confluent_kafka.schema_registry.confluent.meta_pb2")
        elif name.startswith(_WELL_KNOWN):
            found = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        else:
            raise ModuleNotFoundError(name)
    except ModuleNotFoundError as error:
        raise ConversionError(
            f"The Protobuf schema imports {name!r}, which is neither one of its references nor well known."
        ) from error
    return FileDescriptorProto.FromString(found.DESCRIPTOR.serialized_pb)
