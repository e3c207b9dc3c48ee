"""Protobuf bodies to Arrow columns and back by google.protobuf, message by message. The columns are those of ptars."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from connectx.data.protobuf.shapes import SCALARS
from connectx.data.protobuf.types import ENUM, WRAPPERS, wire_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_1970: Final = date(1970, 1, 1).toordinal()


def _of_timestamp(message: Any) -> int:
    return int(message.seconds * 1_000_000 + message.nanos // 1_000)


def _to_timestamp(message: Any, micros: int) -> None:
    message.seconds, message.nanos = micros // 1_000_000, micros % 1_000_000 * 1_000


def _of_duration(message: Any) -> int:
    return int(message.seconds * 10**9 + message.nanos)


def _to_duration(message: Any, nanos: int) -> None:
    message.seconds = abs(nanos) // 10**9 * (1 if nanos > 0 else -1)  # both have one sign
    message.nanos = nanos - message.seconds * 10**9


def _of_date(message: Any) -> int:
    return date(message.year, message.month, message.day).toordinal() - _1970


def _to_date(message: Any, days: int) -> None:
    day = date.fromordinal(_1970 + days)
    message.year, message.month, message.day = day.year, day.month, day.day


def _of_time(message: Any) -> int:
    seconds = (message.hours * 60 + message.minutes) * 60 + message.seconds
    return int(seconds * 1_000 + message.nanos // 1_000_000)


def _to_time(message: Any, millis: int) -> None:
    minutes, message.seconds = divmod(millis // 1_000, 60)
    message.hours, message.minutes = divmod(minutes, 60)
    message.nanos = millis % 1_000 * 1_000_000


class _Logical(NamedTuple):
    """A message that is one value: its type in the columns, that of its number, and both ways to the number."""

    type: pa.DataType
    plain: pa.DataType
    read: Callable[[Any], int]
    write: Callable[[Any, int], None]


_LOGICAL: Final[Mapping[str, _Logical]] = {
    "google.protobuf.Timestamp": _Logical(pa.timestamp("us", "UTC"), pa.int64(), _of_timestamp, _to_timestamp),
    "google.protobuf.Duration": _Logical(pa.duration("ns"), pa.int64(), _of_duration, _to_duration),
    "google.type.Date": _Logical(pa.date32(), pa.int32(), _of_date, _to_date),
    "google.type.TimeOfDay": _Logical(pa.time32("ms"), pa.int32(), _of_time, _to_time),
}


class Messages:
    """Reads and writes bodies of one message, as a handler of ptars does.

    Args:
        int_for_enums: enums are numbers instead of text.
    """

    def __init__(self, descriptor: Descriptor, *, int_for_enums: bool) -> None:
        from google.protobuf.message_factory import GetMessageClass

        self._class: Any = GetMessageClass(descriptor)
        self._int_for_enums = int_for_enums
        self._type, self._plain = (self._struct(descriptor, is_plain=plain) for plain in (False, True))

    def array_to_record_batch(self, bodies: pa.Array) -> pa.RecordBatch:
        """Columns of bodies.

        Raises:
            ValueError, OverflowError, pa.ArrowException: one of them is no such message, or does not fit its columns.
        """
        rows = pa.array([self._row(self._parsed(body or b"")) for body in bodies.to_pylist()], self._plain)
        return pa.RecordBatch.from_struct_array(rows.cast(self._type))

    def record_batch_to_array(self, batch: pa.RecordBatch) -> pa.Array:
        """Bodies of columns; those that are missing keep their defaults."""
        kind = pa.struct([self._plain.field(name) for name in batch.schema.names])
        written = []
        for row in batch.to_struct_array().cast(kind).to_pylist():
            message = self._class()
            self._fill(message, row)
            written.append(message.SerializeToString())
        return pa.array(written, pa.binary())

    def _parsed(self, body: bytes) -> Any:
        from google.protobuf.message import DecodeError

        try:
            return self._class.FromString(body)
        except DecodeError as error:
            raise ValueError(str(error)) from error

    def _struct(self, descriptor: Descriptor, *, is_plain: bool) -> pa.StructType:
        return pa.struct([(one.name, self._column(one, is_plain)) for one in descriptor.fields])

    def _column(self, field: FieldDescriptor, is_plain: bool) -> pa.DataType:
        if _is_map(field):
            key, value = (self._single(one, is_plain) for one in field.message_type.fields)
            return pa.map_(key, value)
        single = self._single(field, is_plain)
        return pa.list_(single) if field.is_repeated else single

    def _single(self, field: FieldDescriptor, is_plain: bool) -> pa.DataType:
        message = field.message_type
        if message is None:
            if field.type == ENUM:
                return pa.int32() if self._int_for_enums else pa.string()
            return SCALARS[wire_of(field.type)]
        if logical := _LOGICAL.get(message.full_name):
            return logical.plain if is_plain else logical.type
        if message.full_name in WRAPPERS:
            return self._single(message.fields[0], is_plain)
        return self._struct(message, is_plain=is_plain)

    def _row(self, message: Any) -> dict[str, Any]:
        return {one.name: self._read(message, one) for one in message.DESCRIPTOR.fields}

    def _read(self, message: Any, field: FieldDescriptor) -> Any:
        if field.has_presence and not message.HasField(field.name):
            return None
        found = getattr(message, field.name)
        if _is_map(field):
            key, value = field.message_type.fields
            return [(self._value(one, key), self._value(found[one], value)) for one in found]
        return [self._value(one, field) for one in found] if field.is_repeated else self._value(found, field)

    def _value(self, value: Any, field: FieldDescriptor) -> Any:
        message = field.message_type
        if message is None:
            if field.type != ENUM or self._int_for_enums:
                return value
            known = field.enum_type.values_by_number.get(value)
            return str(value) if known is None else known.name
        if logical := _LOGICAL.get(message.full_name):
            return logical.read(value)
        return value.value if message.full_name in WRAPPERS else self._row(value)

    def _fill(self, message: Any, row: Mapping[str, Any]) -> None:
        for field in message.DESCRIPTOR.fields:
            if (value := row.get(field.name)) is not None:
                self._write(message, field, value)

    def _write(self, message: Any, field: FieldDescriptor, value: Any) -> None:
        inner, place = field.message_type, getattr(message, field.name)
        if _is_map(field):
            item = inner.fields_by_name["value"]
            for key, one in value:
                if item.message_type is None:
                    place[key] = self._scalar(one, item)
                else:
                    self._set(place[key], one)
        elif field.is_repeated and inner is None:
            place.extend(self._scalar(one, field) for one in value)
        elif field.is_repeated:
            for one in value:
                self._set(place.add(), one)
        elif inner is None:
            setattr(message, field.name, self._scalar(value, field))
        else:
            place.SetInParent()
            self._set(place, value)

    def _scalar(self, value: Any, field: FieldDescriptor) -> Any:
        if field.type != ENUM or self._int_for_enums:
            return value
        return field.enum_type.values_by_name[value].number

    def _set(self, message: Any, value: Any) -> None:
        name = message.DESCRIPTOR.full_name
        if logical := _LOGICAL.get(name):
            logical.write(message, value)
        elif name in WRAPPERS:
            message.value = value
        else:
            self._fill(message, value)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)
