"""PostgresCdcSource beside Debezium's connector: the same records, and a slot with its offsets moves between both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pytest

import connectx as cx
from bench.debezium import POSTGRES_SOURCE, postgres_on_loopback, postgres_source
from bench.plugins import plugin_folder
from connectx.kafka.broker import node
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.rest.client import RestClient
from tests.support.java_worker import JavaWorker, peer_config
from tests.support.profiles import JSON, dotted
from tests.support.records import read_all
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from connectx.spark.sessions import SparkProvider

Sql = Callable[..., list[tuple[Any, ...]]]
Record = tuple[Any, Any]
"""Key and value as JSON gives them, each with its schema where the converter writes it."""

SERVER: Final = "server"
"""What a topic.prefix is replaced with before records are compared."""

COLUMNS: Final = (
    "id int PRIMARY KEY, s smallint, b bigint, n numeric(10,2), x numeric, f real, d double precision, o boolean, "
    "c char(5), v varchar(9), y bytea, da date, t time, t3 time(3), ts timestamp, ts3 timestamp(3), tz timestamptz, "
    "tz3 timestamptz(3), u uuid, j jsonb, js json, ia int[], ta text[], da2 date[], i interval, tt timetz, e mood, "
    "ip inet, ra int4range, cr cidr, nu numeric(6,0)[], m text NOT NULL, k int NOT NULL, big text, b1 bit, "
    "b12 bit(12), bv bit varying, bv1 bit varying(1), bv20 bit varying(20), mo money, hs hstore, hsa hstore[], "
    "hbig hstore, nb bit(3) NOT NULL, nv money NOT NULL, nh hstore NOT NULL"
)
ROW: Final = (
    "{}, 2, 3, 1.5, -123.456, 0.25, 0.1, true, 'ab', 'é', '\\x00ff', '2026-01-02', '01:02:03.5', '01:02:03.5', "
    "'2026-01-02 03:04:05.678901', '2026-01-02 03:04:05.678', '2026-01-02 03:04:05.1+02', '2026-01-02 03:04:05.1+02', "
    "'6ba7b810-9dad-11d1-80b4-00c04fd430c8', '{{\"a\": 1}}', '{{\"a\":  1}}', '{{1,NULL}}', '{{a,\"b,c\"}}', "
    "'{{2026-01-02}}', '1 mon 2 days 03:04:05', '10:00+02', 'ok', '10.0.0.1', '[1,5)', '10.0.0.0/8', '{{12,-3}}', 'm', "
    "5, repeat('z', 3000), B'1', B'000100000001', B'1', B'1', B'1000', '1234.5', '\"a\"=>\"1\", \"b\"=>NULL', "
    "ARRAY['\"a\"=>\"1\"', NULL]::hstore[], ('\"z\"=>\"' || repeat('z', 3000) || '\"')::hstore, "
    "B'101', -1, '\"c\"=>\"\"'"
)
EXTREMES: Final = (
    "{}, -32768, -9223372036854775808, -99999999.99, 100, '-1e-30', '1e300', false, '', '', '', '1900-03-01', "
    "'23:59:59.999999', '00:00:00', '1969-12-31 23:59:59.999999', '1900-01-01', '1969-12-31 23:59:59.999999+00', "
    "'2038-01-19 03:14:08.999+00', '00000000-0000-0000-0000-000000000000', 'null', '[]', '{{}}', "
    "'{{\"NULL\",NULL,\"\\\"\",\"\\\\\"}}', '{{}}', '-1 year -2 mons +3 days -04:05:06.789', '23:59:59.123456-11:30', "
    "'bad', '::1/64', 'empty', '::/0', '{{}}', '', 0, NULL, B'0', B'000000000000', '', NULL, B'00000000001111111111', "
    "'-92233720368547758.08', '\"\\\"é\\\\\"=>\"x=>\\\"y\\\", \"', '{{}}', NULL, B'000', 0, ''"
)
HSTORE: Final = (
    "CREATE TYPE hstore",
    "CREATE FUNCTION hstore_in(cstring) RETURNS hstore AS 'textin' LANGUAGE internal IMMUTABLE STRICT",
    "CREATE FUNCTION hstore_out(hstore) RETURNS cstring AS 'textout' LANGUAGE internal IMMUTABLE STRICT",
    "CREATE TYPE hstore (INPUT = hstore_in, OUTPUT = hstore_out, LIKE = text)",
)
"""The wheel's server has no extension hstore: a type of the same name whose texts are kept as they are."""

