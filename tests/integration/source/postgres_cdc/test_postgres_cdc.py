"""PostgresCdcSource on PostgreSQL's server, and in a cluster whose workers are killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

import connectx as cx
from connectx.connectors.cdc.catalog import Catalog, as_lsn
from connectx.connectors.cdc.errors import ReplicationSlotMismatchError, ReplicationSlotMissingError
from connectx.connectors.cdc.positions import SNAPSHOT
from connectx.connectors.cdc.replication import ReplicationStream
from connectx.errors.databases import DatabaseError, DatabasePermissionError, DatabaseUnavailableError
from connectx.history.log import EventLog
from connectx.model.events import EventKind
from connectx.plugins.errors import RetriableError
from connectx.plugins.slices import Slice
from tests.support.cdc import Capture, Captured, ops, replayed, rows_of
from tests.support.clusters import owner_of
from tests.support.databases import postgres_server
from tests.support.profiles import EOS, JSON
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from connectx.spark.sessions import SparkProvider

T = TypeVar("T")

in_every_mode = pytest.mark.parametrize("shop", ["auto", "stream", "sql"], indirect=True)
"""For tests of how a reading begins; others read a stream only after a backlog, or never."""

KEYED = "CREATE TABLE t (id int PRIMARY KEY, name text)"


def keys(records: list[dict[str, Any]]) -> list[int]:
    return [record["key"]["id"] for record in records]


def table(shop: Captured) -> dict[int, dict[str, Any]]:
    return {key: {"id": key, "name": name} for key, name in shop.sql("SELECT id, name FROM t")}


@in_every_mode
def test_a_snapshot_in_pages_is_followed_by_every_change_over_restarts(shop: Captured) -> None:
    shop.sql(KEYED)
    shop.sql("INSERT INTO t SELECT n, 'row ' || n FROM generate_series(1, 25) n")
    shop.sql("CREATE TABLE log (line text)")
    shop.sql("INSERT INTO log SELECT 'line ' || n FROM generate_series(1, 5) n")
    capture = Capture(shop, snapshot_fetch_size=10)
    found = capture.records(most=2)
    shop.sql("UPDATE t SET name = 'changed' WHERE id IN (1, 20)")
    shop.sql("DELETE FROM t WHERE id = 25")
    shop.sql("INSERT INTO t VALUES (30, 'new')")
    capture.restart()
    found += capture.records()
    capture.restart()
    shop.transaction(
        "INSERT INTO t VALUES (31, 'a')", "INSERT INTO log VALUES ('b')", "UPDATE t SET id = 32 WHERE id = 31"
    )
    found += capture.records()
    capture.stop()
    of_t = [record for record in found if record["topic"] == f"{shop.name}.public.t"]
    assert replayed(of_t) == table(shop)
    read = [record["key"]["id"] for record in of_t if record["value"] and record["value"]["op"] == "r"]
    assert sorted(read) == sorted(set(read))
    lines = [record["value"]["after"]["line"] for record in found if record["topic"].endswith(".log")]
    assert sorted(lines) == ["b", *(f"line {n}" for n in range(1, 6))]
    assert ops(of_t)[-4:] == ["c", "d", None, "c"]


def test_changes_while_the_snapshot_is_read_come_once_and_after_it(shop: Captured) -> None:
    shop.sql(KEYED)
    shop.sql("INSERT INTO t SELECT n, 'old' FROM generate_series(1, 20) n")
    capture = Capture(shop, snapshot_fetch_size=10)
    found = capture.records(most=1)
    shop.sql("UPDATE t SET name = 'new' WHERE id = 15")
    found += capture.records()
    capture.stop()
    assert ops(found) == ["r"] * 20 + ["u"]
    assert found[14]["value"]["after"] == {"id": 15, "name": "old"}
    assert [record["value"]["source"]["snapshot"] for record in found] == ["first", *["true"] * 18, "last", "false"]


def test_tables_are_read_at_a_time_as_of_one_moment_and_go_on_after_a_restart(shop: Captured) -> None:
    shop.sql("CREATE TYPE mood AS ENUM ('ok', 'bad')")
    kinds = {"t": "int", "u": "mood", "v": "char(3)", "w": "timestamptz"}
    for name, kind in kinds.items():
        shop.sql(f"CREATE TABLE {name} (id int, kind {kind}, name text, PRIMARY KEY (kind, id))")
        value = {"t": "5", "u": "'bad'", "v": "'b'", "w": "'2026-01-02 03:04:05.678901+01'"}[name]
        shop.sql(f"INSERT INTO {name} SELECT n, {value}, 'old' FROM generate_series(1, 9) n")
    shop.sql("CREATE TABLE none (id int PRIMARY KEY)")
    capture = Capture(shop, snapshot_fetch_size=4, snapshot_max_threads=3)
    found = capture.records(most=1)
    activity = ("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND "
                f"datname = '{shop.name}' AND application_name LIKE '%cdc-0'")  # fmt: skip
    assert shop.sql(activity) == [(3,)]
    shop.transaction(*(f"UPDATE {name} SET name = 'new'" for name in kinds))
    found += capture.records(most=4)
    assert {record["value"]["after"]["name"] for record in found} == {"old"}
    capture.restart()
    found += capture.records()
    until(lambda: shop.sql(activity) == [(1,)], "the connections of the snapshot to end")
    capture.stop()
    read = [(record["topic"], record["key"]["id"]) for record in found if record["value"]["op"] == "r"]
    assert sorted(read) == sorted((f"{shop.name}.public.{name}", n) for name in kinds for n in range(1, 10))
    for name in kinds:
        of_one = [record for record in found if record["topic"].endswith(name)]
        assert {row["name"] for row in replayed(of_one).values()} == {"new"}
    markers = [record["value"]["source"]["snapshot"] for record in found if record["value"]["op"] == "r"]
    assert (markers[0], markers[-1]) == ("first", "last")


def test_large_tables_are_read_in_ranges_of_their_key_and_go_on_after_a_restart(shop: Captured) -> None:
    hours = "now() + n * interval '1 h'"
    kinds = {"t": ("text", "chr(97 + n % 3)"), "u": ("char(3)", "'b'"), "v": ("timestamptz", hours)}
    for name, (kind, value) in kinds.items():
        shop.sql(f"CREATE TABLE {name} (kind {kind}, id int, name text, PRIMARY KEY (kind, id)) PARTITION BY LIST (id)")
        shop.sql(f"CREATE TABLE {name}_0 PARTITION OF {name} FOR VALUES IN (7)")
        shop.sql(f"CREATE TABLE {name}_1 PARTITION OF {name} DEFAULT")
        shop.sql(f"INSERT INTO {name} SELECT {value}, n, 'old' FROM generate_series(1, 60) n")
    capture = Capture(shop, snapshot_fetch_size=4, snapshot_max_threads=3, publish_via_partition_root="true")
    found = capture.records(most=2)
    assert capture.stored is not None
    reading = json.loads(capture.stored[SNAPSHOT])["reading"]
    assert [len(ranges) for ranges in reading.values()] == [3], "the first table has as many ranges as threads"
    shop.transaction(*(f"UPDATE {name} SET name = 'new'" for name in kinds))
    capture.restart()
    found += capture.records()
    capture.stop()
    read = [(record["topic"], record["key"]["id"]) for record in found if record["value"]["op"] == "r"]
    assert sorted(read) == sorted((f"{shop.name}.public.{name}", n) for name in kinds for n in range(1, 61))
    for name in kinds:
        of_one = [record for record in found if record["topic"].endswith(name)]
        assert {row["name"] for row in replayed(of_one).values()} == {"new"}
    markers = [record["value"]["source"]["snapshot"] for record in found if record["value"]["op"] == "r"]
    assert (markers[0], markers[-1]) == ("first", "last")


def test_a_transaction_that_ends_between_slot_and_snapshot_is_not_sent_twice(shop: Captured) -> None:
    shop.sql(KEYED)
    shop.sql("CREATE PUBLICATION dbz_publication FOR ALL TABLES")
    shop.sql(f"SELECT 1 FROM pg_create_logical_replication_slot('{shop.name}', 'pgoutput')")
    shop.sql("INSERT INTO t VALUES (1, 'in both')")
    capture = Capture(shop)
    found = capture.records()
    shop.sql("INSERT INTO t VALUES (2, 'in the stream')")
    found += capture.records()
    capture.stop()
    assert (ops(found), keys(found)) == (["r", "c"], [1, 2])


def test_rows_before_a_change_follow_the_replica_identity(shop: Captured) -> None:
    shop.sql("CREATE TABLE t (id int PRIMARY KEY, name text, long text, must text NOT NULL)")
    shop.sql("ALTER TABLE t ALTER long SET STORAGE EXTERNAL")
    capture = Capture(shop, snapshot_mode="no_data")
    assert capture.records() == []
    shop.sql("INSERT INTO t VALUES (1, 'a', repeat('x', 5000), 'm')")
    shop.sql("UPDATE t SET name = 'b'")
    shop.sql("ALTER TABLE t REPLICA IDENTITY FULL")
    shop.sql("UPDATE t SET name = 'c'")
    shop.sql("ALTER TABLE t REPLICA IDENTITY DEFAULT")
    shop.sql("DELETE FROM t")
    found = capture.records()
    capture.stop()
    sides = [(value["before"], value["after"]) for record in found if (value := record["value"])]
    whole = {"id": 1, "name": "c", "long": "x" * 5000, "must": "m"}
    assert sides == [
        (None, whole | {"name": "a"}),
        (None, whole | {"name": "b", "long": "__debezium_unavailable_value"}),
        (whole | {"name": "b"}, whole),
        ({"id": 1, "name": None, "long": None, "must": ""}, None),
    ]
    assert ops(found) == ["c", "u", "u", "d", None]


def test_a_table_may_change_its_columns_between_changes(shop: Captured) -> None:
    shop.sql(KEYED)
    capture = Capture(shop)
    capture.slices()
    shop.sql("INSERT INTO t VALUES (1, 'a')")
    shop.sql("ALTER TABLE t ADD more numeric(6,2)")
    shop.sql("INSERT INTO t VALUES (2, 'b', 1.5)")
    shop.sql("ALTER TABLE t DROP name")
    shop.sql("INSERT INTO t VALUES (3, 2.5)")
    shop.sql("ALTER TABLE t ALTER more TYPE text USING more || '!'", "UPDATE t SET more = 'm' WHERE id = 3")
    shop.sql("ALTER TABLE t RENAME more TO most", "INSERT INTO t VALUES (4, 'n')", "TRUNCATE t")
    found = capture.records()
    shop.sql("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (most)")
    shop.sql("INSERT INTO t VALUES (5, 'key')", "UPDATE t SET most = 'yek'")
    found += capture.records()
    shop.sql("ALTER TABLE t RENAME TO u", "DELETE FROM u")
    found += capture.records()
    capture.stop()
    assert [(record["key"], record["value"] and record["value"]["after"]) for record in found] == [
        ({"id": 1}, {"id": 1, "name": "a"}),
        ({"id": 2}, {"id": 2, "name": "b", "more": Decimal("1.50")}),
        ({"id": 3}, {"id": 3, "more": Decimal("2.50")}),
        ({"id": 3}, {"id": 3, "more": "m"}),
        ({"id": 4}, {"id": 4, "most": "n"}),
        ({"most": "key"}, {"id": 5, "most": "key"}),
        *[({"most": "key"}, None)] * 2,
        ({"most": "yek"}, {"id": 5, "most": "yek"}),
        *[({"most": "yek"}, None)] * 2,
    ]
    topics = [record["topic"].removeprefix(f"{shop.name}.public.") for record in found]
    assert topics == ["t"] * 9 + ["u"] * 2


def test_the_stream_and_the_snapshot_write_values_alike(shop: Captured) -> None:
    columns = (
        "id int PRIMARY KEY, s smallint, b bigint, n numeric(10,2), x numeric, f real, d double precision, o boolean, "
        "c char(5), v varchar(9), y bytea, da date, t time, ts timestamp(3), tz timestamptz, u uuid, j jsonb, "
        "ia int[], ta text[], i interval, tt timetz, e mood, ea mood[], dom positive, ip inet, m money"
    )
    row = (
        "1, 2, 3, 1.5, -123.456, 0.25, 0.1, true, 'ab', 'é', '\\x00ff', '2026-01-02', '01:02:03.5', "
        "'2026-01-02 03:04:05.678', '2026-01-02 03:04:05+02', '6ba7b810-9dad-11d1-80b4-00c04fd430c8', '{\"a\": 1}', "
        "'{1,NULL}', '{a,\"b,c\"}', '1 mon 2 days 03:04:05', '10:00+02', 'ok', '{ok,bad}', 7, '10.0.0.1', 12.5"
    )
    shop.sql("CREATE TYPE mood AS ENUM ('ok', 'bad')")
    shop.sql("CREATE DOMAIN positive AS int CHECK (value > 0)")
    shop.sql(f"CREATE TABLE t ({columns})")
    shop.sql(f"INSERT INTO t VALUES ({row})")
    capture = Capture(shop)
    (read,) = capture.records()
    shop.sql("DELETE FROM t")
    shop.sql(f"INSERT INTO t VALUES ({row})")
    created = capture.records()[-1]
    capture.stop()
    assert created["value"]["after"] == read["value"]["after"]
    after = read["value"]["after"]
    assert (after["c"], after["dom"], after["ea"], after["tz"]) == (
        "ab   ",
        7,
        ["ok", "bad"],
        "2026-01-02T01:04:05.000000Z",
    )


def test_an_idle_slot_moves_on_with_the_offset_and_without_records(shop: Captured) -> None:
    shop.sql(KEYED)
    shop.sql("CREATE TABLE other (id int)")
    shop.sql("CREATE PUBLICATION narrow FOR TABLE t")
    capture = Capture(shop, publication_name="narrow", slot_advance_interval_ms=1)
    capture.slices()
    before = shop.slot_lsn()
    shop.sql("INSERT INTO other SELECT generate_series(1, 100)")

    def moved() -> bool:
        for piece in capture.slices(most=3):
            assert rows_of(piece) == []
            assert piece.commits_offset
        return shop.slot_lsn() > before

    until(moved, "the slot to move")
    shop.sql("INSERT INTO t VALUES (1, 'a')")
    capture.restart()
    assert keys(until(lambda: capture.records(most=3), "the change")) == [1]
    capture.stop()


def test_heartbeats_are_written_to_their_topic(shop: Captured) -> None:
    shop.sql(KEYED)
    capture = Capture(shop, heartbeat_interval_ms=1)
    record = until(lambda: capture.records(most=2), "a heartbeat")[0]
    capture.stop()
    assert (record["topic"], record["key"]) == (f"__debezium-heartbeat.{shop.name}", {"serverName": shop.name})
    assert list(record["value"]) == ["ts_ms"]


@in_every_mode
def test_an_instance_whose_successor_has_moved_the_slot_tries_again_until_it_is_stopped(shop: Captured) -> None:
    shop.sql(KEYED, "INSERT INTO t VALUES (1, 'a')")
    old = Capture(shop)
    old.records()
    shop.sql("INSERT INTO t VALUES (2, 'b')")
    old.records(most=1)  # a poll by SQL would move the slot
    successor = Capture(shop, old.stored)
    for key in (3, 4):  # the reading after a commit moves the slot
        shop.sql(f"INSERT INTO t VALUES ({key}, 'c')")
        assert keys(until(successor.records, "a change")) == [key]
    moved = shop.slot_lsn
    until(lambda: successor.records() == [] and old.stored is not None and moved() > old.stored["lsn"], "a moved slot")
    until(lambda: fails(old), "the old instance to notice")
    with pytest.raises(RetriableError, match="Another instance of the task is connected"):
        old.poll()
    successor.stop()
    with pytest.raises(ReplicationSlotMismatchError):
        until(lambda: not fails(old), "the other connections to end")


@pytest.mark.parametrize("shop", ["sql"], indirect=True)
def test_a_slot_that_another_reader_moved_over_what_was_polled_is_read_on(
    shop: Captured, caplog: pytest.LogCaptureFixture
) -> None:
    shop.sql(KEYED)
    capture = Capture(shop, max_batch_size=1)
    capture.records()
    shop.sql("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
    capture.poll()
    capture.commits = False
    capture.poll()
    assert capture.stored is not None
    shop.sql(f"SELECT 1 FROM pg_replication_slot_advance('{shop.name}', {as_lsn(capture.stored['lsn'])})")
    capture.commits = True
    shop.sql("INSERT INTO t VALUES (3, 'c')")
    assert keys(capture.records()) == [3]
    assert f"Another reader has moved the slot {shop.name}" in caplog.text
    capture.stop()


def fails(capture: Capture) -> bool:
    """Whether a poll is to be tried again."""
    try:
        capture.poll()
    except RetriableError:
        return True
    return False


@pytest.mark.parametrize("gone", ["missing", "ahead"])
def test_a_slot_that_does_not_fit_the_offset_is_a_choice(shop: Captured, gone: str) -> None:
    shop.sql(KEYED)
    shop.sql("INSERT INTO t VALUES (1, 'a')")
    capture = Capture(shop)
    capture.slices()
    capture.stop()
    offset = capture.stored
    if gone == "missing":
        shop.drop_slot()
        shop.sql("INSERT INTO t VALUES (2, 'lost')")
    else:
        shop.sql("INSERT INTO t VALUES (2, 'lost')")
        shop.sql(f"SELECT 1 FROM pg_replication_slot_advance('{shop.name}', pg_current_wal_flush_lsn())")
    error = ReplicationSlotMissingError if gone == "missing" else ReplicationSlotMismatchError
    lenient = Capture(shop, offset, offset_mismatch_strategy="no_validation")
    if gone == "missing":
        with pytest.raises(error, match="no_validation"):
            lenient.poll()
    else:  # the server begins at the slot
        assert rows_of(lenient.poll() or Slice((), {})) == []
        lenient.stop()
        shop.end_readers()
    with pytest.raises(error, match=rf"slot {shop.name}\b.*offset\.mismatch\.strategy is trust_offset.*when_needed"):
        Capture(shop, offset).poll()
    again = Capture(shop, offset, snapshot_mode="when_needed")
    assert keys(again.records()) == [1, 2]
    again.stop()
    for number, strategy in enumerate(("trust_slot", "trust_greater_lsn"), 3):
        if gone == "missing":
            shop.drop_slot()
        else:
            shop.end_readers()
            shop.sql(f"SELECT 1 FROM pg_replication_slot_advance('{shop.name}', pg_current_wal_flush_lsn())")
        trusting = Capture(shop, offset, offset_mismatch_strategy=strategy)
        assert rows_of(trusting.poll() or Slice((), {})) == []
        shop.sql(f"INSERT INTO t VALUES ({number}, 'next')")
        assert keys(trusting.records()) == [number]
        trusting.stop()


def test_the_greater_of_offset_and_slot_is_trusted(shop: Captured) -> None:
    shop.sql(KEYED)
    capture = Capture(shop)
    capture.slices()
    before = capture.stored
    shop.sql("INSERT INTO t VALUES (1, 'sent')")
    capture.records()
    capture.stop()
    shop.end_readers()
    shop.sql("INSERT INTO t VALUES (2, 'new')")
    again = Capture(shop, capture.stored, offset_mismatch_strategy="trust_greater_lsn")
    assert keys(again.records()) == [2]
    again.stop()
    shop.end_readers()
    shop.sql(f"SELECT 1 FROM pg_replication_slot_advance('{shop.name}', pg_current_wal_flush_lsn())")
    shop.sql("INSERT INTO t VALUES (3, 'newer')")
    last = Capture(shop, before, offset_mismatch_strategy="trust_greater_lsn")
    assert keys(last.records()) == [3]
    last.stop()


def test_rows_alone_are_read_without_slot_and_publication(shop: Captured) -> None:
    shop.sql(
        "CREATE TABLE t (id int PRIMARY KEY, name text, secret numeric(50,2))", "CREATE TABLE u (id int, name text)"
    )
    shop.sql("INSERT INTO t SELECT n, 'a', 1 FROM generate_series(1, 5) n", "INSERT INTO u VALUES (1, 'a'), (2, 'b')")
    columns = r"public\.t\.name,public\.u\..*"
    capture = Capture(
        shop,
        snapshot_mode="initial_only",
        snapshot_fetch_size=2,
        column_include_list=columns,
        message_key_columns="public.u:name",
    )
    found = [record for piece in (capture.poll(), capture.poll()) if piece for record in rows_of(piece)]
    capture.restart()
    shop.sql("INSERT INTO u VALUES (3, 'c')")
    while (piece := capture.poll()) is not None:
        found += rows_of(piece)
    assert "initial_only" in capture.waits
    capture.restart()
    shop.sql("INSERT INTO t VALUES (6, 'late')")
    assert capture.poll() is None
    capture.stop()
    assert ops(found) == ["r"] * 8
    assert [record["key"] for record in found] == [{"id": n} for n in range(1, 6)] + [{"name": n} for n in "abc"]
    assert [record["value"]["after"] for record in found[4:6]] == [{"name": "a"}, {"id": 1, "name": "a"}]
    assert shop.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{shop.name}'") == []
    assert shop.sql("SELECT 1 FROM pg_publication") == []


def test_all_rows_are_read_at_each_start_and_changes_between_are_not_repeated(shop: Captured) -> None:
    shop.sql(KEYED)
    shop.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    capture = Capture(shop, snapshot_mode="always", snapshot_fetch_size=2)
    found = capture.records()
    shop.sql("UPDATE t SET name = 'z' WHERE id = 1")
    found += capture.records()
    assert ops(found) == ["r", "r", "r", "u"]
    capture.stop()
    shop.sql("INSERT INTO t VALUES (4, 'd')")
    capture.start()
    capture.commits = False
    capture.poll()
    shop.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{shop.name}' AND "
             "application_name = 'connectx cdc-0'")  # fmt: skip
    capture.stop()
    capture.commits = True
    capture.start()
    found = capture.records()
    shop.sql("DELETE FROM t WHERE id = 4")
    found += capture.records()
    capture.stop()
    assert (ops(found), keys(found)) == (["r"] * 4 + ["d", None], [1, 2, 3, 4, 4, 4])


def test_an_offset_of_another_server_is_refused(shop: Captured) -> None:
    shop.sql(KEYED)
    capture = Capture(shop)
    capture.slices()
    capture.stop()
    with pytest.raises(ReplicationSlotMismatchError, match="belongs to a server whose WAL ends"):
        Capture(shop, {"lsn": 1 << 60, "lsn_proc": 1 << 60, "lsn_commit": 1 << 60}).poll()


def test_what_postgresql_refuses_is_named(shop: Captured, postgres: str) -> None:
    with pytest.raises(DatabaseError, match=r"no publication p.*autocreate\.mode"):
        Capture(shop, publication_name="p", publication_autocreate_mode="disabled").poll()
    with pytest.raises(DatabaseError, match=r"no table that table\.include\.list"):
        Capture(shop, publication_autocreate_mode="filtered", table_include_list="public.none").poll()
    with pytest.raises((DatabasePermissionError, DatabaseError), match=r"database\.user"):
        Capture(shop, database_user="nobody", database_password="geheim").poll()
    plain = Captured(postgres)
    with pytest.raises(DatabaseError, match="wal_level is replica"):
        Capture(plain).poll()
    plain.close()


def test_a_filtered_publication_has_the_chosen_tables_and_is_changed_with_them(shop: Captured) -> None:
    shop.sql(KEYED)
    shop.sql("CREATE TABLE u (id int PRIMARY KEY)")
    filtered = {"publication_autocreate_mode": "filtered", "snapshot_mode": "no_data"}
    for wanted in (r"public\.t", r"public\.[tu]"):
        capture = Capture(shop, None, table_include_list=wanted, **filtered)
        capture.poll()
        capture.stop()
    assert shop.sql("SELECT tablename::text FROM pg_publication_tables ORDER BY 1") == [("t",), ("u",)]


@pytest.mark.parametrize("autocreate", ["all_tables", "filtered"])
def test_partitions_have_one_topic_when_their_root_is_published(shop: Captured, autocreate: str) -> None:
    for name, key in (("t", ", PRIMARY KEY (id, day)"), ("u", "")):
        shop.sql(f"CREATE TABLE {name} (id int, day date{key}) PARTITION BY RANGE (day)")
        for year in (2025, 2026):
            bounds = f"FROM ('{year}-01-01') TO ('{year + 1}-01-01')"
            shop.sql(f"CREATE TABLE {name}_{year} PARTITION OF {name} FOR VALUES {bounds}")
    shop.sql("INSERT INTO t VALUES (1, '2025-05-01'), (2, '2026-05-01'), (3, '2025-06-01')")
    shop.sql("INSERT INTO u SELECT id, day FROM t")
    capture = Capture(
        shop, publish_via_partition_root="true", publication_autocreate_mode=autocreate, snapshot_fetch_size=2
    )
    found = capture.records()
    shop.sql("UPDATE t SET day = '2026-07-01' WHERE id = 1", "INSERT INTO u VALUES (4, '2026-08-01')")
    found += capture.records()
    capture.stop()
    assert {record["topic"] for record in found} == {f"{shop.name}.public.t", f"{shop.name}.public.u"}
    of_t, of_u = ([record for record in found if record["topic"].endswith(name)] for name in (".t", ".u"))
    assert ops(of_t) == ["r"] * 3 + ["d", None, "c"]
    assert sorted(record["value"]["after"]["id"] for record in of_u) == [1, 2, 3, 4]


def test_changes_continue_after_all_connections_were_ended(shop: Captured) -> None:
    shop.sql(KEYED)
    capture, found = Capture(shop), []
    capture.slices()
    shop.sql("INSERT INTO t SELECT n FROM generate_series(1, 10) n")
    shop.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{shop.name}' AND "
             "application_name = 'connectx cdc-0'")  # fmt: skip

    def poll_until_it_fails() -> None:
        while True:
            piece = capture.poll()
            found.extend([] if piece is None else rows_of(piece))

    with pytest.raises(RetriableError):
        poll_until_it_fails()
    assert keys([*found, *retried(capture.records)]) == list(range(1, 11))
    capture.stop()


def retried(call: Callable[[], T]) -> T:
    """What a call returns that is repeated while the slot is not free."""

    def attempt() -> list[T]:
        try:
            return [call()]
        except RetriableError:
            return []

    (found,) = until(attempt, "the slot to be free")
    return found


@pytest.mark.parametrize("shop", ["sql"], indirect=True)
def test_a_snapshot_that_could_not_begin_begins_again(shop: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.sql(KEYED, "INSERT INTO t VALUES (1, 'a')")
    read, lost = Catalog.partitioned, [DatabaseUnavailableError("the connection is lost")]

    def partitioned(catalog: Catalog) -> set[str]:
        if lost:
            raise lost.pop()
        return read(catalog)

    monkeypatch.setattr(Catalog, "partitioned", partitioned)
    capture = Capture(shop)
    with pytest.raises(RetriableError, match="the connection is lost"):
        capture.poll()
    assert keys(capture.records()) == [1]
    capture.stop()


def test_a_stream_that_the_task_does_not_take_from_is_not_read_further(logical_postgres: str) -> None:
    shop = Captured(logical_postgres)
    shop.sql(KEYED, "CREATE PUBLICATION p FOR ALL TABLES")
    shop.sql(f"SELECT 1 FROM pg_create_logical_replication_slot('{shop.name}', 'pgoutput')")
    shop.sql(
        "DO $$ BEGIN FOR at IN 0..59 LOOP INSERT INTO t SELECT at * 1000 + n, repeat('x', 1000) "
        "FROM generate_series(1, 1000) n; COMMIT; END LOOP; END $$"
    )
    with closing(ReplicationStream(shop.uri, {}, "", slot=shop.name, publication="p", most=10, interval_s=0.01)) as it:
        it.start(0, 0)
        until(lambda: it._ready, "transactions to take")
        statuses: dict[str, int] = {}

        def is_still() -> bool:
            statuses.update(shop.sql("SELECT reply_time::text, (sent_lsn - '0/0')::bigint FROM pg_stat_replication"))
            return len(statuses) > 150 and len(set(list(statuses.values())[-150:])) == 1

        until(is_still, "the server to send nothing more for 150 statuses")
        unsent = shop.flushed_lsn() - list(statuses.values())[-1]
        assert unsent > 20_000_000
    shop.close()


def test_a_slot_that_another_reader_has_is_waited_for(shop: Captured) -> None:
    shop.sql(KEYED)
    capture = Capture(shop)
    capture.slices()
    capture.stop()
    shop.end_readers()
    reader = psycopg.connect(shop.uri, autocommit=True, replication="database")
    options = "proto_version '1', publication_names 'dbz_publication'"
    reader.pgconn.exec_(f"START_REPLICATION SLOT {shop.name} LOGICAL 0/0 ({options})".encode())
    shop.sql("INSERT INTO t VALUES (1, 'a')")
    capture.start()
    with pytest.raises(RetriableError, match=r"is active for PID.*End the other reader of slot\.name"):
        capture.records()
    reader.close()
    assert keys(retried(capture.records)) == [1]
    capture.stop()


@in_every_mode
def test_the_slot_is_taken_from_an_older_instance_of_the_task(shop: Captured) -> None:
    shop.sql(KEYED)
    zombie = Capture(shop)
    zombie.slices()
    shop.sql("INSERT INTO t VALUES (1, 'a')")
    successor = Capture(shop, zombie.stored)
    assert keys(successor.records()) == [1]
    shop.sql("INSERT INTO t VALUES (2, 'b')")
    if shop.mode != "sql":  # by SQL no reader keeps the slot
        with pytest.raises(RetriableError):
            until(lambda: zombie.slices() and None, "the zombie to lose its connection")
    assert keys(successor.records()) == [2]
    zombie.stop()
    successor.stop()


def test_the_slot_never_moves_further_than_what_was_committed(shop: Captured) -> None:
    shop.sql(KEYED)
    capture = Capture(shop)
    capture.slices()
    capture.commits = False
    committed = capture.stored
    assert committed is not None
    shop.sql("INSERT INTO t VALUES (1, 'a')")
    assert keys(capture.records()) == [1]
    shop.sql("CREATE TABLE other (id int)")
    capture.slices()
    capture.stop()
    shop.end_readers()
    assert shop.slot_lsn() <= committed["lsn"]
    again = Capture(shop, committed)
    assert keys(again.records()) == [1]
    again.stop()


@pytest.mark.parametrize("shop", ["stream"], indirect=True)
def test_a_role_that_may_not_replicate_is_named(shop: Captured) -> None:
    shop.sql(KEYED, "CREATE PUBLICATION dbz_publication FOR ALL TABLES", "CREATE ROLE plain LOGIN")
    shop.sql(f"SELECT 1 FROM pg_create_logical_replication_slot('{shop.name}', 'pgoutput')")
    capture = Capture(shop, snapshot_mode="no_data", database_user="plain")
    with pytest.raises(
        DatabasePermissionError, match=r"replication connection.*REPLICATION, or set slot\.read\.mode=sql"
    ):
        capture.poll()
    shop.sql("DROP ROLE plain")


def test_without_a_walsender_changes_are_read_by_sql_or_the_setting_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with postgres_server("max_wal_senders = 0", logical=True) as uri:
        captured = Captured(uri, "auto")
        captured.sql(KEYED)
        capture = Capture(captured)
        capture.slices()
        captured.sql("INSERT INTO t VALUES (1, 'a')")
        assert keys(capture.records()) == [1]
        captured.sql("INSERT INTO t VALUES (2, 'b')")
        assert keys(capture.records()) == [2]
        capture.stop()
        (warning,) = [record.message for record in caplog.records if "is read by SQL" in record.message]
        assert "max_wal_senders" in warning
        captured.mode = "stream"
        with pytest.raises(RetriableError, match=r"no walsender left.*Raise max_wal_senders.*slot\.read\.mode=sql"):
            Capture(captured, capture.stored).poll()
        captured.close()


def test_lists_that_choose_no_table_are_named(shop: Captured, caplog: pytest.LogCaptureFixture) -> None:
    shop.sql(KEYED)
    capture = Capture(shop, table_include_list="public.tt")
    assert capture.records() == []
    assert "choose none of the 1 tables of the publication dbz_publication" in capture.waits
    assert "table.include.list" in capture.waits
    assert capture.waits in caplog.text
    shop.sql("CREATE TABLE tt (id int PRIMARY KEY)", "INSERT INTO tt VALUES (1)")
    assert keys(capture.records()) == [1]
    assert capture.waits == ""
    capture.stop()


def without_the_last_commit_of(worker: str, events: EventLog, folder: Path) -> EventLog:
    """The history as if the worker had ended after Kafka's commit, before it reported it."""
    path = events.to_jsonl(folder / "events.jsonl")
    last = events.find(EventKind.TRANSACTION_COMMITTED, worker=worker)[-1]
    kept = [event for line in path.read_text().splitlines() if (event := json.loads(line))["seq"] != last.seq]
    path.write_text("".join(json.dumps({**event, "seq": seq}) + "\n" for seq, event in enumerate(kept, start=1)))
    return EventLog.from_jsonl(path)


