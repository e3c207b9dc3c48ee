"""Frames of a replication connection, as PostgreSQL documents them."""

from __future__ import annotations

import struct

from connectx.protocol import walsender
from connectx.protocol.pgoutput import BEGIN, COMMIT, POSTGRES_EPOCH_US
from tests.support.pgoutput import Begin, Commit, encoded, messages


def frame(lsn: int, message: bytes) -> bytes:
    return b"w" + struct.pack(">QQq", lsn, lsn, 0) + message


def test_frames_hold_the_messages_that_a_peek_gives() -> None:
    pairs = [(70, encoded(Begin(90, 1_000_000, 9))), ((5 << 32) + 1, encoded(Commit(90, 95, 1_000_000)))]
    streamed, peeked = walsender.messages_of([frame(*pair) for pair in pairs]), messages(pairs)
    assert streamed.kinds.tolist() == [BEGIN, COMMIT]
    assert streamed.lsns.tolist() == peeked.lsns.tolist() == [70, (5 << 32) + 1]
    assert [streamed.data(number) for number in range(2)] == [data for _, data in pairs]
    for mine, other in zip((streamed.begins(), streamed.commits()), (peeked.begins(), peeked.commits()), strict=True):
        assert [column.tolist() for column in mine] == [column.tolist() for column in other]


def test_a_keepalive_has_the_end_of_what_was_sent_and_may_ask_for_a_status() -> None:
    for asks in (False, True):
        assert walsender.keepalive(b"k" + struct.pack(">QqB", 1 << 40, 0, asks)) == (1 << 40, asks)


def test_a_status_names_what_is_durable_and_asks_for_an_answer() -> None:
    sent = walsender.status(77, POSTGRES_EPOCH_US + 5)
    assert struct.unpack(">cQQQqB", sent) == (b"r", 77, 77, 77, 5, 1)
