"""JdbcSource on PostgreSQL's server, and in a cluster whose workers are killed."""

from __future__ import annotations

import datetime
import json
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import connectx as cx
from connectx.errors.databases import DatabaseError, DatabasePermissionError, TableMismatchError, TableMissingError
from connectx.plugins.errors import RetriableError
from tests.support.clusters import owner_of
from tests.support.jdbc import Source, duckdb_file, source_config, sqlite, values_of
from tests.support.jdbc_shops import MariaShop, Shop
from tests.support.profiles import EOS, JSON
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    import pyarrow as pa

    from connectx.spark.sessions import SparkProvider


def ids(values: list[dict[str, Any]]) -> list[int]:
    return [value["id"] for value in values]


@pytest.mark.parametrize("mode", ["incrementing", "timestamp", "timestamp+incrementing", "bulk"])
def test_postgresql_is_read_once_over_restarts(shop: Shop, mode: str) -> None:
    shop.sql("CREATE TABLE t (id serial PRIMARY KEY, name text, at timestamptz NOT NULL)")
    fill = "INSERT INTO t (name, at) SELECT 'n' || n, timestamptz '2026-01-01' + n / 3 * interval '1 second' "
    shop.sql(fill + "FROM generate_series(1, 60) n")
    source = shop.source(mode, batch_max_rows=7, timestamp_column_name="at" if "timestamp" in mode else "")
    found: list[int] = []
    while batch := ids(source.values(most=2)):
        found += batch
        if mode != "bulk":
            source.restart()
    assert found == list(range(1, 61))
    partition = f'{{"protocol": "1", "table": "{shop.schema}.t"}}'
    assert source.context.stored.keys() == {partition}
    if mode != "bulk":
        shop.sql(fill + "FROM generate_series(90, 92) n")
        assert until(lambda: ids(source.values()), "the next poll") == [61, 62, 63]


def test_postgresqls_infinite_timestamps_have_numbers_and_others_beyond_64_bits_are_refused(shop: Shop) -> None:
    shop.sql("CREATE TABLE t (id serial PRIMARY KEY, d date, a timestamp, z timestamptz)")
    shop.sql(
        "INSERT INTO t (d, a, z) SELECT v::date, v::timestamp, v::timestamptz FROM unnest(ARRAY['4713-01-02 BC', "
        "'infinity', '-infinity', '294247-01-10 04:00:54.775807']) v"
    )
    (piece,) = shop.source("incrementing").slices()
    rows: Any = piece.rows
    found = rows["value"].combine_chunks()
    kinds = {"d": "int32", "a": "int64", "z": "int64"}
    numbers = {name: pc.struct_field(found, name).cast(kind).to_pylist() for name, kind in kinds.items()}
    assert numbers["d"] == [-2440549, -2147472692, -2147472691, 106751991]
    micros = [-2440549 * 86_400_000_000, 9223372036825200000, -9223372036832400000, (1 << 63) - 1]
    assert (numbers["a"], numbers["z"]) == (micros, micros)
    shop.sql("INSERT INTO t (a) VALUES ('294276-12-31')")
    with pytest.raises(TableMismatchError, match="Column a"):
        shop.source("incrementing").values()


def test_postgresqls_timestamps_of_any_precision_are_timestamps(shop: Shop) -> None:
    shop.sql("CREATE TABLE t (id serial PRIMARY KEY, a timestamp(3), z timestamptz(0), v varchar(5), c char(2))")
    shop.sql("INSERT INTO t (a, z, v, c) VALUES ('2024-05-06 07:08:09.123', '2024-05-06 07:08:09+02', 'x', 'y')")
    (piece,) = shop.source("incrementing").slices()
    rows: Any = piece.rows
    kind = rows["value"].type
    assert [kind.field(name).type for name in "azvc"] == [
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.string(),
        pa.string(),
    ]
    (value,) = rows["value"].to_pylist()
    assert (str(value["a"]), str(value["z"])) == ("2024-05-06 07:08:09.123000", "2024-05-06 05:08:09+00:00")


