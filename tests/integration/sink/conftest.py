"""Sink tasks, members of consumer groups, and records for them on the broker of all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.support.databases import Table
from tests.support.profiles import dotted
from tests.support.sink_members import Member
from tests.support.task_harness import SinkPlace

if TYPE_CHECKING:
    from connectx.spark.sessions import SparkProvider


@pytest.fixture
def produce(kafka: EmbeddedKafka) -> Callable[..., None]:
    """`produce(topic, values, partition=0, keys=None, transactional=False)`."""

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
            answers = consumer.committed(
                [TopicPartition(topic, partition) for partition in range(partitions)], timeout=30
            )
            return {f"{a.topic}-{a.partition}": a.offset for a in answers if a.offset >= 0}
        finally:
            consumer.close()

    return ask


@pytest.fixture
def member(kafka: EmbeddedKafka) -> Iterator[Callable[..., Member]]:
    """`member(group, *topics, **settings)` joins; all members leave at the end."""
    members: list[Member] = []

    def join(group: str, *topics: str, **settings: Any) -> Member:
        own = dotted(settings)
        members.append(Member({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, **own}, topics))
        return members[-1]

    yield join
    for each in members:
        each.consumer.close()


@pytest.fixture
def sink_task(kafka: EmbeddedKafka, spark_provider: SparkProvider) -> Iterator[SinkPlace]:
    """`sink_task(name, config, task=0, worker="worker-1")` makes a task that is not begun yet."""
    place = SinkPlace(kafka, spark_provider)
    yield place
    place.close()


@pytest.fixture
def database(postgres: str, topic: Callable[..., str]) -> Table:
    """A table for the records of a topic of two partitions with the same name."""
    return Table(postgres, topic("rows", partitions=2))
