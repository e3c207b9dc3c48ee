"""JdbcSource on files of SQLite and DuckDB: every mode, restarts, types, and what it refuses."""

from __future__ import annotations

import datetime
import sqlite3
import zoneinfo
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from connectx.data.avro.converter import AvroConverter
from connectx.data.connect_schema import SchemaName
from connectx.data.converters import encode
from connectx.data.simple import StringConverter
from connectx.errors.databases import DatabaseError, TableMismatchError, TableMissingError
from connectx.plugins.errors import RetriableError
from tests.support.jdbc import Boundaries, Context, Source, source_config, sqlite, values_of
from tests.support.waiting import until

ROWS = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL, at TIMESTAMP NOT NULL)"


def fill(first: int, count: int, minute: int = 0) -> str:
    """Rows whose timestamps are equal in threes."""
    stamp = f"printf('2026-01-01 00:{minute:02d}:%02d.5', n / 3)"
    numbers = f"WITH RECURSIVE c(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM c WHERE n < {first + count - 1})"
    return f"INSERT INTO t {numbers} SELECT n, 'name-' || n, {stamp} FROM c"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


def ids(values: list[dict[str, Any]]) -> list[int]:
    return [value["id"] for value in values]


@pytest.mark.parametrize(
    ("mode", "more"),
    [
        ("incrementing", {}),
        ("incrementing", {"incrementing.column.name": "ID"}),
        ("timestamp", {"timestamp.column.name": "at"}),
        ("timestamp+incrementing", {"timestamp.columns.mapping": "t:[at]", "incrementing.column.mapping": "t:id"}),
    ],
)
def test_rows_come_once_over_restarts_at_any_slice(path: Path, mode: str, more: dict[str, str]) -> None:
    source = Source(source_config(sqlite(path, ROWS, fill(0, 50)), mode, batch_max_rows=7) | more)
    found: list[int] = []
    while batch := ids(source.values(most=1)):
        found += batch
        source.restart()
    assert found == list(range(50))
    sqlite(path, fill(50, 20, minute=1))
    assert until(lambda: ids(source.values()), "the next poll") == list(range(50, 70))
    source.task.idle(None)
    assert source.context.waited_ms


def test_changed_rows_come_again_where_a_timestamp_is_tracked(path: Path) -> None:
    url = sqlite(path, ROWS, fill(0, 6))
    source = Source(source_config(url, "timestamp+incrementing", timestamp_column_name="at"))
    assert ids(source.values()) == list(range(6))
    sqlite(path, "UPDATE t SET name = 'new', at = '2026-02-01T00:00:00' WHERE id = 2")
    source.restart()
    (changed,) = source.values()
    assert changed == {"id": 2, "name": "new", "at": datetime.datetime(2026, 2, 1)}


def test_rows_younger_than_the_delay_wait(path: Path) -> None:
    url = sqlite(path, ROWS, fill(0, 3), "INSERT INTO t VALUES (9, 'young', strftime('%Y-%m-%d %H:%M:%f', 'now'))")
    more = {"timestamp_column_name": "at", "timestamp_delay_interval_ms": 3_600_000}
    assert ids(Source(source_config(url, "timestamp", **more)).values()) == [0, 1, 2]


def test_reading_begins_after_the_initial_timestamp(path: Path) -> None:
    initial = int(datetime.datetime(2026, 1, 1, 0, 0, 1, tzinfo=datetime.UTC).timestamp() * 1000)
    url = sqlite(path, ROWS, fill(0, 9))
    more = {"timestamp_column_name": "at"}
    assert ids(Source(source_config(url, "timestamp", timestamp_initial=initial, **more)).values()) == [
        3,
        4,
        5,
        6,
        7,
        8,
    ]
    assert Source(source_config(url, "timestamp", timestamp_initial=-1, **more)).values() == []


def test_a_slice_that_is_polled_again_is_the_same(path: Path) -> None:
    source = Source(source_config(sqlite(path, ROWS, fill(0, 30)), "incrementing", batch_max_rows=10))
    first = source.task.poll(None, None)  # type: ignore[arg-type]
    assert first is not None
    assert first.offset == {"incrementing": 9}
    assert ids(source.values()) == list(range(30)), "the first slice was not taken"


def test_offsets_under_older_names_are_gone_on_from(path: Path) -> None:
    context = Context({'{"table": "t"}': {"incrementing": 4}})
    source = Source(source_config(sqlite(path, ROWS, fill(0, 8)), "incrementing"), context=context)
    assert ids(source.values()) == [5, 6, 7]
    assert context.stored['{"protocol": "1", "table": "t"}'] == {"incrementing": 7}


