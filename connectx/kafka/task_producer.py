"""The producer of one source task: one per task instance, transactional when the task is exactly-once.

It hands Arrow tables of converted records to librdkafka and turns Kafka's answers into typed errors. It never decides
when to begin or commit: the core does. Mirrors the producer of Kafka Connect's ExactlyOnceWorkerSourceTask and
WorkerSourceTask (KIP-618, KIP-779).

No delivery callbacks run in exactly-once mode: the commit fails when any record did. In at-least-once mode callbacks
run for refused records only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from connectx.errors import ConnectxError, ProducerError
from connectx.kafka.producer_errors import Circumstances, producer_error, refusal
from connectx.kafka.record_batches import Records, split_by_target

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

DEFAULTS: Mapping[str, Any] = {
    "partitioner": "murmur2_random",  # Java's: same key, same partition
    "linger.ms": 5,  # fills batches; a flush or a commit does not wait for it
    "queue.buffering.max.messages": 2_000_000,  # never reached: see _await_room
}
_CHECK_EVERY_S = 0.5
_DRAIN_S = 10.0
_CHUNK_RECORDS = 10_000
_CHUNK_BYTES = 4 * 1024 * 1024
_QUEUE_RECORDS = 400_000
_QUEUE_BYTES = 64 * 1024 * 1024
_TRANSACTION_TIMEOUT_MS = 60_000
_MESSAGE_MAX_BYTES = 1_000_000


class TaskProducer:
    """Producer of one task instance.

    Args:
        config: librdkafka settings; with `transactional.id` the producer is transactional.
        checkpoint: called at least every half second while a call waits and between chunks of records; what it
            raises (worker killed, task cancelled) ends the call.
        tolerate_refused: at-least-once only: count records that Kafka refuses instead of failing (KIP-779).

    `refusals` counts all records that are known to be refused.
    """

    def __init__(
        self, config: Mapping[str, Any], *, checkpoint: Callable[[], None], tolerate_refused: bool = False
    ) -> None:
        self._config = {**DEFAULTS, **config}
        self.transactional_id: str | None = config.get("transactional.id")
        self._checkpoint = checkpoint
        self._tolerate_refused = tolerate_refused
        self._producer: Producer | None = None
        self._begun_s: float | None = None
        self.refusals = 0
        self._handed_over = 0
        self._refused = 0
        self._refusal: ConnectxError | None = None
        self._refusal_bytes = 0
        if self.transactional_id is None:
            self._config.setdefault("message.timeout.ms", 0)
            self._config["delivery.report.only.error"] = True

    def init(self) -> None:
        """Create the producer; a transactional one fences every older producer of its id (InitProducerId).

        Raises:
            ProducerFencedError: a newer producer was faster.
            ProducerError: Kafka refuses the producer (authorisation, settings).
        """
        options = dict(self._config)
        if self.transactional_id is None:
            options["on_delivery"] = self._on_refused
        try:
            self._producer = Producer(options)
        except KafkaException as error:
            raise ProducerError(
                f"The producer cannot be created: {error.args[0].str()}.",
                next_step="Correct the worker's producer.* or the connector's producer.override.* settings.",
            ) from error
        if self.transactional_id is None:
            return
        while True:
            self._checkpoint()
            try:
                self._live().init_transactions(_CHECK_EVERY_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise self._typed(error.args[0], "initialise transactions") from error
                log.debug("Transactions of %s are not initialised yet: %s", self.transactional_id, error)
            else:
                return

    def begin(self) -> None:
        """Begin a transaction; Kafka sees it with the first record."""
        self._call("begin a transaction", lambda: self._live().begin_transaction())
        self._begun_s = time.monotonic()

    def send(self, rows: pa.Table, topic: str | None) -> int:
        """Hand converted records to the producer, in order per topic and partition.

        `rows` has the columns `key` and `value` (binary) and may have `topic`, `partition`, `timestamp` and
        `headers`; `topic` stands for rows without one. Returns the bytes of keys and values. Waits while too much
        is unsent, as long as it takes.

        Raises:
            RecordTooLargeError, RecordRefusedError: a record cannot be sent, or an earlier one was refused.
            ProducerFencedError, TransactionExpiredError: see the classes.
        """
        sent_bytes = 0
        for records in split_by_target(rows, topic):
            sent_bytes += records.nbytes
            average_bytes = records.nbytes // max(1, records.count) + 1
            chunk = max(1, min(_CHUNK_RECORDS, _CHUNK_BYTES // average_bytes))
            room = max(chunk, min(_QUEUE_RECORDS, _QUEUE_BYTES // average_bytes))
            for start in range(0, records.count, chunk):
                self._await_room(room)
                self._handed_over += min(chunk, records.count - start)
                self._send_chunk(records, start, min(chunk, records.count - start))
        self._raise_refusal()
        return sent_bytes

    def send_offsets_record(self, topic: str, key: bytes, value: bytes | None) -> None:
        """Send one record of an offsets topic; in exactly-once mode it belongs to the open transaction.

        No tolerance lets a refused one go: the next `flush` or `commit` raises RecordTooLargeError or
        RecordRefusedError, because otherwise offsets would count as committed that Kafka does not have.
        """
        self._await_room(_QUEUE_RECORDS)
        told = None if self.transactional_id is not None else self._on_offsets_refused
        try:
            self._live().produce(topic, value=value, key=key, on_delivery=told)
        except KafkaException as error:
            raise self._typed(error.args[0], f"send source offsets to {topic}") from error

    def commit(self, timeout_s: float) -> bool:
        """Commit the transaction; False when Kafka did not answer in time: then commit again, nothing else.

        Raises:
            ProducerFencedError, TransactionExpiredError, RecordTooLargeError, RecordRefusedError
        """
        end_s = time.monotonic() + timeout_s
        while True:
            self._checkpoint()
            try:
                self._live().commit_transaction(min(_CHECK_EVERY_S, timeout_s))
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise self._typed(error.args[0], "commit the transaction") from error
                if time.monotonic() >= end_s:
                    return False
            else:
                self._begun_s, self._handed_over = None, 0
                return True

    def abort(self, timeout_s: float | None) -> None:
        """Abort the transaction; raises when it cannot be confirmed in time. None: wait as long as it takes.

        What was handed over is sent before: librdkafka asks to end the transaction although Kafka has not added the
        partitions of its records yet, and behind a commit Kafka refuses that for good (INVALID_TXN_STATE). Of a
        cancelled task nothing waits to be sent (`cancel`), so that its transaction is aborted, too.
        """
        end_s = time.monotonic() + (_DRAIN_S if timeout_s is None else min(_DRAIN_S, timeout_s))
        while len(self._live()) > 0 and time.monotonic() < end_s:
            self._call("abort the transaction", lambda: self._live().flush(0.1))
            if len(self._live()) > 0:
                self._checkpoint()
        while True:
            try:
                self._live().abort_transaction(_CHECK_EVERY_S if timeout_s is None else timeout_s)
            except KafkaException as error:
                if timeout_s is not None or not error.args[0].retriable():
                    raise self._typed(error.args[0], "abort the transaction") from error
                self._checkpoint()
            else:
                self._begun_s, self._handed_over = None, 0
                return

    def flush(self, timeout_s: float) -> bool:
        """Wait until all records are acknowledged or refused; False when time was not enough."""
        end_s = time.monotonic() + timeout_s
        while True:
            self._checkpoint()
            left_s = max(0.0, end_s - time.monotonic())
            if self._live().flush(min(_CHECK_EVERY_S, left_s)) == 0:
                self._handed_over = 0
                self._raise_refusal()
                return True
            if left_s == 0.0:
                return False

    def take_refused(self) -> int:
        """How many records Kafka refused and tolerance let go since the last call."""
        refused, self._refused = self._refused, 0
        return refused

    @property
    def unacknowledged(self) -> int:
        """Records that were handed over and that Kafka is not known to have taken or refused yet.

        librdkafka's own number has waiting events in it, too; what was flushed or committed is known to be done.
        """
        return 0 if self._producer is None else min(self._handed_over, len(self._producer))

    def cancel(self) -> None:
        """From another thread: throw away what is queued, so that a blocked call ends soon."""
        if (producer := self._producer) is not None:
            producer.purge(blocking=False)

    def ending(self) -> ConnectxError | None:
        """What has ended a transactional producer for good, whatever call it is that fails of it now; None if nothing.

        librdkafka tells a fatal error to the first call only; later ones say that they come in a wrong state.
        """
        if self._producer is None or self.transactional_id is None:
            return None
        try:
            self._producer.flush(0)
        except KafkaException as error:
            return self._typed(error.args[0], "go on") if error.args[0].fatal() else None
        return None

    def close(self, timeout_s: float = 30.0) -> None:
        """Send what is queued within the time, then let go. An open transaction stays open: abort it before."""
        if self._producer is not None:
            left = self._producer.flush(timeout_s)
            if left:
                log.warning("The producer %s was closed with %d records unsent", self.transactional_id or "", left)
            self._producer = None

    def abandon(self) -> None:
        """Let go at once, as a killed process would: no flush, no commit, no abort."""
        self._producer = None

    # ---------------------------------------------------------------------------------------------- inner parts

    def _live(self) -> Producer:
        if self._producer is None:
            raise ProducerError("The producer is closed.", next_step="Restart the task.")
        return self._producer

    def _call(self, what: str, call: Callable[[], object]) -> None:
        try:
            call()
        except KafkaException as error:
            raise self._typed(error.args[0], what) from error

    def _await_room(self, room: int) -> None:
        """librdkafka refuses single records of a batch when its queue is full, which would change their order."""
        self._checkpoint()
        producer = self._live()
        self._serve(0)
        while len(producer) > room:
            self._checkpoint()
            self._serve(0.01)
            self._raise_refusal()

    def _serve(self, timeout_s: float) -> None:
        """Let librdkafka report; a fatal error comes up here first when an idle producer was fenced."""
        self._call("send records", lambda: self._live().poll(timeout_s))

    def _send_chunk(self, records: Records, start: int, count: int) -> None:
        producer = self._live()
        if records.plain:
            messages = records.messages(start, count)
            partition = -1 if records.partition is None else records.partition
            if producer.produce_batch(records.topic, messages, partition) != count:
                self._raise_unsent(records.topic, messages)
            return
        for message in records.messages(start, count):
            try:
                producer.produce(
                    records.topic, partition=-1 if records.partition is None else records.partition, **message
                )
            except KafkaException as error:
                self._raise_unsent(records.topic, [{**message, "_error": error.args[0]}])

    def _raise_unsent(self, topic: str, messages: list[dict[str, Any]]) -> None:
        """A record was refused before it left; a tolerant at-least-once task drops it and goes on."""
        for message in messages:
            if (error := message.get("_error")) is not None:
                self._take_refusal(error, topic, _size_bytes(message["value"], message.get("key")))
        self._raise_refusal()

    def _on_refused(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self._take_refusal(error, message.topic(), _size_bytes(message.value(), message.key()))

    def _on_offsets_refused(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self._take_refusal(error, message.topic(), _size_bytes(message.value(), message.key()), tolerable=False)

    def _take_refusal(self, error: KafkaError, topic: str, size_bytes: int, *, tolerable: bool = True) -> None:
        self.refusals += 1
        typed = refusal(error, topic, size_bytes, self._circumstances())
        if tolerable and self._tolerate_refused and self.transactional_id is None and not error.fatal():
            self._refused += 1
            log.warning("A record was skipped: %s", typed)
        elif self._refusal is None or size_bytes > self._refusal_bytes:  # the largest is what its batch failed for
            self._refusal, self._refusal_bytes = typed, size_bytes

    def _raise_refusal(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _typed(self, error: KafkaError, what: str) -> ConnectxError:
        return producer_error(error, what, self._circumstances())

    def _circumstances(self) -> Circumstances:
        return Circumstances(
            self.transactional_id,
            transaction_timeout_ms=int(self._config.get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)),
            max_request_size_bytes=int(self._config.get("message.max.bytes", _MESSAGE_MAX_BYTES)),
            open_ms=None if self._begun_s is None else int((time.monotonic() - self._begun_s) * 1000),
        )


def _size_bytes(value: bytes | None, key: bytes | None) -> int:
    return len(value or b"") + len(key or b"")
