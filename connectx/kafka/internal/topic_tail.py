"""Reads topics from their beginning and follows them, on one thread that owns one consumer.

Decides when the end of a topic has been reached. It never interprets records; one that cannot be read is logged and
skipped. Mirrors Kafka Connect's KafkaBasedLog,
whose read to end it does the same way: ask for the ends (read_uncommitted), then wait until the consumer's position
has passed them, also over transaction markers.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Tp

from connectx.errors.base import ConnectxError
from connectx.errors.kafka import ClientClosedError, ReadToEndError
from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.partition_offsets import Offsets
from connectx.kafka.kafka_errors import worth_knowing
from connectx.kafka.settings.client_config import ClientConfig
from connectx.model.decoding import reason_of
from connectx.model.ids import TopicPartition

_log = logging.getLogger(__name__)

# A poll returns immediately when a record is there. It does not return for a transaction marker alone, so while a read
# waits, or shortly after a record, it is called more often.
_BUSY_POLL_S: Final = 0.005
_IDLE_POLL_S: Final = 0.1
_BUSY_FOR_S: Final = 0.25
_BATCH: Final = 1_000
_ASK_LIMIT_S: Final = 5.0
_ASK_AGAIN_S: Final = 0.1
_CLOSE_S: Final = 5.0

Done = Callable[[ConnectxError | None], object]


@dataclass(slots=True)
class _Read:
    partitions: tuple[TopicPartition, ...]
    timeout_s: float
    deadline_s: float | None
    done: Done
    targets: Offsets | None = None
    ask_at_s: float | None = None  # when to ask for the ends (again); None while asking
    why: str = "the brokers have not yet reported the end"


class TopicTail:
    """The thread and its consumer.

    Args:
        name: of the thread.
        config: settings of the consumer.
        admin: asked for the ends.
        on_record: takes each record in order; called on the thread. A record that it raises an error for is skipped.
        on_turn: called on the thread again and again, at least every 100 ms.
        on_crash: called once if the thread dies.
    """

    def __init__(
        self,
        name: str,
        config: ClientConfig,
        admin: Admin,
        on_record: Callable[[Message], None],
        on_turn: Callable[[], None],
        on_crash: Callable[[BaseException], object],
    ) -> None:
        self._config = config
        self._admin = admin
        self._on_record = on_record
        self._on_turn = on_turn
        self._on_crash = on_crash
        self._consumer: Consumer | None = None
        self._partitions: list[Tp] = []
        self._positions: dict[TopicPartition, int] = {}
        self._reads: dict[int, _Read] = {}
        self._ids = itertools.count(1)
        self._ending = False
        self._ended_by = "The worker has ended."
        self._abandoned = False
        self._connection_error: KafkaError | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, partitions: Sequence[TopicPartition]) -> None:
        """Start to read these partitions from their beginning."""
        self._partitions = [Tp(p.topic, p.partition, OFFSET_BEGINNING) for p in partitions]
        self._consumer = Consumer({**self._config, "error_cb": self._on_connection_error})
        self._consumer.assign(self._partitions)
        self._thread.start()

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(TopicPartition(p.topic, p.partition) for p in self._partitions)

    def read_to_end(self, partitions: Iterable[TopicPartition], timeout_s: float | None, done: Done) -> int:
        """Ask for the present ends; call `done` when every record below them was handed over.

        From any thread; `done` is called once, with None or with a ReadToEndError, from any thread, also before this
        returns. The number returned can be given to `cancel`.
        """
        read_id = self.expect_read(partitions, timeout_s, done)
        self.begin_read(read_id)
        return read_id

    def expect_read(self, partitions: Iterable[TopicPartition], timeout_s: float | None, done: Done) -> int:
        """As `read_to_end`, but the ends are asked for by `begin_read`; the time runs from now."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        read_id = next(self._ids)
        self._reads[read_id] = _Read(tuple(partitions), timeout_s or 0.0, deadline_s, done)
        if self._ending:
            self._finish(read_id, ClientClosedError(self._ended_by))
        return read_id

    def begin_read(self, read_id: int) -> None:
        """Ask for the ends of a read that was expected; nothing if its time is over."""
        read = self._reads.get(read_id)
        if read is not None:
            self._ask(read_id, read)

    def cancel(self, read_id: int) -> None:
        """Forget a read; its `done` is not called, unless it is being called now."""
        self._reads.pop(read_id, None)

    def close(self) -> None:
        """Fail waiting reads, close the consumer, end the thread. A second call does nothing."""
        self._ending = True
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_S)
        self._fail_reads()

    def abandon(self) -> None:
        """A killed worker: hand over nothing more; the thread ends by itself."""
        self._abandoned = self._ending = True
        self._fail_reads()

    def _run(self) -> None:
        assert self._consumer is not None
        busy, busy_until_s = True, time.monotonic() + _BUSY_FOR_S
        try:
            while not self._ending:
                was_busy, busy = busy, bool(self._reads) or time.monotonic() < busy_until_s
                if self._poll(_BUSY_POLL_S if busy else _IDLE_POLL_S):
                    busy, busy_until_s = True, time.monotonic() + _BUSY_FOR_S
                if self._reads or (was_busy and not busy):  # to ask for all positions costs more than the poll
                    self._note_positions()
                    self._look_after_reads()
                self._on_turn()
        except BaseException as error:
            self._ending = True
            self._ended_by = f"Reading internal topics ended with an error: {type(error).__name__}: {error}"
            _log.exception("reading internal topics ended with an error")
            self._on_crash(error)
        finally:
            self._fail_reads()
            consumer, self._consumer = self._consumer, None
            if not self._abandoned:
                consumer.close()

    def _poll(self, timeout_s: float) -> bool:
        """Hand over what has come; True if there was something."""
        assert self._consumer is not None
        first = self._consumer.poll(timeout_s)
        if first is None:
            return False
        messages = [first]
        while messages and not self._abandoned:
            for message in messages:
                self._take(message)
            messages = self._consumer.consume(_BATCH, timeout=0)
        return True

    def _take(self, message: Message) -> None:
        if self._abandoned:
            return
        error = message.error()
        if error is None:
            self._hand_over(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            where = TopicPartition(str(message.topic()), int(message.partition() or 0))
            self._positions[where] = max(self._positions.get(where, 0), int(message.offset() or 0))
        elif error.fatal():
            raise KafkaException(error)
        else:
            self._connection_error = error
            _log.info("reading internal topics: %s", error)

    def _hand_over(self, message: Message) -> None:
        """A record that cannot be read is skipped, as Kafka Connect's workers do: anyone may have written it."""
        try:
            self._on_record(message)
        except Exception as error:
            _log.warning(
                "The record at offset %s of %s-%s is skipped: %s.",
                message.offset(),
                message.topic(),
                message.partition(),
                reason_of(error),
                exc_info=None if isinstance(error, ConnectxError) else error,
            )

    def _note_positions(self) -> None:
        assert self._consumer is not None
        for position in self._consumer.position(self._partitions):
            if position.offset >= 0:
                self._positions[TopicPartition(position.topic, position.partition)] = position.offset

    def _look_after_reads(self) -> None:
        now_s = time.monotonic()
        for read_id, read in list(self._reads.items()):
            if self._reached(read):
                self._finish(read_id, None)
            elif read.deadline_s is not None and now_s >= read.deadline_s:
                topics = ", ".join(sorted({p.topic for p in read.partitions}))
                self._finish(read_id, ReadToEndError(topics, read.timeout_s, self._explain(read)))
            elif read.ask_at_s is not None and now_s >= read.ask_at_s:
                self._ask(read_id, read)

    def _ask(self, read_id: int, read: _Read) -> None:
        read.ask_at_s = None

        def found(ends: Offsets) -> None:
            read.targets = {where: end for where, end in ends.items() if end > 0}
            if self._reached(read):
                self._finish(read_id, None)

        def failed(error: ConnectxError) -> None:
            read.why = error.message.rstrip(".")
            read.ask_at_s = time.monotonic() + _ASK_AGAIN_S

        limit_s = _ASK_LIMIT_S
        if read.deadline_s is not None:
            limit_s = min(limit_s, max(0.1, (read.deadline_s - time.monotonic()) / 2))  # leaves time for a second one
        try:
            self._admin.request_end_offsets(read.partitions, found, failed, timeout_s=limit_s)
        except ConnectxError as error:
            failed(error)

    def _reached(self, read: _Read) -> bool:
        """Positions are noted after their records were handed over, so this is true only when all were."""
        if read.targets is None:
            return False
        return all(self._positions.get(where, 0) >= end for where, end in read.targets.items())

    def _explain(self, read: _Read) -> str:
        missing = [(where, end) for where, end in (read.targets or {}).items() if self._positions.get(where, 0) < end]
        if not missing:  # the ends are not known, or came on another thread after the time was over
            return read.why
        where, end = missing[0]
        error = f"; last error: {self._connection_error.str()}" if self._connection_error is not None else ""
        return f"partition {where} is read up to {self._positions.get(where, 0)} of {end}{error}"

    def _finish(self, read_id: int, error: ConnectxError | None) -> None:
        read = self._reads.pop(read_id, None)  # only the thread that takes it out calls
        if read is not None:
            read.done(error)

    def _fail_reads(self) -> None:
        for read_id in list(self._reads):
            self._finish(read_id, ClientClosedError(self._ended_by))

    def _on_connection_error(self, error: KafkaError) -> None:
        if worth_knowing(error):
            self._connection_error = error


def as_bytes(data: str | bytes | None) -> bytes | None:
    """A key or a value of a message, which its client types as text or bytes."""
    return data.encode() if isinstance(data, str) else data