def test_settings_of_the_database_change_no_record(shop: Shop) -> None:
    shop.sql("CREATE TABLE t (id serial, d date[], i interval, f float4[], b bytea[], r tstzrange, m text)")
    shop.sql(
        "INSERT INTO t (d, i, f, b, r, m) VALUES ('{2024-01-02}', '1 mon 2 days 03:04:05', '{0.33333334}', "
        """ARRAY['\\x00ff'::bytea], '[2024-01-01 00:00+02,)', 'é\\')"""
    )
    expected = {
        "id": 1,
        "d": "{2024-01-02}",
        "i": "1 mon 2 days 03:04:05",
        "f": "{0.33333334}",
        "b": '{"\\\\x00ff"}',
        "r": '["2023-12-31 22:00:00+00",)',
        "m": "é\\",
    }
    others = (
        *("client_encoding=latin1", "datestyle=SQL,DMY", "intervalstyle=iso_8601", "extra_float_digits=-3"),
        *("bytea_output=escape", "timezone=Asia/Tokyo", "standard_conforming_strings=off"),
    )
    shop.uri += "&options=" + quote(" ".join(f"-c {other}" for other in others))
    assert shop.source("incrementing").values() == [expected]


def test_postgresqls_types_become_connects(shop: Shop) -> None:
    shop.sql("CREATE TYPE mood AS ENUM ('ok', 'bad')")
    shop.sql(
        "CREATE TABLE v (id bigint GENERATED ALWAYS AS IDENTITY, s smallint NOT NULL, n numeric(10,2), w numeric(6), "
        "x numeric, f real, b bytea, u uuid, j jsonb, m mood, l int[], d date, a timestamp, z timestamptz, i interval, "
        "c varchar(5), o boolean)"
    )
    shop.sql(
        "INSERT INTO v VALUES (DEFAULT, 1, 2.5, 7, 1e40, 0.5, 'x', '6ba7b810-9dad-11d1-80b4-00c04fd430c8', "
        "'{\"a\": 1}', 'ok', "
        "'{1,2}', '2026-01-01', '2026-01-01', '2026-01-01 01:00+01', '1 day', 'abc', true)"
    )
    moment = datetime.datetime(2026, 1, 1)
    expected = {
        "id": 1,
        "s": 1,
        "n": Decimal("2.50"),
        "w": Decimal(7),
        "x": f"1{'0' * 40}",
        "f": 0.5,
        "b": b"x",
        "i": "1 day",
        "u": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "j": '{"a": 1}',
        "m": "ok",
        "l": "{1,2}",
        "c": "abc",
        "o": True,
        "d": moment.date(),
        "a": moment,
        "z": moment.replace(tzinfo=datetime.UTC),
    }
    (piece,) = shop.source("incrementing").slices()
    assert values_of(piece) == [expected]
    rows: Any = piece.rows
    assert not rows.schema.field("value").type.field("s").nullable
    (mapped,) = shop.source("incrementing", numeric_mapping="best_fit", db_timezone="Europe/Berlin").values()
    berlin = datetime.datetime(2025, 12, 31, 23, tzinfo=datetime.UTC)
    assert (mapped["n"], mapped["w"], mapped["a"]) == (2.5, 7, berlin)
    (asked,) = shop.source("bulk", query=f"SELECT id, n, u, a, j, l FROM {shop.schema}.v; -- all").values()
    assert asked == {"id": 1, "n": "2.50", "u": expected["u"], "a": moment, "j": '{"a": 1}', "l": "{1,2}"}


@pytest.mark.parametrize("mode", ["incrementing", "timestamp", "timestamp+incrementing", "bulk"])
@pytest.mark.parametrize("kind", ["timestamp(6)", "datetime(6)"])
def test_mariadb_is_read_once_over_restarts(maria: MariaShop, mode: str, kind: str) -> None:
    maria.sql(f"CREATE TABLE t (id bigint AUTO_INCREMENT PRIMARY KEY, name text, moment {kind} NOT NULL)")
    fill = "INSERT INTO t SELECT seq, concat('n', seq), '2026-01-01' + interval seq / 3 second "
    maria.sql(fill + "FROM seq_1_to_60")
    stamp = "moment" if "timestamp" in mode else ""
    source = maria.source(mode, batch_max_rows=7, timestamp_column_name=stamp, db_timezone="Europe/Berlin")
    found: list[int] = []
    while batch := ids(source.values(most=2)):
        found += batch
        if mode != "bulk":
            source.restart()
    assert found == list(range(1, 61))
    assert source.context.stored.keys() == {f'{{"protocol": "1", "table": "{maria.schema}.t"}}'}
    if mode != "bulk":
        maria.sql(fill + "FROM seq_90_to_92")
        assert until(lambda: ids(source.values()), "the next poll") == [90, 91, 92]


