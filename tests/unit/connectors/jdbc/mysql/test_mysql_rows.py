"""Rows of MySQL's protocol: packets in, Arrow columns out, however the server's bytes arrive."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectx.connectors.jdbc.mysql.rows import RowReader

Row = tuple[bytes | None, ...]

MOST = 0xFFFFFF
EOF = b"\xfe\0\0\x02\0"
LENGTHS = st.sampled_from([0, 1, 250, 251, 252, 255, 256, 65_535, 65_536, 70_000])
VALUES = st.one_of(st.none(), st.binary(max_size=9), LENGTHS.map(lambda length: b"v" * length))


def value(data: bytes | None) -> bytes:
    """A value with its length before it."""
    if data is None:
        return b"\xfb"
    if len(data) < 0xFB:
        return bytes([len(data)]) + data
    mark, size = next((mark, size) for mark, size in ((0xFC, 2), (0xFD, 3), (0xFE, 8)) if len(data) < 1 << 8 * size)
    return bytes([mark]) + len(data).to_bytes(size, "little") + data


def packets(payload: bytes) -> bytes:
    """A payload as one packet, or as several where it is too long."""
    part, rest = payload[:MOST], payload[MOST:]
    packet = len(part).to_bytes(3, "little") + b"\x07" + part
    return packet + packets(rest) if len(part) == MOST else packet


def reader(rows: list[Row], piece: int, end: bytes = EOF) -> RowReader:
    """A reader of these rows, which arrive in pieces of so many bytes."""
    sent = b"".join(packets(b"".join(map(value, row))) for row in rows) + packets(end)
    pieces = iter([sent[at : at + piece] for at in range(0, len(sent), piece)])

    def fail(packet: bytes) -> None:
        raise ValueError(packet)

    return RowReader(lambda _: next(pieces), fail, len(rows[0]))


def read(found: RowReader, rows: int) -> list[list[Row]]:
    """Rows in their batches."""
    return [
        list(zip(*(column.to_pylist() for column in batch), strict=True))
        for batch in iter(lambda: found.next(rows), [])
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=12), st.integers(1, 9), st.integers(1, 99_999))
def test_rows_are_those_of_the_server_in_batches_of_the_wanted_size(rows: list[Row], size: int, piece: int) -> None:
    assert read(reader(rows, piece), size) == [rows[at : at + size] for at in range(0, len(rows), size)]


@pytest.mark.parametrize("length", [MOST - 6, MOST, 2 * MOST - 11, 2 * MOST])
def test_a_row_that_is_too_long_for_one_packet_is_whole(length: int) -> None:
    rows: list[Row] = [(b"a", None), (b"x" * length, b"b"), (None, b"c")]
    found = [row for batch in read(reader(rows, 1 << 20), 9) for row in batch]
    assert found == rows


def test_large_rows_come_in_smaller_batches() -> None:
    rows: list[Row] = [(b"x" * (9 << 20),)] * 5
    assert [len(batch) for batch in read(reader(rows, 1 << 20), 9)] == [4, 1]


def test_an_error_of_the_server_after_some_rows_is_raised() -> None:
    with pytest.raises(ValueError, match="killed"):
        read(reader([(b"1",), (b"2",)], 5, b"\xff\x87\x07#70100killed"), 1)
