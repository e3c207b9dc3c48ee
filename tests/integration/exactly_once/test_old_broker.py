"""Exactly-once on Kafka 3.9, the last that has only the old transaction protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import connectx as cx
from connectx.errors.kafka import ProducerFencedError
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.producer.producer import KafkaProducer
from connectx.spark.sessions import SparkProvider
from tests.conformance.brokers import Broker
from tests.conformance.request_scenarios import OLD_REQUESTS
from tests.conformance.script import run, steps
from tests.support.flows import Lines
from tests.support.options import BROKER
from tests.support.other_kafka import kafka_3_9
from tests.support.profiles import EOS
from tests.support.records import Reader
from tests.support.topics import create_topic
from tests.support.waiting import until

pytestmark = BROKER
LIMIT_S = 60.0
ONE = {f"{store}.storage.replication.factor": "1" for store in ("config", "offset", "status")}


@pytest.fixture(scope="module")
def old() -> Iterator[EmbeddedKafka]:
    with kafka_3_9(gate=False) as kafka:
        yield kafka


def test_an_old_broker_answers_single_requests_as_the_scripts_say(old: EmbeddedKafka) -> None:
    broker = Broker(old)
    try:
        for script in OLD_REQUESTS.values():
            assert run(script, broker.requests()) == steps(script)
    finally:
        broker.clients.close()


def test_a_producer_commits_aborts_and_is_fenced_on_an_old_broker(old: EmbeddedKafka) -> None:
    topic = create_topic(old.bootstrap_servers, "old")
    settings = {"bootstrap.servers": old.bootstrap_servers, "transactional.id": "old"}
    first, second = KafkaProducer(settings), KafkaProducer(settings)
    first.init()
    for value, commits in ((b"1", True), (b"2", False), (b"3", True)):
        first.begin()
        first.send(pa.table({"value": [value]}), topic)
        if commits:
            assert first.commit(LIMIT_S)
        else:
            first.abort(LIMIT_S)
    first.begin()
    first.send(pa.table({"value": [b"4"]}), topic)
    assert first.flush(LIMIT_S)
    second.init()
    second.begin()
    second.send(pa.table({"value": [b"5"]}), topic)
    assert second.commit(LIMIT_S)
    with pytest.raises(ProducerFencedError):
        first.commit(LIMIT_S)
    for producer in (first, second):
        producer.close()
    reader = Reader(old.bootstrap_servers, topic)
    until(lambda: len(reader.values()) >= 3, "three records")
    assert reader.values() == ["1", "3", "5"]
    reader.close()


def test_an_exactly_once_source_on_an_old_broker_survives_the_death_of_its_worker(
    old: EmbeddedKafka, spark_provider: SparkProvider, make_lines: Callable[..., Lines]
) -> None:
    times = {"heartbeat.interval.ms": "500"}
    config = {**EOS, **ONE, **times, "exactly.once.source.support": "enabled", "group.id": "old"}
    with cx.Cluster(2, config=config, bootstrap_servers=old.bootstrap_servers, spark=spark_provider.get()) as cluster:
        lines = make_lines(cluster)
        lines.start()
        lines.append(100)
        lines.wait_committed()
        lines.append(100)
        cluster.kill(lines.owner().name)
        lines.append(100)
        lines.check_exactly_once()
