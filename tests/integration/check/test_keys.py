"""Keys of a topic and of a target, counted by Spark: lost, duplicated, unexplained, with examples."""

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

import connectx as cx
from connectx.connectors.shared.postgres import PostgresSession
from connectx.errors.checks import CheckError
from connectx.errors.kafka import TopicMissingError
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.verify.check.verdict import Verdict
from tests.support.waiting import until

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
