"""Batches of one answer: which of their records are rows, and how far a reader is after taking some."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectx.errors.kafka import RecordBatchError
from connectx.kafka.fetcher.chunks import SCHEMA, Chunk, take_rows
from connectx.model.ids import TopicPartition
from connectx.protocol.record_batches import HEADER_BYTES, Compression, codecs, encode, finish, prepare
from connectx.protocol.record_batches.codecs import IDS, compress, decompress

T0 = TopicPartition("t", 0)
NOW_MS = 1_700_000_000_000
_BASE_AT, _LENGTH_AT, _ATTRIBUTES_AT, _LAST_AT, _COUNT_AT = 0, 8, 21, 23, 57
_LOG_APPEND_TIME, _CONTROL = 0x08, 0x20


def batch(offset: int, *values: bytes, codec: str = "none", producer: int = -1, **patch: int) -> bytes:
    """A batch as a broker has it, at an offset; a producer makes it part of a transaction."""
    prepared = prepare(pa.table({"value": pa.array(values, pa.binary())}), NOW_MS)
    records = encode(prepared, 0, len(prepared), Compression(codec))
    data = bytearray(finish(records, producer_id=producer, epoch=0, transactional=producer >= 0))
    struct.pack_into(">q", data, _BASE_AT, offset)
    (attributes,) = struct.unpack_from(">h", data, _ATTRIBUTES_AT)
    struct.pack_into(">h", data, _ATTRIBUTES_AT, attributes | patch.get("attributes", 0))
    if "last" in patch:
        struct.pack_into(">i", data, _LAST_AT, patch["last"])
    return bytes(data)


def marker(offset: int, producer: int) -> bytes:
    """The marker that ends a transaction."""
    return batch(offset, b"", producer=producer, attributes=_CONTROL)


def chunk(data: bytes, offset: int = 0, aborted: Iterable[tuple[int, int]] = (), target: Any = T0) -> Chunk:
    made, bad = Chunk.of(target, offset, data, aborted, check_crc=False)
    assert made is not None
    assert not bad
    return made


def taken(made: Chunk, max_records: int = 100) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while not made.is_empty:
        rows, _ = take_rows([made], max_records)
        assert rows.schema == SCHEMA
        assert rows.num_rows <= max_records
        found += zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True)
    return found


def test_rows_name_their_topic_and_partition_and_carry_the_producers_time() -> None:
    rows, _ = take_rows([chunk(batch(5, b"a"))], 10)
    assert rows.to_pylist() == [
        {"topic": "t", "partition": 0, "offset": 5, "timestamp": NOW_MS, "key": None, "value": b"a", "headers": None}
    ]


def test_batches_of_different_codecs_become_one_table_in_order() -> None:
    data = b"".join(
        batch(number * 2, b"%d" % (number * 2), b"%d" % (number * 2 + 1), codec=codec)
        for number, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd", "none"])
    )
    assert taken(chunk(data)) == [(offset, b"%d" % offset) for offset in range(12)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["none", "zstd"])), min_size=1), st.integers(1, 7))
def test_every_record_is_taken_once_however_few_are_taken_at_a_time(
    batches: list[tuple[int, str]], max_records: int
) -> None:
    data, offset = b"", 3
    for count, codec in batches:
        data += batch(offset, *(b"%d" % number for number in range(offset, offset + count)), codec=codec)
        offset += count
    made = chunk(data, 3)
    assert taken(made, max_records) == [(number, b"%d" % number) for number in range(3, offset)]
    assert made.position == made.end_offset == offset


def test_the_position_is_after_the_last_row_that_was_taken() -> None:
    made = chunk(batch(0, b"a", b"b", b"c"))
    take_rows([made], 2)
    assert (made.position, made.is_empty) == (2, False)


def test_chunks_of_several_partitions_become_one_table_up_to_the_limit() -> None:
    other = TopicPartition("u", 3)
    chunks = [
        chunk(batch(1, b"b", b"c"), offset=1),
        chunk(marker(7, 1), target=other, offset=7),
        chunk(batch(8, b"x", codec="zstd") + batch(9, b"y", b"z"), target=other, offset=8),
        chunk(batch(3, b"d")),
    ]
    rows, taken = take_rows(chunks, 4)
    assert [(r["topic"], r["partition"], r["offset"], r["value"]) for r in rows.to_pylist()] == [
        ("t", 0, 1, b"b"),
        ("t", 0, 2, b"c"),
        ("u", 3, 8, b"x"),
        ("u", 3, 9, b"y"),
    ]
    assert [(made.target, first, made.position) for made, first in taken] == [
        (T0, 1, 3),
        (other, None, 8),
        (other, 8, 10),
    ]
    rows, taken = take_rows(chunks[2:], 4)
    assert [(made.target, first, made.is_empty) for made, first in taken] == [(other, 10, True), (T0, 3, True)]
    assert rows["value"].to_pylist() == [b"z", b"d"]


def test_early_records_of_one_chunk_among_others_are_no_rows() -> None:
    rows, taken = take_rows([chunk(batch(0, b"a", b"b", b"c"), offset=1), chunk(batch(8, b"x"), offset=9)], 10)
    assert rows["value"].to_pylist() == [b"b", b"c"]
    assert [(first, made.position) for made, first in taken] == [(1, 3), (None, 9)]


def test_what_was_decoded_and_not_taken_comes_before_the_next_batch() -> None:
    made = chunk(batch(0, b"a", b"b", b"c") + batch(3, b"d"))
    take_rows([made], 1)
    rows, taken = take_rows([made], 10)
    assert rows["value"].to_pylist() == [b"b", b"c", b"d"]
    assert [first for _, first in taken] == [1, 3]
    assert made.is_empty


def test_records_before_the_offset_that_was_asked_for_are_no_rows() -> None:
    assert taken(chunk(batch(0, b"a", b"b", b"c"), offset=2)) == [(2, b"c")]


def test_offsets_that_compaction_removed_are_passed_with_their_batch() -> None:
    made = chunk(batch(0, b"a", last=9) + batch(20, b"b"))
    assert taken(made) == [(0, b"a"), (20, b"b")]
    assert made.end_offset == 21


def test_a_batch_that_compaction_has_emptied_only_moves_the_position() -> None:
    data = bytearray(batch(0, b"a", last=9))[:61]
    struct.pack_into(">i", data, 8, 61 - 12)
    struct.pack_into(">i", data, _COUNT_AT, 0)
    made = chunk(bytes(data))
    assert (taken(made), made.position) == ([], 10)


def test_markers_are_no_rows_and_move_the_position() -> None:
    made = chunk(batch(0, b"a", producer=7) + marker(1, 7))
    assert taken(made) == [(0, b"a")]
    assert made.position == 2


def test_records_of_an_aborted_transaction_are_left_out_up_to_its_marker() -> None:
    data = (
        batch(0, b"a", producer=7)
        + batch(1, b"b", producer=8)
        + batch(2, b"c")
        + marker(3, 7)
        + batch(4, b"d", producer=7)
        + marker(5, 8)
        + marker(6, 7)
    )
    assert taken(chunk(data, aborted=[(0, 7)])) == [(1, b"b"), (2, b"c"), (4, b"d")]


def test_a_producer_may_abort_several_transactions_of_one_answer() -> None:
    data = b"".join(
        batch(offset, value, producer=7) + marker(offset + 1, 7) for offset, value in [(0, b"a"), (2, b"b"), (4, b"c")]
    )
    assert taken(chunk(data, aborted=[(4, 7), (0, 7)])) == [(2, b"b")]


def test_a_transaction_that_was_aborted_from_before_the_position_is_left_out() -> None:
    data = batch(10, b"a", producer=7) + marker(11, 7) + batch(12, b"b", producer=7)
    assert taken(chunk(data, 10, aborted=[(2, 7)])) == [(12, b"b")]


def test_the_brokers_time_stands_for_the_producers_where_the_topic_says_so() -> None:
    data = bytearray(batch(0, b"a", b"b", attributes=_LOG_APPEND_TIME) + batch(2, b"c"))
    struct.pack_into(">q", data, 35, 123)  # the largest timestamp of the first batch
    rows, _ = take_rows([chunk(bytes(data))], 10)
    assert rows["timestamp"].to_pylist() == [123, 123, NOW_MS]


def test_a_record_without_a_time_has_none() -> None:
    data = bytearray(batch(0, b"a"))
    struct.pack_into(">q", data, 27, -1)
    rows, _ = take_rows([chunk(bytes(data))], 10)
    assert rows["timestamp"].to_pylist() == [None]


def test_a_batch_that_is_cut_off_is_left_to_the_next_fetch() -> None:
    data = batch(0, b"a") + batch(1, b"b")[:-1]
    made = chunk(data)
    assert (taken(made), made.end_offset) == ([(0, b"a")], 1)
    assert Chunk.of(T0, 0, batch(1, b"b")[:-1]) == (None, "")


def test_a_wrong_crc_ends_what_can_be_read_unless_it_is_not_checked() -> None:
    wrong = bytearray(batch(1, b"b"))
    struct.pack_into(">I", wrong, 17, 1)
    made, bad = Chunk.of(T0, 0, batch(0, b"a") + bytes(wrong) + batch(2, b"c"))
    assert made is not None
    assert (taken(made), made.end_offset) == ([(0, b"a")], 1)
    assert "CRC at offset 1 is wrong" in bad
    assert Chunk.of(T0, 1, bytes(wrong)) == (None, bad)
    assert taken(chunk(bytes(wrong))) == [(1, b"b")]


def bomb(offset: int, packed: bytes, codec: str, count: int = 1) -> bytes:
    """A batch whose records are whatever those bytes hold once they are decompressed."""
    data = bytearray(batch(offset, b"")[:HEADER_BYTES]) + packed
    struct.pack_into(">i", data, _LENGTH_AT, len(data) - 12)
    struct.pack_into(">h", data, _ATTRIBUTES_AT, IDS[codec])
    struct.pack_into(">i", data, _LAST_AT, count - 1)
    struct.pack_into(">i", data, _COUNT_AT, count)
    return bytes(data)


PACKED = ("gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", PACKED)
def test_a_batch_that_holds_more_than_the_limit_is_refused_where_it_lies(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codecs, "MOST_BYTES", 1_000_000)
    packed = compress(bytes(1_000_001), Compression(codec))
    assert len(packed) < 60_000
    made = chunk(batch(4, b"a") + bomb(5, packed, codec), 4)
    rows, _ = take_rows([made], 10)
    assert (rows["offset"].to_pylist(), made.position) == ([4], 5)
    with pytest.raises(RecordBatchError, match=r"t-0 at offset 5 .* 1000000 bytes"):
        take_rows([made], 10)
    assert len(decompress(compress(bytes(1_000_000), Compression(codec)), codec)) == 1_000_000


def test_the_memory_that_is_taken_follows_what_a_batch_holds_and_not_the_limit() -> None:
    before = pa.total_allocated_bytes()
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    old = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        assert taken(chunk(batch(0, b"a", codec="gzip"))) == [(0, b"a")]
    finally:
        pa.set_memory_pool(old)
    assert pool.max_memory() < 16_000_000
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_a_batch_of_more_records_than_memory_holds_is_refused() -> None:
    count = codecs.MOST_BYTES // 100 + 1
    packed = compress(bytes(1_000), Compression("zstd"))
    with pytest.raises(RecordBatchError, match="of t-0 at offset 5"):
        take_rows([chunk(bomb(5, packed, "zstd", count))], 10)


@pytest.mark.parametrize("codec", PACKED)
def test_many_batches_are_decompressed_a_few_at_a_time(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectx.kafka.fetcher.chunks._ROOM_BYTES", 1_000_000)
    value = bytes(400_000)
    other = TopicPartition("u", 0)
    chunks = [
        chunk(b"".join(batch(offset, value, codec=codec) for offset in range(5))),
        chunk(b"".join(batch(offset, value, codec=codec) for offset in range(5)), target=other),
    ]
    found: list[list[tuple[str, int]]] = []
    while left := [one for one in chunks if not one.is_empty]:
        rows, _ = take_rows(left, 100)
        found.append(list(zip(rows["topic"].to_pylist(), rows["offset"].to_pylist(), strict=True)))
    assert [len(rows) for rows in found] == [3, 3, 3, 1]
    assert [row for rows in found for row in rows] == [(topic, offset) for topic in "tu" for offset in range(5)]


@pytest.mark.parametrize("codec", ["none", *PACKED])
def test_what_comes_before_a_batch_that_cannot_be_read_is_taken_and_nothing_passes_it(codec: str) -> None:
    broken = bytes(30) if codec == "none" else compress(bytes(30), Compression(codec))
    aborted = batch(2, b"x", producer=7) + marker(3, 7) + batch(4, b"y", producer=7)
    bad = chunk(
        batch(7, b"c", b"d") + bomb(9, broken, codec) + batch(10, b"e"), offset=8, target=TopicPartition("u", 3)
    )
    first, last = chunk(aborted, offset=2, aborted=[(2, 7)]), chunk(batch(1, b"b", codec="gzip"), offset=1)
    rows, taken = take_rows([first, bad, last], 100)
    assert rows["value"].to_pylist() == [b"y", b"d"]
    assert [(made, offset, made.position) for made, offset in taken] == [(first, 4, 5), (bad, 8, 9)]
    for _ in range(2):
        with pytest.raises(RecordBatchError, match="of u-3 at offset 9"):
            take_rows([bad, last], 100)
    assert not bad.is_empty
    rows, _ = take_rows([last], 100)
    assert rows["value"].to_pylist() == [b"b"]


def test_rows_that_were_decoded_before_come_ahead_of_a_batch_that_cannot_be_read() -> None:
    made = chunk(batch(0, b"a", b"b", b"c") + bomb(3, bytes(30), "none"))
    assert [take_rows([made], 2)[0]["value"].to_pylist() for _ in range(2)] == [[b"a", b"b"], [b"c"]]
    with pytest.raises(RecordBatchError, match="of t-0 at offset 3"):
        take_rows([made], 2)