def test_a_load_in_bulk_reads_everything_again_and_is_a_transaction_if_wanted(path: Path) -> None:
    boundaries = Boundaries()
    config = source_config(sqlite(path, ROWS, fill(0, 25)), "bulk", batch_max_rows=10)
    source = Source(config, context=Context(transaction=boundaries))
    assert [piece.offset for piece in source.slices()] == [{"load": 1, "rows": rows} for rows in (10, 20, 25)]
    assert boundaries.asked == ["commit"]
    source.restart()
    assert [piece.offset for piece in source.slices(1)] == [{"load": 2, "rows": 10}]
    assert ids(source.values()) == list(range(10, 25))


def test_a_query_is_read_with_the_conditions_of_the_mode_around_it(path: Path) -> None:
    url = sqlite(path, ROWS, fill(0, 9))
    query = "SELECT id, upper(name) AS big FROM t WHERE id % 2 = 0; -- even"
    config = source_config(url, "incrementing", query=query, incrementing_column_name="id", batch_max_rows=2)
    source = Source(config)
    pieces = list(source.slices())
    assert [piece.topic for piece in pieces] == ["t-"] * 3
    assert pieces[-1].partition == {"query": "query"}
    assert values_of(pieces[0]) == [{"id": 0, "big": "NAME-0"}, {"id": 2, "big": "NAME-2"}]


def test_new_and_dropped_tables_change_the_tasks(path: Path) -> None:
    url = sqlite(path, "CREATE TABLE a (id INTEGER PRIMARY KEY)", "CREATE TABLE b (id INTEGER PRIMARY KEY)")
    source = Source(source_config(url, "incrementing", table_poll_interval_ms=500), max_tasks=3)
    assert len(source.configs) == 2
    assert source.connector.monitor_interval_ms() == 500
    source.connector.monitor()
    assert source.asked.reconfigurations == 0
    sqlite(path, "DROP TABLE a", "CREATE TABLE c (id INTEGER PRIMARY KEY)", "CREATE TABLE d (x TEXT)")
    source.connector.monitor()
    assert source.asked.reconfigurations == 1
    assert [config["tables"] for config in source.connector.task_configs(2)] == [
        '[["", "b", ""], ["", "c", ""]]',
        '[["", "d", ""]]',
    ]


def test_several_tables_of_a_task_have_their_own_topics_and_offsets(path: Path) -> None:
    url = sqlite(path, ROWS, fill(0, 5), "CREATE TABLE u (id INTEGER PRIMARY KEY)", "INSERT INTO u VALUES (1), (2)")
    source = Source(source_config(url, "incrementing"))
    pieces = list(source.slices())
    assert {piece.topic: piece.offset for piece in pieces} == {"t-t": {"incrementing": 4}, "t-u": {"incrementing": 2}}
    assert [dict(one) for one in source.task.partitions()] == [dict(p.partition or {}) for p in pieces]


def test_committed_rows_can_be_read_again(path: Path) -> None:
    url = sqlite(path, ROWS, fill(0, 30))
    source = Source(source_config(url, "timestamp+incrementing", timestamp_column_name="at", batch_max_rows=10))
    pieces = list(source.slices())
    (partition,) = source.task.partitions()
    again = source.task.reread_partition(None, partition, pieces[0].offset, pieces[1].offset)  # type: ignore[arg-type]
    assert again is not None
    assert [v["id"] for piece in again for v in values_of(piece)] == list(range(10, 20))
    bulk = Source(source_config(url, "bulk")).task
    assert bulk.reread_partition(None, partition, None, None) is None  # type: ignore[arg-type]


def test_sqlites_declared_types_become_connects(path: Path) -> None:
    url = sqlite(
        path,
        "CREATE TABLE v (id INTEGER PRIMARY KEY, ok BOOLEAN, price DECIMAL(10,2), units NUMERIC(4), "
        "day DATE, at DATETIME, data BLOB, anything, key VARCHAR(20), big BIGINT NOT NULL)",
        "INSERT INTO v VALUES (1, 1, 2.5, 7, '2026-01-02', '2026-01-02 03:04:05', x'00ff', 'text', 'k', 9)",
        "INSERT INTO v VALUES (2, NULL, NULL, NULL, NULL, 1767323045678, NULL, NULL, NULL, 10)",
        "INSERT INTO v VALUES (3, 0, 1, 2, NULL, '2026-01-02T03:04:05+01:00', NULL, NULL, NULL, 10)",
    )
    first, second, third = Source(source_config(url, "incrementing", numeric_mapping="best_fit")).values()
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5)
    assert first == {
        "id": 1, "ok": True, "price": 2.5, "units": 7, "day": datetime.date(2026, 1, 2), "at": moment,
        "data": b"\x00\xff", "anything": "text", "key": "k", "big": 9,
    }  # fmt: skip
    assert second["at"] == datetime.datetime(2026, 1, 2, 3, 4, 5, 678000)
    assert third["at"] == moment - datetime.timedelta(hours=1)


