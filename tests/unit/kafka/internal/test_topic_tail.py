"""The reader of the internal topics, with a consumer that plays one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition as Tp

from connectx.errors.kafka import ReadToEndError
from connectx.errors.plugins import MalformedDataError
from connectx.kafka.internal import topic_tail
from connectx.kafka.internal.topic_tail import TopicTail
from connectx.kafka.settings.client_config import ClientConfig
from connectx.model.ids import TopicPartition

WHERE = TopicPartition("configs", 0)
IDLE_POLLS = 3
WAIT_S = 20.0


class PlayedConsumer:
    """Polls wait for a record of the test; `asked` are the calls in their order."""

    def __init__(self, settings: object) -> None:
        self.asked: list[object] = []
        self.came: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.offset = 5
        self.changed = threading.Condition()

    def assign(self, partitions: list[Tp]) -> None:
        """Nothing to do."""

    def poll(self, timeout_s: float) -> object:
        self._note(timeout_s)
        try:
            return self.came.get(timeout=timeout_s / 50)
        except queue.Empty:
            return None

    def consume(self, limit: int, timeout: float) -> list[object]:
        return []

    def position(self, partitions: list[Tp]) -> list[Tp]:
        self._note("position")
        return [Tp(WHERE.topic, WHERE.partition, self.offset)]

    def close(self) -> None:
        """Nothing to do."""

    def wait_until_idle(self) -> None:
        """Until some polls in a row were long ones."""
        with self.changed:
            assert self.changed.wait_for(self._is_idle, WAIT_S)

    def _is_idle(self) -> bool:
        return self.asked[-IDLE_POLLS:] == [topic_tail._IDLE_POLL_S] * IDLE_POLLS

    def _note(self, call: object) -> None:
        with self.changed:
            self.asked.append(call)
            self.changed.notify_all()


class Ends:
    """Answers each question for the ends of partitions when the test says so."""

    def __init__(self) -> None:
        self.found: Any = None

    def request_end_offsets(self, partitions: object, found: Any, failed: Any, timeout_s: float) -> None:
        self.found = found


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TopicTail, PlayedConsumer, Ends]]:
    monkeypatch.setattr(topic_tail, "Consumer", PlayedConsumer)
    monkeypatch.setattr(topic_tail, "_BUSY_FOR_S", 0.01)
    ends = Ends()
    tail = TopicTail("tail", ClientConfig({}), cast(Any, ends), lambda _: None, lambda: None, lambda _: None)
    tail.start([WHERE])
    yield tail, cast(PlayedConsumer, tail._consumer), ends
    tail.close()


class Record:
    """A record of the topic."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return WHERE.topic

    def partition(self) -> int:
        return WHERE.partition

    def offset(self) -> int:
        return self._offset


@pytest.mark.parametrize(
    "error", [MalformedDataError("a record", "it is not JSON"), RecursionError(), AttributeError()]
)
def test_a_record_that_cannot_be_read_is_named_and_skipped(
    reader: tuple[TopicTail, PlayedConsumer, Ends], caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    tail, consumer, _ = reader
    taken: queue.SimpleQueue[int] = queue.SimpleQueue()

    def take(record: Any) -> None:
        if record.offset() == 3:
            raise error
        taken.put(record.offset())

    tail._on_record = take
    consumer.came.put(Record(3))
    consumer.came.put(Record(4))
    assert taken.get(timeout=WAIT_S) == 4
    assert "offset 3 of configs-0 is skipped" in caplog.text


def test_a_read_fails_with_the_error_that_ended_the_reader(reader: tuple[TopicTail, PlayedConsumer, Ends]) -> None:
    tail, _, _ = reader
    failed: queue.SimpleQueue[Any] = queue.SimpleQueue()
    tail.read_to_end([WHERE], None, failed.put)

    def broken() -> None:
        raise LookupError("the reason")

    tail._on_turn = broken
    assert "the reason" in str(failed.get(timeout=WAIT_S))


def test_an_idle_reader_does_not_ask_for_positions(reader: tuple[TopicTail, PlayedConsumer, Ends]) -> None:
    _, consumer, _ = reader
    consumer.wait_until_idle()
    with consumer.changed:
        calls = len(consumer.asked)
        assert consumer.changed.wait_for(lambda: len(consumer.asked) >= calls + IDLE_POLLS, WAIT_S)
        assert set(consumer.asked[calls:]) == {topic_tail._IDLE_POLL_S}


def test_positions_are_known_when_a_reader_becomes_idle(reader: tuple[TopicTail, PlayedConsumer, Ends]) -> None:
    tail, consumer, ends = reader
    consumer.wait_until_idle()
    done = threading.Event()
    tail.read_to_end([WHERE], None, lambda error: done.set())
    ends.found({WHERE: 5})
    assert done.is_set(), "the answer is enough: nothing has to be read"


def test_a_read_that_begins_during_a_long_poll_ends_when_its_position_is_reached(
    reader: tuple[TopicTail, PlayedConsumer, Ends],
) -> None:
    tail, consumer, ends = reader
    consumer.wait_until_idle()
    done = threading.Event()
    tail.read_to_end([WHERE], None, lambda error: done.set())
    ends.found({WHERE: 6})
    assert not done.is_set()
    consumer.offset = 6  # as after the marker of a transaction, for which no poll returns
    assert done.wait(WAIT_S)


def test_ends_that_are_known_only_when_the_time_is_over_fail_the_read_and_not_the_reader(
    reader: tuple[TopicTail, PlayedConsumer, Ends], monkeypatch: pytest.MonkeyPatch
) -> None:
    tail, consumer, ends = reader
    consumer.wait_until_idle()
    monkeypatch.setattr(tail, "_reached", lambda read: False)  # it asks before the answer of another thread comes
    failed: queue.SimpleQueue[object] = queue.SimpleQueue()
    read_id = tail.expect_read([WHERE], 0.05, failed.put)
    tail.begin_read(read_id)
    ends.found({WHERE: 5})
    assert isinstance(failed.get(timeout=WAIT_S), ReadToEndError)
    consumer.wait_until_idle()