@pytest.mark.parametrize("shop", ["sql"], indirect=True)
def test_killed_workers_lose_and_double_no_change(
    spark_provider: SparkProvider, shop: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.sql(KEYED)
    shop.sql("INSERT INTO t SELECT n, 'old' FROM generate_series(1, 500) n")
    shop.sql("CREATE TABLE log (line int)", "INSERT INTO log VALUES (-1)")
    keyed = {key.replace("value.", "key."): value for key, value in JSON.items()}
    config = shop.config(snapshot_fetch_size=50, max_batch_size=20, max_queue_size=50) | JSON | keyed
    topic = f"{shop.name}.public.t"
    with cx.Cluster(workers=2, config=EOS) as cluster:
        connector = cluster.create("cdc", config)
        connector.wait("RUNNING", timeout=WAIT_S)
        cx.read_topic(topic, cluster.bootstrap_servers, at_least=60, timeout=WAIT_S)
        owner = owner_of(cluster, "cdc-0").name
        for n in range(50):
            base = 1000 + 10 * n
            shop.transaction(
                f"INSERT INTO t SELECT n, 'new' FROM generate_series({base}, {base + 5}) n",
                f"UPDATE t SET name = 'changed' WHERE id % 50 = {n}",
                f"DELETE FROM t WHERE id = {base}",
                f"UPDATE t SET id = id + 100000 WHERE id = {base + 1}",
                f"INSERT INTO log VALUES ({n})",
            )
            if n == 25:
                cluster.kill(owner)
        rows = table(shop)

        def settled() -> list[dict[str, Any]] | None:
            read = cx.read_topic(topic, cluster.bootstrap_servers, at_least=1, timeout=WAIT_S)
            pairs = zip(read["key"], read["value"], strict=True)
            records = [{"key": json.loads(k), "value": None if v is None else json.loads(v)} for k, v in pairs]
            return records if replayed(records) == rows else None

        records = until(settled, "the topic to give the rows of the table", 2 * WAIT_S)
        changes = [(record["value"]["source"]["lsn"], record["value"]["op"], json.dumps(record["key"]))
                   for record in records if record["value"] is not None and record["value"]["op"] != "r"]  # fmt: skip
        assert len(changes) == len(set(changes))
        place = f"topic {shop.name}.public.log and topic {topic}"
        assert cluster.check(timeout=WAIT_S).require_valid().checked[0].place == place
        monkeypatch.setattr(cluster, "events", without_the_last_commit_of(owner, cluster.events, tmp_path))
        verdict = cluster.check(timeout=WAIT_S).require_valid()
        count = len(rows) + len(shop.sql("SELECT line FROM log"))
        assert [checked.place for checked in verdict.checked] == [place, f"{place}, replayed"]
        assert (verdict.checked[1].found, verdict.checked[1].expected) == (count, count)
        last = cx.read_topic(topic, cluster.bootstrap_servers).iloc[-1]
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce(topic, last["value"], last["key"], partition=int(last["partition"]))
        assert producer.flush(WAIT_S) == 0
        verdict = cluster.check(timeout=WAIT_S)
        assert (verdict.answer, verdict.lost, verdict.duplicated) == ("invalid", 0, 1)
        (stored,) = connector.offsets.get()
        assert stored["partition"] == {"server": shop.name}
        assert stored["offset"]["lsn"] == stored["offset"]["lsn_commit"]


def lake_rows(path: Path) -> list[tuple[int, str, Decimal]]:
    """The rows of a Delta table."""
    if not DeltaTable.is_deltatable(str(path)):
        return []
    columns = DeltaTable(path).to_pyarrow_table(columns=["id", "name", "price"]).to_pydict().values()
    return sorted(zip(*columns, strict=True))


@pytest.mark.parametrize("shop", ["auto"], indirect=True)
def test_delta_tables_equal_those_in_postgresql_after_the_workers_of_source_and_sink_were_killed(
    spark_provider: SparkProvider, shop: Captured, tmp_path: Path
) -> None:
    tables = ("orders", "stock")
    for name in tables:
        shop.sql(f"CREATE TABLE {name} (id int PRIMARY KEY, name text, price numeric(9,2))")
        shop.sql(f"INSERT INTO {name} SELECT n, 'old', n / 3.0 FROM generate_series(1, 200) n")
    topics = {f"{shop.name}.public.{name}": name for name in tables}
    typed = {f"{side}.converter": "org.apache.kafka.connect.json.JsonConverter" for side in ("key", "value")}
    lake = {
        **{"connector.class": "DeltaSink", "path": str(tmp_path), "flush.interval.ms": "200"},
        **{"topics": ",".join(topics), "topic.to.table.map": ",".join(map(":".join, topics.items()))},
        **{"value.envelope": "debezium", "insert.mode": "upsert", "delete.enabled": "true"},
        **{"pk.mode": "record_key", "pk.fields": "id"},
    }

    def change(number: int) -> None:
        """One transaction that inserts, updates, deletes and changes a key in both tables."""
        base = 1000 + 10 * number
        shop.transaction(
            *(
                statement
                for name in tables
                for statement in (
                    f"INSERT INTO {name} SELECT n, 'new', n / 7.0 FROM generate_series({base}, {base + 5}) n",
                    f"UPDATE {name} SET price = price + 1, name = 'in {number}' WHERE id % 40 = {number}",
                    f"DELETE FROM {name} WHERE id IN ({base}, {number + 1})",
                    f"UPDATE {name} SET id = id + 100000 WHERE id = {base + 1}",
                    f"UPDATE {name} SET name = 'moved' WHERE id = {base + 100001}",
                )
            )
        )

    def is_in_lake(number: int) -> bool:
        return all(any(row[0] == 1005 + 10 * number for row in lake_rows(tmp_path / name)) for name in tables)

    with cx.Cluster(workers=3, config=EOS) as cluster:
        cluster.create("cdc", shop.config(snapshot_fetch_size=50, max_batch_size=20, max_queue_size=50) | typed)
        cluster.create("lake", {**lake, **typed})
        for number in range(30):
            change(number)
            if number == 10:
                until(lambda: is_in_lake(5), "changes in the lake")
                owner_of(cluster, "cdc-0").kill()
            elif number == 20:
                until(lambda: is_in_lake(15), "changes by the next owner of the source")
                owner_of(cluster, "lake-0").kill()
        rows = {name: shop.sql(f"SELECT id, name, price::text FROM {name} ORDER BY id") for name in tables}
        wanted = {name: [(key, text, Decimal(price)) for key, text, price in found] for name, found in rows.items()}
        until(lambda: {name: lake_rows(tmp_path / name) for name in tables} == wanted, "equal tables", 2 * WAIT_S)
        verdict = cluster.check(timeout=WAIT_S).require_valid()
        found = {checked.place: checked.found for checked in verdict.checked if checked.connectors == ("lake",)}
        assert found == {f"table {name}": len(wanted[name]) for name in tables}
