"""Writes to the status topic, on its own thread, retried for as long as a status is still valid.

Decides when a status that Kafka did not take is sent again: while no newer one of the same connector or task was
written here, and, for the states UNASSIGNED and FAILED, while no other worker has reported under a higher group
generation. Mirrors Kafka Connect's KafkaStatusBackingStore (put, putSafe).
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import KafkaError, Producer

from connectx.kafka.kafka_errors import is_silence
from connectx.kafka.settings.client_config import ClientConfig
from connectx.model.states import State
from connectx.model.status_records import Status, StatusRecord, TopicStatusRecord
from connectx.protocol.status_topic import encode_status_record
from connectx.values import Value

_log = logging.getLogger(__name__)

_POLL_S: Final = 0.05
_FLUSH_S: Final = 2.0
_SAFE: Final = frozenset({State.UNASSIGNED, State.FAILED})
_PASSING: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)


class _Write(Value):
    """`number` grows with every write; `again` when Kafka did not take it before."""

    number: int
    key: str
    value: bytes | None
    record: StatusRecord
    again: bool = False


class StatusWriter:
    """The thread and its producer.

    Args:
        name: of the thread.
        config: settings of the producer.
        topic: the status topic.
        on_crash: called once if the thread dies.
    """

    def __init__(
        self, name: str, config: ClientConfig, topic: str, on_crash: Callable[[BaseException], object]
    ) -> None:
        self._config = config
        self._topic = topic
        self._on_crash = on_crash
        self._orders: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._sequence = itertools.count(1)
        self._newest: dict[str, int] = {}  # key to the number of the newest write, until it is in the topic
        self._seen: dict[str, Status] = {}  # key to what was last read, by whomever
        self._ending = self._abandoned = False
        self._producer: Producer | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Create the producer and start the thread."""
        self._producer = Producer(self._config)
        self._thread.start()

    def write(self, record: StatusRecord) -> None:
        """Append a record. Never blocks; from one thread."""
        key, value = encode_status_record(record)
        write = _Write(next(self._sequence), key, value, record)
        self._newest[key] = write.number
        self._orders.put(write)

    def saw(self, key: str, status: Status | None) -> None:
        """A status was read from the topic."""
        if status is None:
            self._seen.pop(key, None)
        else:
            self._seen[key] = status

    def close(self) -> None:
        """Send what is queued, as far as a moment allows. A second call does nothing."""
        self._ending = True
        self._orders.put(None)
        if self._thread.is_alive():
            self._thread.join(2 * _FLUSH_S)

    def abandon(self) -> None:
        """A killed worker: send nothing more."""
        self._abandoned = self._ending = True
        if self._producer is not None:
            self._producer.purge(blocking=False)
        self._orders.put(None)

    def _run(self) -> None:
        producer = self._producer
        assert producer is not None
        try:
            while not self._abandoned:
                try:
                    order = self._orders.get(block=not len(producer))
                except queue.Empty:
                    producer.poll(_POLL_S)
                    continue
                if order is None:
                    producer.flush(0 if self._abandoned else _FLUSH_S)
                    return
                self._send(producer, order)
        except BaseException as error:
            _log.exception("writing statuses ended with an error")
            self._on_crash(error)
        finally:
            self._producer = None

    def _send(self, producer: Producer, write: _Write) -> None:
        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None and _is_passing(error) and self._is_still_true(write):
                _log.info("the status %s was not written and is sent again: %s", write.key, error)
                self._orders.put(replace(write, again=True))
                return
            if error is not None:
                _log.warning("the status %s was not written: %s", write.key, error)
            if self._newest.get(write.key) == write.number:
                del self._newest[write.key]

        if write.again and not self._is_still_true(write):
            return
        while True:
            try:
                producer.produce(self._topic, value=write.value, key=write.key, on_delivery=delivered)
                return
            except BufferError:
                producer.poll(_POLL_S)

    def _is_still_true(self, write: _Write) -> bool:
        if self._ending or self._newest.get(write.key) != write.number:
            return False
        record = write.record
        if isinstance(record, TopicStatusRecord) or record.status is None or record.status.state not in _SAFE:
            return True
        seen = self._seen.get(write.key)
        mine = record.status
        return seen is None or seen.worker_id == mine.worker_id or seen.generation <= mine.generation


def _is_passing(error: KafkaError) -> bool:
    return is_silence(error) or error.code() in _PASSING
