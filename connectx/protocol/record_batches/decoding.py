"""Record batches of format 2 back to Arrow columns.

`scan` reads the headers of batches that follow each other, and `decode_rows` turns the records of many batches into one
table: its cost is per record, so batches of one record are as cheap as large ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import google_crc32c
import numpy as np
import pyarrow as pa

from connectx.errors.plugins import MalformedDataError
from connectx.model.decoding import refusing
from connectx.protocol.record_batches.codecs import NAMES, check_size, decompress
from connectx.protocol.record_batches.encoding import HEADER_BYTES, HEADERS
from connectx.protocol.record_batches.varints import read_varints

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_AT: Final = 8
_CHECKED_FROM: Final = 21
_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_ROW_BYTES: Final = 100
"""Memory that a record takes beside its bytes: numbers of the columns, and positions while they are read."""

_FIRST_STEPS: Final = 64
_MOST_STEPS: Final = 4096


def _malformed(why: str) -> MalformedDataError:
    return MalformedDataError("a record batch", why)


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """Header of a batch.

    Attributes:
        start, end: where the batch lies in the scanned data.
        end_offset: the offset after the batch; compaction may have removed the records before it.
        count: records that the batch holds.
    """

    start: int
    end: int
    base_offset: int
    end_offset: int
    leader_epoch: int
    attributes: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    epoch: int
    base_sequence: int
    count: int

    @property
    def transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Whether it holds a marker of Kafka in place of records."""
        return bool(self.attributes & _CONTROL)


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a batch, not compressed: the bytes of `data` from `start` to `end`.

    Attributes:
        size_bytes: memory for what was decompressed, with the columns that its records become; 0 if nothing was.
    """

    batch: BatchHeader
    data: Any
    start: int
    end: int
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """One batch. `rows` has the columns `offset`, `timestamp` (int64, ms), `key`, `value`, `headers`."""

    base_offset: int
    producer_id: int
    epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    compression: str
    rows: Any


def decode(data: Any, *, check_crc: bool = True) -> Iterator[DecodedBatch]:
    """Read batches one after the other; a batch that is cut off at the end, as in a fetch, is left out.

    Raises:
        MalformedDataError: the CRC is wrong, the format is older than 2, or lengths do not fit.
    """
    for header in scan(data, check_crc=check_crc):
        yield DecodedBatch(
            header.base_offset,
            header.producer_id,
            header.epoch,
            header.base_sequence,
            header.transactional,
            header.control,
            NAMES.get(header.attributes & _CODEC, ""),
            decode_rows([records_of(data, header)]),
        )


def scan(data: Any, *, check_crc: bool = True) -> Iterator[BatchHeader]:
    """Headers of the batches in data; a batch that is cut off at the end, as in a fetch, is left out.

    Raises:
        MalformedDataError: the CRC is wrong, the format is older than 2, or a length is impossible.
    """
    view = memoryview(data)
    at = 0
    while at + HEADER_BYTES <= len(view):
        (length,) = struct.unpack_from(">i", view, at + _LENGTH_AT)
        end = at + 12 + length
        if length < HEADER_BYTES - 12:
            raise _malformed(f"it claims a length of {length} bytes")
        if end > len(view):
            return
        fields = _HEADER.unpack_from(view, at)
        base, _, leader_epoch, magic, crc, attributes, last, first_ms, max_ms, producer_id, epoch, sequence, count = (
            fields
        )
        if count < 0 or last < 0:
            raise _malformed(f"it claims {count} records up to {last} after its first offset")
        if magic != 2:
            raise _malformed(f"its format is {magic}, and connectx reads format 2")
        if check_crc and google_crc32c.value(pa.py_buffer(view[at + _CHECKED_FROM : end])) != crc:
            raise _malformed(f"its CRC at offset {base} is wrong")
        yield BatchHeader(
            at,
            end,
            base,
            base + last + 1,
            leader_epoch,
            attributes,
            first_ms,
            max_ms,
            producer_id,
            epoch,
            sequence,
            count,
        )
        at = end


@refusing(_malformed)
def records_of(data: Any, batch: BatchHeader) -> Records:
    """Records of a batch that `scan` has found in `data`.

    Raises:
        MalformedDataError: the codec is unknown, or they take more than MOST_BYTES once they are decompressed.
    """
    if batch.attributes & _CODEC == 0:
        return Records(batch, data, batch.start + HEADER_BYTES, batch.end)
    name = NAMES.get(batch.attributes & _CODEC)
    if name is None:
        raise _malformed(f"its codec {batch.attributes & _CODEC} is unknown")
    check_size(batch.count * _ROW_BYTES)
    packed = pa.py_buffer(memoryview(data)[batch.start + HEADER_BYTES : batch.end])
    body = memoryview(decompress(packed, name)).cast("B")
    return Records(batch, body, 0, len(body), len(body) + batch.count * _ROW_BYTES)


@refusing(_malformed)
def decode_rows(found: Sequence[Records]) -> pa.Table:
    """All records of batches, in order, as one table with the columns of DecodedBatch.

    Raises:
        MalformedDataError: lengths do not fit.
    """
    found = [records for records in found if records.batch.count]  # compaction leaves headers without records
    batches = [records.batch for records in found]
    body, spans = _joined(found)
    firsts, ends = _records(body, spans, [batch.count for batch in batches])
    flat = np.frombuffer(body, np.uint8)
    lengths, starts = read_varints(flat, firsts)
    if (lengths < 0).any():
        raise _malformed("a record has a negative length")
    deltas_ms, at = read_varints(flat, starts + 1)  # after the attributes
    offsets, at = read_varints(flat, at)
    keys, at = _values(flat, at, ends)
    values, at = _values(flat, at, ends)
    headers, at = _headers(flat, at, ends)
    if not np.array_equal(at, ends):
        raise _malformed("its records have lengths that do not fit")
    return pa.table(
        {
            "offset": pa.array(offsets + _spread(batches, [batch.base_offset for batch in batches])),
            "timestamp": pa.array(_timestamps(batches, deltas_ms)),
            "key": keys,
            "value": values,
            "headers": headers,
        }
    )


def _joined(found: Sequence[Records]) -> tuple[Any, list[tuple[int, int]]]:
    """A buffer with the records of all batches, and where those of each begin and end."""
    first = found[0].data if found else b""
    if all(records.data is first for records in found):
        whole = first if isinstance(first, bytes) else memoryview(first).cast("B")
        return whole, [(records.start, records.end) for records in found]
    ends = np.cumsum([records.end - records.start for records in found]).tolist()
    body = b"".join(memoryview(records.data).cast("B")[records.start : records.end] for records in found)
    return body, list(zip([0, *ends], ends, strict=False))


def _spread(batches: Sequence[BatchHeader], numbers: Sequence[int]) -> Any:
    """One number of each batch for all of its records."""
    if len(batches) == 1:
        return numbers[0]
    return np.repeat(np.array(numbers, np.int64), np.array([batch.count for batch in batches], np.int64))


def _timestamps(batches: Sequence[BatchHeader], deltas_ms: Any) -> Any:
    times_ms = deltas_ms + _spread(batches, [batch.first_timestamp_ms for batch in batches])
    appended = [batch.attributes & _LOG_APPEND_TIME for batch in batches]
    if not any(appended):
        return times_ms
    latest_ms = _spread(batches, [batch.max_timestamp_ms for batch in batches])
    return np.where(np.not_equal(_spread(batches, appended), 0), latest_ms, times_ms)


def _records(body: Any, spans: Sequence[tuple[int, int]], counts: Sequence[int]) -> tuple[Any, Any]:
    """Positions of the records, at their length, and where they end."""
    firsts, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    flat = np.frombuffer(body, np.uint8)
    try:
        for (start, end), count in zip(spans, counts, strict=True):
            found, at = _firsts(body, flat, start, end, count)
            if at != end:
                raise _malformed("its records have lengths that do not fit")
            firsts.append(found)
            ends += (found[1:], np.array([end]))
    except IndexError as error:
        raise _malformed("it has fewer records than its header declares") from error
    return np.concatenate(firsts), np.concatenate(ends)


def _firsts(body: Any, flat: Any, start: int, end: int, count: int) -> tuple[Any, int]:
    """Positions of the records of one batch, and where the last one ends.

    The length of a record gives where the next begins. Records of equal length follow each other at equal distances,
    and numpy finds them together. The others take a step of Python each, 0.1 us. The fewer runs there are, the less
    often they are looked for.
    """
    parts = [np.empty(0, np.int64)]
    at, left, steps = start, count, _FIRST_STEPS
    while left > 0:
        stride = _after(body, at) - at
        run = _run(flat, at, stride, min(left, (end - at) // stride))
        if run > 1:
            parts.append(at + stride * np.arange(run))
            at, left = at + stride * run, left - run
        steps = _FIRST_STEPS if run > steps else min(steps * 2, _MOST_STEPS)
        firsts = []
        for _ in range(min(steps, left)):
            firsts.append(at)
            low = body[at]
            if low < 0x80:
                at += 1 + (low >> 1)
            elif (high := body[at + 1]) < 0x80:
                at += 2 + ((low & 0x7F | high << 7) >> 1)
            else:
                at = _after(body, at)
        left -= len(firsts)
        parts.append(np.array(firsts, np.int64))
    return np.concatenate(parts), at


def _run(flat: Any, at: int, stride: int, most: int) -> int:
    """How many records from a position on have the same length; `most` is as many as there is room for."""
    width = 1 + int(np.argmax(flat[at : at + 10] < 0x80))
    count, limit = 1, _FIRST_STEPS
    while count < most:
        begin, tried = at + count * stride, min(limit, most - count)
        same = np.ones(tried, bool)
        for place in range(width):
            same &= flat[begin + place : begin + tried * stride : stride] == flat[at + place]
        if not same.all():
            return count + int(same.argmin())
        count, limit = count + tried, limit * 4
    return count


def _after(body: Any, at: int) -> int:
    """Where a record ends that begins at a position."""
    zigzag, shift, byte = 0, 0, 0x80
    while byte >= 0x80:
        byte = int(body[at])
        zigzag, shift, at = zigzag | (byte & 0x7F) << shift, shift + 7, at + 1
    return at + (zigzag >> 1)


def _values(body: Any, at: Any, limits: Any) -> tuple[Any, Any]:
    """A nullable binary column whose lengths are at these positions; also the positions after the values.

    Arrow copies the bytes: the values are every other element of an array whose offsets point into the body, and what
    lies between them are the rest.
    """
    lengths, starts = read_varints(body, at)
    missing = lengths < 0
    if (np.where(missing, 0, lengths) > limits - starts).any():  # a sum could overflow
        raise _malformed("a value is longer than its record")
    ends = starts + np.where(missing, 0, lengths)
    if missing.all():
        return pa.nulls(len(ends), pa.binary()), ends
    bounds = np.empty(2 * len(ends) + 1, np.int32)
    bounds[0:-1:2], bounds[1::2], bounds[-1] = starts, ends, ends[-1]
    valid = None
    if missing.any():
        valid = pa.py_buffer(np.packbits(np.repeat(~missing, 2), bitorder="little"))
    buffers = [valid, pa.py_buffer(bounds), pa.py_buffer(body)]
    between = pa.BinaryArray.from_buffers(pa.binary(), 2 * len(ends), buffers)
    return between.take(pa.array(np.arange(0, 2 * len(ends), 2))), ends


def _headers(body: Any, at: Any, limits: Any) -> tuple[Any, Any]:
    """A list column of headers; null where a record has none. One round for each header of the longest list."""
    counts, at = read_varints(body, at)
    if (counts < 0).any() or (len(counts) and int(counts.max()) > len(body)):
        raise _malformed("a record has an impossible number of headers")
    total = int(counts.sum())
    if total == 0:
        return pa.nulls(len(counts), HEADERS), at
    firsts = np.cumsum(counts) - counts
    rounds_keys, rounds_values, slots = [], [], []
    for number in range(int(counts.max())):
        rows = np.flatnonzero(counts > number)
        keys, after = _values(body, at[rows], limits[rows])
        values, after = _values(body, after, limits[rows])
        at[rows] = after
        rounds_keys.append(keys)
        rounds_values.append(values)
        slots.append(firsts[rows] + number)
    order = pa.array(np.argsort(np.concatenate(slots), kind="stable"))
    keys, values = (pa.concat_arrays(rounds).take(order) for rounds in (rounds_keys, rounds_values))
    try:
        items = pa.StructArray.from_arrays([keys.cast(pa.string()), values], names=["key", "value"])
    except pa.ArrowInvalid as error:
        raise _malformed("the key of a header is not UTF-8") from error
    bounds = np.append(firsts, total).astype(np.int32)
    missing = pa.array(counts == 0)
    return pa.ListArray.from_arrays(pa.array(bounds), items, mask=missing).cast(HEADERS), at
