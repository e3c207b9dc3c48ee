"""Arrow columns to records of format 2, and the header of their batch."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.protocol.record_batches.codecs import Compression, compress
from connectx.protocol.record_batches.varints import varint, varints, varints_below

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""Type of a column of record headers."""

HEADER_BYTES: Final = 61
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_AT: Final = 17
_CHECKED_FROM: Final = 21
_TRANSACTIONAL: Final = 0x10
RECORD_OVERHEAD_BYTES: Final = 21
"""Most bytes of a record beside key, value and headers (DefaultRecord.MAX_RECORD_OVERHEAD)."""


@dataclass(frozen=True, slots=True)
class PreparedRecords:
    """Columns of records as contiguous arrays.

    Attributes:
        keys, values: binary arrays; keys are None if every key is null.
        headers: binary array, the encoded headers of each record; None if no record has any.
        timestamps_ms: int64 array.
        sizes_bytes: upper bound of each record's size, without compression (int64).
    """

    keys: Any
    values: Any
    headers: Any
    timestamps_ms: Any
    sizes_bytes: Any

    def __len__(self) -> int:
        return len(self.sizes_bytes)

    def take(self, rows: Any) -> PreparedRecords:
        """The records of these row numbers (int64 array), in that order."""
        indices = pa.array(rows)
        keys, values, headers = (
            None if column is None else column.take(indices) for column in (self.keys, self.values, self.headers)
        )
        return PreparedRecords(keys, values, headers, self.timestamps_ms[rows], self.sizes_bytes[rows])


@dataclass(frozen=True, slots=True)
class RecordSet:
    """The compressed records of one batch, without the header."""

    count: int
    compression: Compression
    first_timestamp_ms: int
    max_timestamp_ms: int
    data: Any

    @property
    def size_bytes(self) -> int:
        """Size of the batch with its header."""
        return HEADER_BYTES + len(self.data)


def prepare(rows: pa.Table, now_ms: int) -> PreparedRecords:
    """Bring the columns `key`, `value`, `headers` and `timestamp` of a table into shape.

    `key` and `value` are binary or string and may be null. `headers` is of type HEADERS, `timestamp` is a timestamp or
    int64 milliseconds; both are optional. `now_ms` is the timestamp of records without one.
    """
    count = rows.num_rows
    keys = _binary(rows, "key")
    values = _binary(rows, "value")
    headers = _headers(rows)
    sizes = np.full(count, RECORD_OVERHEAD_BYTES, np.int64)
    for column in (keys, values, headers):
        if column is not None:
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return PreparedRecords(keys, values, headers, _timestamps(rows, now_ms), sizes)


def split(records: PreparedRecords, limit_bytes: int) -> list[tuple[int, int]]:
    """Cut records into ranges [start, end) that fit a batch of `limit_bytes`; a larger record is alone in its range."""
    ends = np.cumsum(records.sizes_bytes)
    ranges: list[tuple[int, int]] = []
    start = used = 0
    while start < len(records):
        end = int(np.searchsorted(ends, used + limit_bytes - HEADER_BYTES, side="right"))
        end = max(end, start + 1)
        ranges.append((start, end))
        start, used = end, int(ends[end - 1])
    return ranges


def encode(records: PreparedRecords, start: int, end: int, compression: Compression) -> RecordSet:
    """Build the records [start, end) of one batch. At least one record."""
    count = end - start
    timestamps = records.timestamps_ms[start:end]
    first_ms = int(timestamps[0])
    parts: list[Any] = [b"\x00", varints(timestamps - first_ms), varints_below(count)]
    for column in (records.keys, records.values):
        parts += _field(None if column is None else column.slice(start, count))
    parts.append(b"\x00" if records.headers is None else records.headers.slice(start, count))
    lengths = np.zeros(count, np.int64)
    for part in parts:
        lengths += len(part) if isinstance(part, bytes) else pc.binary_length(part).to_numpy()
    body = _join(varints(lengths), *parts)
    if isinstance(body, bytes):
        data = pa.py_buffer(body)
    else:
        bounds = np.frombuffer(body.buffers()[1], np.int32)
        data = body.buffers()[2].slice(int(bounds[0]), int(bounds[count] - bounds[0]))
    return RecordSet(count, compression, first_ms, int(timestamps.max()), compress(data, compression))


def finish(
    records: RecordSet,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """Put the header before the records: a whole batch as a ProduceRequest carries it."""
    attributes = records.compression.id | (_TRANSACTIONAL if transactional else 0)
    header = bytearray(HEADER_BYTES)
    _HEADER.pack_into(
        header,
        0,
        0,  # base offset: the broker's
        HEADER_BYTES - 12 + len(records.data),
        -1,  # partition leader epoch: the broker's
        2,
        0,
        attributes,
        records.count - 1,
        records.first_timestamp_ms,
        records.max_timestamp_ms,
        producer_id,
        epoch,
        base_sequence,
        records.count,
    )
    data = pa.py_buffer(records.data)
    crc = google_crc32c.extend(google_crc32c.value(bytes(header[_CHECKED_FROM:])), data)
    struct.pack_into(">I", header, _CRC_AT, crc)
    return b"".join((header, data))


def _binary(rows: pa.Table, name: str) -> Any:
    """The column as one binary array, None if it is missing or holds nothing."""
    if name not in rows.column_names:
        return None
    column = rows.column(name)
    if column.null_count == len(column):
        return None
    whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return whole if pa.types.is_binary(whole.type) else whole.cast(pa.binary())


def _timestamps(rows: pa.Table, now_ms: int) -> Any:
    if "timestamp" not in rows.column_names or rows.column("timestamp").null_count == rows.num_rows:
        return np.full(rows.num_rows, now_ms, np.int64)
    column = rows.column("timestamp")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
    return pc.fill_null(column.cast(pa.int64()), now_ms).to_numpy().astype(np.int64)


def _field(column: Any) -> tuple[Any, Any]:
    """Length and bytes of a nullable column."""
    if column is None:
        return varint(-1), b""
    if column.null_count == 0:
        return varints(pc.binary_length(column).to_numpy().astype(np.int64)), column
    lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy().astype(np.int64)
    return varints(lengths), pc.fill_null(column, b"")


def _headers(rows: pa.Table) -> Any:
    """Encoded headers of each record: their count, then key and value of each."""
    if "headers" not in rows.column_names or rows.column("headers").null_count == rows.num_rows:
        return None
    lists = rows.column("headers").cast(HEADERS).combine_chunks()
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    items = lists.flatten()
    if len(items) == 0:
        return None
    keys = pc.struct_field(items, "key").cast(pa.binary())
    encoded = _spread(_join(*_field(keys), *_field(pc.struct_field(items, "value"))), len(items))
    bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds), encoded), b"")
    return _join(varints(counts), joined)


def _spread(value: Any, count: int) -> Any:
    """An array of `count` values of a constant; arrays as they are."""
    return pa.repeat(pa.scalar(value, pa.binary()), count) if isinstance(value, bytes) else value


def _join(*parts: Any) -> Any:
    """Concatenate parts record by record: binary arrays, and bytes that are the same for every record."""
    joined: list[Any] = []
    for part in parts:
        if isinstance(part, bytes) and joined and isinstance(joined[-1], bytes):
            joined[-1] += part
        else:
            joined.append(part)
    if len(joined) == 1:
        return joined[0]
    constants = (pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in joined)
    return pc.binary_join_element_wise(*constants, pa.scalar(b"", pa.binary()))
