"""PostgresCdcSource reads a long backlog ahead, over a temporary copy of its slot."""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

import connectx as cx
from connectx.connectors.cdc import reading
from connectx.connectors.cdc.backlog import ReadAhead, Reading
from connectx.connectors.shared.postgres import PostgresSession
from connectx.errors.base import ConnectxError
from connectx.plugins.errors import RetriableError
from tests.support.cdc import Capture, Captured, rows_of
from tests.support.clusters import owner_of
from tests.support.databases import postgres_server
from tests.support.profiles import EOS, JSON
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from connectx.spark.sessions import SparkProvider

SMALL: dict[str, Any] = {"max_queue_size": 20, "max_batch_size": 10}
"""A reading has 7 transactions of one row, and later ones have up to 54."""


def fill(shop: Captured, first: int, last: int) -> None:
    """Insert rows, each in a transaction."""
    insert = "INSERT INTO t VALUES (n, 'row ' || n)"
    shop.sql(f"DO $$ BEGIN FOR n IN {first}..{last} LOOP {insert}; COMMIT; END LOOP; END $$")


def with_backlog(shop: Captured, rows: int = 600, **settings: Any) -> Capture:
    """A task that has not begun to read changes of so many rows."""
    shop.sql("CREATE TABLE t (id int PRIMARY KEY, name text)")
    capture = Capture(shop, **SMALL, **settings)
    capture.slices()
    capture.stop()
    shop.end_readers()
    fill(shop, 1, rows)
    capture.start()
    return capture


def keys(records: list[dict[str, Any]]) -> list[int]:
    return [record["key"]["id"] for record in records]


def records_until_it_fails(capture: Capture) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def fails() -> bool:
        try:
            piece = capture.poll()
        except RetriableError:
            return True
        found.extend([] if piece is None else rows_of(piece))
        return False

    until(fails, "a poll that fails")
    return found


def rest(capture: Capture) -> list[dict[str, Any]]:
    """Records up to the last row: a reading may have nothing but what was sent before."""
    found: list[dict[str, Any]] = []

    def has_last() -> bool:
        found.extend(capture.records())
        return 600 in keys(found)

    until(has_last, "the last row")
    return found


def no_copy(shop: Captured) -> bool:
    return not shop.copies()


def test_a_long_backlog_is_read_ahead_over_a_copy_that_ends_with_it(shop: Captured) -> None:
    capture = with_backlog(shop)
    found = capture.records(most=5)
    (copy,) = shop.copies()
    assert copy.startswith(f"{shop.name}_ahead_")
    found += capture.records()
    until(lambda: no_copy(shop), "the copy to be dropped")
    fill(shop, 601, 603)
    found += capture.records()
    assert keys(found) == list(range(1, 604))
    capture.stop()


