"""Arrow columns between the encoding of Avro and the values that sinks see and sources yield.

The encoding has numbers, text and bytes; dates, times and decimals are made of them here, on whole columns.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import entry_lists, is_binary, is_list, is_text, offsets_of, where_valid
from connectx.data.avro.schemas import scrubbed
from connectx.data.avro.types import AvroType, encoded_type, value_type
from connectx.data.base64_columns import decimals_of_unscaled, unscaled_bytes
from connectx.errors.plugins import ConversionError

_MOST_DIGITS: Final = 38
_MS_OF_UNIT: Final = {"s": 1_000, "ms": 1}
_PER_MS: Final = {"us": 1_000, "ns": 1_000_000}


def values_of(encoded: pa.Array, avro: AvroType) -> pa.Array:
    """Values that sinks see.

    Raises:
        ConversionError: a value does not fit its type: a decimal with too many digits, a time beyond the years.
    """
    try:
        return _values(encoded, avro)
    except pa.ArrowException as error:
        raise ConversionError(f"A value does not fit its type: {error}.") from error


def _values(encoded: pa.Array, avro: AvroType) -> pa.Array:
    if avro.kind == "union":
        only = avro.only
        return _union(encoded, avro) if only is None else _values(encoded, only)
    kind = value_type(avro)
    if avro.kind == "record":
        columns = [_values(column, one.type) for column, one in zip(encoded.flatten(), avro.fields, strict=True)]
        return _struct(columns, kind, encoded)
    if avro.is_map_entries:
        entries = encoded.flatten()
        key, value = (_values(entries.field(n), one.type) for n, one in enumerate(avro.parts[0].fields))
        return pa.MapArray.from_arrays(offsets_of(encoded), key, value, type=kind)
    if avro.kind == "array":
        inner = _values(encoded.flatten(), avro.parts[0])
        return pa.ListArray.from_arrays(offsets_of(encoded), inner, type=kind)
    if avro.kind == "map":
        entries = entry_lists(encoded).flatten()
        value = _values(entries.field(1), avro.parts[0])
        return pa.MapArray.from_arrays(offsets_of(encoded), entries.field(0), value, type=kind)
    if pa.types.is_decimal(kind):
        made = decimals_of_unscaled(encoded, kind)
        if made.null_count != encoded.null_count:
            raise ConversionError(f"A decimal does not fit {kind}.")
        return made
    if pa.types.is_timestamp(kind):
        return encoded.cast(pa.timestamp("ms", "UTC")).cast(kind)
    return encoded.cast(kind)


def _union(encoded: pa.Array, avro: AvroType) -> pa.Array:
    """A struct with a field for each branch, of which one has a value."""
    columns = [_values(column, branch) for column, branch in zip(encoded.flatten(), avro.branches, strict=True)]
    return _struct(columns, value_type(avro), encoded)


def _struct(columns: list[pa.Array], kind: pa.StructType, of: pa.Array) -> pa.Array:
    mask = of.is_null() if of.null_count else None
    if not columns:
        return pa.array([None if row is None else {} for row in of.to_pylist()], kind)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def combined_type(avro: AvroType) -> pa.DataType:
    """Arrow type in which a reader collects decoded values: as `encoded_type`, with unions as structs."""
    if avro.kind == "union" and avro.only is None:
        return pa.struct([pa.field(one.label, combined_type(one), True) for one in avro.branches])
    if avro.kind == "union":
        assert avro.only is not None
        return combined_type(avro.only)
    if avro.kind == "record":
        return pa.struct([pa.field(one.name, combined_type(one.type), True) for one in avro.fields])
    if avro.kind == "array":
        return pa.list_(combined_type(avro.parts[0]))
    if avro.kind == "map":
        return pa.map_(pa.string(), combined_type(avro.parts[0]))
    return encoded_type(avro)


def encoded_of(values: pa.Array, avro: AvroType, path: str = "the value") -> pa.Array:
    """Values of a source as the encoding of a schema has them.

    Raises:
        ConversionError: a type or a value that the schema does not take.
    """
    if avro.kind == "union":
        if avro.only is None:
            raise ConversionError(f"AvroConverter does not write the union of several types at {path}.")
        return encoded_of(values, avro.only, path)
    try:
        return _encoded(values, avro, path)
    except (pa.ArrowException, OverflowError) as error:
        raise ConversionError(f"AvroConverter cannot write {path} as {avro.kind}: {error}.") from error


def _encoded(values: pa.Array, avro: AvroType, path: str) -> pa.Array:
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        return encoded_of(values.cast(kind.value_type), avro, path)
    if types.is_null(kind):
        return pa.nulls(len(values), encoded_type(avro))
    wanted = encoded_type(avro)
    if avro.kind == "record" and types.is_struct(kind):
        return _record(values, avro, path)
    if avro.is_map_entries and types.is_map(kind):
        entries = entry_lists(values)
        structs = _checked(entries.flatten(), avro.parts[0], f"{path}[]")
        return pa.ListArray.from_arrays(offsets_of(values), structs, type=wanted)
    if avro.kind == "array" and is_list(kind):
        inner = _checked(values.flatten(), avro.parts[0], f"{path}[]")
        return pa.ListArray.from_arrays(offsets_of(values), inner, type=wanted)
    if avro.kind == "map" and types.is_map(kind) and is_text(kind.key_type):
        entries = entry_lists(values).flatten()
        inner = _checked(entries.field(1), avro.parts[0], f"{path}[]")
        return pa.MapArray.from_arrays(offsets_of(values), entries.field(0).cast(pa.string()), inner, type=wanted)
    return _scalar(values, avro, wanted, path)


def _checked(values: pa.Array, avro: AvroType, path: str) -> pa.Array:
    """As `encoded_of`; refuses null where the schema does."""
    if values.null_count and not avro.is_optional:
        raise ConversionError(f"{path} is null, which its Avro schema does not allow.")
    return encoded_of(values, avro, path)


def _record(values: pa.StructArray, avro: AvroType, path: str) -> pa.Array:
    given = {scrubbed(one.name): number for number, one in enumerate(values.type)}
    given |= {one.name: number for number, one in enumerate(values.type)}
    prefix = "" if path == "the value" else f"{path}."
    known = {one.name for one in avro.fields}
    for one in values.type:
        if one.name not in known and scrubbed(one.name) not in known:
            raise ConversionError(
                f"The Avro schema {avro.name} has no field {one.name}.",
                next_step="Register a schema with this field, or drop the field with ReplaceField.",
            )
    columns = []
    for one in avro.fields:
        if one.name in given:
            column = values.field(given[one.name])
            if column.null_count and not one.type.is_optional:
                present = column.filter(values.is_valid()) if values.null_count else column
                if present.null_count:
                    raise ConversionError(f"{prefix}{one.name} is null, which its Avro schema does not allow.")
            columns.append(encoded_of(column, one.type, f"{prefix}{one.name}"))
        elif one.has_default:
            columns.append(_repeated(one.default, one.type, len(values), f"{prefix}{one.name}"))
        else:
            raise ConversionError(f"The Avro schema needs the field {prefix}{one.name}, which the rows do not have.")
    return _struct(columns, encoded_type(avro), values)


def _repeated(default: Any, avro: AvroType, count: int, path: str) -> pa.Array:
    kind = encoded_type(avro)
    if default is not None and (pa.types.is_nested(kind) or pa.types.is_binary(kind)):
        raise ConversionError(f"The default of {path} in its Avro schema cannot be written: give the field a value.")
    return pa.array([default] * count, kind)


def _scalar(values: pa.Array, avro: AvroType, wanted: pa.DataType, path: str) -> pa.Array:
    kind, types = values.type, pa.types
    match avro.kind:
        case "int" | "long" if types.is_date32(kind) and avro.kind == "int":
            return values.cast(wanted)
        case "int" | "long" if types.is_time(kind):
            unit = "us" if avro.logical == "time-micros" else "ms"
            fine = values.cast(pa.time64("us")) if unit == "us" else values.cast(pa.time32("ms"), safe=False)
            return fine.cast(pa.int64() if unit == "us" else pa.int32()).cast(wanted)
        case "long" if types.is_timestamp(kind):
            if avro.logical in ("timestamp-micros", "local-timestamp-micros"):
                return values.cast(pa.timestamp("us", kind.tz), safe=False).cast(wanted)
            return _milliseconds(values)
        case "int" | "long" if types.is_integer(kind):
            return values.cast(wanted)
        case "float" | "double" if types.is_floating(kind) and kind.bit_width <= wanted.bit_width:
            return values.cast(wanted)
        case "boolean" if types.is_boolean(kind):
            return values
        case "string" if is_text(kind):
            return values.cast(wanted)
        case "enum" if is_text(kind):
            return _symbols(values.cast(wanted), avro, path)
        case "bytes" | "fixed" if types.is_decimal(kind):
            return _sized(_unscaled(values, avro, path), avro, path, signed=True)
        case "bytes" | "fixed" if is_binary(kind) and avro.logical != "decimal":
            return _sized(values.cast(wanted), avro, path, signed=False)
    raise ConversionError(
        f"AvroConverter cannot write {path} of type {kind} as {avro.logical or avro.kind}.",
        next_step="Cast the column, or register another schema.",
    )


def _symbols(values: pa.Array, avro: AvroType, path: str) -> pa.Array:
    known = pc.is_in(values, pa.array(avro.symbols, pa.string()))
    wrong = values.filter(pc.and_(pc.invert(known), values.is_valid()))
    if len(wrong):
        raise ConversionError(f"{path} holds {wrong[0].as_py()!r}, which is no symbol of the enum {avro.name}.")
    return values


def _unscaled(values: pa.Array, avro: AvroType, path: str) -> pa.Array:
    if avro.logical != "decimal":
        raise ConversionError(f"AvroConverter cannot write {path} of type {values.type} as {avro.kind}.")
    digits = min(max(avro.precision, avro.scale, 1), _MOST_DIGITS)
    return unscaled_bytes(values.cast(pa.decimal128(digits, avro.scale)))


def _sized(values: pa.Array, avro: AvroType, path: str, *, signed: bool) -> pa.Array:
    """Bytes of a fixed: numbers get their sign in front, anything else must have the size."""
    if avro.kind != "fixed":
        return values
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    if signed and longest <= avro.size:
        filled = [
            None if one is None else (b"\xff" if one[0] & 128 else b"\0") * (avro.size - len(one)) + one
            for one in values.to_pylist()
        ]
        return pa.array(filled, pa.binary())
    if not pc.all(pc.fill_null(pc.equal(pc.binary_length(values), avro.size), True)).as_py():
        raise ConversionError(f"{path} holds values that do not have the {avro.size} bytes of {avro.name}.")
    return values


def _milliseconds(values: pa.Array) -> pa.Array:
    """Milliseconds since 1970, rounded down also before 1970."""
    ticks, unit = values.cast(pa.int64()), values.type.unit
    if unit in _MS_OF_UNIT:
        return pc.multiply_checked(ticks, _MS_OF_UNIT[unit])
    towards_zero = pc.divide(ticks, _PER_MS[unit])
    below = pc.less(ticks, pc.multiply(towards_zero, _PER_MS[unit]))
    return where_valid(values, pc.subtract(towards_zero, below.cast(pa.int64())))
