"""Encodes rows of a source's slice as records, by its transformations and converters.

Small and large slices take the same way: a DataFrame is evaluated once, its rows come to the worker, and the chain runs
there. Mirrors the transform and convert part of Kafka Connect's AbstractWorkerSourceTask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from connectx.data.chunks import rows_where
from connectx.data.converters import encode, encode_readable, passed_on, with_value
from connectx.data.frames import Rows, in_arrow
from connectx.data.headers import HEADERS, HeaderConverter
from connectx.data.transforms.chain import ROW, Chain, Failure
from connectx.errors.plugins import ConversionError

if TYPE_CHECKING:
    from connectx.data.converter import Converter


_RECORDS = pa.schema({"key": pa.binary(), "value": pa.binary()})  # making a table here would load pandas


@dataclass(frozen=True, slots=True)
class Encoded:
    """Records as `encode` gives them; of `rows` that came in, `filtered` were dropped on purpose and others failed.

    `unwritable` has, by row, why a converter refuses it.
    """

    records: pa.Table
    rows: int
    filtered: int = 0
    failures: tuple[Failure, ...] = ()
    unwritable: Mapping[int, str] = field(default_factory=dict)


def transform_and_encode(
    rows: Rows,
    topic: str | None,
    chain: Chain,
    key_converter: Converter,
    value_converter: Converter,
    header_converter: HeaderConverter,
    *,
    skip_unwritable: bool = False,
    now_ms: int | None = None,
) -> Encoded:
    """Records of a slice's rows; rows that a transformation refuses are left out and reported.

    Args:
        topic: where rows go that name no topic.
        skip_unwritable: leave out rows that a converter refuses, and report them.
        now_ms: timestamp of records without one, which transformations see and the record gets; None: it has none yet.

    Raises:
        ConversionError: a converter does not take a column's type, or some of its values.
    """

    def written(part: Rows) -> tuple[pa.Table, dict[int, str]]:
        if not skip_unwritable:
            records = encode(part, key_converter, value_converter, topic, has_nulls=bool(chain))
            return _with_headers(records, header_converter, None), {}
        records, bad = encode_readable(part, key_converter, value_converter, topic, has_nulls=bool(chain))
        return _with_headers(records, header_converter, bad), bad

    if not chain:
        records, unwritable = written(rows)
        count = records.num_rows + len(unwritable)
        return Encoded(records, count, unwritable=unwritable)
    table = record_table(in_arrow(rows), topic, now_ms)
    made = chain.apply(table)
    encoded, unwritable = [], {}
    for part in made.parts:
        records, bad = written(part)
        numbers = part[ROW].to_pylist()
        unwritable |= {numbers[row]: why for row, why in bad.items()}
        good = pa.array([number for row, number in enumerate(numbers) if row not in bad], pa.int64())
        encoded.append(records.append_column(ROW, good))
    if not encoded:
        records = _RECORDS.empty_table()
    elif len(encoded) == 1:
        records = encoded[0].drop_columns(ROW)
    else:
        records = pa.concat_tables(encoded, promote_options="permissive").sort_by(ROW).drop_columns(ROW)
    return Encoded(records, table.num_rows, made.filtered, made.failures, dict(sorted(unwritable.items())))


def nothing_of(rows: pa.Table, why: str) -> Encoded:
    """No row can be written now, for one cause."""
    return Encoded(_RECORDS.empty_table(), rows.num_rows, unwritable=dict.fromkeys(range(rows.num_rows), why))


def _with_headers(records: pa.Table, converter: HeaderConverter, bad: dict[int, str] | None) -> pa.Table:
    """Records with headers as bytes. `bad` has rows that are left out, and gets those whose headers cannot be written.

    Raises:
        ConversionError: a header cannot be written, and `bad` is None.
    """
    if "headers" not in records.column_names or converter.as_is:
        return records
    headers, errors = converter.write(records["headers"].cast(HEADERS))
    records = records.set_column(records.column_names.index("headers"), "headers", headers)
    refused = rows_where(errors.is_valid()).to_pylist()
    if not refused:
        return records
    if bad is None:
        raise ConversionError(
            errors[refused[0]].as_py(),
            next_step="Set header.converter to SimpleHeaderConverter or JsonConverter.",
        )
    rows = [row for row in range(records.num_rows + len(bad)) if row not in bad]
    bad |= {rows[place]: errors[place].as_py() for place in refused}
    return records.filter(errors.is_null())


def record_table(rows: pa.Table, topic: str | None, now_ms: int | None = None) -> pa.Table:
    """A slice's rows with all columns that a record has (see `connectx.data.transforms.api.Transform`)."""
    table = with_value(rows)
    count = table.num_rows
    given = {name: table[name] for name in table.column_names}
    topics = passed_on("topic", given["topic"]).fill_null(topic) if "topic" in given and topic else given.get("topic")

    def beside(name: str, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
        return passed_on(name, given[name]) if name in given else pa.nulls(count, kind)

    stamps = beside("timestamp", pa.int64())
    columns = {
        "topic": pa.array([topic] * count, pa.string()) if topics is None else passed_on("topic", topics),
        "partition": beside("partition", pa.int32()),
        "timestamp": stamps if now_ms is None else stamps.fill_null(now_ms),
        "key": given.get("key", pa.nulls(count)),
        "value": given["value"],
        "headers": given["headers"].cast(HEADERS) if "headers" in given else pa.nulls(count, HEADERS),
    }
    fields = [pa.field(name, column.type) for name, column in columns.items()]
    for number, name in enumerate(columns):
        if name in ("key", "value") and name in given:
            fields[number] = table.schema.field(name).with_nullable(False)
    return pa.table(columns, pa.schema(fields))
