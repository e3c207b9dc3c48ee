"""The leader's transactional producer for the config topic, on its own thread (KIP-618).

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

from connectx.errors import ConnectxError, ProducerFencedError
from connectx.kafka.producer.producer import KafkaProducer
from connectx.kafka.settings.client_config import ClientConfig

_log = logging.getLogger(__name__)

WRITE_S: Final = 30.0
_SLICE_S: Final = 0.5
_CLOSE_S: Final = 5.0

KeyValue = tuple[str, bytes | None]
Outcome = Callable[[str | None], object]
"""Called with the result of a write: None, or why it failed."""


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
        self._producer: KafkaProducer | None = None
        self._deadline_s = 0.0
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
        """End the thread after its current order, and close the producer. A second call does nothing."""
        self._ending = True
        self._orders.put(None)
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)

    def abandon(self) -> None:
        """A killed worker: commit and abort nothing. What was sent may still take effect, as on a real kill."""
        self._ending = True
        self._drop()
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
            self._drop()

    def _attempt(self, action: Callable[[], None], outcome: Outcome) -> None:
        error = None
        self._deadline_s = time.monotonic() + WRITE_S
        try:
            action()
        except ProducerFencedError as failure:
            error = f"another worker took over as leader and fenced this one ({failure.message})"
        except ConnectxError as failure:
            error = failure.message
        except _NotWrittenError as failure:
            error = str(failure)
        if error is not None:
            self._drop()  # no wait: an open transaction is aborted by the next claim, or by its timeout
        if not self._ending:
            outcome(error)

    def _claim(self) -> None:
        self._drop()
        producer = KafkaProducer(self._config(), checkpoint=self._check)
        self._producer = producer
        producer.init()

    def _write(self, records: Sequence[KeyValue]) -> None:
        producer = self._producer
        if producer is None:
            raise _NotWrittenError("the right to write to the config topic was lost, or was never claimed")
        producer.begin()
        producer.send_records(self._topic, [(key.encode(), value) for key, value in records])
        while not producer.commit(_SLICE_S):
            self._check()

    def _check(self) -> None:
        """End a call that waits when the worker ends or time is over."""
        if self._ending or time.monotonic() >= self._deadline_s:
            raise _NotWrittenError(f"Kafka did not answer within {WRITE_S:g} s")

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.abandon()


class _NotWrittenError(Exception):
    """A write without a claim, or without an answer in time."""
