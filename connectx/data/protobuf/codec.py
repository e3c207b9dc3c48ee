"""Protobuf bodies, without header, of one schema to Arrow columns and back: by ptars in whole columns, or singly.

A body begins with the indexes of its message in the schema: a zero byte for the first message, otherwise their count
and the indexes, as zigzag varints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.converter import Decoded
from connectx.data.parts import joined, read_by_halves
from connectx.data.protobuf.messages import Messages
from connectx.data.protobuf.shapes import column_of, message_columns, message_values, values_of
from connectx.data.protobuf.types import WRAPPERS, Options, type_of
from connectx.errors.plugins import ConversionError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor

_FIRST: Final = b"\0"
_LONGEST: Final = 10
"""Bytes of the longest varint."""
_PANIC: Final = "PanicException"


class ProtobufCodec:
    """Reads and writes bodies of the messages of one schema.

    Args:
        record: full name of the message that is written; the first one where the schema does not have it.
        native: use ptars, whose native code reads whole columns of others' bytes; otherwise google.protobuf.

    Raises:
        ConversionError: the schema has no message.
    """

    def __init__(self, file: FileDescriptor, options: Options, *, record: str = "", native: bool = True) -> None:
        self._file, self._options = file, options
        self._handler = (
            _native_handlers(file, options) if native else partial(Messages, int_for_enums=options.int_for_enums)
        )
        self._messages: dict[tuple[int, ...], _Message | str] = {}
        names = [one.full_name for one in file.message_types_by_name.values()]
        if not names:
            raise ConversionError("The Protobuf schema has no message.")
        self._path = (names.index(record),) if record in names else (0,)

    def read(self, bodies: pa.Array) -> Decoded:
        heads = pc.binary_slice(bodies, 0, 1)
        if pc.all(pc.equal(heads, _FIRST)).as_py():
            return self._read((0,), pc.binary_slice(bodies, 1, np.iinfo(np.int32).max))
        groups: dict[tuple[int, ...] | None, tuple[list[int], list[bytes]]] = {}
        for row, body in enumerate(bodies.to_pylist()):
            path, rest = indexes_of(body)
            rows, rests = groups.setdefault(path, ([], []))
            rows.append(row)
            rests.append(rest)
        parts = [
            (pa.array(rows, pa.uint64()), self._read(path, pa.array(rests, pa.binary())))
            for path, (rows, rests) in groups.items()
        ]
        return joined(parts)

    def write(self, values: pa.Array) -> pa.Array:
        """Bodies (binary) of values without null.

        Raises:
            ConversionError: a type or value that the schema does not take.
        """
        message = self._message(self._path)
        if isinstance(message, str):
            raise ConversionError(message)
        head = pa.scalar(encoded_indexes(self._path), pa.binary())
        return pc.binary_join_element_wise(head, message.write(values), b"")

    def _read(self, path: tuple[int, ...] | None, bodies: pa.Array) -> Decoded:
        message = "The record does not begin with the indexes of a message." if path is None else self._message(path)
        if isinstance(message, str):
            return Decoded(pa.nulls(len(bodies)), pa.array([message] * len(bodies), pa.string()))
        return read_by_halves(bodies, message.read, message.kind)

    def _message(self, path: tuple[int, ...]) -> _Message | str:
        if path not in self._messages:
            try:
                self._messages[path] = _Message(self._descriptor(path), self._handler, self._options)
            except ConversionError as error:
                self._messages[path] = error.message
        return self._messages[path]

    def _descriptor(self, path: Sequence[int]) -> Descriptor:
        found: Any = None
        level = list(self._file.message_types_by_name.values())
        for index in path:
            if not 0 <= index < len(level):
                raise ConversionError(f"The Protobuf schema has no message of the indexes {list(path)}.")
            found = level[index]
            level = list(found.nested_types)
        return found


def _native_handlers(file: FileDescriptor, options: Options) -> Callable[[Descriptor], Any]:
    from ptars import HandlerPool, PtarsConfig

    enums: Literal["int32", "string"] = "int32" if options.int_for_enums else "string"
    pool = HandlerPool([file], PtarsConfig(enum_repr=enums, timestamp_unit="us", time_unit="ms"))
    return pool.get_for_message


class _Message:
    """Reads and writes bodies of one message."""

    def __init__(self, descriptor: Descriptor, handler: Callable[[Descriptor], Any], options: Options) -> None:
        self._type = type_of(descriptor, options)
        self._is_raw = options.wrapper_for_raw_primitives and descriptor.full_name in WRAPPERS
        self._name = descriptor.full_name
        self._handler = handler(descriptor)
        self.kind = self.read(pa.array([], pa.binary())).type

    def read(self, bodies: pa.Array) -> pa.Array:
        """Values of bodies.

        Raises:
            ConversionError: one of them is not such a message.
        """
        try:
            batch = self._handler.array_to_record_batch(bodies)
            columns = {name: batch.column(number) for number, name in enumerate(batch.schema.names)}
            if self._is_raw:
                return values_of(columns["value"], self._type)
            return message_values(columns, self._type, bodies)
        except (ValueError, OverflowError, pa.ArrowException) as error:
            raise self._refused(error) from error
        except BaseException as error:
            if type(error).__name__ != _PANIC:
                raise
            raise self._refused(error) from error

    def write(self, values: pa.Array) -> pa.Array:
        """Bodies of values.

        Raises:
            ConversionError: a type or value that the message does not take.
        """
        if self._is_raw:
            columns = {"value": column_of(values, self._type, "the value")}
        elif pa.types.is_struct(values.type):
            columns = message_columns(values, self._type)
        else:
            raise ConversionError(f"ProtobufConverter cannot write values of type {values.type} as {self._name}.")
        if not columns:
            return pa.array([b""] * len(values), pa.binary())
        return self._handler.record_batch_to_array(pa.record_batch(columns))

    def _refused(self, error: BaseException) -> ConversionError:
        reason = str(error).rstrip(".") or type(error).__name__
        return ConversionError(f"The record does not match its Protobuf schema: {reason}.")


def indexes_of(body: bytes) -> tuple[tuple[int, ...] | None, bytes]:
    """Indexes of a body's message, and what follows them; None where it does not begin with such."""
    count, place = _varint(body, 0)
    if count == 0:
        return (0,), body[place:]
    found: list[int] = []
    while count is not None and 0 < count <= len(body) and len(found) < count:
        number, place = _varint(body, place)
        if number is None:
            return None, body
        found.append(number)
    return (tuple(found), body[place:]) if found else (None, body)


def encoded_indexes(path: Sequence[int]) -> bytes:
    """Indexes of a message, as they are before its body."""
    return _FIRST if tuple(path) == (0,) else b"".join(map(_zigzag, (len(path), *path)))


def _varint(body: bytes, place: int) -> tuple[int | None, int]:
    """A zigzag varint at a place, and the place after it; None where there is none."""
    number = 0
    for count, byte in enumerate(body[place : place + _LONGEST]):
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place + count + 1
    return None, place


def _zigzag(number: int) -> bytes:
    left, made = number << 1, bytearray()
    while left >= 0x80:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*made, left])
