"""Avro files as tables, in the types of their schema.

Logical types have the values that fastavro reads, and uuid is text. A union of several types is a struct
with a field for each, as in records that AvroConverter reads.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import IO, Any, Final, cast
from uuid import UUID

import pyarrow as pa

from connectx.connectors.files.avro_blocks import AvroBlocks
from connectx.connectors.files.limits import chunks
from connectx.data.avro.types import ENCODED, AvroType, parse, refuse_free_items, takes_no_bytes
from connectx.errors.plugins import ConversionError

_MOST_DIGITS: Final = 38
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}
_PYTHON: Final[tuple[tuple[type, tuple[pa.DataType, ...]], ...]] = (
    (bool, (pa.bool_(),)),
    (int, (pa.int64(), pa.int32())),
    (float, (pa.float64(), pa.float32())),
    (str, (pa.string(),)),
    (bytes, (pa.binary(),)),
    (UUID, (pa.string(),)),
    (datetime.datetime, tuple(kind for kind in _LOGICAL.values() if pa.types.is_timestamp(kind))),
    (datetime.date, (pa.date32(),)),
    (datetime.time, (pa.time32("ms"), pa.time64("us"))),
)
"""Types of the branches that a value of a union without a name may be of, the widest first."""


def avro_tables(content: IO[bytes], rows: int) -> Iterator[pa.Table]:
    """Tables of `rows` rows.

    Raises:
        ValueError, EOFError: it is no Avro file of records, or one that no columns can hold.
    """
    import fastavro

    blocks = AvroBlocks(content)
    records = fastavro.reader(cast(IO[bytes], blocks), None, return_named_type=True)
    try:
        avro = parse(records.metadata["avro.schema"])
        refuse_free_items(avro)
    except ConversionError as error:
        raise ValueError(error.message) from error
    if avro.kind != "record":
        raise ValueError(f"its schema is no record, but of type {avro.kind}")
    if takes_no_bytes(avro):
        raise ValueError("its records take no bytes, so that a few bytes can claim any number of them")
    kind = _type(avro)
    for chunk in chunks(records, rows, lambda: blocks.read_bytes):
        structs = pa.array([_value(record, avro) for record in chunk], kind)
        yield pa.Table.from_batches([pa.RecordBatch.from_struct_array(structs)])


def _type(avro: AvroType) -> pa.DataType:
    match avro.kind:
        case "union" if avro.only is not None:
            return _type(avro.only)
        case "union" if not avro.branches:
            return pa.null()
        case "union":
            return pa.struct([(branch.label, _type(branch)) for branch in avro.branches])
        case "record":
            return pa.struct([(one.name, _type(one.type)) for one in avro.fields])
        case "array":
            return pa.list_(_type(avro.parts[0]))
        case "map":
            return pa.map_(pa.string(), _type(avro.parts[0]))
        case _:
            return _scalar_type(avro)


def _scalar_type(avro: AvroType) -> pa.DataType:
    if avro.logical == "decimal" and avro.kind in ("bytes", "fixed"):
        make = pa.decimal128 if avro.precision <= _MOST_DIGITS else pa.decimal256
        return make(avro.precision, avro.scale)
    return _LOGICAL.get((avro.kind, avro.logical), ENCODED[avro.kind])


def _value(value: Any, avro: AvroType) -> Any:
    """A value in the shape of its type: unions as structs, maps as pairs. Values of named types have their names."""
    name, value = value if isinstance(value, tuple) else ("", value)
    if value is None:
        return None
    match avro.kind:
        case "union":
            branch = avro.only or next(
                one for one in avro.branches if (one.name == name if name else _fits(value, one))
            )
            found = _value(value, branch)
            return found if avro.only is not None else {branch.label: found}
        case "record":
            return {one.name: _value(value[one.name], one.type) for one in avro.fields}
        case "array":
            return [_value(one, avro.parts[0]) for one in value]
        case "map":
            return [(key, _value(one, avro.parts[0])) for key, one in value.items()]
        case _:
            return str(value) if isinstance(value, UUID) else value


def _fits(value: Any, branch: AvroType) -> bool:
    """Whether a value without a name is of a branch; fastavro does not return the branch of a number."""
    if isinstance(value, list | dict):
        return branch.kind == ("array" if isinstance(value, list) else "map")
    kind = _type(branch)
    if isinstance(value, Decimal):
        return bool(pa.types.is_decimal(kind))
    if isinstance(value, UUID) or branch.logical == "uuid":
        return isinstance(value, UUID) and branch.logical == "uuid"
    return kind in next((kinds for python, kinds in _PYTHON if isinstance(value, python)), ())
