"""Keys of a topic and of a target, counted by Spark: missing, duplicated, unexpected, with examples."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from confluent_kafka import Producer
from py4j.protocol import Py4JNetworkError

from connectx.connectors.shared.postgres import PostgresSession
from connectx.errors.checks import CheckError
from connectx.errors.kafka import TopicMissingError
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.worker_config import WorkerConfig, own_kafka_config
from connectx.verify.check.key_counts import KeyComparison, compare, interruptible
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)  # Spark plans and compiles for each of them

Compare = Callable[..., KeyComparison]
MakeTopic = Callable[..., str]


@pytest.fixture
def compared(kafka: EmbeddedKafka, spark: SparkSession) -> Compare:
    config = WorkerConfig.parse(own_kafka_config({"bootstrap.servers": kafka.bootstrap_servers}))
    clients = ClientConfigs(config, "compare")

    def call(topic: str, target: Any, key: Any = (), examples: int = 5) -> KeyComparison:
        return compare(clients, spark, topic, target, key, examples)

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


def test_a_table_is_compared_by_a_key_of_several_fields(
    kafka: EmbeddedKafka, postgres: str, topic: MakeTopic, compared: Compare
) -> None:
    name = topic("compared", 2)
    fill(kafka, name, [row(1), row(2), row(3), row(3), row(4, "b"), None, "no JSON"])
    session = PostgresSession(postgres, {})
    session.execute("DROP TABLE IF EXISTS compared")
    session.execute("CREATE TABLE compared (id numeric(9, 2), part text, other text)")
    session.execute("INSERT INTO compared VALUES (1, 'a'), (1, 'a'), (3, 'a'), (4, 'b'), (7, 'z'), (NULL, 'a')")
    session.commit()
    session.close()
    found = compared(name, (postgres, "compared"), ["id", "part"])
    assert (found.records, found.rows, found.unidentified) == (5, 5, 3)
    assert (found.missing, found.duplicated, found.unexpected, found.fewer) == (1, 1, 1, 1)
    assert {(e.finding, e.key, e.in_topic, e.in_target) for e in found.examples} == {
        ("missing", "2, a", 1, 0), ("duplicated", "1, a", 1, 2), ("unexpected", "7, z", 0, 1),
    }  # fmt: skip
    assert not found.complete
    assert "missing" in repr(found)
    assert "2, a" in found._repr_html_()
    assert list(found.to_pandas().columns) == ["finding", "key", "in_topic", "in_target"]


def test_data_frames_are_compared_and_examples_are_few_while_counts_are_exact(
    kafka: EmbeddedKafka, spark: SparkSession, topic: MakeTopic, compared: Compare
) -> None:
    name = topic("compared")
    fill(kafka, name, [row(number) for number in range(50)])
    ours = pd.DataFrame({"id": range(10)})
    found = compared(name, ours, "id", examples=3)
    assert (found.missing, len(found.examples), found.duplicated) == (40, 3, 0)
    assert compared(name, spark.createDataFrame(pd.DataFrame({"id": range(50)})), "id").complete
    with pytest.raises(CheckError, match="no column nothing"):
        compared(name, ours, "nothing")
    with pytest.raises(CheckError, match="No fields were named"):
        compared(name, ours)


def test_lines_of_a_file_are_compared_whole_or_by_a_field(
    kafka: EmbeddedKafka, topic: MakeTopic, compared: Compare, tmp_path: Path
) -> None:
    name, path = topic("compared"), tmp_path / "out.txt"
    text = {"schema": {"type": "string", "optional": False}, "payload": "four"}  # as JsonConverter writes a line
    fill(kafka, name, ["one", "two", "three", text])
    path.write_text("one\ntwo\ntwo\nfour\n")
    found = compared(name, str(path))
    assert [(e.finding, e.key) for e in found.examples] == [("missing", "three"), ("duplicated", "two")]
    rows = topic("compared")
    fill(kafka, rows, [{"schema": {"type": "struct"}, "payload": row(1)}, row(2)])
    path.write_text(json.dumps(row(1)) + "\n" + json.dumps(row(2)) + "\n")
    assert compared(rows, str(path), "id").complete


def test_an_empty_topic_misses_nothing_and_a_missing_one_is_an_error(topic: MakeTopic, compared: Compare) -> None:
    empty = compared(topic("compared"), [{"id": 1}], "id")
    assert (empty.records, empty.missing, empty.unexpected, empty.complete) == (0, 0, 1, True)
    with pytest.raises(TopicMissingError):
        compared("no-such-topic", [{"id": 1}], "id")


def test_an_interrupt_that_breaks_py4js_connection_is_an_interrupt_all_the_same(spark: SparkSession) -> None:
    def collect() -> None:
        with interruptible(spark):
            try:
                raise KeyboardInterrupt
            finally:
                raise Py4JNetworkError("Answer from Java side is empty")

    with pytest.raises(KeyboardInterrupt):
        collect()


def test_an_interrupt_ends_what_runs_in_spark(spark: SparkSession) -> None:
    tracker = spark.sparkContext.statusTracker()

    def interrupt() -> None:
        until(tracker.getActiveJobsIds, "a job")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def count_forever() -> None:
        with interruptible(spark) as session:
            session.range(10**15).selectExpr("max(hash(id))").collect()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            count_forever()
        thread.join()
        until(lambda: not tracker.getActiveJobsIds(), "the end of the job", 20)
    finally:
        spark.sparkContext.cancelAllJobs()
    assert spark.range(3).count() == 3