TIMES: Final = "id int PRIMARY KEY, da date, ts timestamp, ts3 timestamp(3), tz timestamptz, tz3 timestamptz(3)"
DATES: Final = ("infinity", "-infinity", "4713-02-03 BC", "0001-12-31 BC", "10000-01-01", "294246-12-31")
"""Days that Python's calendar does not have, and Arrow's neither."""

TABLES: Final = {"kinds": 3, "whole": 2, "lines": 1, "times": len(DATES)}
"""Rows of each table before the snapshot. `whole` has REPLICA IDENTITY FULL, `lines` has no key."""

WITHOUT_CONTEXT: Final = {"extended_headers_enabled": "false"}
"""For Debezium's connector, which otherwise adds headers with names of the connector."""

READ: Final = {"sql_prefix": "sql", "stream_prefix": "stream"}
"""slot.read.mode of our connectors by topic.prefix."""

LAST: Final = 999
"""The id of the row that ends the load of each table."""

OF_PROCESSING: Final = ("ts_ms", "ts_us", "ts_ns")
OF_A_SNAPSHOT: Final = (*OF_PROCESSING, "lsn", "txId", "sequence")
"""Fields of `source` that name the moment of a snapshot, and each connector takes its own."""


@pytest.fixture(scope="module")
def port(no_process_is_left: None) -> Iterator[int]:
    with postgres_on_loopback("wal_level=logical", "fsync=off") as found:
        yield found


@pytest.fixture(scope="module")
def sql(port: int) -> Iterator[Sql]:
    """Runs statements, and returns the rows of the last one."""
    from adbc_driver_postgresql import dbapi

    uri = f"postgresql://postgres@{node.HOST}:{port}/postgres"
    with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:

        def run(*statements: str) -> list[tuple[Any, ...]]:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

        run("CREATE PUBLICATION dbz_publication FOR ALL TABLES", *HSTORE)
        yield run


