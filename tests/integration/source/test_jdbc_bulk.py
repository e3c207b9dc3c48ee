"""The bulk lane of JdbcSource: executors read parts of tables of real servers, and records are those of the tail."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import connectx as cx
from connectx.core import lanes
from connectx.core.messages import TaskFailed
from connectx.errors.databases import TableMismatchError, TableMissingError
from connectx.model.events import EventKind
from connectx.plugins.slices import BulkSlice
from tests.support.clusters import owner_of
from tests.support.jdbc import Source, source_config
from tests.support.jdbc_shops import MariaShop, Shop
from tests.support.profiles import EOS, JSON
from tests.support.records import read_all
from tests.support.spark_executors import held_while_sending
from tests.support.spark_pages import shown_by_spark
from tests.support.task_harness import Place, Task
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectx.spark.sessions import SparkProvider

ROWS = 5_000
QUERY = "timestamp+incrementing query"
MODES = ["incrementing", QUERY]
MB = 1 << 20
SECRET = "not-to-be-shown"


def fill_postgres(shop: Shop) -> None:
    """A table with all common types; rows with nulls, limits of types, gaps between ids, and shared timestamps."""
    shop.sql("CREATE TYPE mood AS ENUM ('ok', 'bad')")
    shop.sql(
        "CREATE TABLE v (id bigserial PRIMARY KEY, at timestamptz NOT NULL, s smallint NOT NULL, k int, "
        "n numeric(10,2), w numeric(6), x numeric, f real, e double precision, b bytea, u uuid, j jsonb, m mood, "
        "l int[], d date, a timestamp, i interval, c varchar(20), o boolean, h time, t text)"
    )
    shop.sql(
        "INSERT INTO v SELECT 3 * g, timestamptz '1969-12-31 23:00+00' + g / 3 * interval '1.000001 second', g % 100, "
        "CASE WHEN g % 3 = 0 THEN NULL ELSE -g END, g / 7.0, g, 1e30 + g, "
        "CASE g % 5 WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' ELSE g / 3.0 END, g / 3.0, decode(md5(g::text), 'hex'), "
        "md5(g::text)::uuid, jsonb_build_object('n', g), CASE WHEN g % 2 = 0 THEN 'ok'::mood END, ARRAY[g, NULL], "
        "date '1960-01-01' + g, timestamp '1960-01-01' + g * interval '0.5 second', g * interval '1 minute', "
        "'ü' || g, g % 2 = 0, time '00:00' + g * interval '1 second', "
        f"CASE WHEN g % 11 = 0 THEN NULL ELSE repeat('x', g % 50) END FROM generate_series(1, {ROWS}) g"
    )


def fill_mariadb(maria: MariaShop) -> None:
    """The same for MariaDB."""
    maria.sql(
        "CREATE TABLE v (id bigint unsigned AUTO_INCREMENT PRIMARY KEY, at timestamp(6) NOT NULL, s smallint NOT NULL, "
        "t tinyint(1), n decimal(10,2), w decimal(6,0), f float, e double, b blob, m enum('ok', 'bad'), d date, "
        "a datetime(6), i time, c varchar(20) CHARACTER SET utf8mb4, y year, u int unsigned, j json, x longtext, "
        "KEY (at, id))"
    )
    maria.sql(
        "INSERT INTO v SELECT 3 * seq, timestamp '1999-12-31 23:00' + interval seq div 3 second, seq % 100, seq % 2, "
        "seq / 7, seq, seq / 3, seq / 3, unhex(md5(seq)), IF(seq % 2, 'ok', NULL), "
        "date '1960-01-01' + interval seq day, timestamp '1960-01-01 00:00' + interval seq second, "
        "sec_to_time(seq), concat('ü', seq), 2000 + seq % 50, "
        "4000000000 + seq, json_object('n', seq), IF(seq % 11, repeat('x', seq % 50), NULL) "
        f"FROM seq_1_to_{ROWS}"
    )


@pytest.fixture(params=["postgresql", "mariadb"])
def filled(request: pytest.FixtureRequest) -> Shop:
    """A database with the table `v` of ROWS rows."""
    if request.param == "mariadb":
        maria: MariaShop = request.getfixturevalue("maria")
        fill_mariadb(maria)
        return maria
    shop: Shop = request.getfixturevalue("shop")
    fill_postgres(shop)
    return shop


def tracked(shop: Shop, mode: str) -> dict[str, str]:
    """Settings that track the rows of `v`, by a query if the mode says so."""
    mode, _, query = mode.partition(" ")
    found = {"mode": mode}
    if "timestamp" in mode:
        found["timestamp_column_name"] = "at"
    if query:
        found |= {"query": f"SELECT * FROM {shop.schema}.v WHERE id > 0", "incrementing_column_name": "id"}
    return found


def config_of(shop: Shop, mode: str, **more: Any) -> dict[str, str]:
    """Configuration of a connector and of its task for the table `v`."""
    given = source_config(shop.uri, schema_pattern=shop.schema, **{**tracked(shop, mode), **more})
    if isinstance(shop, MariaShop):
        del given["schema.pattern"]
    tables = json.dumps([[shop.schema, "v", ""]])
    return {"connector.class": "JdbcSource", **JSON, **given, "tables": tables}


def started(place: Place, shop: Shop, name: str, mode: str = "incrementing", **more: Any) -> Task:
    """A task that reads `v` into the topic `<group>-<name>-v`."""
    topic = f"{place.group}-{name}-v"
    place.create_topic(topic)
    config = config_of(shop, mode, topic_prefix=topic if " query" in mode else topic.removesuffix("v"), **more)
    return place.task({**config, "name": name}).begin()


def wait_for_rows(place: Place, task: Task, name: str, count: int = ROWS) -> list[tuple[Any, Any, Any]]:
    def found() -> list[Any]:
        failed = [stimulus.trace for stimulus in task.stimuli if isinstance(stimulus, TaskFailed)]
        assert not failed, failed[0]
        messages = read_all(place.bootstrap_servers, f"{place.group}-{name}-v")
        return messages if len(messages) >= count else []

    return [(message.key(), message.value(), message.headers()) for message in until(found, "all rows", WAIT_S)]


@pytest.mark.parametrize("mode", MODES)
def test_both_lanes_write_the_same_bytes_in_the_same_order_and_the_same_offset(
    place: Place, filled: Shop, mode: str, spark_provider: SparkProvider, caplog: pytest.LogCaptureFixture
) -> None:
    found, offsets, transitions = {}, {}, []
    for name in ("never", "always"):
        more: dict[str, Any] = {"bulk_mode": name, "value_converter_schemas_enable": "true", "max_connections": 4}
        if not isinstance(filled, MariaShop):
            more |= {"connection_password": SECRET, "db_timezone": "Europe/Berlin"}
        task = started(place, filled, name, mode, **more)
        found[name] = wait_for_rows(place, task, name)
        table = {"protocol": "1", "table": f"{filled.schema}.v"}
        partition = {"query": "query"} if mode == QUERY else table
        offsets[name] = until(partial(place.committed, partition, name), "the commit")
        task.stop()
        assert (task.count("bulk_jobs") > 0) == (name == "always")
        assert not task.recorded(EventKind.BULK_FAILED)
        transitions += task.transitions
    assert found["always"] == found["never"]
    assert len(found["never"]) == ROWS
    assert offsets["always"] == offsets["never"]
    assert offsets["never"]["incrementing"] == 3 * ROWS
    assert SECRET not in shown_by_spark(spark_provider) + caplog.text + str(transitions)


def read_parts(piece: BulkSlice) -> list[dict[str, Any]]:
    """Rows of a bulk slice, read here in place of executors."""
    tables = [rows for task in range(piece.tasks) for _, rows in piece.read(task)]
    return [value for rows in tables if rows is not None for value in rows["value"].to_pylist()]


def next_bulk(source: Source, spark: SparkSession, max_bytes: int = MB) -> BulkSlice:
    piece = source.task.poll_bulk(spark, None, max_bytes)
    assert piece is not None
    return piece


@pytest.mark.parametrize("mode", ["incrementing", "timestamp", QUERY])
def test_slices_are_bounded_and_the_next_one_begins_where_the_last_one_ends(
    filled: Shop, spark: SparkSession, mode: str
) -> None:
    expected = filled.source(**tracked(filled, mode)).values()
    source = filled.source(**tracked(filled, mode))
    found: list[list[dict[str, Any]]] = []
    while (waiting := source.task.waiting_bytes(None)) is not None and len(found) < 100:
        piece = source.task.poll_bulk(spark, None, 200_000)
        if piece is None:
            break
        assert waiting > 1
        found.append(read_parts(piece))
        source.task.bulk_ended()
        ((partition, offset),) = piece.offsets({})
        source.context.remember_offset(partition, offset)
        if len(found) == 2:
            source.restart()
    assert str([row for part in found for row in part]) == str(expected), "NaN differs from itself"
    assert len(found) > 2
    assert max(map(len, found)) < ROWS / 2
    assert source.task.waiting_bytes(None) in (0, 1), "what the statistics expect is not there"


def test_executors_see_the_moment_of_the_worker(shop: Shop, spark: SparkSession) -> None:
    fill_postgres(shop)
    source = shop.source("incrementing")
    piece = next_bulk(source, spark, 4 * MB)
    shop.sql("INSERT INTO v (id, at, s) VALUES (4, now(), 1)")
    shop.sql("DELETE FROM v WHERE id = 30")
    assert [row["id"] for row in read_parts(piece)] == list(range(3, 3 * ROWS + 1, 3))
    source.task.bulk_ended()
    idle = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'connectx j-0' AND state LIKE 'idle in%'"
    assert shop.sql(idle) == [(0,)]


@pytest.mark.parametrize("change", ["DELETE FROM v WHERE id = 30", "INSERT INTO v (id, at, s) VALUES (4, now(), 1)"])
def test_rows_that_come_or_go_meanwhile_in_mariadb_fail_the_job_and_the_tail_reads_them(
    maria: MariaShop, spark: SparkSession, change: str
) -> None:
    fill_mariadb(maria)
    source = maria.source("incrementing")
    piece = next_bulk(source, spark)
    maria.sql(change)
    with pytest.raises(TableMismatchError, match="rows of v "):
        read_parts(piece)
    assert len(source.values()) == ROWS + (1 if change.startswith("INSERT") else -1)


def test_a_table_that_is_dropped_before_executors_read_it_is_named(maria: MariaShop, spark: SparkSession) -> None:
    fill_mariadb(maria)
    piece = next_bulk(maria.source("incrementing"), spark)
    maria.sql("DROP TABLE v")
    with pytest.raises(TableMissingError, match="doesn't exist"):
        read_parts(piece)


def test_a_table_whose_rows_have_no_order_is_an_obstacle(shop: Shop, maria: MariaShop) -> None:
    shop.sql("CREATE TABLE v (id int PRIMARY KEY, at timestamptz NOT NULL)")
    shop.sql("CREATE TABLE child () INHERITS (v)")
    maria.sql("CREATE TABLE v (id int, at timestamp NOT NULL, KEY (at))")
    reason = "has no primary key that orders rows with the same timestamp"
    for filled in (shop, maria):
        by_time = tracked(filled, "timestamp")
        query = {"query": f"SELECT at FROM {filled.schema}.v"}
        for where, more in ((f"{filled.schema}.v", {"table_whitelist": "v"}), ("the query", query)):
            task = filled.source(**by_time, **more).task
            assert task.waiting_bytes(None) is None
            assert task.bulk_obstacle == f"{where} {reason}"


def test_slices_of_a_query_in_mariadb_depend_on_the_size_of_its_rows(maria: MariaShop, spark: SparkSession) -> None:
    maria.sql("CREATE TABLE v (id int PRIMARY KEY, x longtext)")
    maria.sql("INSERT INTO v SELECT seq, repeat('x', 10000) FROM seq_1_to_300")
    query = "SELECT 1000 * n.seq + v.id AS id, v.x FROM v JOIN seq_1_to_2 AS n"
    source = maria.source("incrementing", query=query, incrementing_column_name="id")
    assert (source.task.waiting_bytes(None) or 0) > 300 * 10_000, "both tables count"
    assert 50 < len(read_parts(next_bulk(source, spark))) < 110


def test_a_server_without_snapshots_to_share_is_an_obstacle_and_the_tail_reads_the_rows(
    place: Place, shop: Shop
) -> None:
    fill_postgres(shop)
    shop.sql("CREATE ROLE reader LOGIN")
    shop.sql(f"GRANT USAGE ON SCHEMA {shop.schema} TO reader")
    shop.sql(f"GRANT SELECT ON {shop.schema}.v TO reader")
    shop.sql("REVOKE EXECUTE ON FUNCTION pg_export_snapshot() FROM PUBLIC")
    try:
        url = shop.uri.replace("//postgres", "//reader")
        task = started(place, shop, "poor", connection_url=url, bulk_mode="always")
        assert len(wait_for_rows(place, task, "poor")) == ROWS
        task.stop()
    finally:
        shop.sql("GRANT EXECUTE ON FUNCTION pg_export_snapshot() TO PUBLIC")
        shop.sql("DROP OWNED BY reader")
        shop.sql("DROP ROLE reader")
    *_, last = task.recorded(EventKind.LANE_CHANGED)
    assert last.data["lane"] == "tail"
    assert "permission denied for function pg_export_snapshot" in str(last.data["reason"])
    assert not task.recorded(EventKind.BULK_FAILED)
    assert task.count("bulk_jobs") == 0


def test_where_executors_may_not_log_in_the_tail_reads_the_rows(
    place: Place, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "MIN_CORES", 1)
    fill_postgres(shop)
    shop.sql("CREATE ROLE single LOGIN CONNECTION LIMIT 1")
    shop.sql(f"GRANT USAGE ON SCHEMA {shop.schema} TO single")
    shop.sql(f"GRANT SELECT ON {shop.schema}.v TO single")
    try:
        url = shop.uri.replace("//postgres", "//single")
        task = started(place, shop, "single", connection_url=url, bulk_min_bytes=1)
        until(lambda: task.recorded(EventKind.LANE_CHANGED), "the bulk lane")
        # The tail may have read all rows before Spark was ready.
        shop.sql("INSERT INTO v (id, at, s) SELECT 30000 + n, now(), 1 FROM generate_series(1, 100) n")
        assert len(wait_for_rows(place, task, "single", ROWS + 100)) == ROWS + 100
        task.stop()
    finally:
        shop.sql("DROP OWNED BY single")
        shop.sql("DROP ROLE single")
    changes = task.recorded(EventKind.LANE_CHANGED)
    assert [change.data["lane"] for change in changes] == ["bulk", "tail"], changes
    (failed,) = task.recorded(EventKind.BULK_FAILED)
    assert "too many connections for role" in failed.data["error"]


def test_max_connections_limits_how_many_parts_are_read_at_a_time(shop: Shop, spark: SparkSession) -> None:
    fill_postgres(shop)
    for most, parts in ((2, 1), (0, 2)):
        source = shop.source("incrementing", max_connections=most)
        piece = next_bulk(source, spark, 4 * MB)
        assert piece.tasks == parts
        assert len(read_parts(piece)) == ROWS
        source.task.stop()


@pytest.fixture
def cluster(make_cluster: Callable[..., cx.Cluster]) -> Iterator[cx.Cluster]:
    with make_cluster(workers=3, config=EOS) as made:
        yield made


def test_workers_that_are_killed_while_their_jobs_send_lose_and_double_no_row(
    cluster: cx.Cluster, shop: Shop, maria: MariaShop
) -> None:
    fill_postgres(shop)
    fill_mariadb(maria)
    modes = {shop: "timestamp", maria: QUERY}
    with ExitStack() as held:
        for filled in (shop, maria):
            prefix = f"{filled.schema}-"
            mode = modes[filled]
            given = (
                {"topic_prefix": f"{prefix}v"} if mode == QUERY else {"topic_prefix": prefix, "table_whitelist": "v"}
            )
            config = config_of(filled, mode, bulk_mode="always", **given)
            del config["tables"]
            # Batches of a few records, so that a job sends for seconds.
            slowly = {"producer.override.batch.size": "2000", "tasks.max": "1"}
            cluster.create(filled.schema, {**config, **slowly}).wait("RUNNING", timeout=WAIT_S)
            held.enter_context(held_while_sending(cluster.bootstrap_servers, f"{prefix}v"))
        for owner in {owner_of(cluster, f"{filled.schema}-0").name for filled in (shop, maria)}:
            cluster.kill(owner)
    for filled in (shop, maria):
        read = cx.read_topic(f"{filled.schema}-v", cluster.bootstrap_servers, at_least=ROWS, timeout=2 * WAIT_S)
        assert [value["c"] for value in map(json.loads, read["value"])] == [f"ü{n}" for n in range(1, ROWS + 1)]
    verdict = cluster.check(timeout=WAIT_S)
    assert verdict.answer == "valid", verdict
    assert [checked.found for checked in verdict.checked] == [ROWS, ROWS]