def test_a_short_backlog_needs_no_copy(shop: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = with_backlog(shop, 6)
    monkeypatch.setattr(ReadAhead, "start", lambda *_: pytest.fail("a copy was made"))
    assert keys(capture.records()) == list(range(1, 7))
    capture.stop()


def test_a_large_reading_is_sent_before_the_next_one_begins(shop: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGE_BYTES", 1)
    begin = ReadAhead.begin
    begun: list[int] = []
    found: list[dict[str, Any]] = []

    def counted(ahead: ReadAhead) -> Future[Reading]:
        begun.append(len(found))
        return begin(ahead)

    monkeypatch.setattr(ReadAhead, "begin", counted)
    capture = with_backlog(shop)
    while len(found) < 600:
        found += capture.records(most=1)
        assert not begun or begun[-1] < len(found)
    assert begun[0] == 7, "the peek was sent"
    assert keys(found) == list(range(1, 601))
    capture.stop()


@pytest.mark.parametrize("shop", ["sql"], indirect=True)
def test_the_slot_moves_to_what_was_committed_while_it_is_read_ahead(shop: Captured) -> None:
    capture = with_backlog(shop, slot_advance_interval_ms=1)
    before = shop.slot_lsn()
    found = capture.records(most=20)
    assert shop.copies()
    assert shop.slot_lsn() > before
    committed, capture.commits = capture.stored, False
    assert committed is not None
    capture.records()
    assert shop.slot_lsn() == committed["lsn"]
    capture.stop()
    again = Capture(shop, committed, **SMALL)
    assert keys([*found, *rest(again)]) == list(range(1, 601))
    again.stop()


def test_a_task_that_stops_while_it_reads_ahead_leaves_no_copy(shop: Captured) -> None:
    capture = with_backlog(shop)
    found = capture.records(most=5)
    assert shop.copies()
    capture.stop()
    until(lambda: no_copy(shop), "the copy to be dropped")
    capture.start()
    found += rest(capture)
    assert keys(found) == list(range(1, 601))
    capture.stop()


def test_an_older_instance_loses_its_copy_and_another_connector_does_not(logical_postgres: str, shop: Captured) -> None:
    neighbour = Captured(logical_postgres)
    beside = with_backlog(neighbour)
    of_neighbour = beside.records(most=5)
    zombie = with_backlog(shop)
    zombie.commits = False
    found = zombie.records(most=5)
    (old,) = shop.copies()
    successor = Capture(shop, zombie.stored, **SMALL)
    found += successor.records(most=5)
    assert old not in shop.copies()
    records_until_it_fails(zombie)
    zombie.stop()
    found += rest(successor)
    successor.stop()
    assert keys(found) == list(range(1, 601))
    assert len(neighbour.copies()) == 1
    assert keys([*of_neighbour, *beside.records()]) == list(range(1, 601))
    beside.stop()
    neighbour.close()


def test_a_lost_connection_is_raised_and_later_polls_continue(shop: Captured) -> None:
    capture = with_backlog(shop)
    found = capture.records(most=5)
    shop.sql("SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE temporary")
    found += records_until_it_fails(capture)
    found += rest(capture)
    assert keys(found) == list(range(1, 601))
    capture.stop()


@pytest.mark.parametrize("mode", ["auto", "sql"])
def test_a_backlog_comes_once_over_a_restart_of_the_server(mode: str) -> None:
    with postgres_server(logical=True) as uri:
        shop = Captured(uri, mode)
        capture = with_backlog(shop)
        found = capture.records(most=5)
        assert shop.copies()
        shop.restart_server()
        assert no_copy(shop)
        found += records_until_it_fails(capture)
        found += rest(capture)
        assert keys(found) == list(range(1, 601))
        capture.stop()
        shop.close()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "is not read ahead" in record.message]


def test_without_a_free_slot_a_backlog_is_read_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    with postgres_server("max_replication_slots = 1", logical=True) as uri:
        shop = Captured(uri, "auto")
        capture = with_backlog(shop)
        assert keys(capture.records()) == list(range(1, 601))
        capture.stop()
        (warning,) = warnings_of(caplog)
        assert "all replication slots are in use" in warning
        assert "Check max_replication_slots" in warning
        shop.close()


def test_a_session_that_has_its_copy_no_more_reads_the_slot_itself(
    shop: Captured, caplog: pytest.LogCaptureFixture
) -> None:
    """As behind a connection pooler that gives each transaction another session."""
    capture = with_backlog(shop)
    found = capture.records(most=5)
    reader = capture.reader
    assert reader._ahead is not None
    reader._ahead.copy = f"{shop.name}_ahead_0"
    found += capture.records()
    assert keys(found) == list(range(1, 601))
    capture.stop()
    (warning,) = warnings_of(caplog)
    assert f'replication slot "{shop.name}_ahead_0" does not exist' in warning
    assert "connection pooler" in warning


def test_closing_cancels_the_statement_that_runs(shop: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.sql(f"SELECT 1 FROM pg_create_logical_replication_slot('{shop.name}', 'pgoutput')")
    session = PostgresSession(shop.uri, {"application_name": "ahead", "statement_timeout": "30s"})
    monkeypatch.setattr(session, "read", lambda sql: iter(session.query("SELECT pg_sleep(3600)::text")))
    ahead = ReadAhead(session, shop.name, "p", 10)
    ahead.start(shop.slot_lsn())
    begun = ahead.begin()
    sleeping = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'ahead' AND wait_event = 'PgSleep'"
    until(lambda: shop.sql(sleeping), "the statement to run")
    ahead.close()
    with pytest.raises(ConnectxError, match="canceling statement due to user request"):
        begun.result()
    until(lambda: no_copy(shop), "the copy to be dropped")


def test_a_backlog_comes_once_though_its_worker_is_killed(spark_provider: SparkProvider, shop: Captured) -> None:
    shop.sql("CREATE TABLE t (id int PRIMARY KEY, name text)")
    keyed = {key.replace("value.", "key."): value for key, value in JSON.items()}
    topic = f"{shop.name}.public.t"
    with cx.Cluster(workers=2, config=EOS) as cluster:
        connector = cluster.create("cdc", shop.config(**SMALL) | JSON | keyed)
        connector.wait("RUNNING", timeout=WAIT_S)
        fill(shop, 1, 1)
        cx.read_topic(topic, cluster.bootstrap_servers, at_least=1, timeout=WAIT_S)
        connector.stop()
        connector.wait("STOPPED", timeout=WAIT_S)
        fill(shop, 2, 4000)
        connector.resume()
        until(shop.copies, "a copy of the slot")
        cx.read_topic(topic, cluster.bootstrap_servers, at_least=100, timeout=WAIT_S)
        assert shop.copies()
        cluster.kill(owner_of(cluster, "cdc-0").name)
        read = cx.read_topic(topic, cluster.bootstrap_servers, at_least=4000, timeout=2 * WAIT_S)
        assert [json.loads(key)["id"] for key in read["key"]] == list(range(1, 4001))
        cluster.check(timeout=WAIT_S).require_valid()
        until(lambda: no_copy(shop), "the copies to be dropped")