def test_mariadbs_types_become_connects(maria: MariaShop) -> None:
    maria.sql(
        "CREATE TABLE v (id bigint unsigned AUTO_INCREMENT PRIMARY KEY, s smallint NOT NULL, t tinyint(1), "
        "n decimal(10,2), w decimal(6,0), f float, e double, b blob, m enum('ok', 'bad'), d date, a datetime(6), "
        "z timestamp(6) NULL, i time, c varchar(5) CHARACTER SET utf8mb4, y year, u int unsigned, j json)"
    )
    maria.sql(
        "INSERT INTO v VALUES (DEFAULT, 1, 1, 2.5, 7, 0.5, 1e-7, x'0078', 'ok', '2026-01-01', '2026-01-01', "
        "'2026-01-01', '12:00:01', 'aä€', 2026, 4000000000, '{\"a\": 1}')"
    )
    maria.sql("INSERT INTO v (s) VALUES (2)")
    moment = datetime.datetime(2026, 1, 1)
    expected = {
        "id": Decimal(1),
        "s": 1,
        "t": 1,
        "n": Decimal("2.50"),
        "w": Decimal(7),
        "f": 0.5,
        "e": 1e-7,
        "b": b"\0x",
        "m": "ok",
        "d": moment.date(),
        "a": moment,
        "z": moment.replace(tzinfo=datetime.UTC),
        "i": "12:00:01",
        "c": "aä€",
        "y": 2026,
        "u": 4_000_000_000,
        "j": '{"a": 1}',
    }
    first, second = maria.source("incrementing").values()
    assert first == expected
    assert second == dict.fromkeys(expected) | {"id": Decimal(2), "s": 2}
    mapped, _ = maria.source("incrementing", numeric_mapping="best_fit", db_timezone="Europe/Berlin").values()
    berlin = datetime.datetime(2025, 12, 31, 23, tzinfo=datetime.UTC)
    assert (mapped["n"], mapped["w"], mapped["a"], mapped["z"]) == (2.5, 7, berlin, expected["z"])
    (piece,) = maria.source("bulk", query="SELECT s, n, m, a, b FROM v WHERE s = 1").slices()
    (empty,) = maria.source("bulk", query="SELECT s, n, m, a, b FROM v WHERE s = 2").slices()
    rows, nulls = (cast("pa.Table", found.rows) for found in (piece, empty))
    assert nulls.schema == rows.schema, "a batch of nulls has the types of its columns"
    assert values_of(piece) == [{"s": 1, "n": Decimal("2.50"), "m": "ok", "a": moment, "b": b"\0x"}]


def test_mariadbs_values_keep_all_digits_and_signs_in_tables_and_queries(maria: MariaShop) -> None:
    maria.sql(
        "CREATE TABLE t (id int PRIMARY KEY AUTO_INCREMENT, u8 tinyint unsigned, u24 mediumint unsigned, "
        "u32 int unsigned, u64 bigint unsigned, z int(5) zerofill, f float, n decimal(38,2) unsigned, g point) "
        "WITH SYSTEM VERSIONING"
    )
    maria.sql(
        "INSERT INTO t VALUES (1, 255, 16777215, 4294967295, 18446744073709551615, 7, 16777215, 3.5, POINT(1, 2))"
    )
    maria.sql("INSERT INTO t (id, f) VALUES (2, 0.12345679)")
    first, second = maria.source("incrementing").values()
    point = first.pop("g")
    assert first == {
        "id": 1,
        "u8": 255,
        "u24": 16777215,
        "u32": 4294967295,
        "u64": Decimal(18446744073709551615),
        "z": 7,
        "f": 16777215.0,
        "n": Decimal("3.50"),
    }
    assert second["f"] == struct.unpack("f", struct.pack("f", 0.12345679))[0]
    assert maria.source("bulk", query="SELECT * FROM t WHERE id = 1; -- all").values() == [first | {"g": point}]
    assert len(point) == 25