def test_times_without_a_zone_are_those_of_the_databases_zone(path: Path) -> None:
    url = sqlite(path, ROWS, "INSERT INTO t VALUES (1, 'a', '2026-01-01 00:00:00')")
    config = source_config(url, "timestamp", timestamp_column_name="at", db_timezone="Europe/Berlin")
    source = Source(config)
    (piece,) = source.slices()
    utc = datetime.datetime(2025, 12, 31, 23, tzinfo=datetime.UTC)
    assert values_of(piece)[0]["at"] == utc
    assert piece.offset["timestamp"] == int(utc.timestamp() * 1000)
    source.restart()
    assert source.values() == []


STAMPED = "CREATE TABLE t (id INTEGER PRIMARY KEY, at DATETIME NOT NULL)"


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_sqlites_timestamps_of_all_forms_are_points_in_time(path: Path, zone: str) -> None:
    local = datetime.datetime(2024, 1, 2, 10, tzinfo=zoneinfo.ZoneInfo(zone))
    moments = {
        "'2024-01-02 10:00:00'": local,
        "'2024-01-02T10:00:00.5'": local + datetime.timedelta(seconds=0.5),
        "'2024-01-02 10:00:00+0230'": datetime.datetime(2024, 1, 2, 7, 30, tzinfo=datetime.UTC),
        "'2024-01-02T10:00:00Z'": datetime.datetime(2024, 1, 2, 10, tzinfo=datetime.UTC),
        "1704189600001": datetime.datetime(2024, 1, 2, 10, microsecond=1000, tzinfo=datetime.UTC),
        "2460312.25": datetime.datetime(2024, 1, 2, 18, tzinfo=datetime.UTC),
    }
    rows = (f"INSERT INTO t VALUES ({number}, {text})" for number, text in enumerate(moments))
    url = sqlite(path, STAMPED, *rows)
    config = source_config(url, "timestamp", timestamp_column_name="at", batch_max_rows=1, db_timezone=zone)
    source = Source(config)
    found: dict[int, datetime.datetime] = {}
    while batch := source.values(most=1):
        found |= {row["id"]: row["at"] if zone != "UTC" else row["at"].replace(tzinfo=datetime.UTC) for row in batch}
        source.restart()
    assert found == dict(enumerate(moments.values()))


@pytest.mark.parametrize("text", ["2024/01/02 10:00:00", "10:00", "now", "", "2024-13-01"])
def test_a_text_that_is_no_timestamp_is_named_and_not_left_out(path: Path, text: str) -> None:
    url = sqlite(path, STAMPED, "INSERT INTO t VALUES (1, '2024-01-01'), (2, '2024-01-03')")
    source = Source(source_config(url, "timestamp", timestamp_column_name="at"))
    assert ids(source.values()) == [1, 2]
    sqlite(path, f"INSERT INTO t VALUES (3, '{text}')")
    with pytest.raises(TableMismatchError, match=f"Column at has the value '{text}'"):
        until(source.values, "the next poll")


def test_a_table_or_file_that_does_not_exist_is_named(path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"shop\.db refuses it: unable to open database file"):
        Source(source_config(f"sqlite:{path}", "bulk"))
    url = sqlite(path, ROWS)
    with pytest.raises(TableMissingError, match=r"no table nothing, which table\.whitelist names"):
        Source(source_config(url, "bulk", table_whitelist="nothing"))
    source = Source(source_config(url, "incrementing"))
    sqlite(path, "DROP TABLE t")
    with pytest.raises(TableMissingError, match="no table t"):
        source.values()


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("x" * 5000)
    with pytest.raises(DatabaseError, match="file is not a database"):
        Source(source_config(f"sqlite:{path}", "bulk"))


