"""The leader's transactional producer for the config topic, on its own thread (KIP-618).

Claiming creates the producer and initialises it, which fences the former leader; each write is one transaction. After
any failure the producer is dropped, and a write before the next claim is refused. It decides nothing: not who leads,
nor how long an order may take. Mirrors the privileged writes of Kafka Connect's KafkaConfigBackingStore.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from connectx.errors.base import ConnectxError
from connectx.errors.kafka import ProducerFencedError
from connectx.kafka.producer.producer import KafkaProducer
from connectx.kafka.settings.client_config import ClientConfig
from connectx.recording.recorder import Recorder

_log = logging.getLogger(__name__)

_SLICE_S: Final = 0.5
_CLOSE_S: Final = 5.0

KeyValue = tuple[str, bytes | None]
Outcome = Callable[[str | None], object]
"""Called with the result of an order: None, or why it failed."""


@dataclass(slots=True)
class _Order:
    action: Callable[[], None]
    outcome: Outcome
    is_abandoned: bool = False


class LeaderProducer:
    """The thread and its producer. Orders are carried out in turn, each with one outcome and a number of its caller's.

    Args:
        name: of the thread.
        config: settings of the producer, a function because only a leader needs them.
        topic: the config topic.
        on_crash: called once if the thread dies.
        recorder: keeps the latest steps of the producer's core.
    """

    def __init__(
        self,
        name: str,
        config: Callable[[], ClientConfig],
        topic: str,
        on_crash: Callable[[BaseException], object],
        recorder: Recorder | None = None,
    ) -> None:
        self._config = config
        self._topic = topic
        self._on_crash = on_crash
        self._recorder = recorder
        self._producer: KafkaProducer | None = None
        self._orders: dict[int, _Order] = {}  # without an outcome yet
        self._turns: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; no client is created before the first claim."""
        self._thread.start()

    def claim(self, number: int, outcome: Outcome) -> None:
        """Take over as leader. Never blocks; `outcome` is called on the thread, after any time."""
        self._put(number, _Order(self._claim, outcome))

    def write(self, number: int, records: Sequence[KeyValue], outcome: Outcome) -> None:
        """Append records in one transaction. Never blocks; `outcome` is called on the thread, after any time.

        An error means that another worker leads or that this one has to claim again.
        """
        self._put(number, _Order(lambda: self._write(records), outcome))

    def abandon_order(self, number: int) -> None:
        """End an order with an error, within half a second, unless it has ended; what was sent may take effect."""
        order = self._orders.get(number)
        if order is not None:
            order.is_abandoned = True

    def close(self) -> None:
        """End the thread after its current order, and close the producer. A second call does nothing."""
        self._ending = True
        self._turns.put(None)
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)

    def abandon(self) -> None:
        """A killed worker: commit and abort nothing. What was sent may still take effect, as on a real kill."""
        self._ending = True
        self._drop()
        self._turns.put(None)

    def _put(self, number: int, order: _Order) -> None:
        self._orders[number] = order
        self._turns.put(number)

    def _run(self) -> None:
        try:
            while (number := self._turns.get()) is not None and not self._ending:
                self._attempt(number)
        except BaseException as error:
            _log.exception("the leader's producer ended with an error")
            self._on_crash(error)
        finally:
            self._drop()

    def _attempt(self, number: int) -> None:
        error = None
        order = self._current = self._orders[number]
        try:
            self._check()
            order.action()
        except ProducerFencedError as failure:
            error = f"another worker took over as leader and fenced this one ({failure.message})"
        except ConnectxError as failure:
            error = failure.message
        except _NotWrittenError as failure:
            error = str(failure)
        if error is not None:
            self._drop()  # no wait: an open transaction is aborted by the next claim, or by its timeout
        del self._orders[number]
        if not self._ending:
            order.outcome(error)

    def _claim(self) -> None:
        self._drop()
        producer = KafkaProducer(self._config(), checkpoint=self._check, recorder=self._recorder)
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
        """End a call that waits when the worker ends or the order was abandoned."""
        if self._ending or self._current.is_abandoned:
            raise _NotWrittenError("Kafka did not answer before the order was abandoned")

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.abandon()


class _NotWrittenError(Exception):
    """A write without a claim, or an order that was abandoned."""
