"""Exactly-once sources on three brokers: leaders move, die and restart in the middle of
transactions, one broker throttles.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import connectx as cx
from connectx.kafka.fetcher.ranges import read_ranges
from connectx.model.events import EventKind
from connectx.model.ids import TopicPartition as IdPartition
from connectx.spark.sessions import SparkProvider
from tests.support.kafka_nodes import KafkaNodes, three_nodes
from tests.support.options import BROKER
from tests.support.waiting import until

pytestmark = [BROKER, pytest.mark.timeout(400)]
LINES, ROUND, WAIT_S = "lines", 200, 120.0
_log = logging.getLogger(__name__)
REPLICAS = {f"{store}.storage.replication.factor": "3" for store in ("config", "offset", "status")}


@pytest.fixture(scope="module")
def nodes() -> Iterator[KafkaNodes]:
    with three_nodes() as running:
        yield running


@pytest.fixture
def cluster(nodes: KafkaNodes, spark_provider: SparkProvider) -> Iterator[cx.Cluster]:
    config = {**REPLICAS, "exactly.once.source.support": "enabled", "group.id": "three"}
    with cx.Cluster(2, config=config, bootstrap_servers=nodes.bootstrap_servers, spark=spark_provider.get()) as made:
        yield made


class Flow:
    """A file that grows, line by line, and the topic that a source copies it to in many small transactions."""

    def __init__(self, cluster: cx.Cluster, topic: str, file: Path) -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(30)
        file.touch()
        self._cluster, self._topic, self._file, self._written = cluster, topic, file, 0
        settings = {"file": str(file), "topic": topic, "batch.size": "5", "connector.class": "FileStreamSource"}
        self.connector = cluster.create(
            topic, {**settings, "value.converter": "org.apache.kafka.connect.storage.StringConverter"}
        )
        cluster.wait(topic, "RUNNING", timeout=WAIT_S)
        self._seen: Counter[str] = Counter()
        reader = {"group.id": "outside", "isolation.level": "read_committed", "reconnect.backoff.max.ms": 500}
        self._reader = Consumer({**reader, "bootstrap.servers": cluster.bootstrap_servers}, logger=_log)
        self._reader.assign([TopicPartition(topic, number, 0) for number in range(3)])

    def append(self, lines: int = ROUND) -> None:
        """Write more lines."""
        with self._file.open("a") as file:
            file.writelines(f"{self._written + number}\n" for number in range(lines))
        self._written += lines

    def check(self) -> None:
        """Every line is in the topic once, for a read_committed reader."""
        self._read(self._written)
        expected = Counter(map(str, range(self._written)))
        assert self._seen == expected, (self._seen - expected, expected - self._seen)

    def _read(self, at_least: int) -> None:
        """Read until there are so many records, and then to the end."""
        until(lambda: self._poll().total() >= at_least, f"{at_least} records in {self._topic}", WAIT_S)
        end = sum(self._reader.get_watermark_offsets(TopicPartition(self._topic, n), timeout=10)[1] for n in range(3))
        until(lambda: self._poll() and self._position() >= end, "the end of the topic", WAIT_S)

    def _position(self) -> int:
        found = self._reader.position([TopicPartition(self._topic, n) for n in range(3)])
        return sum(max(0, partition.offset) for partition in found)

    def _poll(self) -> Counter[str]:
        messages = self._reader.consume(10_000, 0.1)
        self._seen.update((message.value() or b"").decode() for message in messages if message.error() is None)
        return self._seen


def test_leaders_that_move_and_die_in_the_middle_of_transactions_lose_and_repeat_nothing(
    cluster: cx.Cluster, nodes: KafkaNodes, tmp_path: Path
) -> None:
    flow = Flow(cluster, LINES, tmp_path / "in.txt")
    for partition in range(3):
        flow.append()
        nodes.move_leader(LINES, partition)
    for topic in (LINES, "__transaction_state"):
        flow.append()
        leader = nodes.leader(topic)
        nodes.kill(leader)
        flow.check()
        nodes.start(leader)
    flow.append()
    flow.check()
    assert not [event for event in cluster.events if event.kind is EventKind.WORKER_FAILED]


def test_a_coordinator_and_leader_that_restarts_in_the_middle_of_transactions_loses_and_repeats_nothing(
    cluster: cx.Cluster, nodes: KafkaNodes, tmp_path: Path
) -> None:
    flow = Flow(cluster, "restarted", tmp_path / "in.txt")
    flow.append()
    nodes.restart(nodes.leader("__transaction_state"))
    flow.append()
    flow.check()
    assert not [event for event in cluster.events if event.kind is EventKind.WORKER_FAILED]


def test_a_broker_that_throttles_its_producers_loses_and_repeats_nothing(
    cluster: cx.Cluster, nodes: KafkaNodes, tmp_path: Path
) -> None:
    flow = Flow(cluster, "throttled", tmp_path / "in.txt")
    nodes.throttle_producers(bytes_per_second=2000)
    try:
        flow.append()
        flow.check()
    finally:
        nodes.throttle_producers(None)
    flow.append()
    flow.check()


def test_a_topic_is_read_on_while_its_leader_moves_and_dies(nodes: KafkaNodes) -> None:
    topic, count = "moving", 600
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(30)
    settings = {"bootstrap.servers": nodes.bootstrap_servers, "batch.num.messages": 10, "enable.idempotence": True}
    producer = Producer(settings, logger=_log)
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0
    config = {"bootstrap.servers": nodes.bootstrap_servers, "max.partition.fetch.bytes": 500}
    # Little is read ahead, so that most of the topic is read from the next leaders.
    tables = read_ranges(
        {**config, "queued.max.messages.kbytes": 1}, {IdPartition(topic, 0): (0, count)}, max_records=50, quiet_s=WAIT_S
    )
    read = [next(tables)]
    nodes.move_leader(topic)
    read += [next(tables) for _ in range(3)]
    leader = nodes.leader(topic)
    nodes.kill(leader)
    try:
        read += tables
        rows = [(row["offset"], row["value"]) for table in read for row in table.to_pylist()]
        assert rows == [(n, b"%d" % n) for n in range(count)]
        assert len(cx.read_topic(topic, nodes.bootstrap_servers)) == count
    finally:
        nodes.start(leader)