def test_variables_of_the_server_change_no_record(maria: MariaShop) -> None:
    maria.sql("CREATE TABLE t (id int PRIMARY KEY AUTO_INCREMENT, at timestamp NULL) WITH SYSTEM VERSIONING")
    maria.sql("INSERT INTO t VALUES (1, '2026-01-01'), (2, NULL)")
    others = {"sql_select_limit": "1", "system_versioning_asof": "'2020-01-01'", "time_zone": "'+09:00'"}
    for name, value in others.items():
        maria.sql(f"SET GLOBAL {name} = {value}")
    try:
        found = maria.source("bulk").values()
    finally:
        for name in others:
            maria.sql(f"SET GLOBAL {name} = DEFAULT")
    assert found == [{"id": 1, "at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}, {"id": 2, "at": None}]


def test_zero_dates_are_refused_or_null_as_the_url_asks(maria: MariaShop) -> None:
    maria.sql("SET sql_mode = ''")
    maria.sql("CREATE TABLE t (id int PRIMARY KEY AUTO_INCREMENT, d date NOT NULL, a datetime(3) NOT NULL)")
    maria.sql("INSERT INTO t (d, a) VALUES (0, 0), ('2026-01-01', '2026-01-01')")
    with pytest.raises(TableMismatchError, match="Column d"):
        maria.source("incrementing").values()
    maria.uri += "&zeroDateTimeBehavior=CONVERT_TO_NULL"
    moment = datetime.datetime(2026, 1, 1)
    rows = [{"id": 1, "d": None, "a": None}, {"id": 2, "d": moment.date(), "a": moment}]
    (piece,) = maria.source("incrementing").slices()
    assert values_of(piece) == rows
    assert all(field.nullable for field in list(cast("pa.Table", piece.rows).schema.field("value").type)[1:])
    assert maria.source("timestamp", timestamp_column_name="a").values() == rows
    maria.sql("DELETE FROM t WHERE id = 2")
    with pytest.raises(TableMismatchError, match="timestamp column"):
        maria.source("timestamp", timestamp_column_name="a").values()


def test_a_load_of_mariadb_begins_again_when_its_last_slice_was_not_sent(maria: MariaShop) -> None:
    maria.sql("CREATE TABLE t (id bigint PRIMARY KEY, name longtext)")
    maria.sql("INSERT INTO t SELECT seq, repeat('x', 20000) FROM seq_1_to_500")
    source = maria.source("bulk", batch_max_rows=100)
    assert ids(source.values(most=2)) == list(range(1, 201))
    source.context.stored.clear()
    assert ids(source.values()) == list(range(1, 501))


def test_what_mariadb_refuses_is_an_error_with_a_next_step(maria: MariaShop) -> None:
    maria.sql("CREATE TABLE t (id varchar(5) NOT NULL PRIMARY KEY)")
    with pytest.raises(TableMismatchError, match="column id is of type varchar"):
        maria.source("incrementing", incrementing_column_name="id").values()
    with pytest.raises(TableMissingError, match="doesn't exist"):
        maria.source("bulk", query="SELECT * FROM nothing").values()


def test_numbers_are_sorted_as_numbers_where_they_are_read_as_text(shop: Shop) -> None:
    shop.sql("CREATE TABLE t (id numeric NOT NULL)")
    shop.sql("INSERT INTO t SELECT n FROM generate_series(1, 25) n")
    found = shop.source("incrementing", incrementing_column_name="id", batch_max_rows=4).values()
    assert [int(value["id"]) for value in found] == list(range(1, 26))


def test_views_and_partitioned_tables_are_read_as_table_types_says(shop: Shop) -> None:
    shop.sql("CREATE TABLE p (id int) PARTITION BY RANGE (id)")
    shop.sql("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)")
    shop.sql("CREATE VIEW v AS SELECT id FROM p")
    shop.sql("INSERT INTO p VALUES (1), (2)")
    assert [piece.topic for piece in shop.source("bulk").slices(1)] == ["t-p"]
    assert {piece.topic for piece in shop.source("bulk", table_types="TABLE,VIEW").slices(2)} == {"t-p", "t-v"}


def test_what_postgresql_refuses_is_named(shop: Shop) -> None:
    shop.sql("CREATE TABLE t (id int)")
    with pytest.raises(TableMissingError, match=r"other, which table\.whitelist"):
        shop.source("bulk", table_whitelist="other")
    with pytest.raises(TableMismatchError, match=r"id of .*t may be null"):
        shop.source("incrementing", incrementing_column_name="id").values()
    with pytest.raises(DatabaseError):
        shop.source("bulk", query="SELEC 1").values()
    shop.sql("CREATE TABLE w (id text)")
    shop.sql("INSERT INTO w VALUES ('x')")
    with pytest.raises(DatabaseError, match="invalid input syntax"):
        shop.source("bulk", query=f"SELECT id::int FROM {shop.schema}.w").values()
    with pytest.raises((DatabasePermissionError, DatabaseError)) as caught:
        Source(source_config(shop.uri, "bulk", connection_user="nobody", connection_password="geheim"))
    assert "geheim" not in str(caught.value)


def test_a_lost_connection_is_made_again_and_no_row_is_lost(shop: Shop) -> None:
    shop.sql("CREATE TABLE t (id serial PRIMARY KEY)")
    shop.sql("INSERT INTO t SELECT FROM generate_series(1, 30)")
    source = shop.source("incrementing", batch_max_rows=2)
    found = ids(source.values(most=3))
    shop.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'connectx j-0'")
    failures = 0
    while len(found) < 30:
        try:
            for piece in source.slices():
                found += ids(values_of(piece))
        except RetriableError:
            failures += 1
    assert found == list(range(1, 31))
    assert failures == 1


@pytest.fixture
def cluster(spark_provider: SparkProvider) -> Iterator[cx.Cluster]:
    with cx.Cluster(workers=2, config=EOS) as made:
        yield made


@pytest.fixture
def databases(shop: Shop, maria: MariaShop, tmp_path: Path) -> dict[str, tuple[str, Callable[..., object]]]:
    """URL of each database by its name, and what runs statements there."""
    files = {"sqlite": tmp_path / "shop.db", "duckdb": tmp_path / "shop.duckdb"}
    return {
        "sqlite": (sqlite(files["sqlite"], "PRAGMA journal_mode = wal"), partial(sqlite, files["sqlite"])),
        "duckdb": (duckdb_file(files["duckdb"]), partial(duckdb_file, files["duckdb"])),
        "mariadb": (maria.uri, lambda *statements: [maria.sql(statement) for statement in statements]),
        "postgres": (shop.uri, lambda *statements: [shop.sql(statement) for statement in statements]),
    }


def rows_to(table: str, first: int, last: int) -> str:
    """A statement that inserts numbered rows."""
    return f"INSERT INTO {table} VALUES " + ", ".join(f"({n}, 'row {n}')" for n in range(first, last + 1))


def test_killed_workers_lose_and_double_no_row_of_any_database_and_a_new_table_is_read(
    cluster: cx.Cluster, databases: dict[str, tuple[str, Callable[..., object]]], shop: Shop
) -> None:
    columns = "(id INTEGER PRIMARY KEY, name VARCHAR(20) NOT NULL)"
    for name, (url, run) in databases.items():
        run(f"CREATE TABLE a {columns}", f"CREATE TABLE b {columns}", rows_to("a", 1, 1_000), rows_to("b", 1, 100))
        config = source_config(
            url,
            "incrementing",
            incrementing_column_name="id",
            batch_max_rows=100,
            table_poll_interval_ms=200,
            poll_interval_ms=50,
            connection_backoff_ms=50,
            topic_prefix=f"{name}-",
            tasks_max=2,
        )
        own = {"schema.pattern": shop.schema} if name == "postgres" else {}
        alias = {"connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector"}
        cluster.create(name, {**config, **own, **alias, **JSON})
    until(lambda: sum(len(worker.tasks) for worker in cluster.workers) == 2 * len(databases), "all tasks", WAIT_S)
    cx.read_topic("postgres-a", cluster.bootstrap_servers, at_least=100, timeout=WAIT_S)
    owner = owner_of(cluster, "postgres-0")
    assert {task.partition("-")[0] for task in owner.tasks} == set(databases), "it has a task of each database"
    for _, run in databases.values():
        run(rows_to("a", 1_001, 1_250))
    owner.kill()
    for _, run in databases.values():
        run(rows_to("a", 1_251, 1_500))
    databases["sqlite"][1](f"CREATE TABLE c {columns}", rows_to("c", 1, 100))
    counts = {f"{name}-{table}": count for name in databases for table, count in (("a", 1_500), ("b", 100))}
    counts["sqlite-c"] = 100
    for topic, count in counts.items():
        read = cx.read_topic(topic, cluster.bootstrap_servers, at_least=count, timeout=2 * WAIT_S)
        assert [value["id"] for value in map(json.loads, read["value"])] == list(range(1, count + 1)), topic
    verdict = cluster.check(timeout=WAIT_S)
    assert verdict.answer == "valid", verdict
    assert {checked.place: checked.found for checked in verdict.checked} == {
        f"topic {topic}": count for topic, count in counts.items()
    }
    stored = {"partition": {"protocol": "1", "table": "a"}, "offset": {"incrementing": 1_500}}
    assert stored in cluster["sqlite"].offsets.get()
    databases["mariadb"][1]("UPDATE a SET name = 'other' WHERE id = 7")
    verdict = cluster.check(timeout=0)
    assert verdict.answer == "unknown", verdict
    assert "rows of the source or the connector's configuration were changed meanwhile" in "".join(verdict.reasons)
