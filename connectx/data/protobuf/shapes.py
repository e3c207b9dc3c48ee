"""Arrow columns between those of ptars, which reads and writes Protobuf, and the values of Connect's types."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.arrays import entry_lists, is_list, offsets_of, where_valid
from connectx.data.base64_columns import decimals_of_unscaled, unscaled_bytes
from connectx.data.connect_schema import described
from connectx.data.protobuf.schemas import scrubbed
from connectx.data.protobuf.types import ProtoType
from connectx.errors.plugins import ConversionError

SCALARS: Final = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
}
_DURATION: Final = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])
_PER_SECOND: Final = 10**9


def message_values(columns: dict[str, pa.Array], message: ProtoType, of: pa.Array) -> pa.Array:
    """Structs of a message's columns, null where `of` is.

    Raises:
        pa.ArrowException, ConversionError: a value does not fit its type.
    """
    made = [_oneof(columns, one) if one.kind == "oneof" else values_of(columns[one.name], one) for one in message.parts]
    mask = of.is_null() if of.null_count else None
    if not made:
        return _empty_structs(of)
    return pa.StructArray.from_arrays(made, fields=_fields(made, message.parts), mask=mask)


def _empty_structs(of: pa.Array) -> pa.StructArray:
    """Structs without fields, null where `of` is: Arrow takes the length of a struct from its fields."""
    return pa.array([{} if one else None for one in of.is_valid().to_pylist()], pa.struct([]))


def _fields(columns: list[pa.Array], parts: tuple[ProtoType, ...]) -> list[pa.Field]:
    """Fields of columns, with the names of their schemas."""
    return [described(pa.field(one.name, column.type), one.schema) for one, column in zip(parts, columns, strict=True)]


def _oneof(columns: dict[str, pa.Array], oneof: ProtoType) -> pa.Array:
    members = [values_of(columns[one.name], one) for one in oneof.parts]
    mask = reduce(pc.and_, (one.is_null() for one in members))
    return pa.StructArray.from_arrays(members, fields=_fields(members, oneof.parts), mask=mask)


def values_of(column: pa.Array, one: ProtoType) -> pa.Array:
    """Values of a column of ptars.

    Raises:
        pa.ArrowException, ConversionError: a value does not fit its type.
    """
    match one.kind:
        case "scalar":
            return column.cast(SCALARS[one.scalar])
        case "wrapper":
            mask = column.is_null() if column.null_count else None
            return pa.StructArray.from_arrays([column.cast(SCALARS[one.scalar])], names=["value"], mask=mask)
        case "decimal":
            return _decimals(column, one)
        case "time":
            return column.cast(pa.int32())
        case "duration":
            return _durations(column)
        case "message":
            columns = {column.type.field(n).name: column.field(n) for n in range(column.type.num_fields)}
            return message_values(columns, one, column)
        case "list":
            items = values_of(column.flatten(), one.parts[0])
            (item,) = _fields([items], one.parts)
            return pa.ListArray.from_arrays(offsets_of(column), items, type=pa.list_(item))
        case "map" | "entries":
            entries = (entry_lists(column) if one.kind == "map" else column).flatten()
            key, value = (values_of(entries.field(number), part) for number, part in enumerate(one.parts))
            (item,) = _fields([value], one.parts[1:])
            return pa.MapArray.from_arrays(offsets_of(column), key, value, type=pa.map_(key.type, item))
        case _:
            return column


def _durations(column: pa.Array) -> pa.Array:
    nanos = column.cast(pa.duration("ns")).cast(pa.int64())
    seconds = pc.divide(nanos, _PER_SECOND)
    rest = pc.subtract(nanos, pc.multiply(seconds, _PER_SECOND)).cast(pa.int32())
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays([seconds, rest], fields=list(_DURATION), mask=mask)


def _decimals(column: pa.StructArray, one: ProtoType) -> pa.Array:
    """Each value has its own scale; those of another than the field's are rescaled."""
    kind = pa.decimal128(one.precision, one.scale)
    unscaled, scales = column.field("value"), column.field("scale")
    present = column.is_valid()
    made = pa.nulls(len(column), kind)
    for scale in pc.unique(scales.filter(present)).to_pylist():
        if not 0 <= scale <= 38:
            raise ConversionError(f"A decimal of scale {scale} cannot be read: scales from 0 to 38 can.")
        rows = pc.and_(present, pc.equal(scales, scale))
        part = decimals_of_unscaled(pc.if_else(rows, unscaled, pa.scalar(None, pa.binary())), pa.decimal128(38, scale))
        made = pc.if_else(rows, part.cast(kind), made)
    empty = pc.and_(present, pc.equal(pc.binary_length(unscaled), 0))
    made = pc.if_else(empty, pa.scalar(0, pa.int64()).cast(pa.decimal128(38, 0)).cast(kind), made)
    if made.null_count != column.null_count:
        raise ConversionError(f"A decimal does not fit {kind}.")
    return made


def message_columns(values: pa.StructArray, message: ProtoType, path: str = "") -> dict[str, pa.Array]:
    """Columns of ptars of a message's values, by name; those that the values lack are left out.

    Raises:
        ConversionError: a field that the message does not have, or a value that its type does not take.
    """
    given = {one.name: values.field(number) for number, one in enumerate(values.type)}
    names = {scrubbed(name): name for name in given} | {name: name for name in given}
    columns: dict[str, pa.Array] = {}
    for one in message.parts:
        column = given.pop(names.get(one.name, one.name), None)
        if column is None:
            continue
        if one.kind == "oneof" and pa.types.is_struct(column.type):
            columns |= _members(column, one, f"{path}{one.name}")
        else:
            columns[one.name] = column_of(column, one, f"{path}{one.name}")
    if given:
        raise ConversionError(
            f"The Protobuf schema has no field {path}{next(iter(given))}.",
            next_step="Register a schema with this field, or drop the field with ReplaceField.",
        )
    return columns