@pytest.mark.parametrize(
    ("columns", "mode", "more", "reason"),
    [
        ("id INTEGER", "incrementing", {"incrementing.column.name": "id"}, "id of v may be null"),
        ("id INTEGER", "incrementing", {"incrementing.column.name": "nr"}, "v has no column nr; its columns are id"),
        ("id INTEGER", "incrementing", {}, "no column that the database counts up"),
        ("id TEXT NOT NULL", "incrementing", {"incrementing.column.name": "id"}, "of type TEXT, not of whole numbers"),
        ("at TEXT NOT NULL", "timestamp", {"timestamp.column.name": "at"}, "of type TEXT, not a timestamp"),
        ("a DATETIME, b DATETIME", "timestamp", {"timestamp.column.name": "a,b"}, "Column a, b of v may be null"),
        ("id INTEGER", "timestamp", {"timestamp.columns.mapping": "other:at"}, "names no column for the table v"),
    ],
)
def test_columns_that_cannot_be_tracked_are_refused(
    path: Path, columns: str, mode: str, more: dict[str, str], reason: str
) -> None:
    source = Source(source_config(sqlite(path, f"CREATE TABLE v ({columns})"), mode) | more)
    with pytest.raises(TableMismatchError, match=reason):
        source.values()


def test_rows_with_a_null_where_rows_are_tracked_are_left_out_if_that_is_wanted(path: Path) -> None:
    rows = "INSERT INTO v VALUES (1, NULL, '2026-01-01'), (NULL, '2026-01-02', NULL), (2, NULL, NULL)"
    url = sqlite(path, "CREATE TABLE v (id INTEGER, a DATETIME, b DATETIME)", rows)
    config = source_config(url, "incrementing", incrementing_column_name="id", validate_non_null="false")
    assert ids(Source(config).values()) == [1, 2]
    config = source_config(url, "timestamp", timestamp_column_name="a,b", validate_non_null="false")
    assert ids(Source(config).values()) == [1, None]


def test_a_value_that_its_column_does_not_allow_is_refused(path: Path) -> None:
    url = sqlite(path, "CREATE TABLE v (id INTEGER PRIMARY KEY, n INT)", "INSERT INTO v VALUES (1, 'many')")
    with pytest.raises(TableMismatchError, match="Column n has a value that its declared type does not allow"):
        Source(source_config(url, "incrementing")).values()


def test_a_locked_database_is_tried_again(path: Path) -> None:
    source = Source(source_config(sqlite(path, ROWS, fill(0, 3)), "incrementing", connection_backoff_ms=1))
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(RetriableError, match="database is locked"):
        source.values()
    source.connector.monitor()
    writer.execute("ROLLBACK")
    source.task.idle(None)
    found: list[int] = []
    while not found:
        found = ids(source.values())
    assert found == [0, 1, 2]


def duck(path: Path, *statements: str) -> str:
    connection = duckdb.connect(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return f"duckdb:{path}"


def test_a_value_that_duckdb_cannot_give_is_an_error_of_the_source(path: Path) -> None:
    url = duck(path, "CREATE TABLE v (h HUGEINT)", "INSERT INTO v VALUES (-170141183460469231731687303715884105728)")
    with pytest.raises(DatabaseError, match="column h") as caught:
        Source(source_config(url, "bulk")).values(most=1)
    assert caught.value.code == DatabaseError.code


DUCK = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL, seen TIMESTAMP NOT NULL)"
DUCK_FILL = """INSERT INTO t SELECT n, 'name-' || n, TIMESTAMP '2026-01-01' + INTERVAL 1 SECOND * (n // 3)
FROM range({}, {}) r(n)"""


