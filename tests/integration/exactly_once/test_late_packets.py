"""A request of a transaction that arrives late, on a connection that was cut, changes nothing that is committed.

librdkafka speaks the old transaction protocol only. With it, and the broker of `tests/unit/kafka/loopback.py`,
a late EndTxn commits the half of the next transaction that the broker has. A task that takes over writes that half
again: 50 of 200 rows come twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.protocol.admin import UpdateFeaturesRequest

from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.net import KafkaNet
from connectx.kafka.producer.producer import KafkaProducer
from tests.support.late_packets import ADD_PARTITIONS, END_TXN, PRODUCE, LateLink
from tests.support.options import BROKER

pytestmark = BROKER
ROWS = 50
LIMIT_S = 60.0


@pytest.fixture(scope="module", params=[2, 1, 0])
def version(request: pytest.FixtureRequest) -> int:
    """Level of the feature transaction.version."""
    return int(request.param)


@pytest.fixture(scope="module")
def late_kafka() -> Iterator[tuple[EmbeddedKafka, LateLink]]:
    with EmbeddedKafka(gate=True) as kafka:
        link = LateLink.before(kafka)
        yield kafka, link
        link.close()


@pytest.fixture
def link(late_kafka: tuple[EmbeddedKafka, LateLink], version: int) -> LateLink:
    kafka, link = late_kafka
    if version < 2:
        set_transaction_version(kafka.bootstrap_servers, version)
    return link


@pytest.fixture
def topic(late_kafka: tuple[EmbeddedKafka, LateLink], request: pytest.FixtureRequest) -> str:
    name = "late-" + "".join(c if c.isalnum() else "-" for c in request.node.name)
    admin = AdminClient({"bootstrap.servers": late_kafka[0].bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


def set_transaction_version(bootstrap_servers: str, level: int) -> None:
    """Downgrade the feature; 0 removes it."""
    net = KafkaNet({"bootstrap_servers": [bootstrap_servers], "client_id": "features"})
    net.start()
    key = UpdateFeaturesRequest.FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=3)

    async def ask() -> Any:
        request = UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[key], validate_only=False)
        return await net.send(request, await net.any_node(time.monotonic() + 30), 30_000)

    try:
        reply = net.run(ask)
        assert reply.error_code == 0, reply
    finally:
        net.close()


def producer_of(link: LateLink, topic: str) -> KafkaProducer:
    producer = KafkaProducer({"bootstrap.servers": link.address, "transactional.id": f"id-of-{topic}"})
    producer.init()
    return producer


def rows(transaction: int, half: int) -> pa.Table:
    return pa.table({"value": [b"%d-%d-%d" % (transaction, half, row) for row in range(ROWS)]})


def committed(kafka: EmbeddedKafka, topic: str) -> Counter[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "late-readers",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: Counter[bytes] = Counter()
    while (message := consumer.poll(LIMIT_S)) is not None and message.error() is None:
        found[message.value() or b""] += 1
    consumer.close()
    return found


def expected(*transactions: int) -> Counter[bytes]:
    return Counter(value for t in transactions for half in (0, 1) for value in rows(t, half)["value"].to_pylist())


@pytest.mark.parametrize("kind", [END_TXN, PRODUCE, ADD_PARTITIONS])
@pytest.mark.parametrize("killed", [True, False])
def test_a_late_request_of_a_transaction_neither_loses_nor_doubles_a_row(
    late_kafka: tuple[EmbeddedKafka, LateLink], link: LateLink, topic: str, version: int, kind: int, killed: bool
) -> None:
    if kind == ADD_PARTITIONS and version == 2:
        return  # protocol 2 sends none
    kafka, _ = late_kafka
    producer = producer_of(link, topic)
    producer.begin()
    link.hold(kind)
    producer.send(rows(1, 0), topic)
    producer.send(rows(1, 1), topic)
    assert producer.commit(LIMIT_S)
    link.wait_held()

    producer.begin()
    producer.send(rows(2, 0), topic)
    assert producer.flush(LIMIT_S)
    link.deliver()
    producer.send(rows(2, 1), topic)
    if killed:
        assert producer.flush(LIMIT_S)
        producer.abandon()
        producer = producer_of(link, topic)
        producer.begin()
        producer.send(rows(2, 0), topic)
        producer.send(rows(2, 1), topic)
    assert producer.commit(LIMIT_S)
    producer.close()
    assert committed(kafka, topic) == expected(1, 2)


def test_a_late_abort_does_not_end_the_next_transaction(
    late_kafka: tuple[EmbeddedKafka, LateLink], link: LateLink, topic: str
) -> None:
    kafka, _ = late_kafka
    producer = producer_of(link, topic)
    producer.begin()
    producer.send(rows(1, 0), topic)
    link.hold(END_TXN)
    producer.abort(LIMIT_S)
    link.wait_held()
    producer.begin()
    producer.send(rows(2, 0), topic)
    assert producer.flush(LIMIT_S)
    link.deliver()
    producer.send(rows(2, 1), topic)
    assert producer.commit(LIMIT_S)
    producer.close()
    assert committed(kafka, topic) == expected(2)