def _members(column: pa.StructArray, oneof: ProtoType, path: str) -> dict[str, pa.Array]:
    columns = message_columns(column, ProtoType("", "message", parts=oneof.parts), f"{path}.")
    columns = {name: where_valid(column, one) for name, one in columns.items()}
    if columns:
        count: Any = reduce(pc.add, (one.is_valid().cast(pa.int8()) for one in columns.values()))
        if pc.max(count).as_py() not in (None, 0, 1):
            raise ConversionError(f"{path} has several members, of which a oneof takes one.")
    return columns


def column_of(values: pa.Array, one: ProtoType, path: str) -> pa.Array:
    """A column of ptars of values.

    Raises:
        ConversionError: a value that the type does not take.
    """
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    try:
        made = _column(values, one, path)
    except pa.ArrowException as error:
        raise ConversionError(f"ProtobufConverter cannot write {path} as {one.scalar or one.kind}: {error}.") from error
    if made is None:
        raise ConversionError(
            f"ProtobufConverter cannot write {path} of type {values.type} as {one.scalar or one.kind}.",
            next_step="Cast the column, or register another schema.",
        )
    return made


def _column(values: pa.Array, one: ProtoType, path: str) -> pa.Array | None:
    """None where the type of the values is none that is written so."""
    kind, types = values.type, pa.types
    match one.kind:
        case "scalar":
            return _scalar(values, one)
        case "enum" if types.is_string(kind) or types.is_large_string(kind):
            wrong = values.filter(pc.and_(pc.invert(pc.is_in(values, pa.array(one.symbols))), values.is_valid()))
            if len(wrong):
                raise ConversionError(f"{path} holds {wrong[0].as_py()!r}, which is no symbol of its enum.")
            return values.cast(pa.string())
        case "wrapper" if types.is_struct(kind) and kind.names == ["value"]:
            return where_valid(values, column_of(values.field(0), replace(one, kind="scalar"), path))
        case "decimal" if types.is_decimal(kind):
            fitting = values.cast(pa.decimal128(one.precision, one.scale))
            digits = [
                pa.array([number] * len(values), size)
                for number, size in ((one.precision, pa.uint32()), (one.scale, pa.int32()))
            ]
            mask = values.is_null() if values.null_count else None
            names = ["value", "precision", "scale"]
            return pa.StructArray.from_arrays([unscaled_bytes(fitting), *digits], names=names, mask=mask)
        case "timestamp" if types.is_timestamp(kind):
            return values.cast(pa.timestamp("us", "UTC"), safe=False)
        case "date" if types.is_date32(kind):
            return values
        case "time" if types.is_time(kind):
            return values.cast(pa.time32("ms"), safe=False)
        case "time" if types.is_int32(kind):
            return values.cast(pa.time32("ms"))
        case "duration" if types.is_struct(kind):
            return _duration_column(values)
        case "message" if types.is_struct(kind):
            columns = message_columns(values, one, f"{path}.")
            if not columns:
                return _empty_structs(values)
            mask = values.is_null() if values.null_count else None
            return pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=mask)
        case "list" if is_list(kind):
            inner = values.flatten()
            if inner.null_count:
                raise ConversionError(f"{path} holds null in a list, which Protobuf does not have.")
            return pa.ListArray.from_arrays(offsets_of(values), column_of(inner, one.parts[0], f"{path}[]"))
        case "map" | "entries" if types.is_map(kind):
            entries = entry_lists(values).flatten()
            if entries.field(1).null_count:
                raise ConversionError(f"{path} holds null in a map, which Protobuf does not have.")
            key, value = (column_of(entries.field(n), part, f"{path}[]") for n, part in enumerate(one.parts))
            if one.kind == "map":
                return pa.MapArray.from_arrays(offsets_of(values), key, value)
            structs = pa.StructArray.from_arrays([key, value], names=["key", "value"])
            return pa.ListArray.from_arrays(offsets_of(values), structs)
    return None


def _scalar(values: pa.Array, one: ProtoType) -> pa.Array | None:
    kind, wanted, types = values.type, SCALARS[one.scalar], pa.types
    fits = (
        types.is_null(kind)
        or (types.is_integer(kind) and types.is_integer(wanted))
        or (types.is_floating(kind) and types.is_floating(wanted) and kind.bit_width <= wanted.bit_width)
        or (types.is_boolean(kind) and types.is_boolean(wanted))
        or (types.is_string(wanted) and (types.is_string(kind) or types.is_large_string(kind)))
        or (
            types.is_binary(wanted)
            and (types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))
        )
    )
    return values.cast(wanted).cast(SCALARS[one.wire]) if fits else None


def _duration_column(values: pa.StructArray) -> pa.Array | None:
    if set(values.type.names) != set(_DURATION.names):
        return None
    seconds, nanos = (values.field(name).cast(pa.int64()) for name in _DURATION.names)
    total = pc.add_checked(pc.multiply_checked(seconds, _PER_SECOND), nanos)
    return where_valid(values, total).cast(pa.duration("ns"))
