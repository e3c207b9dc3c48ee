"""The leader's transactional producer for the config topic, on one thread of its own (KIP-618).

Claiming creates the producer and initialises it, which fences the former leader; each write is one transaction. After
any failure the producer is dropped, and a write before the next claim is refused. It decides nothing about leadership.
Mirrors the privileged writes of Kafka Connect's KafkaConfigBackingStore.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from connectx.errors import ConnectxError
from connectx.kafka.producer_errors import FENCED
from connectx.kafka.settings.client_config import ClientConfig

_log = logging.getLogger(__name__)

WRITE_S: Final = 30.0
_SLICE_S: Final = 0.5
_CLOSE_S: Final = 5.0

KeyValue = tuple[str, bytes | None]
Outcome = Callable[[str | None], object]
"""Told how it ended: None, or why not."""


class LeaderProducer:
    """The thread and its producer.

    Args:
        name: of the thread.
        config: settings of the producer, a function because only a leader needs them.
        topic: the config topic.
        on_crash: called once if the thread dies.
    """

    def __init__(
        self, name: str, config: Callable[[], ClientConfig], topic: str, on_crash: Callable[[BaseException], object]
    ) -> None:
        self._config = config
        self._topic = topic
        self._on_crash = on_crash
        self._producer: Producer | None = None
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; no client is created before the first claim."""
        self._thread.start()

    def claim(self, outcome: Outcome) -> None:
        """Take over as leader. Never blocks; `outcome` is called on the thread."""
        self._orders.put(lambda: self._attempt(self._claim, outcome))

    def write(self, records: Sequence[KeyValue], outcome: Outcome) -> None:
        """Append records in one transaction. Never blocks; `outcome` is called on the thread.

        An error means that another worker leads or that this one has to claim again.
        """
        self._orders.put(lambda: self._attempt(lambda: self._write(records), outcome))

    def close(self) -> None:
        """End the thread behind what it is doing, and let the producer go. A second call does nothing."""
        self._ending = True
        self._orders.put(None)
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)

    def abandon(self) -> None:
        """A killed worker: commit and abort nothing. What was sent may still take effect, as on a real kill."""
        self._ending = True
        producer = self._producer
        if producer is not None:
            producer.purge(blocking=False)
        self._orders.put(None)

    # ---------------------------------------------------------------------------------------------- on its thread

    def _run(self) -> None:
        try:
            while (order := self._orders.get()) is not None and not self._ending:
                order()
        except BaseException as error:
            _log.exception("the leader's producer ended with an error")
            self._on_crash(error)
        finally:
            self._producer = None

    def _attempt(self, action: Callable[[], None], outcome: Outcome) -> None:
        error = None
        try:
            action()
        except KafkaException as failure:
            self._producer = None  # no wait: an open transaction is aborted by the next claim, or by its time-out
            error = _words(failure.args[0])
        except (ConnectxError, _NotClaimedError) as failure:
            error = str(failure)
        if not self._ending:
            outcome(error)

    def _claim(self) -> None:
        self._producer = None
        producer = Producer(self._config())
        self._producer = producer
        self._patiently(producer.init_transactions)

    def _write(self, records: Sequence[KeyValue]) -> None:
        producer = self._producer
        if producer is None:
            raise _NotClaimedError("the right to write to the config topic was lost, or was never claimed")
        producer.begin_transaction()
        for key, value in records:
            producer.produce(self._topic, value=value, key=key)
        self._patiently(producer.commit_transaction)

    def _patiently(self, call: Callable[[float], object]) -> None:
        """Repeat a call of librdkafka that may be resumed after a time-out, so that an end of the worker is seen."""
        deadline_s = time.monotonic() + WRITE_S
        while True:
            try:
                call(_SLICE_S)
                return
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if not error.retriable() or self._ending or time.monotonic() >= deadline_s:
                    raise
                time.sleep(0.01)  # an error that comes back at once must not spin


def _words(error: KafkaError) -> str:
    """What happened, and Kafka's own text for it."""
    text = error.str()
    return f"another worker took over as leader and fenced this one ({text})" if error.code() in FENCED else text


class _NotClaimedError(Exception):
    """A write without a claim."""
