"""Converts whole batches: rows to records and back.

`encode` is the source direction, `decode` the sink direction. Both take and give Arrow tables in the worker; a
DataFrame is evaluated once. Row order is kept and no row is lost: a record that cannot be read has a message in column
`error`.
Mirrors what Kafka Connect's worker tasks do record by record (convertTransformedRecord, convertAndTransformRecord).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.chunks import one_chunk, rows_where
from connectx.data.connect_schema import NO_SCHEMA, ColumnSchema
from connectx.data.converter import Converter, Decoded
from connectx.data.frames import Rows, in_arrow
from connectx.data.parts import joined, where
from connectx.errors.base import ConnectxError
from connectx.errors.plugins import ConversionError

SESSION_SETTINGS: Final[Mapping[str, str]] = {"spark.sql.execution.arrow.localRelationThreshold": "1MB"}
"""Set these on a task's Spark session: larger batches then use all cores, instead of one in Spark's optimizer.

A Spark Connect server does not follow it; see `connectx.spark.slices`.
"""

_PASSED_ON = ("topic", "partition", "timestamp", "headers")


def encode(
    rows: Rows,
    key_converter: Converter,
    value_converter: Converter,
    topic: str | None = None,
    *,
    has_nulls: bool = False,
) -> pa.Table:
    """Records of a slice's rows.

    Args:
        rows: columns as in `connectx.plugins.slices.Slice`. Without a column `value` a row is the value, as a struct.
        topic: where rows go that name no topic; converters with a schema registry need to know.
        has_nulls: nulls of a typed key or value have its schema. Otherwise, and without a type, they are tombstones.

    Returns:
        Columns `key` and `value` (binary, null is a tombstone) and, as far as given, `topic` (string), `partition`
        (int32), `timestamp` (int64, ms since 1970), `headers` (as given).

    Raises:
        ConversionError: a converter does not take a column's type, or some of its values.
    """
    return _encode(rows, {"key": key_converter, "value": value_converter}, topic, has_nulls, None)


def encode_readable(
    rows: Rows,
    key_converter: Converter,
    value_converter: Converter,
    topic: str | None = None,
    *,
    has_nulls: bool = False,
) -> tuple[pa.Table, dict[int, str]]:
    """As `encode`, but rows with a value that a converter does not take are left out: their numbers, and why.

    A null is taken whatever the type of its column, as Kafka Connect's converters take it.
    """
    bad: dict[int, str] = {}
    table = _encode(rows, {"key": key_converter, "value": value_converter}, topic, has_nulls, bad)
    if bad:
        good = np.ones(table.num_rows, bool)
        good[list(bad)] = False
        table = table.filter(pa.array(good))
    return table, dict(sorted(bad.items()))


def _encode(
    rows: Rows, converters: Mapping[str, Converter], topic: str | None, has_nulls: bool, bad: dict[int, str] | None
) -> pa.Table:
    """`bad` collects what is not taken, by row; None: the first is an error."""
    table = with_value(in_arrow(rows))
    columns: dict[str, Any] = {"key": pa.nulls(table.num_rows, pa.binary())}
    for side, converter in converters.items():
        if side in table.column_names:
            columns[side] = _written_by_topic(table, side, converter, topic, has_nulls, bad)
    columns |= {name: passed_on(name, table[name]) for name in _PASSED_ON if name in table.column_names}
    return pa.table(columns)


def decode(
    records: Rows,
    key_converter: Converter,
    value_converter: Converter,
    types: Mapping[str, pa.DataType] | None = None,
    key_type: pa.DataType | None = None,
) -> pa.Table:
    """Values of Kafka records.

    Args:
        records: columns `key` and `value` (binary); all others, such as `topic`, `partition`, `offset`, are kept.
        types: topic to the type that the sink wants of values without schemas; for other topics as in the record.
        key_type: the same for keys, of all topics.

    Returns:
        The given columns with `key` and `value` converted (`timestamp` in ms since 1970, int64), and `error` (string):
        why a record cannot be read, otherwise null. A bad record has neither key nor value.

    Raises:
        ConnectxError: records cannot be read now; a retriable one.
    """
    table = in_arrow(records)
    keys = _read(_column(table, "key"), key_converter, key_type)
    values = _read_groups(_column(table, "value"), value_converter, _groups_by_type(table, types or {}))
    error = pc.coalesce(_labelled("key", keys.error), _labelled("value", values.error))
    good = error.is_null()
    columns = {name: table[name] for name in table.column_names}
    if "timestamp" in columns:
        columns["timestamp"] = passed_on("timestamp", columns["timestamp"])
    columns |= {"key": where(good, keys.value), "value": where(good, values.value), "error": error}
    return pa.table(columns)


def _labelled(side: str, error: pa.Array) -> pa.Array:
    if error.null_count == len(error):
        return error
    head = f"Converting the {side} from bytes failed: "
    return pc.binary_join_element_wise(pa.scalar(head), error, "", null_handling="emit_null")


def _column(table: pa.Table, name: str) -> pa.Array:
    return one_chunk(table[name]).cast(pa.binary())


def _groups_by_type(
    table: pa.Table, types: Mapping[str, pa.DataType]
) -> list[tuple[pa.DataType | None, pa.Array | None]]:
    """(type, row numbers) for each type that sinks want of the topics here; row numbers None: all rows."""
    if not types:
        return [(None, None)]
    topics = table["topic"].unique().to_pylist()
    wanted: dict[pa.DataType | None, list[str]] = {}
    for topic in topics:
        wanted.setdefault(types.get(topic), []).append(topic)
    if len(wanted) <= 1:
        return [(kind, None) for kind in wanted] or [(None, None)]
    named = {kind: pa.array(topics, pa.string()) for kind, topics in wanted.items()}
    return [(kind, rows_where(pc.is_in(table["topic"], found))) for kind, found in named.items()]


def _read_groups(
    value: pa.Array, converter: Converter, groups: list[tuple[pa.DataType | None, pa.Array | None]]
) -> Decoded:
    if len(groups) == 1:
        return _read(value, converter, groups[0][0])
    return joined([(rows, _read(value.take(rows), converter, kind)) for kind, rows in groups])


def _read(records: pa.Array, converter: Converter, kind: pa.DataType | None) -> Decoded:
    """Values of records. Where the converter fails as a whole, the records at fault are found by halves."""
    try:
        return converter.from_bytes_arrow(records, kind)
    except Exception as error:
        if isinstance(error, ConnectxError) and error.retriable:
            raise
        if len(records) <= 1:
            cause = error.message if isinstance(error, ConnectxError) else repr(error)
            return Decoded(pa.nulls(len(records)), pa.array([cause] * len(records), pa.string()))
    half = len(records) // 2
    rows = pa.array(range(len(records)), pa.uint64())
    parts = (rows[:half], records[:half]), (rows[half:], records[half:])
    return joined([(at, _read(part, converter, kind)) for at, part in parts])


def with_value(table: pa.Table) -> pa.Table:
    """Rows as values: without a column `value` a row is the value, as a struct."""
    if "value" in table.column_names:
        return table
    batch = table.combine_chunks().to_struct_array()
    return pa.table({"value": batch})


def _written_by_topic(
    table: pa.Table, side: str, converter: Converter, topic: str | None, has_nulls: bool, bad: dict[int, str] | None
) -> pa.ChunkedArray:
    """A column as bytes, by the topics that its rows go to where the converter asks for them."""
    schema = ColumnSchema.of(table.schema.field(side), has_nulls=has_nulls)
    converter = converter if schema == NO_SCHEMA else converter.with_schema(schema)
    types_nulls = has_nulls and converter.types_nulls
    if not converter.by_topic:
        return _written(table[side], converter, types_nulls, bad)
    topics = pa.chunked_array([pa.array([topic] * table.num_rows, pa.string())])
    if "topic" in table.column_names:
        topics = pc.coalesce(passed_on("topic", table["topic"]), topics)
    order, chunks = [], []
    for name in topics.unique().to_pylist():
        rows = rows_where(topics.is_null() if name is None else pc.equal(topics, name))
        of_topic = converter if name is None else converter.for_topic(name)
        part = table[side] if len(rows) == table.num_rows else table[side].take(rows)
        found: dict[int, str] = {}
        chunks += _written(part, of_topic, types_nulls, None if bad is None else found).chunks
        order.append(rows)
        if bad is not None:
            bad |= {rows[row].as_py(): why for row, why in found.items()}
    written = pa.chunked_array(chunks, pa.binary())
    return written if len(order) <= 1 else written.take(pc.sort_indices(pa.concat_arrays(order)))


def _written(
    column: pa.ChunkedArray, converter: Converter, types_nulls: bool, bad: dict[int, str] | None
) -> pa.ChunkedArray:
    chunks, row = [], 0
    for chunk in column.chunks:
        if chunk.null_count == len(chunk) and not types_nulls:
            chunks.append(pa.nulls(len(chunk), pa.binary()))
        elif bad is None:
            chunks.append(converter.to_bytes_arrow(chunk))
        else:
            chunks.append(_readable(chunk, converter, types_nulls, row, bad))
        row += len(chunk)
    return pa.chunked_array(chunks, pa.binary())


def _readable(values: pa.Array, converter: Converter, types_nulls: bool, first: int, bad: dict[int, str]) -> pa.Array:
    """Values as bytes; what is not taken is found by halves and noted under its row, counted from `first`."""
    try:
        return converter.to_bytes_arrow(values)
    except ConversionError as error:
        if len(values) == 1 or _refuses(values.type, converter):
            refused = range(len(values)) if types_nulls else rows_where(values.is_valid()).to_pylist()
            bad |= {first + row: error.message for row in refused}
            return pa.nulls(len(values), pa.binary())
    half = len(values) // 2
    places = (first, values[:half]), (first + half, values[half:])
    return pa.concat_arrays([_readable(part, converter, types_nulls, at, bad) for at, part in places])


def _refuses(kind: pa.DataType, converter: Converter) -> bool:
    """True when no value of the type is taken."""
    try:
        converter.to_bytes_arrow(pa.array([], kind))
    except ConversionError:
        return True
    return False


def passed_on(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column beside key and value in the type that it has in records."""
    if name == "timestamp" and pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    wanted = {"topic": pa.string(), "partition": pa.int32(), "timestamp": pa.int64()}.get(name)
    return column if wanted is None else column.cast(wanted)
