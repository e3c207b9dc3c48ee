"""Keys of a topic and of a target, counted by Spark: lost, duplicated, unexplained, with examples."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake

import connectx as cx
from connectx.connectors.lake.changes import UpsertSettings
from connectx.connectors.shared.postgres import PostgresSession
from connectx.errors.checks import CheckError
from connectx.errors.kafka import TopicMissingError
from connectx.kafka.admin.topic_snapshot import take_snapshot
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.worker_config import WorkerConfig, own_kafka_config
from connectx.plugins.stored import Stored
from connectx.spark.sessions import SparkProvider
from connectx.spark.slices import TaskSpark
from connectx.verify.check.keys import KeyComparison
from connectx.verify.check.sides import Sides, Topic, decode_plainly
from connectx.verify.check.verdict import Verdict
from tests.support.clusters import MakeCluster
from tests.support.profiles import JSON, QUICK
from tests.support.records import read_all
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.timeout(240)  # Spark plans and compiles for each of them

Check = Callable[..., Verdict]
MakeTopic = Callable[..., str]


@pytest.fixture
def by_key(kafka: EmbeddedKafka, spark: SparkSession) -> Check:
    def call(topic: str, target: Any, key: Any = (), examples: int = 5) -> Verdict:
        given: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers, "spark": spark}
        return cx.check(topic=topic, target=target, key=key, depth="keys", examples=examples, **given)

    return call


def fill(kafka: EmbeddedKafka, topic: str, values: list[Any], **settings: str) -> None:
    """Records in one transaction; None is a tombstone, a text is itself, anything else JSON."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"fill-{topic}", **settings})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        text = value if value is None or isinstance(value, str) else json.dumps(value)
        producer.produce(topic, text, "k")
    producer.commit_transaction(30)
    producer.begin_transaction()  # what was taken back is not to be seen
    producer.produce(topic, json.dumps({"id": 99, "part": "aborted"}), "k")
    producer.flush(30)
    producer.abort_transaction(30)


def row(number: int, part: str = "a") -> dict[str, Any]:
    return {"id": number, "part": part, "note": "x"}


def of_target(verdict: Verdict) -> dict[str, tuple[int, list[str]]]:
    """Findings by anomaly: their count, and their examples."""
    return {str(one.anomaly): (one.count, [e.text for e in one.examples]) for one in verdict.findings}


def test_a_table_is_compared_by_a_key_of_several_fields(
    kafka: EmbeddedKafka, postgres: str, topic: MakeTopic, by_key: Check
) -> None:
    name = topic("compared", 2)
    fill(kafka, name, [row(1), row(2), row(3), row(3), row(4, "b"), None])
    session = PostgresSession(postgres, {})
    session.execute("DROP TABLE IF EXISTS compared")
    session.execute("CREATE TABLE compared (id numeric(9, 2), part text, other text)")
    session.execute("INSERT INTO compared VALUES (1, 'a'), (1, 'a'), (3, 'a'), (4, 'b'), (7, 'z')")
    session.commit()
    session.close()
    verdict = by_key(name, (postgres, "compared"), ["id", "part"])
    assert of_target(verdict) == {
        "lost": (1, ['{"id": "2", "part": "a"}']),
        "duplicated": (1, ['{"id": "1", "part": "a"}']),
    }
    lost = next(finding for finding in verdict.findings if finding.anomaly == "lost")
    assert (lost.place, lost.examples[0].offset) == ("table compared", 1)
    assert "1 row in table compared cannot be explained by topic" in "; ".join(verdict.reasons)
    assert '"z"' in "; ".join(verdict.reasons)
    checked = verdict.checked[-1]
    assert (checked.found, checked.expected, checked.by_key) == (5, 4, True)


def test_data_frames_are_compared_and_examples_are_few_while_counts_are_exact(
    kafka: EmbeddedKafka, spark: SparkSession, topic: MakeTopic, by_key: Check
) -> None:
    name = topic("compared")
    fill(kafka, name, [row(number) for number in range(50)])
    ours = pd.DataFrame({"id": range(10)})
    verdict = by_key(name, ours, "id", examples=3)
    assert of_target(verdict) == {"lost": (40, ['{"id": "10"}', '{"id": "11"}', '{"id": "12"}'])}
    complete = by_key(name, spark.createDataFrame(pd.DataFrame({"id": range(50)})), "id")
    assert of_target(complete) == {}
    assert (complete.checked[-1].found, complete.checked[-1].by_key) == (50, True)
    with pytest.raises(CheckError, match="no column nothing"):
        by_key(name, ours, "nothing")
    with pytest.raises(CheckError, match="No fields were named"):
        by_key(name, ours)


