"""Converters of text, bytes, and single numbers.

Mirrors Kafka Connect's StringConverter, ByteArrayConverter, BooleanConverter and NumberConverter.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import is_binary
from connectx.data.converter import CONVERTER_CONFIG, Converter, Decoded
from connectx.data.text_writer import to_text
from connectx.errors.plugins import ConversionError
from connectx.model.configdef import ConfigDef
from connectx.model.validators import one_of


class StringConverter(Converter):
    """Text as UTF-8. Writes numbers, dates and structs as text too; reads broken UTF-8 as U+FFFD, as Java does."""

    java_class = "org.apache.kafka.connect.storage.StringConverter"
    config = ConfigDef(CONVERTER_CONFIG).define(
        "converter.encoding",
        str,
        "UTF-8",
        doc="Name of the character set; only UTF-8 is supported.",
        importance="HIGH",
        validator=one_of("UTF-8", "UTF8", ignore_case=True),
    )

    def to_bytes_arrow(self, values: pa.Array) -> pa.Array:
        """Numbers as in Java, dates and times in ISO form, structs as `Struct{a=1,b=x}`."""
        return to_text(values, self).cast(pa.binary())

    def from_bytes_arrow(self, records: pa.Array, target: pa.DataType | None = None) -> Decoded:
        """Text of every record; never an error."""
        try:
            return Decoded.of(records.cast(pa.string()))
        except pa.ArrowInvalid:
            texts = [None if record is None else record.decode("utf-8", "replace") for record in records.to_pylist()]
            return Decoded.of(pa.array(texts, pa.string()))


class ByteArrayConverter(Converter):
    """Bytes as they are."""

    java_class = "org.apache.kafka.connect.converters.ByteArrayConverter"
    types_nulls = True

    def to_bytes_arrow(self, values: pa.Array) -> pa.Array:
        kind = values.type
        if not (is_binary(kind) or pa.types.is_null(kind)):
            raise self.refuses(kind)
        return values.cast(pa.binary())

    def from_bytes_arrow(self, records: pa.Array, target: pa.DataType | None = None) -> Decoded:
        """The same bytes; never an error."""
        return Decoded.of(records.cast(pa.binary()))


class _FixedWidthConverter(Converter):
    """One number per record, big-endian."""

    types_nulls = True
    arrow_type: ClassVar[pa.DataType]
    wire_type: ClassVar[str]

    def to_bytes_arrow(self, values: pa.Array) -> pa.Array:
        """Big-endian bytes. A value that does not fit is an error: nothing is cut off."""
        kind, types = values.type, pa.types
        number = types.is_integer(kind) or types.is_floating(kind)
        rounds = types.is_float64(kind) and types.is_float32(self.arrow_type)
        takes = types.is_boolean(kind) if types.is_boolean(self.arrow_type) else number and not rounds
        if not (takes or types.is_null(kind)):
            raise self.refuses(kind)
        try:
            numbers = values.cast(self.arrow_type)
        except pa.ArrowException as error:
            raise ConversionError(
                f"{self.name} cannot write some values of type {values.type}: {error}.",
                next_step="Use a wider converter or JsonConverter.",
            ) from error
        return self._pack(numbers)

    def _pack(self, numbers: pa.Array) -> pa.Array:
        wire = np.dtype(self.wire_type)
        filled = numbers.cast(pa.uint8()) if pa.types.is_boolean(self.arrow_type) else numbers
        raw = filled.fill_null(0).to_numpy(zero_copy_only=False).astype(wire).tobytes()
        packed = pa.Array.from_buffers(pa.binary(wire.itemsize), len(numbers), [None, pa.py_buffer(raw)])
        return pc.if_else(numbers.is_valid(), packed.cast(pa.binary()), pa.scalar(None, pa.binary()))

    def from_bytes_arrow(self, records: pa.Array, target: pa.DataType | None = None) -> Decoded:
        """Numbers; a record of another length is an error."""
        wire = np.dtype(self.wire_type)
        lengths = pc.binary_length(records)
        fits = pc.fill_null(pc.equal(lengths, wire.itemsize), False)
        whole = pc.if_else(fits, records, pa.scalar(b"\0" * wire.itemsize, pa.binary()))
        numbers = np.frombuffer(b"".join(whole.to_pylist()), dtype=wire)
        if pa.types.is_boolean(self.arrow_type):
            fits = pc.and_(fits, pa.array(numbers <= 1))
            numbers = numbers.astype(bool)
        values = pa.array(numbers.astype(numbers.dtype.newbyteorder("=")), self.arrow_type)
        wrong = pc.and_(pc.invert(fits), records.is_valid())
        message = f"{self.name} needs {wire.itemsize} byte(s) that hold a {self.arrow_type}."
        return Decoded(
            pc.if_else(fits, values, pa.scalar(None, self.arrow_type)),
            pc.if_else(wrong, pa.scalar(message), pa.scalar(None, pa.string())),
        )


class BooleanConverter(_FixedWidthConverter):
    """One byte: 0 or 1."""

    java_class = "org.apache.kafka.connect.converters.BooleanConverter"
    arrow_type, wire_type = pa.bool_(), "u1"


class ShortConverter(_FixedWidthConverter):
    """Two bytes."""

    java_class = "org.apache.kafka.connect.converters.ShortConverter"
    arrow_type, wire_type = pa.int16(), ">i2"


class IntegerConverter(_FixedWidthConverter):
    """Four bytes."""

    java_class = "org.apache.kafka.connect.converters.IntegerConverter"
    arrow_type, wire_type = pa.int32(), ">i4"


class LongConverter(_FixedWidthConverter):
    """Eight bytes."""

    java_class = "org.apache.kafka.connect.converters.LongConverter"
    arrow_type, wire_type = pa.int64(), ">i8"


class FloatConverter(_FixedWidthConverter):
    """Four bytes, IEEE 754."""

    java_class = "org.apache.kafka.connect.converters.FloatConverter"
    arrow_type, wire_type = pa.float32(), ">f4"


class DoubleConverter(_FixedWidthConverter):
    """Eight bytes, IEEE 754."""

    java_class = "org.apache.kafka.connect.converters.DoubleConverter"
    arrow_type, wire_type = pa.float64(), ">f8"
