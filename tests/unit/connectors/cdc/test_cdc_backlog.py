"""How a backlog is read ahead: sizes of readings, names of copies, and one reading at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectx.connectors.cdc.backlog import LARGE_BYTES, ReadAhead, next_most
from connectx.connectors.cdc.catalog import copies_of
from connectx.connectors.shared.postgres import PostgresSession
from connectx.errors.databases import DatabaseUnavailableError
from tests.support.pgoutput import Begin, Commit, encoded
from tests.support.waiting import until

LARGEST_PID = 1 << 22


class Server(PostgresSession):
    """A session whose slot has so many empty transactions, of which a reading gives one."""

    def __init__(self, transactions: int) -> None:
        super().__init__("", {})
        self.left = transactions
        self.statements: list[str] = []
        self.threads: set[str] = set()
        self.is_closed = False

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        self.statements.append(sql)
        return [("copy",)] if "pg_copy_logical" in sql else [(90,)]

    def read(self, sql: str) -> Iterator[pa.Table]:
        self.statements.append(sql)
        self.threads.add(threading.current_thread().name)
        if not self.left:
            raise DatabaseUnavailableError("the connection is lost")
        self.left -= 1
        pair = [encoded(Begin(10, 0, 1)), encoded(Commit(10, 20, 0))]
        yield pa.table([pa.array([10, 20], pa.int64()), pa.array(pair, pa.binary())], ["lsn", "data"])

    def commit(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


def test_one_reading_is_made_ahead_by_one_thread() -> None:
    server = Server(9)
    ahead = ReadAhead(server, "shop", "p", 2)
    ahead.start(1 << 32)
    assert server.left == 9, "none has begun"
    for taken in (1, 2, 3):
        ahead.begin()
        ahead.begin()
        reading = ahead.take()
        assert (len(reading.messages), reading.is_whole, reading.flushed) == (2, taken > 1, 90), "2 of 4 are whole"
    ahead.close()
    assert (server.left, server.is_closed) == (6, True), "none was begun after the last"
    assert server.threads == {"ahead-shop_0"}
    advances = [sql for sql in server.statements if "advance" in sql]
    assert advances == ["SELECT 1 FROM pg_replication_slot_advance('copy', '1/0'::pg_lsn)"]


def test_an_error_of_the_thread_is_raised_where_its_reading_is_taken() -> None:
    ahead = ReadAhead(Server(1), "shop", "p", 2)
    ahead.start(1)
    ahead.begin()
    ahead.take()
    failed = ahead.begin()
    until(failed.done, "the reading to fail")
    with pytest.raises(DatabaseUnavailableError, match="the connection is lost"):
        ahead.take()
    ahead.close()


@given(st.integers(1, 10**6), st.integers(1, 10**7), st.integers(1, 10**7), st.integers(1, 2**40))
def test_readings_grow_up_to_a_size(least: int, before: int, messages: int, size: int) -> None:
    most = next_most(least, before, messages, size)
    assert least <= most <= max(least, 2 * before)
    assert most <= 8 * least
    assert most == least or most * size <= LARGE_BYTES * messages


def test_readings_of_narrow_rows_are_eight_times_as_large_in_the_end() -> None:
    sizes = [65_536]
    for _ in range(4):
        sizes.append(next_most(65_536, sizes[-1], sizes[-1], 80 * sizes[-1]))
    assert sizes == [65_536, 131_072, 262_144, 524_288, 524_288]
    assert next_most(65_536, 65_536, 65_536, 10_000 * 65_536) == 65_536


def test_names_of_copies_fit_and_begin_with_the_slot() -> None:
    assert copies_of("shop") == "shop_ahead_"
    assert len(f"{copies_of('x' * 63)}{LARGEST_PID}") <= 63
