"""A request of a transaction that arrives late, on a connection that was cut, changes nothing that is committed.

librdkafka speaks the old transaction protocol only. With it, and the broker of `tests/unit/kafka/loopback.py`,
a late EndTxn commits the half of the next transaction that the broker has. A task that takes over writes that half
again: 50 of 200 rows come twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.protocol.admin import UpdateFeaturesRequest
from kafka.protocol.api_key import ApiKey

import connectx as cx
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.broker.gate import Gate
from connectx.kafka.net import KafkaNet
from connectx.kafka.producer.producer import KafkaProducer
from connectx.model.events import EventKind
from tests.support.clusters import events
from tests.support.flows import Lines
from tests.support.options import BROKER
from tests.support.other_kafka import kafka_3_9
from tests.support.waiting import until

pytestmark = BROKER
ROWS = 50
LIMIT_S = 60.0
WORKER = "late"


class LateLink:
    """The gate of a broker, which holds one kind of request of the producer, and delivers it when it is told to.

    `level` is that of the feature transaction.version.
    """

    def __init__(self, kafka: EmbeddedKafka, level: int) -> None:
        assert kafka.gate is not None
        self.kafka = kafka
        self.level = level
        self._gate: Gate = kafka.gate

    def hold(self, kind: ApiKey) -> None:
        self._arrived: list[Mapping[str, int]] = []
        self._kind = kind
        self._gate.delay(WORKER, [kind], LIMIT_S, self._arrived.append)

    def wait_held(self) -> None:
        until(lambda: self._gate.delayed(WORKER), "a request that is held")

    def deliver(self) -> None:
        self._gate.deliver(WORKER)
        until(lambda: self._arrived, "the broker's answer to the late request")
        assert [list(requests) for requests in self._arrived] == [[self._kind.name]]


@pytest.fixture(scope="module", params=["level 2", "level 1", "level 0", "Kafka 3.9"])
def link(request: pytest.FixtureRequest) -> Iterator[LateLink]:
    level = int(request.param[-1]) if request.param.startswith("level") else 0
    with kafka_3_9() if request.param == "Kafka 3.9" else EmbeddedKafka() as kafka:
        if request.param in ("level 1", "level 0"):
            set_transaction_version(kafka.bootstrap_servers, level)
        yield LateLink(kafka, level)


@pytest.fixture
def topic(link: LateLink, request: pytest.FixtureRequest) -> str:
    name = "late-" + "".join(c if c.isalnum() else "-" for c in request.node.name)
    admin = AdminClient({"bootstrap.servers": link.kafka.bootstrap_servers})
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
    servers = {"bootstrap.servers": link.kafka.worker_bootstrap_servers, "client.id": f"{WORKER}/producer"}
    producer = KafkaProducer({**servers, "transactional.id": f"id-of-{topic}"})
    producer.init()
    return producer


def rows(transaction: int, half: int) -> pa.Table:
    return pa.table({"value": [b"%d-%d-%d" % (transaction, half, row) for row in range(ROWS)]})


def committed(link: LateLink, topic: str) -> Counter[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": link.kafka.bootstrap_servers,
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


@pytest.mark.parametrize("kind", [ApiKey.EndTxn, ApiKey.Produce, ApiKey.AddPartitionsToTxn])
@pytest.mark.parametrize("killed", [True, False])
def test_a_late_request_of_a_transaction_neither_loses_nor_doubles_a_row(
    link: LateLink, topic: str, kind: ApiKey, killed: bool
) -> None:
    if kind == ApiKey.AddPartitionsToTxn and link.level == 2:
        return  # protocol 2 sends none
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
    assert committed(link, topic) == expected(1, 2)


def test_a_late_abort_does_not_end_the_next_transaction(link: LateLink, topic: str) -> None:
    producer = producer_of(link, topic)
    producer.begin()
    producer.send(rows(1, 0), topic)
    link.hold(ApiKey.EndTxn)
    producer.abort(LIMIT_S)
    link.wait_held()
    producer.begin()
    producer.send(rows(2, 0), topic)
    assert producer.flush(LIMIT_S)
    link.deliver()
    producer.send(rows(2, 1), topic)
    assert producer.commit(LIMIT_S)
    producer.close()
    assert committed(link, topic) == expected(2)


def test_a_late_end_of_a_source_tasks_transaction_neither_loses_nor_doubles_a_record(
    workers: cx.Cluster, make_lines: Callable[..., Lines]
) -> None:
    gate = workers.kafka.gate if workers.kafka is not None else None
    assert gate is not None
    lines = make_lines(workers)
    connector = lines.start(transaction_boundary="interval", transaction_boundary_interval_ms="5000")
    lines.append(ROWS)
    lines.wait_committed()  # and the next transaction's coordinator is connected
    owner, since = lines.owner(), workers.events.last_seq
    lines.append(ROWS)
    lines.wait_written(2 * ROWS)
    workers.delay(owner.name, ["EndTxn"], for_s=LIMIT_S)
    until(lambda: gate.delayed(owner.name), "a held EndTxn")
    lines.wait_committed()  # by another attempt

    lines.append(ROWS)
    lines.wait_written(3 * ROWS)
    gate.deliver(owner.name)
    until(lambda: events(workers, EventKind.FAULT_INJECTED, since, fault="deliver"), "its arrival")
    until(lambda: not gate.delayed(owner.name), "its answer")
    workers.kill(owner.name)
    connector.config.update({"transaction.boundary": "poll"})
    lines.append(ROWS)
    lines.check_exactly_once()
