"""JSON without schemas read by Arrow in the worker: the fast way, taken only where it gives what Spark would give.

Arrow's parser is as strict as the reader in `connectx.data.json_reader`, and a batch that it refuses for any reason, or
that holds anything where the two could differ, is left to that reader, which also finds the records at fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_SAME: Final = {
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}
_FROM_NUMBER: Final = {"date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us")}
_LARGEST: Final = {"date": 3_000_000, "timestamp": 10**15, "timestamp_ntz": 10**15}  # as json_reader reads numbers


def read_json(records: pa.Array, target: DataType | None) -> pa.Array | None:
    """Documents as structs of type `target`; None when Spark has to read them.

    Args:
        records: binary; null stays null.
        target: a struct of plain fields, otherwise the answer is None.
    """
    fields = _fields(target)
    if fields is None:
        return None
    documents = records.drop_null()
    values = _parsed(documents, fields)
    if values is None:
        return None
    columns = [_column(values, name, kind) for name, kind in fields.items()]
    if any(column is None for column in columns):
        return None
    read = pa.StructArray.from_arrays(columns, names=list(fields))
    if not records.null_count:
        return read
    rows = pc.subtract(pc.cumulative_sum(records.is_valid().cast(pa.int64())), 1)
    return read.take(pc.if_else(records.is_valid(), rows, pa.scalar(None, pa.int64())))


def _fields(target: DataType | None) -> dict[str, str] | None:
    """Names of fields with their types' names; None where a type is not one that Arrow reads in the same way."""
    if target is None or target.typeName() != "struct":
        return None
    struct: StructType = target  # type: ignore[assignment]
    kinds = {field.name: field.dataType.typeName() for field in struct.fields if field.nullable and not field.metadata}
    plain = all(kind in _SAME or kind in _FROM_NUMBER for kind in kinds.values())
    return kinds if plain and len(kinds) == len(struct.fields) else None


def _parsed(documents: pa.Array, fields: dict[str, str]) -> pa.Array | None:
    """Each document is put into an envelope: what is not exactly one document breaks it, or shows beside the value."""
    from pyarrow import json

    if not len(documents):
        return pa.array([], pa.struct([(name, _parsed_type(kind)) for name, kind in fields.items()]))
    head, tail = (pa.scalar(text, pa.large_binary()) for text in (b'{"v":', b"}\n"))
    lines = pc.binary_join_element_wise(
        head, documents.cast(pa.large_binary()), tail, pa.scalar(b"", pa.large_binary())
    )
    text = lines.buffers()[2]
    kind = pa.struct([(name, _parsed_type(field)) for name, field in fields.items()])
    try:
        table = json.read_json(
            pa.BufferReader(text),
            read_options=json.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=json.ParseOptions(
                explicit_schema=pa.schema([("v", kind)]), unexpected_field_behavior="infer"
            ),
        )
        table.validate(full=True)
    except pa.ArrowInvalid:
        return None
    values = table["v"]
    if table.column_names != ["v"] or table.num_rows != len(documents) or values.null_count:
        return None
    return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)


def _parsed_type(kind: str) -> pa.DataType:
    return _SAME.get(kind, pa.int64())


def _column(values: pa.StructArray, name: str, kind: str) -> pa.Array | None:
    column = values.field(values.type.get_field_index(name))
    if kind == "double":
        return column if pc.all(pc.is_finite(column)).as_py() is not False else None
    if kind not in _FROM_NUMBER:
        return column
    if pc.any(pc.greater_equal(pc.abs(column), _LARGEST[kind])).as_py():
        return None
    if kind == "date":
        return column.cast(pa.int32()).cast(pa.date32())
    return column.cast(pa.timestamp("ms", _FROM_NUMBER[kind].tz)).cast(_FROM_NUMBER[kind])