@pytest.fixture(scope="module")
def debezium(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    """A client of Kafka Connect with Debezium's connector."""
    folder = tmp_path_factory.mktemp("debezium")
    plugins = str(plugin_folder(folder, POSTGRES_SOURCE))
    worker = JavaWorker(peer_config(kafka.bootstrap_servers, "debezium", plugin_path=plugins), folder / "worker")
    try:
        with closing(RestClient([worker.wait_ready().url])) as client:
            yield client
    finally:
        worker.kill()


@pytest.fixture(scope="module")
def ours(kafka: EmbeddedKafka, spark_provider: SparkProvider) -> Iterator[cx.Cluster]:
    """A cluster of connectx that keeps source offsets in the topic of Debezium's worker."""
    config = peer_config(kafka.bootstrap_servers, "beside-debezium", offset_storage_topic="debezium-offset")
    with cx.Cluster(workers=1, config=config, bootstrap_servers=kafka.bootstrap_servers) as cluster:
        yield cluster


@pytest.fixture
def settings(port: int) -> Callable[..., dict[str, str]]:
    """`settings(prefix, **more)`: one configuration for both; slot and topics are named after `prefix`."""

    def make(prefix: str, **more: str) -> dict[str, str]:
        given = {
            **postgres_source(port, prefix),
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
        }
        converters = {
            name.replace("value.", side): value for side in ("key.", "value.") for name, value in JSON.items()
        }
        return given | converters | dotted(more)

    return make


def add_times(sql: Sql, first: int) -> None:
    """Rows with DATES, from an id on."""
    for number, text in enumerate(DATES, first):
        clock = text if "infinity" in text else f"{text.replace(' BC', '')} 01:02:03.004{' BC' * ('BC' in text)}"
        sql(f"INSERT INTO times VALUES ({number}, '{text}', '{clock}', '{clock}', '{clock}', '{clock}')")


def load(sql: Sql) -> None:
    """Changes of every kind after the snapshot; each table ends with the row LAST."""
    add_times(sql, 10)
    sql(f"INSERT INTO times (id) VALUES ({LAST})")
    sql(f"INSERT INTO kinds VALUES ({ROW.format(10)})", f"INSERT INTO kinds VALUES ({EXTREMES.format(20)})")
    sql("UPDATE kinds SET s = 9 WHERE id = 10", "UPDATE kinds SET big = 'short' WHERE id = 10")
    sql("UPDATE kinds SET id = 11 WHERE id = 10", "DELETE FROM kinds WHERE id = 11", "DELETE FROM kinds WHERE id = 20")
    sql("UPDATE whole SET name = 'c' WHERE id = 1", "UPDATE whole SET id = 5 WHERE id = 2")
    sql("DELETE FROM whole WHERE id = 1", "INSERT INTO lines VALUES (2), (3)", "UPDATE lines SET id = 4 WHERE id = 3")
    sql("BEGIN", "INSERT INTO whole VALUES (7, 'x')", "INSERT INTO lines VALUES (4)", "SAVEPOINT s")
    sql("INSERT INTO whole VALUES (8, 'undone')", "ROLLBACK TO SAVEPOINT s", "UPDATE whole SET name = 'y' WHERE id = 7")
    sql("COMMIT", "ALTER TABLE whole ADD more numeric(5,1)", "INSERT INTO whole VALUES (8, 'q', 2.5)")
    sql("ALTER TABLE whole DROP name", "UPDATE whole SET more = 3 WHERE id = 8", "TRUNCATE lines")
    sql(f"INSERT INTO whole VALUES ({LAST})", f"INSERT INTO lines VALUES ({LAST})")
    sql(f"INSERT INTO kinds (id, m, k, nb, nv, nh) VALUES ({LAST}, 'end', 0, B'111', 1, '')")


def records(kafka: EmbeddedKafka, prefix: str, table: str, at_least: int) -> list[Record]:
    read = cx.read_topic(f"{prefix}.public.{table}", kafka.bootstrap_servers, at_least=at_least, timeout=WAIT_S)
    texts = [[text and text.replace(prefix, SERVER) for text in read[side]] for side in ("key", "value")]
    return [(key and json.loads(key), value and json.loads(value)) for key, value in zip(*texts, strict=True)]


def corrected(found: list[Record]) -> list[Record]:
    """Debezium's records of `times`: its snapshot has other numbers for infinite dates, and takes BC for AD."""
    for (_, read), (_, streamed) in zip(found, found[len(DATES) : 2 * len(DATES)], strict=False):
        payload(read)["after"]["da"] = payload(streamed)["after"]["da"]
    return found


def without_precision(found: list[Record]) -> list[Record]:
    """Our records without the digits of money, which Debezium's schemas do not have."""
    for _, document in found:
        for side in document["schema"]["fields"][:2] if document else ():
            for column in side["fields"]:
                if column["field"] in ("mo", "nv"):
                    del column["parameters"]["connect.decimal.precision"]
    return found


def headers(kafka: EmbeddedKafka, prefix: str, table: str) -> list[list[tuple[str, bytes]] | None]:
    """Headers of a table's records."""
    return [message.headers() for message in read_all(kafka.bootstrap_servers, f"{prefix}.public.{table}")]


def payload(value: Any) -> Any:
    return value["payload"] if value and "payload" in value else value


def ends(found: list[Record]) -> bool:
    value = payload(found[-1][1])
    return bool(value and value["after"] and value["after"]["id"] == LAST)


def loaded(kafka: EmbeddedKafka, prefix: str, table: str) -> list[Record]:
    """The records of a table when its load has come."""

    def whole() -> list[Record] | None:
        found = records(kafka, prefix, table, TABLES[table] + 1)
        return found if ends(found) else None

    return until(whole, f"the load in {prefix}.public.{table}")


def comparable(found: list[Record]) -> list[Record]:
    """Records without what differs between two readers of the same log: see OF_PROCESSING and OF_A_SNAPSHOT."""
    for _, document in found:
        if (value := payload(document)) is not None:
            value |= dict.fromkeys(OF_PROCESSING)
            value["source"] |= dict.fromkeys(("version", *(OF_A_SNAPSHOT if value["op"] == "r" else ())))
    return found


def in_order(found: list[Record], rows: int) -> list[Record]:
    """Records of a table with those of its snapshot by key: Debezium's threads read ranges of a table side by side."""
    return [*sorted(found[:rows], key=lambda record: json.dumps(record[0])), *found[rows:]]


def test_records_are_those_of_debezium(
    sql: Sql,
    kafka: EmbeddedKafka,
    debezium: RestClient,
    ours: cx.Cluster,
    settings: Callable[..., dict[str, str]],
) -> None:
    sql("CREATE TYPE mood AS ENUM ('ok', 'bad')", f"CREATE TABLE kinds ({COLUMNS})")
    sql(
        *(f"ALTER TABLE kinds ALTER {name} SET STORAGE EXTERNAL" for name in ("big", "hbig")),
        "CREATE TABLE whole (id int PRIMARY KEY, name text)",
    )
    sql("CREATE TABLE lines (id int)", *(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in ("whole", "lines")))
    sql(f"INSERT INTO kinds VALUES ({ROW.format(1)})", f"INSERT INTO kinds VALUES ({EXTREMES.format(2)})")
    sql(
        "INSERT INTO kinds (id, m, k, nb, nv, nh) VALUES (3, 'x', 1, B'100', 1, '')",
        "INSERT INTO whole VALUES (1, 'a'), (2, 'b')",
    )
    sql("INSERT INTO lines VALUES (1)", f"CREATE TABLE times ({TIMES})")
    add_times(sql, 1)
    given = {
        "table_include_list": ",".join(f"public.{table}" for table in TABLES),
        "skipped_operations": "none",
        "snapshot_max_threads": "2",
        "key_converter_schemas_enable": "true",
        "value_converter_schemas_enable": "true",
    }
    debezium.create("dbz", settings("dbz_prefix", **given, **WITHOUT_CONTEXT))
    for prefix, mode in READ.items():
        ours.create(prefix, settings(prefix, **given, slot_read_mode=mode))
    for prefix in ("dbz_prefix", *READ):
        for table, rows in TABLES.items():
            records(kafka, prefix, table, rows)
    load(sql)
    for prefix in READ:
        marks: list[str] = []
        for table, rows in TABLES.items():
            theirs, mine = (in_order(comparable(loaded(kafka, one, table)), rows) for one in ("dbz_prefix", prefix))
            marks += [source["snapshot"] for _, value in mine if value and (source := payload(value)["source"])]
            for _, value in (*theirs, *mine):  # which of Debezium's threads is first or last is left to chance
                if value:
                    source = payload(value)["source"]
                    source["snapshot"] = source["snapshot"].removesuffix("_in_data_collection")
            theirs = corrected(theirs) if table == "times" else theirs
            first = payload(theirs[rows][1])["source"]
            if first["sequence"].startswith("[null,"):  # Debezium does not know the commit before its first change
                first["sequence"] = payload(mine[rows][1])["source"]["sequence"]
            for one, other in zip(without_precision(mine), theirs, strict=True):
                assert one == other
            assert headers(kafka, prefix, table) == headers(kafka, "dbz_prefix", table)
        assert (marks.count("first"), marks.count("last")) == (1, 1)
        ours[prefix].delete()
    debezium.delete("dbz")


def test_columns_and_keys_are_chosen_as_debezium_does(
    sql: Sql,
    kafka: EmbeddedKafka,
    debezium: RestClient,
    ours: cx.Cluster,
    settings: Callable[..., dict[str, str]],
) -> None:
    columns = "id int PRIMARY KEY, name text NOT NULL, note text, secret numeric(50,2), da date, ts timestamp, t time, "
    columns += "hs hstore, mo money"
    sql(f"CREATE TABLE chosen ({columns})", "CREATE TABLE free (a int, b text, c text)")
    sql("ALTER TABLE free REPLICA IDENTITY FULL", "CREATE TABLE shy (id int PRIMARY KEY, a text)")
    sql("INSERT INTO free VALUES (1, 'b', 'c'), (2, NULL, 'c')", "CREATE TABLE bare (id int PRIMARY KEY, a text)")
    row = "'n', 'x\"', 1, '{}', '{}', '01:02:03.9999', '\"a\"=>\"1\", \"b\"=>NULL', '-1.25'"
    early, late = "1969-12-31 23:59:59.9999", "infinity"
    sql(f"INSERT INTO chosen VALUES (1, {row.format('1969-12-31', early)})")
    expected = {"chosen": 10, "free": 11, "shy": 6, "bare": 3}
    given = {
        "table_include_list": ",".join(f"public.{table}" for table in expected),
        "column_exclude_list": r".*\.SECRET,public\.shy\.id,public\.bare\..*",
        "message_key_columns": r"public.chosen:note,name;(.*)\.free:b",
        "time_precision_mode": "connect",
        "hstore_handling_mode": "map",
        "money_fraction_digits": "1",
        "decimal_handling_mode": "string",
        "key_converter_schemas_enable": "true",
        "value_converter_schemas_enable": "true",
    }
    debezium.create("chosen_theirs", settings("chosen_theirs", **given, **WITHOUT_CONTEXT))
    ours.create("chosen_ours", settings("chosen_ours", **given))
    for prefix in ("chosen_theirs", "chosen_ours"):
        for table, rows in {"chosen": 1, "free": 2}.items():
            records(kafka, prefix, table, rows)
    sql(f"INSERT INTO chosen VALUES (2, {row.format(late, late)})", "UPDATE chosen SET note = 'y' WHERE id = 2")
    sql("UPDATE chosen SET id = 3 WHERE id = 2", "DELETE FROM chosen WHERE id = 3", "DELETE FROM chosen")
    sql("INSERT INTO free VALUES (3, 'q', 'c')", "UPDATE free SET b = 'z' WHERE a = 1", "UPDATE free SET c = 'd'")
    sql("DELETE FROM free WHERE b IS NULL", "INSERT INTO shy VALUES (1, 'a')", "UPDATE shy SET id = 2")
    sql("DELETE FROM shy", "INSERT INTO bare VALUES (1, 'a')", "DELETE FROM bare")
    for table, count in expected.items():
        theirs, mine = (comparable(records(kafka, one, table, count)) for one in ("chosen_theirs", "chosen_ours"))
        assert len(mine) == count
        for key, _ in theirs if table in ("shy", "bare") else ():  # the key is excluded, so its NOT NULL is not known
            key["schema"]["fields"][0]["optional"] = False
        assert without_place(mine) == without_place(theirs)
        assert headers(kafka, "chosen_ours", table) == headers(kafka, "chosen_theirs", table)
    debezium.delete("chosen_theirs")
    ours["chosen_ours"].delete()


def without_place(found: list[Record]) -> list[Record]:
    """Records without the place of their transaction, which each connector may know later."""
    for _, document in found:
        if (value := payload(document)) is not None:
            value["source"] |= {"snapshot": None, "sequence": None}
    return found


@pytest.mark.parametrize("mode", ["sql", "stream"])
def test_a_connector_moves_to_connectx_and_back_with_slot_and_offsets(
    sql: Sql,
    kafka: EmbeddedKafka,
    debezium: RestClient,
    ours: cx.Cluster,
    settings: Callable[..., dict[str, str]],
    mode: str,
) -> None:
    name, table = f"moving_{mode}", f"moved_{mode}"
    sql(f"CREATE TABLE {table} (id int PRIMARY KEY, name text)", f"INSERT INTO {table} VALUES (1, 'a')")
    config = settings(name, table_include_list=f"public.{table}")
    expected: list[tuple[str | None, int]] = [("r", 1)]

    def change(number: int) -> None:
        """A transaction of three changes, and one of a single change."""
        sql("BEGIN", f"INSERT INTO {table} VALUES ({number}, 'a'), ({number + 1}, 'b')")
        sql(
            f"UPDATE {table} SET name = 'c' WHERE id = {number}",
            "COMMIT",
            f"DELETE FROM {table} WHERE id = {number + 1}",
        )
        expected.extend([("c", number), ("c", number + 1), ("u", number), ("d", number + 1), (None, number + 1)])

    def arrived() -> list[tuple[str | None, int]]:
        found = records(kafka, name, table, len(expected))
        return [(value and value["op"], key["id"]) for key, value in found]

    def released() -> bool:
        """No reader has the slot."""
        return sql(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{name}'") == [(False,)]

    debezium.create(name, config)
    arrived()
    change(10)
    assert arrived() == expected
    debezium.stop(name)
    until(released, "Debezium to release the slot")
    change(20)
    connector = ours.create(name, {**config, "slot.read.mode": mode})
    change(30)
    assert arrived() == expected
    connector.stop()
    connector.wait("STOPPED", timeout=WAIT_S)
    until(released, "connectx to release the slot")
    change(40)
    debezium.resume(name)
    change(50)
    assert arrived() == expected
    debezium.stop(name)
    until(released, "Debezium to release the slot")
    connector.resume()
    change(60)
    assert arrived() == expected
    connector.delete()
    debezium.delete(name)