def test_lines_of_a_file_are_compared_whole_or_by_a_field(
    kafka: EmbeddedKafka, topic: MakeTopic, by_key: Check, tmp_path: Path
) -> None:
    name, path = topic("compared"), tmp_path / "out.txt"
    text = {"schema": {"type": "string", "optional": False}, "payload": "four"}  # as JsonConverter writes a line
    fill(kafka, name, ["one", "two", "three", text])
    path.write_text("one\ntwo\ntwo\nfour\n")
    assert of_target(by_key(name, str(path))) == {"lost": (1, ["three"]), "duplicated": (1, ["two"])}
    rows = topic("compared")
    fill(kafka, rows, [{"schema": {"type": "struct"}, "payload": row(1)}, row(2)])
    path.write_text(json.dumps(row(1)) + "\n" + json.dumps(row(2)) + "\n")
    assert of_target(by_key(rows, str(path), "id")) == {}


def test_an_empty_topic_misses_nothing_and_a_missing_one_is_an_error(topic: MakeTopic, by_key: Check) -> None:
    empty = by_key(topic("compared"), [{"id": 1}], "id")
    assert (empty.lost, empty.answer, empty.checked[-1].found) == (0, "unknown", 1)
    with pytest.raises(TopicMissingError):
        by_key("no-such-topic", [{"id": 1}], "id")


def test_a_topic_with_more_records_than_are_compared_by_value_is_compared_by_key(
    kafka: EmbeddedKafka, spark: SparkSession, topic: MakeTopic
) -> None:
    name = topic("compared")
    fill(kafka, name, [row(number) for number in range(20)])
    given: dict[str, Any] = {"topic": name, "bootstrap_servers": kafka.bootstrap_servers, "key": "id", "spark": spark}
    rows = [row(number) for number in range(20)]
    assert [one.by_key for one in cx.check(target=rows, **given).checked] == [False, False]
    assert [one.by_key for one in cx.check(target=rows, max_rows=10, **given).checked] == [False, True]


def test_an_interrupt_ends_what_runs_in_spark(
    kafka: EmbeddedKafka, spark: SparkSession, topic: MakeTopic, by_key: Check
) -> None:
    tracker = spark.sparkContext.statusTracker()
    name = topic("compared")
    fill(kafka, name, [row(1)])

    def interrupt() -> None:
        until(tracker.getActiveJobsIds, "a job")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    endless = spark.range(10**15).selectExpr("max(hash(id)) AS id")
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            by_key(name, endless, "id")
        thread.join()
        until(lambda: not tracker.getActiveJobsIds(), "the end of the job", 20)
    finally:
        spark.sparkContext.cancelAllJobs()
    assert spark.range(3).count() == 3


GENERATOR = {"connector.class": "Generator", "fields": "id:long,name:string", "key.fields": "id", "rate": "0"}
ROWS = 200
DELETED = 5
LEFT = ROWS - DELETED
KEYED = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id", "delete.enabled": "true"}


