"""Record batches: built from Arrow columns, read back, and read by kafka-python's own reader."""

from __future__ import annotations

import contextlib
import datetime as dt
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from connectx.errors.plugins import MalformedDataError
from connectx.protocol.record_batches import HEADER_BYTES, HEADERS, Compression, decode, encode, finish, prepare, split
from connectx.protocol.record_batches.varints import read_varints, varint, varints, varints_below

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW_MS = 1_700_000_000_000

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int | None]

long_blobs = st.builds(
    lambda seed, times: seed * times, st.binary(min_size=1, max_size=8), st.sampled_from([1, 10, 100, 1000])
)
blobs = st.one_of(st.none(), st.binary(max_size=20), long_blobs)
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), long_blobs)), max_size=4)
timestamps = st.one_of(st.none(), st.integers(0, 2**45))
records = st.lists(st.tuples(blobs, blobs, headers, timestamps), min_size=1, max_size=20)


def table_of(given_records: list[Record]) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([record[0] for record in given_records], pa.binary()),
            "value": pa.array([record[1] for record in given_records], pa.binary()),
            "headers": pa.array(
                [[{"key": k, "value": v} for k, v in record[2]] if record[2] else None for record in given_records],
                HEADERS,
            ),
            "timestamp": pa.array([record[3] for record in given_records], pa.int64()),
        }
    )


def batch_of(rows: pa.Table, codec: str = "none", **header: Any) -> bytes:
    prepared = prepare(rows, NOW_MS)
    return finish(encode(prepared, 0, len(prepared), Compression(codec)), **header)


def as_records(rows: pa.Table) -> list[Record]:
    return [
        (row["key"], row["value"], [(h["key"], h["value"]) for h in row["headers"] or ()], row["timestamp"])
        for row in rows.to_pylist()
    ]


def stamped(given_records: list[Record]) -> list[Record]:
    return [(key, value, hs, NOW_MS if ms is None else ms) for key, value, hs, ms in given_records]


@settings(max_examples=80, deadline=None)
@given(records, st.sampled_from(CODECS))
def test_what_is_encoded_is_decoded_as_it_was(given_records: list[Record], codec: str) -> None:
    data = batch_of(table_of(given_records), codec, producer_id=7, epoch=3, base_sequence=11, transactional=True)
    (batch,) = decode(data)
    assert as_records(batch.rows) == stamped(given_records)
    assert batch.rows["offset"].to_pylist() == list(range(len(given_records)))
    assert (batch.producer_id, batch.epoch, batch.base_sequence, batch.transactional) == (7, 3, 11, True)
    assert (batch.control, batch.compression) == (False, codec)


@settings(max_examples=60, deadline=None)
@given(records)
def test_kafka_pythons_reader_reads_the_same_records(given_records: list[Record]) -> None:
    (batch,) = _kafka_python(batch_of(table_of(given_records), "gzip", producer_id=7, epoch=3, base_sequence=11))
    found = [(r.key, r.value, [(k, v) for k, v in r.headers], r.timestamp) for r in batch]
    assert found == stamped(given_records)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 11)


def _kafka_python(data: bytes) -> list[Any]:
    reader = MemoryRecords(data)
    found = []
    while reader.has_next():
        batch = reader.next_batch()
        assert batch.validate_crc()
        found.append(batch)
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50))
def test_varints_of_a_column_are_those_of_its_numbers(numbers: list[int]) -> None:
    encoded = varints(np.array(numbers, np.int64))
    expected = [varint(number) for number in numbers]
    assert ([encoded] * len(numbers) if isinstance(encoded, bytes) else encoded.to_pylist()) == expected
    starts = np.cumsum([0, *map(len, expected)])
    found, after = read_varints(np.frombuffer(b"".join(expected), np.uint8), starts[:-1])
    assert found.tolist() == numbers
    assert after.tolist() == starts[1:].tolist()


@pytest.mark.parametrize("count", [1, 2, 16_383, 16_384, 16_385])
def test_varints_below_a_count_are_those_of_its_numbers(count: int) -> None:
    encoded = varints_below(count)
    assert ([encoded] if isinstance(encoded, bytes) else encoded.to_pylist()) == [varint(n) for n in range(count)]


@settings(max_examples=100, deadline=None)
@given(records, st.integers(200, 30_000))
def test_batches_stay_below_the_limit_and_keep_every_record_in_order(given_records: list[Record], limit: int) -> None:
    prepared = prepare(table_of(given_records), NOW_MS)
    ranges = split(prepared, limit)
    assert [row for start, end in ranges for row in range(start, end)] == list(range(len(given_records)))
    for start, end in ranges:
        assert end - start == 1 or encode(prepared, start, end, Compression()).size_bytes <= limit


