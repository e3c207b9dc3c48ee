"""The gate cuts, holds and heals one worker's connections, with real clients on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
from confluent_kafka import Consumer, Message, Producer
from kafka.protocol.api_key import ApiKey

from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.broker.gate import Direction, Gate
from tests.support.waiting import until


@pytest.fixture
def gate(kafka: EmbeddedKafka) -> Iterator[Gate]:
    assert kafka.gate is not None
    yield kafka.gate
    for worker in ("w-1", "w-2"):
        kafka.gate.heal(worker)
        kafka.gate.release(worker)


def make_producer(kafka: EmbeddedKafka, client_id: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": kafka.worker_bootstrap_servers,
            "client.id": client_id,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "acks": "all",
            "log_level": 0,
        }
    )


def end_offset(kafka: EmbeddedKafka, topic: str) -> int:
    """How many records the broker has, asked past the gate."""
    from confluent_kafka import TopicPartition

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "not-used"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
    finally:
        consumer.close()


def send(producer: Producer, topic: str) -> list[Message]:
    """Send one record; the list has its delivery report once there is one."""
    reports: list[Message] = []
    producer.produce(topic, b"x", on_delivery=lambda _, message: reports.append(message))
    return reports


def test_it_knows_connections_by_the_client_id_up_to_the_slash(
    kafka: EmbeddedKafka, gate: Gate, topic: Callable[..., str]
) -> None:
    from kafka import KafkaProducer

    name = topic("gate")
    confluent = make_producer(kafka, "w-1/source-0")
    send(confluent, name)
    assert confluent.flush(20) == 0
    pure_python = KafkaProducer(bootstrap_servers=kafka.worker_bootstrap_servers, client_id="w-2/membership")
    pure_python.send(name, b"x").get(20)
    seen = gate.connections()
    assert seen["w-1"] >= 1
    assert seen["w-2"] >= 1
    pure_python.close()


def test_a_cut_resets_connections_and_refuses_new_ones_until_heal(
    kafka: EmbeddedKafka, gate: Gate, topic: Callable[..., str]
) -> None:
    name = topic("gate")
    cut, other = make_producer(kafka, "w-1/p"), make_producer(kafka, "w-2/p")
    send(cut, name)
    assert cut.flush(20) == 0
    gate.cut("w-1")
    assert "w-1" not in gate.connections()
    reports = send(cut, name)
    send(other, name)
    assert other.flush(20) == 0
    assert cut.flush(0.5) == 1
    assert end_offset(kafka, name) == 2
    gate.heal("w-1")
    assert cut.flush(20) == 0
    assert reports[0].error() is None
    assert end_offset(kafka, name) == 3


def test_hold_keeps_connections_open_and_release_delivers_what_was_held(
    kafka: EmbeddedKafka, gate: Gate, topic: Callable[..., str]
) -> None:
    name = topic("gate")
    producer = make_producer(kafka, "w-1/p")
    send(producer, name)
    assert producer.flush(20) == 0
    before = gate.connections()["w-1"]
    gate.hold("w-1")
    reports = send(producer, name)
    assert producer.flush(0.5) == 1
    assert end_offset(kafka, name) == 1
    assert gate.connections()["w-1"] == before
    gate.release("w-1")
    assert producer.flush(20) == 0
    assert reports[0].error() is None
    assert end_offset(kafka, name) == 2


def test_a_cut_inwards_lets_writes_arrive_whose_answers_do_not(
    kafka: EmbeddedKafka, gate: Gate, topic: Callable[..., str]
) -> None:
    name = topic("gate")
    producer = make_producer(kafka, "w-1/p")
    send(producer, name)
    assert producer.flush(20) == 0
    gate.cut("w-1", "in")
    reports = send(producer, name)
    producer.poll(0)
    until(lambda: end_offset(kafka, name) == 2, "both records")
    producer.poll(0.2)
    assert reports == []
    gate.heal("w-1")
    assert producer.flush(20) == 0
    assert reports[0].error() is None
    assert end_offset(kafka, name) == 2


def test_a_cut_outwards_holds_writes_back(kafka: EmbeddedKafka, gate: Gate, topic: Callable[..., str]) -> None:
    name = topic("gate")
    producer = make_producer(kafka, "w-1/p")
    send(producer, name)
    assert producer.flush(20) == 0
    gate.cut("w-1", "out")
    send(producer, name)
    assert producer.flush(0.5) == 1
    assert end_offset(kafka, name) == 1
    gate.heal("w-1")
    assert producer.flush(20) == 0
    assert end_offset(kafka, name) == 2


@pytest.mark.parametrize("direction", ["both", "in", "out"])
def test_a_worker_that_is_held_and_cut_is_free_only_when_both_have_ended(
    kafka: EmbeddedKafka, gate: Gate, topic: Callable[..., str], direction: Direction
) -> None:
    name = topic("gate")
    for first, second in ((gate.release, gate.heal), (gate.heal, gate.release)):
        producer = make_producer(kafka, "w-1/p")
        gate.cut("w-1", direction)
        gate.hold("w-1")
        send(producer, name)
        first("w-1")
        assert producer.flush(0.5) == 1
        second("w-1")
        assert producer.flush(20) == 0


def test_another_cut_replaces_the_first(kafka: EmbeddedKafka, gate: Gate, topic: Callable[..., str]) -> None:
    name = topic("gate")
    producer = make_producer(kafka, "w-1/p")
    send(producer, name)
    assert producer.flush(20) == 0
    gate.cut("w-1", "out")
    assert "w-1" in gate.connections()
    gate.cut("w-1")
    assert "w-1" not in gate.connections()
    gate.cut("w-1", "in")
    send(producer, name)
    producer.poll(0)
    until(lambda: "w-1" in gate.connections(), "connections whose answers are held back")
    assert producer.flush(0.5) == 1
    gate.heal("w-1")
    assert producer.flush(20) == 0


def test_a_delayed_request_arrives_whole_after_its_client_has_sent_it_again(
    kafka: EmbeddedKafka, gate: Gate, topic: Callable[..., str]
) -> None:
    name = topic("gate")
    producer = make_producer(kafka, "w-1/p")
    send(producer, name)
    assert producer.flush(20) == 0
    arrived: list[Mapping[str, int]] = []
    gate.delay("w-1", [ApiKey.Produce], 3600, arrived.append)
    producer.produce(name, b"x" * 900_000)
    assert producer.flush(20) == 0, "on a new connection"
    assert gate.delayed("w-1") == {"Produce": 1}
    assert end_offset(kafka, name) == 2
    gate.deliver("w-1")
    until(lambda: arrived, "the late request's arrival")
    assert arrived == [{"Produce": 1}]
    until(lambda: gate.delayed("w-1") == {}, "the late request's answer")
    assert end_offset(kafka, name) == 3, "twice, because this producer numbers nothing"


def test_a_delay_ends_by_itself_and_leaves_connections_without_such_a_request_alone(
    kafka: EmbeddedKafka, gate: Gate, topic: Callable[..., str]
) -> None:
    name = topic("gate")
    producer = make_producer(kafka, "w-1/p")
    send(producer, name)
    assert producer.flush(20) == 0
    before = gate.connections()["w-1"]
    arrived: list[Mapping[str, int]] = []
    gate.delay("w-1", [ApiKey.EndTxn], 0.2, arrived.append)
    send(producer, name)
    assert producer.flush(20) == 0
    until(lambda: arrived, "the end of the delay")
    assert arrived == [{}]
    assert gate.connections()["w-1"] == before
    assert end_offset(kafka, name) == 2


def test_a_large_flow_passes_unchanged(kafka: EmbeddedKafka, gate: Gate, topic: Callable[..., str]) -> None:
    """More than all buffers together, both ways, so that back-pressure happens."""
    name = topic("gate")
    producer = make_producer(kafka, "w-1/p")
    values = [bytes([number % 251]) * 900_000 for number in range(40)]
    for value in values:
        producer.produce(name, value)
        producer.poll(0)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.worker_bootstrap_servers,
            "client.id": "w-2/c",
            "group.id": name,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([name])
    received: list[bytes] = []

    def all_received() -> bool:
        received.extend(message.value() or b"" for message in consumer.consume(10, 0.5) if message.error() is None)
        return len(received) == len(values)

    until(all_received, "all records", 60)
    consumer.close()
    assert received == values


def test_verbs_on_a_closed_gate_do_nothing() -> None:
    gate = Gate()
    gate.start("127.0.0.1", 9)
    gate.cut("w")
    gate.close()
    gate.heal("w")
    gate.close()
    assert gate.connections() == {}
