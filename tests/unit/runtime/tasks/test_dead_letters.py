"""A record goes to the dead letter queue once, however often its put is tried. What Kafka refused does not count."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest

from connectx.errors.kafka import RecordRefusedError
from connectx.history.clock import system_clock
from connectx.kafka.fetcher.chunks import SCHEMA
from connectx.model.ids import TaskId, TopicPartition
from connectx.plugins.settings import sink_connector_settings
from connectx.runtime.tasks.record_errors import RecordErrors, log_text
from connectx.runtime.tasks.sink import dead_letters
from connectx.runtime.tasks.sink.dead_letters import DeadLetter, DeadLetterQueue

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


CONFIG = {
    "name": "s",
    "connector.class": "C",
    "topics": "a",
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "dead",
}


class Sent:
    """Stands for the queue's producer: keeps values, and refuses while `refusing`."""

    def __init__(self, *arguments: object, **options: object) -> None:
        self.values: list[bytes] = []
        self.refusing = False
        self.refusals = 0

    def send(self, rows: pa.Table, topic: str) -> None:
        self.values += rows["value"].to_pylist()

    def flush(self, timeout_s: float) -> bool:
        if self.refusing:
            raise RecordRefusedError("A record is too large.", next_step="")
        return True


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    producer = Sent()
    monkeypatch.setattr(dead_letters, "KafkaProducer", lambda *arguments, **options: producer)
    return producer


@pytest.fixture
def queue(sent: Sent) -> DeadLetterQueue:
    errors, settings = RecordErrors(system_clock()), sink_connector_settings(CONFIG)
    return DeadLetterQueue(TaskId("s", 0), settings, cast(Any, {}), cast(Any, None), lambda: None, str, errors)


def report(queue: DeadLetterQueue, partition: TopicPartition, *offsets: int) -> None:
    """Report records whose values name their places, out of a fetch with one more."""
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": offset,
            "value": value(partition, offset),
        }
        for offset in (-1, *offsets)
    ]
    raw = pa.Table.from_pylist([dict.fromkeys(SCHEMA.names) | row for row in rows], SCHEMA)
    bad = ValueError("bad")
    queue.report(raw, [DeadLetter(row, "VALUE_CONVERTER", "C", bad) for row in range(1, len(rows))])


def value(partition: TopicPartition, offset: int) -> bytes:
    return f"{partition}@{offset}".encode()


def test_records_that_are_put_again_are_sent_once(queue: DeadLetterQueue, sent: Sent) -> None:
    report(queue, A0, 3, 5)
    queue.flush()
    report(queue, A0, 3)  # as the worker finds them, in other pieces
    report(queue, A0, 4, 5)
    report(queue, A1, 3)
    assert sent.values == [value(A0, 3), value(A0, 5), value(A0, 4), value(A1, 3)]


def test_a_record_that_kafka_refused_is_sent_again(queue: DeadLetterQueue, sent: Sent) -> None:
    report(queue, A0, 3)
    sent.refusing = True
    with pytest.raises(RecordRefusedError):
        queue.flush()
    report(queue, A0, 3)
    assert sent.values == [value(A0, 3)] * 2


def test_letters_are_forgotten_when_their_records_are_put_or_their_partition_is_taken_away(
    queue: DeadLetterQueue, sent: Sent
) -> None:
    report(queue, A0, 3, 5)
    report(queue, A1, 3)
    queue.settled({A0: 5})
    queue.closed([A1])
    sent.values.clear()
    report(queue, A0, 3, 5)
    report(queue, A1, 3)
    assert sent.values == [value(A0, 3), value(A1, 3)]


def test_the_log_has_the_cause_and_the_record_and_no_next_step() -> None:
    error = RecordRefusedError("Kafka refuses it.", next_step="Set errors.tolerance=all.")
    assert log_text(error) == "Kafka refuses it."
    assert log_text(error, {"offset": 7}) == "Kafka refuses it, where consumed record is {'offset': 7}"
    assert log_text(ValueError("odd"), {"offset": 7}) == "odd, where consumed record is {'offset': 7}"
