"""JSON read by Arrow in the worker: the fast way, taken only where it gives what Spark would give.

Arrow's parser is as strict as the reader in `connectx.data.json.reader`, and a batch that it refuses for any reason, or
that holds anything where the two could differ, is left to that reader, which also finds the records at fault.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.connect_schema import DEFAULT
from connectx.data.converter import Decoded
from connectx.data.diagnosis import why_no_json

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_SAME: Final = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}
_FROM_NUMBER: Final = {"date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us")}
_LARGEST: Final = {"date": 3_000_000, "timestamp": 10**15, "timestamp_ntz": 10**15}  # as json_reader reads numbers
_SCHEMA: Final = re.compile(r'\s*\{\s*"schema"\s*:\s*')
_PAYLOAD: Final = re.compile(r'\s*,\s*"payload"\s*:')

_Fields: TypeAlias = "dict[str, tuple[str, bool]]"  # by name: the type's name, and whether null is allowed


def split_envelopes(records: pa.Array) -> tuple[str, pa.Array] | None:
    """(text of the schema, payloads) of records that all begin with the same schema; None when they do not."""
    documents = records.drop_null()
    try:
        text = documents[0].as_py().decode("utf-8")
        schema = _SCHEMA.match(text)
        if schema is None:
            return None
        _, end = json.JSONDecoder().raw_decode(text, schema.end())
    except (IndexError, ValueError):
        return None
    payload = _PAYLOAD.match(text, end)
    if payload is None:
        return None
    head = text[: payload.end()].encode()
    alike = pc.and_(pc.starts_with(documents, head), pc.ends_with(documents, b"}"))
    if not pc.all(alike).as_py():
        return None
    return text[schema.end() : end], pc.binary_slice(records, len(head), -1)


def read_json(records: pa.Array, target: DataType | None) -> pa.Array | None:
    """Documents as structs of type `target`; None when Spark has to read them.

    Args:
        records: binary; null stays null.
        target: a struct of plain fields, otherwise the answer is None.
    """
    fields = _fields(target)
    values = None if fields is None else _parsed(records.drop_null(), fields)
    if fields is None or values is None:
        return None
    columns = []
    for name, (kind, may_be_null) in fields.items():
        column = _column(values, name, kind)
        if column is None or (column.null_count and not may_be_null):
            return None
        columns.append(column)
    read = pa.StructArray.from_arrays(columns, names=list(fields))
    if not records.null_count:
        return read
    rows = pc.subtract(pc.cumulative_sum(records.is_valid().cast(pa.int64())), 1)
    return read.take(pc.if_else(records.is_valid(), rows, pa.scalar(None, pa.int64())))


def read_text(records: pa.Array) -> Decoded:
    """Documents as text: the content of a JSON string, the exact text of anything else, null for null."""
    plain = r'^"[^"\\\x00-\x1f]*"$'
    try:
        texts = records.cast(pa.string())
        if pc.all(pc.match_substring_regex(texts, plain)).as_py() is not False:
            return Decoded.of(pc.utf8_slice_codeunits(texts, 1, -1))
    except pa.ArrowInvalid:
        pass  # some record is not UTF-8: one by one
    values, errors = zip(*map(_one_text, records.to_pylist()), strict=True)
    return Decoded(pa.array(values, pa.string()), pa.array(errors, pa.string()))


def _one_text(record: bytes | None) -> tuple[str | None, str | None]:
    """(text, None) or (None, why not)."""
    if record is None:
        return None, None
    try:
        text = record.decode("utf-8")
        document = _STRICT.decode(text)
        if isinstance(document, str):
            return document.encode("utf-8", "replace").decode("utf-8"), None  # half a surrogate pair is ? in Java
        return (None if document is None else text.strip(" \t\r\n")), None
    except (ValueError, RecursionError) as error:
        return None, why_no_json(record, error)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


_STRICT: Final = json.JSONDecoder(parse_constant=_refuse, parse_int=str, parse_float=str)


def _fields(target: DataType | None) -> _Fields | None:
    """None where a type is not one that Arrow reads in the same way."""
    if target is None or target.typeName() != "struct":
        return None
    struct: StructType = target  # type: ignore[assignment]
    fields = {field.name: (field.dataType.typeName(), field.nullable) for field in struct.fields}
    plain = all(kind in _SAME or kind in _FROM_NUMBER for kind, _ in fields.values())
    unique = len(fields) == len(struct.fields) and not any(DEFAULT in field.metadata for field in struct.fields)
    return fields if plain and unique else None


def _parsed(documents: pa.Array, fields: _Fields) -> pa.Array | None:
    """Each document is put into an envelope: what is not exactly one document breaks it, or shows beside the value."""
    from pyarrow import json as arrow_json

    kind = pa.struct([(name, _SAME.get(field, pa.int64())) for name, (field, _) in fields.items()])
    if not len(documents):
        return pa.array([], kind)
    head, tail, between = (pa.scalar(part, pa.large_binary()) for part in (b'{"v":', b"}\n", b""))
    lines = pc.binary_join_element_wise(head, documents.cast(pa.large_binary()), tail, between)
    text = lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py())
    reading = arrow_json.ReadOptions(use_threads=False, block_size=text.size + 1)
    schema = pa.schema([("v", kind)])
    parsing = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer")
    try:
        table = arrow_json.read_json(pa.BufferReader(text), read_options=reading, parse_options=parsing)
        table.validate(full=True)
    except pa.ArrowInvalid:
        return None
    values = table["v"]
    if table.column_names != ["v"] or table.num_rows != len(documents) or values.null_count:
        return None
    return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)


def _column(values: pa.StructArray, name: str, kind: str) -> pa.Array | None:
    column = values.field(values.type.get_field_index(name))
    if kind in ("float", "double"):
        return column if pc.all(pc.is_finite(column)).as_py() is not False else None
    if kind not in _FROM_NUMBER:
        return column
    if pc.any(pc.greater_equal(pc.abs(column), _LARGEST[kind])).as_py():
        return None
    if kind == "date":
        return column.cast(pa.int32()).cast(pa.date32())
    return column.cast(pa.timestamp("ms", _FROM_NUMBER[kind].tz)).cast(_FROM_NUMBER[kind])