def test_a_record_larger_than_the_limit_is_alone_in_its_batch() -> None:
    prepared = prepare(pa.table({"value": [b"a", b"x" * 5000, b"b"]}), NOW_MS)
    assert split(prepared, 1000) == [(0, 1), (1, 2), (2, 3)]
    assert int(prepared.sizes_bytes[1]) >= 5000


def test_slices_strings_chunks_and_wide_types_are_columns_too() -> None:
    value = pa.chunked_array([pa.array(["a", "b"], pa.large_string()), pa.array(["c"], pa.large_string())])
    when = pa.chunked_array([pa.array([dt.datetime(1970, 1, 1, 0, 0, 1)] * 3, pa.timestamp("us"))])
    rows = pa.table({"value": value, "timestamp": when}).slice(1)
    (batch,) = decode(batch_of(rows))
    assert as_records(batch.rows) == [(None, b"b", [], 1000), (None, b"c", [], 1000)]


def test_rows_are_taken_in_the_order_that_is_asked_for() -> None:
    rows = table_of([(b"1", b"a", [("h", b"1")], 1), (None, b"b", [], 2), (b"3", None, [], 3)])
    taken = prepare(rows, NOW_MS).take(np.array([2, 0]))
    (batch,) = decode(finish(encode(taken, 0, 2, Compression("zstd"))))
    assert as_records(batch.rows) == [(b"3", None, [], 3), (b"1", b"a", [("h", b"1")], 1)]


def test_batches_follow_each_other_and_one_that_is_cut_off_is_left_out() -> None:
    one, two = batch_of(pa.table({"value": [b"a"]})), batch_of(pa.table({"value": [b"b", b"c"]}), "lz4")
    found = list(decode(one + two + two[:-1]))
    assert [batch.rows["value"].to_pylist() for batch in found] == [[b"a"], [b"b", b"c"]]


@pytest.mark.parametrize("position", [HEADER_BYTES, 23, 60, -1])
def test_a_changed_byte_is_found_by_the_crc(position: int) -> None:
    data = bytearray(batch_of(pa.table({"value": [b"abc"]})))
    data[position] ^= 1
    with pytest.raises(MalformedDataError, match="CRC"):
        list(decode(bytes(data)))


@settings(max_examples=80, deadline=None)
@given(records, st.data())
def test_damaged_records_raise_one_error_and_nothing_else(given_records: list[Record], data: st.DataObject) -> None:
    batch = bytearray(batch_of(table_of(given_records)))
    batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedDataError):
        list(decode(bytes(batch), check_crc=False))


@given(runs=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 400)), min_size=1, max_size=8))
@settings(max_examples=40)
def test_runs_of_records_with_equal_lengths_are_decoded_as_they_were(runs: list[tuple[int, int]]) -> None:
    values = [bytes([number % 256]) * length for number, (length, times) in enumerate(runs) for _ in range(times)]
    (decoded,) = decode(batch_of(pa.table({"value": pa.array(values, pa.binary())})))
    assert decoded.rows["value"].to_pylist() == values


@pytest.mark.parametrize("claimed", [-1, 299, 301, 2**31 - 1])
def test_a_batch_that_holds_another_number_of_records_than_it_claims_is_refused(claimed: int) -> None:
    data = bytearray(batch_of(pa.table({"value": pa.array([b"x" * 100] * 300, pa.binary())})))
    struct.pack_into(">i", data, 57, claimed)
    with pytest.raises(MalformedDataError):
        list(decode(bytes(data), check_crc=False))


def test_an_old_format_is_refused_by_name() -> None:
    data = bytearray(batch_of(pa.table({"value": [b"abc"]})))
    data[16] = 1
    with pytest.raises(MalformedDataError, match="format is 1"):
        list(decode(bytes(data)))


def test_snappy_is_framed_as_java_frames_it_and_read_without_a_frame_too() -> None:
    framed = batch_of(pa.table({"value": [b"x" * 100_000]}), "snappy")
    assert framed[HEADER_BYTES : HEADER_BYTES + 16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    from connectx.protocol.record_batches.codecs import decompress

    raw = pa.compress(b"abc" * 1000, "snappy", asbytes=True)
    assert bytes(decompress(raw, "snappy")) == b"abc" * 1000