@pytest.mark.parametrize("mode", ["incrementing", "timestamp", "timestamp+incrementing"])
def test_duckdb_is_read_once_over_restarts_and_free_between_polls(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "shop.duckdb"
    url = duck(path, DUCK, DUCK_FILL.format(0, 50))
    more = {"incrementing_column_name": "id"} if "incrementing" in mode else {}
    more |= {"timestamp_column_name": "seen"} if "timestamp" in mode else {}
    source = Source(source_config(url, mode, batch_max_rows=7, **more))
    found: list[int] = []
    while batch := ids(source.values(most=1)):
        found += batch
        source.task.stop()
        source.restart()
    assert found == list(range(50))
    duck(path, DUCK_FILL.format(60, 70))
    assert until(lambda: ids(source.values()), "the next poll") == list(range(60, 70))
    assert source.context.stored.keys() == {'{"protocol": "1", "table": "main.t"}'}


def test_duckdbs_types_become_connects(tmp_path: Path) -> None:
    url = duck(
        tmp_path / "v.duckdb",
        "CREATE TYPE mood AS ENUM ('ok', 'bad')",
        "CREATE SEQUENCE ids",
        "CREATE TABLE v (id BIGINT NOT NULL DEFAULT nextval('ids'), u UUID, n DECIMAL(10,2), h HUGEINT, k UTINYINT, "
        "m mood, t TIME, s TIMESTAMP_S, z TIMESTAMPTZ, l INTEGER[], p STRUCT(a INTEGER), b BLOB, d DATE)",
        "INSERT INTO v (u, n, h, k, m, t, s, z, l, p, b, d) VALUES ('6ba7b810-9dad-11d1-80b4-00c04fd430c8', 1.5, 7, "
        "255, 'ok', '01:02:03', '2026-01-01 00:00:00', '2026-01-01 00:00:00+01', [1, 2], {'a': 3}, 'x', '2026-01-01')",
    )
    (row,) = Source(source_config(url, "incrementing")).values()
    assert row == {
        "id": 1, "u": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "n": Decimal("1.50"), "h": Decimal(7), "k": 255,
        "m": "ok", "t": "01:02:03", "s": datetime.datetime(2026, 1, 1), "l": [1, 2], "p": {"a": 3}, "b": b"x",
        "z": datetime.datetime(2025, 12, 31, 23, tzinfo=datetime.UTC), "d": datetime.date(2026, 1, 1),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("mapping", "number"),
    [
        (
            "none",
            '{"type":"bytes","scale":2,"precision":5,"connect.version":1,"connect.parameters":{"scale":"2",'
            '"connect.decimal.precision":"5"},"connect.name":"org.apache.kafka.connect.data.Decimal",'
            '"logicalType":"decimal"}',
        ),
        ("best_fit", '"double"'),
    ],
)
def test_a_tables_avro_schema_has_its_name_and_the_logical_types_of_confluents_connector(
    tmp_path: Path, mapping: str, number: str
) -> None:
    url = duck(
        tmp_path / "v.duckdb",
        "CREATE TABLE orders (id BIGINT NOT NULL, price DECIMAL(5,2) NOT NULL, due DATE, made TIMESTAMP NOT NULL)",
        "INSERT INTO orders VALUES (1, 1.5, '2026-01-01', '2026-01-01 00:00:00')",
    )
    source = Source(source_config(url, "incrementing", incrementing_column_name="id", numeric_mapping=mapping))
    (piece,) = source.slices()
    converter = AvroConverter({"schema.registry.url": f"mock://{tmp_path.name}{mapping}"})
    assert isinstance(piece.rows, pa.Table)
    encode(piece.rows, StringConverter(), converter, piece.topic)
    data = '"connect.version":1,"connect.name":"org.apache.kafka.connect.data.'
    text = converter._registry._client.get_latest_version(f"{piece.topic}-value").schema.schema_str
    assert text == (
        '{"type":"record","name":"orders","fields":[{"name":"id","type":"long"},'
        f'{{"name":"price","type":{number}}},'
        f'{{"name":"due","type":["null",{{"type":"int",{data}Date","logicalType":"date"}}],"default":null}},'
        f'{{"name":"made","type":{{"type":"long",{data}Timestamp","logicalType":"timestamp-millis"}}}}],'
        '"connect.name":"orders"}'
    )


def test_a_querys_schema_has_no_name(tmp_path: Path) -> None:
    url = duck(tmp_path / "v.duckdb", "CREATE TABLE t (id BIGINT)", "INSERT INTO t VALUES (1)")
    (piece,) = Source(source_config(url, "bulk", query="SELECT id FROM t")).slices(1)
    assert isinstance(piece.rows, pa.Table)
    assert not SchemaName.of(piece.rows.schema.field("value"))


def test_a_duckdb_file_that_is_attached_elsewhere_in_the_process_is_tried_again(tmp_path: Path) -> None:
    url = duck(tmp_path / "a.duckdb", DUCK, DUCK_FILL.format(0, 5))
    source = Source(source_config(url, "incrementing", incrementing_column_name="id", connection_backoff_ms=1))
    with duckdb.connect() as other:
        other.execute(f"ATTACH '{tmp_path / 'a.duckdb'}'")
        with pytest.raises(RetriableError, match="opens or closes the DuckDB file"):
            source.values()
    assert len(until(source.values, "the rows")) == 5


def test_duckdb_refuses_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="refuses it"):
        Source(source_config(f"duckdb:{tmp_path / 'none.duckdb'}", "bulk"))
    url = duck(tmp_path / "a.duckdb", DUCK)
    with pytest.raises(TableMissingError, match=r"has no table main\.b"):
        Source(source_config(url, "bulk", table_whitelist="main.b"))
    query = source_config(url, "bulk", query="SELECT nothing FROM t")
    with pytest.raises(TableMismatchError, match="nothing"):
        Source(query).values()
