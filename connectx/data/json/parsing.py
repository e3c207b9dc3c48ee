"""Arrow's JSON parser over a column of documents: it reads all of them as one type, or refuses them as a whole."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from connectx.data.arrays import is_list

_BLOCK_BYTES: Final = 1 << 20
"""Documents of more bytes are parsed by several threads."""
_CONSTANT: Final = r"[:,\[\s]-?(NaN|Inf)"


def parse(documents: pa.Array, kind: pa.DataType, *, checked: bool = False) -> pa.Array | None:
    """Documents as Arrow's parser reads them; None when it refuses one.

    Args:
        kind: type of the documents.
        checked: each is known to be one valid document: fields that the type does not have are skipped, and otherwise
            added to it.
    """
    if not len(documents):
        return pa.array([], kind)
    try:
        documents.cast(pa.string())
    except pa.ArrowInvalid:
        return None  # not UTF-8, which the parser does not check
    values = None
    if pa.types.is_struct(kind) and _are_plain_objects(documents):
        found = _table(documents, pa.schema(list(kind)), checked)
        if found is None:
            return None
        if found.num_columns:
            values = pa.StructArray.from_arrays(_columns(found), fields=list(found.schema))
    if values is None:
        enveloped = pc.binary_join_element_wise(_large(b'{"v":'), _large(documents), _large(b"}"), _large(b""))
        found = _table(enveloped, pa.schema([("v", kind)]), checked)
        if found is None or found.column_names != ["v"]:
            return None
        (values,) = _columns(found)
    holds_constants = not checked and not _is_finite(values) and _hold_constants(documents)
    return None if holds_constants or len(values) != len(documents) else values


def _are_plain_objects(documents: pa.Array) -> bool:
    """Whether each document begins and ends with a brace.

    Lines of such documents need no envelope. A line that ends within an object or a text is an error of syntax: an
    opening brace cannot follow a closing one in an object, and no text contains a line feed. So each line has one
    object or more, and the number of rows shows whether one has more.
    """
    return bool(pc.all(pc.and_(pc.starts_with(documents, b"{"), pc.ends_with(documents, b"}"))).as_py())


def _lines(documents: pa.Array) -> pa.Buffer:
    """Documents with line feeds between them."""
    whole = pa.LargeListArray.from_arrays(pa.array([0, len(documents)], pa.int64()), documents.cast(pa.large_binary()))
    return pc.binary_join(whole, _large(b"\n"))[0].as_buffer()


def _large(part: bytes | pa.Array) -> pa.Scalar | pa.Array:
    """The type whose columns may be larger than 2 GB."""
    return pa.scalar(part, pa.large_binary()) if isinstance(part, bytes) else part.cast(pa.large_binary())


def _table(documents: pa.Array, schema: pa.Schema, checked: bool) -> pa.Table | None:
    """Documents as the parser reads them; in several threads where all types are known.

    The order in which threads find fields is left to chance, so one thread reads documents with unknown fields.
    """
    lines = _lines(documents)
    options = arrow_json.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="ignore" if checked else "infer"
    )
    whole = lines.size + 1
    longest = pc.max(pc.binary_length(documents)).as_py() + len("\n")
    block = min(max(_BLOCK_BYTES, longest), whole)
    try:
        table = _read(lines, block, options)
        if block < whole and _fields(table.schema) != _fields(schema):
            table = _read(lines, whole, options)
    except pa.ArrowInvalid:
        return None
    return table if _is_whole(table) else None


def _is_whole(table: pa.Table) -> bool:
    """False where the parser has lost nulls with which a list begins, because it inferred the type of the elements."""
    try:
        table.validate()
    except pa.ArrowInvalid:
        return False
    return True


def _read(lines: pa.Buffer, block_bytes: int, options: arrow_json.ParseOptions) -> pa.Table:
    reading = arrow_json.ReadOptions(use_threads=block_bytes < lines.size, block_size=block_bytes)
    return arrow_json.read_json(pa.BufferReader(lines), read_options=reading, parse_options=options)


def _fields(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema]


def _columns(table: pa.Table) -> list[pa.Array]:
    return [column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks) for column in table.columns]


def _is_finite(values: pa.Array) -> bool:
    """False where a value is NaN or infinite, as the parser reads the constants that JSON does not have."""
    kind, types = values.type, pa.types
    if types.is_struct(kind):
        return all(_is_finite(values.field(index)) for index in range(kind.num_fields))
    if is_list(kind):
        return _is_finite(values.flatten())
    return not types.is_floating(kind) or pc.all(pc.is_finite(values)).as_py() is not False


def _hold_constants(documents: pa.Array) -> bool:
    """Whether a document may hold NaN or Infinity."""
    return bool(pc.any(pc.match_substring_regex(documents, _CONSTANT)).as_py())
