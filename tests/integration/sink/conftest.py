"""What sink tests share: a recording listener, producing, and waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Tp

from connectx.kafka.embedded import EmbeddedKafka
from connectx.kafka.librdkafka_log import LibrdkafkaLog
from connectx.kafka.sink_consumer import CommitError, FetchedRecords, SinkConsumer
from connectx.model.ids import TopicPartition


class Member:
    """A consumer with its listener, which notes what it hears."""

    def __init__(self, config: Mapping[str, Any], topics: Sequence[str]) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.owned: dict[TopicPartition, int] = {}
        self.on_assigned: Callable[[], None] = lambda: None
        self.on_revoked: Callable[[], None] = lambda: None
        self.consumer = SinkConsumer(config, self, checkpoint=lambda: None)
        self.consumer.join(topics)

    def assigned(self, positions: Mapping[TopicPartition, int]) -> None:
        self.heard.append(("assigned", dict(positions)))
        self.owned |= positions
        self.on_assigned()

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.heard.append(("revoked", list(partitions)))
        self.on_revoked()
        self._drop(partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.heard.append(("lost", list(partitions)))
        self._drop(partitions)

    def committed(self, sequence: int, error: CommitError | None) -> None:
        self.heard.append(("committed", (sequence, error)))

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self.owned.pop(partition, None)

    def read(self, wanted: Callable[[list[FetchedRecords]], bool], seconds: float = 30.0) -> list[FetchedRecords]:
        """Poll until `wanted` is true of what came."""
        got: list[FetchedRecords] = []

        def enough() -> bool:
            fetched = self.consumer.poll(0.1, 10_000)
            if fetched is not None:
                got.append(fetched)
            return wanted(got)

        until(enough, seconds)
        return got


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Ask until the condition holds; fail after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"


@pytest.fixture
def produce(kafka: EmbeddedKafka) -> Callable[..., None]:
    """`produce(topic, values, partition=0, keys=None, transactional=False, abort=False)`."""

    def send(
        topic: str,
        values: Sequence[bytes | None],
        partition: int = 0,
        keys: Sequence[bytes | None] | None = None,
        transactional: bool = False,
    ) -> None:
        config: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers}
        producer = Producer(config | ({"transactional.id": f"test-{topic}"} if transactional else {}))
        if transactional:
            producer.init_transactions(30)
            producer.begin_transaction()
        for row, value in enumerate(values):
            producer.produce(topic, value, None if keys is None else keys[row], partition=partition)
        if transactional:
            producer.commit_transaction(30)
        producer.flush(30)

    return send


@pytest.fixture
def committed(kafka: EmbeddedKafka) -> Callable[..., dict[str, int]]:
    """`committed(group, topic, partitions)`: what the group holds, by partition name."""

    def ask(group: str, topic: str, partitions: int = 1) -> dict[str, int]:
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
        try:
            answers = consumer.committed([Tp(topic, partition) for partition in range(partitions)], timeout=30)
            return {f"{a.topic}-{a.partition}": a.offset for a in answers if a.offset >= 0}
        finally:
            consumer.close()

    return ask


@pytest.fixture
def member(kafka: EmbeddedKafka) -> Iterator[Callable[..., Member]]:
    """`member(group, *topics, **settings)` joins; all members leave at the end."""
    members: list[Member] = []

    def join(group: str, *topics: str, **settings: Any) -> Member:
        config = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            "isolation.level": "read_committed",
            "partition.assignment.strategy": "range",
            "fetch.queue.backoff.ms": 10,
            "logger": LibrdkafkaLog(),
        }
        members.append(Member(config | {name.replace("_", "."): value for name, value in settings.items()}, topics))
        return members[-1]

    yield join
    for each in members:
        each.consumer.close()