class Tables:
    """Two tables that keep one row for each key: of SQLite, from a topic of JSON, and of Delta, from one of Avro."""

    def __init__(self, cluster: cx.Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        json_keys = {name.replace("value", "key"): text for name, text in JSON.items()}
        avro = {f"{side}.converter": "AvroConverter" for side in ("key", "value")}
        avro |= {f"{name}.schema.registry.url": cluster.registry_url or "" for name in avro}
        jdbc = {"connector.class": "JdbcSink", "connection.url": f"sqlite:{self.database}", "auto.create": "true"}
        delta = {"connector.class": "DeltaSink", "path": str(folder), "flush.interval.ms": "300"}
        for topic, sink, converters in (("plain", jdbc, {**JSON, **json_keys}), ("avro", delta, avro)):
            cluster.create(f"{topic}-in", {**GENERATOR, "topic": topic, "max.rows": str(ROWS), **converters})
            cluster.create(f"{topic}-out", {**sink, "topics": topic, **KEYED, **converters})

    @property
    def database(self) -> Path:
        """The file of SQLite."""
        return self.folder / "rows.db"

    @property
    def delta(self) -> DeltaTable:
        """The table of Delta."""
        return DeltaTable(self.folder / "avro")

    def wait(self, records: int) -> None:
        """Until both sinks have committed so many records."""
        for sink in ("plain-out", "avro-out"):
            self.cluster.wait_committed(sink, records, timeout=WAIT_S)

    def check(self) -> tuple[Verdict, dict[str, tuple[int, int | None, int]]]:
        """The verdict, and the rows of each table: there, expected and pending."""
        verdict = self.cluster.check(depth="keys")
        return verdict, {one.place: (one.found, one.expected, one.pending) for one in verdict.checked if one.by_key}

    def delete(self) -> None:
        """Tombstones of some keys."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers})
        for topic in ("plain", "avro"):
            for record in read_all(self.cluster.bootstrap_servers, topic)[:DELETED]:
                producer.produce(topic, None, record.key(), partition=record.partition())
        producer.flush(30)
        self.wait(ROWS + DELETED)

    def damage(self) -> None:
        """Key 10 is lost, key 20 is there twice, and the deleted key 2 is there again."""
        with closing(sqlite3.connect(self.database)) as database, database:
            database.execute("CREATE TABLE unkeyed AS SELECT * FROM plain WHERE id <> 10")
            database.execute("DROP TABLE plain")
            database.execute("ALTER TABLE unkeyed RENAME TO plain")
            database.execute("INSERT INTO plain (id, name) VALUES (20, 'again'), (2, 'again')")
        self.delta.delete("id = 10")
        columns = self.delta.to_pyarrow_table().column_names
        again = pa.table({"id": [20, 2], "name": ["again", "again"]})
        write_deltalake(self.delta, again.select(columns), mode="append")


@pytest.fixture
def tables(make_cluster: MakeCluster, tmp_path: Path) -> Iterator[Tables]:
    with make_cluster(workers=1, config=QUICK, registry=True) as cluster:
        yield Tables(cluster, tmp_path)


@pytest.mark.timeout(400)
def test_tables_of_upserting_sinks_are_compared_by_the_key_that_they_keep(tables: Tables) -> None:
    tables.wait(ROWS)
    verdict, counted = tables.check()
    assert verdict.answer == "valid", verdict
    assert counted == dict.fromkeys(("table plain", "table avro"), (ROWS, ROWS, 0))
    tables.delete()
    for connector in tables.cluster.connectors:
        connector.stop()
        connector.wait("STOPPED", WAIT_S)
    tables.damage()
    verdict, counted = tables.check()
    assert counted == dict.fromkeys(("table plain", "table avro"), (LEFT + 1, LEFT, 0))
    found = {(one.place, str(one.anomaly)): [e.text for e in one.examples] for one in verdict.findings}
    for place in counted:
        assert found[place, "lost"] == ['{"id": "10"}']
        assert found[place, "duplicated"] == ['{"id": "20"}']
        assert f"1 row in {place} cannot be explained by topic" in "; ".join(verdict.reasons)


CHANGES = UpsertSettings(("id",), from_record_key=True, deletes=True, debezium=False).change


@pytest.fixture
def compare_kept(kafka: EmbeddedKafka, spark_provider: SparkProvider) -> Iterator[Callable[..., KeyComparison]]:
    """`compare_kept(topic, read)`: a topic with a table that keeps one row for each record key."""
    clients = ClientConfigs(
        WorkerConfig.parse(own_kafka_config({"bootstrap.servers": kafka.bootstrap_servers})), "check"
    )
    spark = TaskSpark(spark_provider, {})

    def make(name: str, read: Callable[[], Iterator[pa.Table]]) -> KeyComparison:
        stored = Stored("table kept", read, key=("id",), change=CHANGES)
        again = partial(take_snapshot, clients)
        return KeyComparison(Sides([Topic(again(name), decode_plainly)], stored, None, take_again=again), spark)

    yield make
    spark.release()


def test_offsets_order_the_records_of_a_key_but_not_those_of_several_partitions(
    kafka: EmbeddedKafka, topic: MakeTopic, compare_kept: Callable[..., KeyComparison]
) -> None:
    name = topic("scattered", 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for key, value, partition, time_ms in (
        ("1", "{}", 0, 1_000),
        ("1", None, 1, 2_000),  # deleted, or written again: the order is unknown
        ("2", "{}", 0, 4_000),
        ("2", None, 0, 3_000),  # deleted: its offset is higher
        ("3", "{}", 0, 5_000),
        ("3", "{}", 1, 6_000),  # there in any order
    ):
        producer.produce(name, value, key, partition=partition, timestamp=time_ms)
    producer.flush(30)
    compared = compare_kept(name, lambda: iter([pa.table({"id": [2]})]))
    found = compared.count(lambda *_: None, 5)
    assert (found.lost, found.alien, found.pending, found.expected) == (1, 1, 0, 1)
    assert [(row.text, row.partition, row.offset) for row in compared.wanted().read()] == [('{"id": "3"}', 1, 1)]
    assert compared.unchecked() == ("records of several partitions change and delete 1 key of table kept",)


def test_rows_that_come_while_the_target_is_read_are_in_the_topic(
    kafka: EmbeddedKafka, topic: MakeTopic, compare_kept: Callable[..., KeyComparison]
) -> None:
    name = topic("growing")

    def read() -> Iterator[pa.Table]:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce(name, "{}", "1")
        producer.flush(30)
        yield pa.table({"id": [1]})

    found = compare_kept(name, read).count(lambda *_: None, 5)
    assert (found.found, found.expected, found.alien) == (1, 1, 0)
