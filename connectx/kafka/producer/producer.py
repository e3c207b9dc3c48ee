"""connectx's own producer: record batches by Arrow, transactions by protocol 2 (KIP-890) where the broker has it.

The core (`connectx.core.producer`) decides. This class encodes rows on the caller's thread, sends requests on the
thread of a KafkaNet that `init` starts and `close` ends, and waits for the core's states. Calls come from one thread,
but for `cancel` and `abandon`, which any thread may call.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import kafka.errors as kafka_errors
from typing_extensions import override

from connectx.core.clients.messages import SendRequest
from connectx.core.producer import errors
from connectx.core.producer import messages as msg
from connectx.core.producer.messages import ProducerPhase as Phase
from connectx.core.producer.producer import ProducerCore
from connectx.errors.base import ConnectxError
from connectx.errors.kafka import ProducerError
from connectx.kafka.client_requests import metadata_fetched
from connectx.kafka.core_client import CoreClient, connection_settings
from connectx.kafka.net import KafkaNet
from connectx.kafka.producer.batching import (
    Batcher,
    EncodedBatch,
    PartitionsOf,
    UnfitRow,
    names_partitions,
    rows_by_topic,
)
from connectx.kafka.producer.failures import Circumstances, failure_error, refused_rows
from connectx.kafka.producer.requests import ProducerRequests
from connectx.kafka.settings.producer_options import producer_options
from connectx.model.ids import TopicPartition
from connectx.recording.clients import PRODUCER
from connectx.recording.recorder import Recorder

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_CHECK_EVERY_S: Final = 0.5
_METADATA_RETRY_S: Final = 0.1
# Errors of a topic that may still come. They are never tolerated (Java: a TimeoutException, which Connect retries).
_MISSING: Final = ("UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE")


class KafkaProducer(CoreClient[ProducerCore]):
    """A producer with or without transactions.

    Args:
        config: settings as `ClientConfigs` makes them; with `transactional.id` the producer is transactional.
        checkpoint: called at least every half second while a call waits, and between batches; what it raises ends
            the call.
        tolerate_refused: without transactions only: count refused records instead of failing (KIP-779).
        recorder: keeps the latest steps of its core.

    Attributes:
        refusals: records that are known to be refused.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        checkpoint: Callable[[], None] = lambda: None,
        tolerate_refused: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(config, recorder)
        self.transactional_id: str | None = config.get("transactional.id")
        self.refusals = 0
        self._view = msg.ProducerView()
        self._checkpoint = checkpoint
        self._tolerates = tolerate_refused and self.transactional_id is None
        self._begun_s: float | None = None
        self._ending_by: str | None = None
        self._refused = 0
        self._refusal: ConnectxError | None = None

    def init(self, loan: msg.Loan | None = None) -> None:
        """Connect; a transactional producer fences every older producer of its id (InitProducerId).

        With a loan it fences none: it sends into the transaction of the lender, which alone ends it.

        Raises:
            ProducerFencedError: a newer producer was faster.
            ProducerError: settings are not allowed, or Kafka refuses the producer.
            ClientSettingError: a security setting cannot be used.
        """
        self._options = options = producer_options(self._config)
        self._make_core(PRODUCER, options.core)
        self._batcher = Batcher(options, random.randrange)
        self._unsettled: dict[int, tuple[EncodedBatch, bool]] = {}
        self._unsettled_bytes = self._unsettled_records = 0
        self._last_number = 0
        self._topics: dict[str, tuple[PartitionsOf, float]] = {}
        self._topic_errors: dict[str, str] = {}
        net = KafkaNet(connection_settings(self._config, options))
        self._requests = ProducerRequests(net, options.request_timeout_ms, self._finish, self._report, self._changed)
        self._start(net)
        if loan is not None:
            self._take(msg.Borrow(loan))
        else:
            self._take(msg.Call.INITIALIZE)
            self._wait_for_state(Phase.READY, doing="initialise transactions")

    @property
    def producer_epoch(self) -> int | None:
        """Epoch of the open or next transaction; None without transactions, or before `init`."""
        return None if self._net is None or self.transactional_id is None else self._view.epoch

    def begin(self) -> int:
        """Begin a transaction, which Kafka sees with the first record; returns its epoch."""
        self._wait_for_state(Phase.READY, doing="begin a transaction")
        self._ending_by = None
        self._take(msg.Call.BEGIN)
        self._begun_s = time.monotonic()
        return self._view.epoch

    def send(self, rows: pa.Table, topic: str | None) -> int:
        """Queue converted records, in order per topic and partition; returns the bytes of keys and values.

        `rows` has the column `value` (binary) and may have `key`, `topic`, `partition`, `timestamp` and `headers`;
        `topic` stands for rows without one. Waits while `buffer.memory` is full, without a timeout.

        Raises:
            RecordTooLargeError, RecordRefusedError: a record cannot be sent, or an earlier one was refused.
            ProducerFencedError, TransactionExpiredError: see the classes.
        """
        self._send(rows, topic, tolerable=True)
        self._raise_refusal()
        return _bytes_of(rows)

    def send_batch(self, batch: EncodedBatch) -> None:
        """Queue a batch that was encoded before. Waits and raises as `send` does."""
        self._live()
        self._append(batch, tolerable=True)
        self._raise_refusal()

    def partitions(self, topic: str) -> PartitionsOf:
        """Partitions of a topic.

        Raises:
            RecordRefusedError: Kafka does not know or show the topic.
        """
        self._live()
        found = self._partitions(topic, 0)
        if found is None:
            raise self._typed(msg.Failure(self._topic_errors[topic], f"send records to {topic}", topic=topic))
        return found

    def lend(self, topics: Iterable[str]) -> msg.Loan:
        """Let other processes send to these topics in the open transaction, until `take_back`.

        Waits until everything that was sent before is acknowledged.

        Raises:
            ProducerFencedError, TransactionExpiredError, RecordTooLargeError, RecordRefusedError
        """
        self._require(Phase.OPEN, Phase.REFUSED, doing="send records")
        counts = {topic: self.partitions(topic).count for topic in topics}
        targets = tuple(TopicPartition(topic, number) for topic, count in counts.items() for number in range(count))
        self._wait(lambda: not self._unsettled or self._view.phase is not Phase.OPEN, None)
        self._take(msg.Lend(targets))
        self._wait(lambda: self._view.loan is not None or self._view.phase is not Phase.OPEN, None)
        loan = self._view.loan
        if loan is None:
            self._raise_refusal()
            assert self._view.refusal is not None, "a transaction that is not open was refused"
            raise self._typed(self._view.refusal)
        return loan

    def take_back(
        self, records: Mapping[TopicPartition, int], *, may_arrive_late: bool = False, failed: str | None = None
    ) -> None:
        """The borrowers have ended. With `failed`, the reason, the transaction can only be aborted.

        Args:
            records: those that Kafka is known to have taken.
            may_arrive_late: a request of a borrower stayed unanswered.
        """
        failure = None if failed is None else msg.Failure(errors.LOAN_FAILED, "send records", failed)
        self._take(msg.Returned(records, may_arrive_late, failure))

    @property
    def may_arrive_late(self) -> bool:
        """Whether a request of this producer stayed unanswered, so that it may still arrive."""
        return self._net is not None and self._view.may_arrive_late

    def send_records(self, topic: str, records: Any) -> None:
        """Queue (key, value) pairs of bytes that no tolerance lets go, such as source offsets.

        Raises:
            RecordTooLargeError, RecordRefusedError: a record was refused; if Kafka refuses it later, the next call
                raises this.
            ProducerFencedError, TransactionExpiredError: see the classes.
        """
        import pyarrow as pa

        keys, values = zip(*records, strict=True)
        rows = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
        self._send(rows, topic, tolerable=False)
        self._raise_refusal()

    def commit(self, timeout_s: float) -> bool:
        """Commit the transaction; False if Kafka did not answer in time: then commit again, nothing else.

        Raises:
            ProducerFencedError, TransactionExpiredError, RecordTooLargeError, RecordRefusedError
        """
        self._require(Phase.OPEN, Phase.COMMITTING, Phase.REFUSED, doing="commit the transaction", ends=True)
        if self._view.phase in (Phase.OPEN, Phase.REFUSED):
            self._raise_refusal()
        self._take(msg.Call.COMMIT)
        if not self._wait(lambda: self._view.phase is not Phase.COMMITTING, timeout_s):
            return False
        if self._view.phase is Phase.REFUSED:
            self._raise_refusal()
            assert self._view.refusal is not None
            raise self._typed(self._view.refusal)
        self._raise_failure()
        self._begun_s, self._ending_by = None, None
        return True

    def abort(self, timeout_s: float | None) -> None:
        """Abort the transaction. None: wait without a timeout.

        Raises:
            ProducerError: Kafka did not confirm in time, or was asked to commit before and did not answer yet.
        """
        states = (Phase.OPEN, Phase.COMMITTING, Phase.REFUSED, Phase.ABORTING)
        with self._changed:
            self._require(*states, doing="abort the transaction", ends=True)
            self._take(msg.Call.ABORT)
            is_committing = self._view.phase is Phase.COMMITTING
            if is_committing:
                self._ending_by = "commit the transaction"
        if is_committing:
            raise ProducerError(
                f"The transaction of {self.transactional_id} cannot be aborted: Kafka did not answer its commit yet.",
                next_step="Commit again to see the outcome, or restart the task.",
            )
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._wait(
            lambda: self._view.phase in (Phase.READY, Phase.FAILED), _CHECK_EVERY_S, check=end_s is None
        ):
            if end_s is not None and time.monotonic() >= end_s:
                raise ProducerError(
                    f"Kafka did not answer the abort of a transaction of {self.transactional_id} in time.",
                    next_step="Check the brokers; the next producer of this transactional id aborts it.",
                )
        self._raise_failure()
        self._refusal, self._begun_s, self._ending_by = None, None, None

    def flush(self, timeout_s: float) -> bool:
        """Wait until all records are acknowledged or refused; False if time was not enough."""
        self._live()
        done = self._wait(lambda: not self._unsettled or self._view.phase is Phase.FAILED, timeout_s)
        self._raise_failure()
        if done:
            self._raise_refusal()
        return done

    def take_refused(self) -> int:
        """Number of records that Kafka refused and that were tolerated, since the last call."""
        with self._changed:
            refused, self._refused = self._refused, 0
        return refused

    @property
    def unacknowledged(self) -> int:
        """Records that Kafka is not known to have taken or refused yet."""
        return 0 if self._net is None else self._unsettled_records

    def cancel(self) -> None:
        """Drop what is queued, so that a blocked call ends soon; no later call reports success. From any thread."""
        with self._changed:
            if self._net is not None:
                self._take(msg.Call.PURGE)
                self._refusal = self._refusal or ProducerError("The producer was cancelled.", next_step="")

    def ending(self) -> ConnectxError | None:
        """The error that ended the producer permanently; None if it can be used."""
        if self._net is None or self._view.failure is None:
            return None
        return self._typed(self._view.failure)

    def close(self, timeout_s: float = 30.0) -> None:
        """Send what is queued within the time, then disconnect. An open transaction stays open: abort it before."""
        if self._net is None:
            return
        self._wait(lambda: not self._unsettled or self._view.phase is Phase.FAILED, timeout_s)
        if self._unsettled:
            log.warning("The producer %s was closed with %d records unsent", self._name, self._unsettled_records)
        net, self._net = self._net, None
        net.close()

    @property
    def _name(self) -> str:
        return self.transactional_id or str(self._config.get("client.id", ""))

    def _send(self, rows: pa.Table, topic: str | None, *, tolerable: bool) -> None:
        self._live()
        if self.transactional_id is not None:
            self._require(Phase.OPEN, Phase.REFUSED, doing="send records")
        for name, part, numbers in rows_by_topic(rows, topic):
            partitions = self._partitions(name, _largest_partition(part))
            if partitions is None:
                self._refuse_unsent(self._topic_errors[name], name, numbers, None, tolerable)
                continue
            for batch in self._batcher.encode(part, name, numbers, partitions, time.time_ns() // 1_000_000):
                if isinstance(batch, UnfitRow):
                    error = "MESSAGE_TOO_LARGE" if batch.partition is None else "UNKNOWN_TOPIC_OR_PARTITION"
                    self._refuse_unsent(error, name, [batch.row], batch.size_bytes, tolerable)
                else:
                    self._append(batch, tolerable)

    def _refuse_unsent(self, error: str, topic: str, rows: Any, size_bytes: int | None, tolerable: bool) -> None:
        """Refuse records that never became a batch, and with them the open transaction."""
        self._refuse(msg.BatchResult(error), topic, rows, size_bytes, tolerable)
        self._take(msg.Refuse(msg.Failure(error, f"send records to {topic}", topic=topic)))

    def _append(self, batch: EncodedBatch, tolerable: bool) -> None:
        size_bytes = batch.records.size_bytes
        self._checkpoint()
        self._wait(lambda: self._has_room(size_bytes), None)
        self._raise_failure()
        with self._changed:
            self._take(msg.Append((self._note(batch, tolerable),)))

    def _has_room(self, size_bytes: int) -> bool:
        fits = self._unsettled_bytes + size_bytes <= self._options.buffer_bytes
        return fits or not self._unsettled or self._view.phase is Phase.FAILED

    def _note(self, batch: EncodedBatch, tolerable: bool) -> msg.Batch:
        self._last_number += 1
        self._unsettled[self._last_number] = batch, tolerable
        self._unsettled_bytes += batch.records.size_bytes
        self._unsettled_records += batch.records.count
        return msg.Batch(self._last_number, batch.target, batch.records.count, batch.records.size_bytes)

    def _partitions(self, topic: str, largest: int) -> PartitionsOf | None:
        """Partitions of a topic, by metadata that is not too old; None if Kafka does not know or show it."""
        known, fetched_s = self._topics.get(topic, (None, 0.0))
        is_old = time.monotonic() - fetched_s > self._options.metadata_max_age_ms / 1000
        if known is not None and not is_old and largest < known.count:
            return known
        end_s = time.monotonic() + self._options.core.unknown_topic_ms / 1000
        while True:
            self._checkpoint()
            self._topic_errors.pop(topic, None)
            answered = threading.Event()
            self._live().spawn(self._learn_topic, topic, answered)
            while not answered.wait(_CHECK_EVERY_S):
                self._checkpoint()
            self._raise_failure()
            error = self._topic_errors.get(topic)
            found, learned_s = self._topics.get(topic, (None, 0.0))
            if error is None and found is not None and learned_s > fetched_s:
                return found
            if error is not None and (error not in _MISSING or time.monotonic() >= end_s):
                return None
            self._wait(lambda: self._view.phase is Phase.FAILED, _METADATA_RETRY_S)

    async def _learn_topic(self, topic: str, answered: threading.Event) -> None:
        try:
            deadline_s = time.monotonic() + self._options.request_timeout_ms / 1000
            reply = await self._requests.fetch_metadata([topic], deadline_s)
        except (kafka_errors.KafkaError, OSError) as error:
            log.debug("The partitions of %s are not known yet: %s", topic, error)
        else:
            self._take_metadata(topic, reply)
        finally:
            answered.set()

    def _take_metadata(self, topic: str, reply: Any) -> None:
        metadata = metadata_fetched(reply)
        if topic in metadata.errors:
            self._topic_errors[topic] = metadata.errors[topic]
        else:
            count = sum(len(found.partitions) for found in reply.topics if found.name == topic)
            led = sorted(target.partition for target in metadata.leaders if target.topic == topic)
            self._topics[topic] = PartitionsOf(count, led or range(count)), time.monotonic()
            self._report(metadata)

    @override
    def _show(self, shown: msg.ProducerView) -> None:
        self._view = shown

    @override
    def _carry_out(self, effect: msg.ProducerEffect, cause: msg.ProducerStimulus) -> msg.BatchSplit | None:
        match effect:
            case SendRequest():
                self._requests.line_up(effect)
                self._tasks.spawn(self._requests.carry_out, effect)
            case msg.BatchDelivered(number) | msg.BatchDropped(number):
                self._settle(number)
            case msg.BatchRefused(number, result):
                self._on_refused(number, result)
            case msg.SplitBatch(number):
                return self._split(number)
        return None

    def _finish(self, request: msg.Produce, batch: msg.SequencedBatch) -> bytes:
        from connectx.protocol.record_batches import finish

        with self._changed:
            found = self._unsettled.get(batch.number)
        if found is None:
            raise kafka_errors.Cancelled("the producer has failed meanwhile")
        encoded, _ = found
        return finish(
            encoded.records,
            producer_id=request.producer_id,
            epoch=request.epoch,
            base_sequence=batch.base_sequence,
            transactional=request.transactional_id is not None,
        )

    def _split(self, number: int) -> msg.BatchSplit:
        whole, tolerable = self._unsettled[number]
        parts = tuple(self._note(half, tolerable) for half in self._batcher.halve(whole))
        self._settle(number)
        return msg.BatchSplit(number, parts)

    def _settle(self, number: int) -> tuple[EncodedBatch, bool] | None:
        found = self._unsettled.pop(number, None)
        if found is not None:
            self._unsettled_bytes -= found[0].records.size_bytes
            self._unsettled_records -= found[0].records.count
        return found

    def _on_refused(self, number: int, result: msg.BatchResult) -> None:
        found = self._settle(number)
        if found is not None:
            batch, tolerable = found
            self._refuse(result, batch.target.topic, batch.rows, batch.largest_bytes, tolerable)

    def _refuse(self, result: msg.BatchResult, topic: str, rows: Any, size_bytes: int | None, tolerable: bool) -> None:
        """Count records that Kafka does not take; unless they are tolerated, a call raises the first reason."""
        error = refused_rows(result, topic, rows, size_bytes, self._circumstances())
        with self._changed:
            self.refusals += len(rows)
            if tolerable and self._tolerates and result.error not in _MISSING:
                self._refused += len(rows)
                log.warning("%d records were skipped: %s", len(rows), error)
            elif self._refusal is None:
                self._refusal = error

    def _live(self) -> KafkaNet:
        if self._net is None:
            raise ProducerError("The producer is closed.", next_step="Restart the task.")
        return self._net

    def _wait(self, done: Callable[[], bool], timeout_s: float | None, *, check: bool = True) -> bool:
        """Wait until `done`; False if time was not enough. `check`: call the checkpoint meanwhile."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = _CHECK_EVERY_S if end_s is None else min(_CHECK_EVERY_S, max(0.0, end_s - time.monotonic()))
            with self._changed:
                found = self._changed.wait_for(lambda: self._crash is not None or done(), left_s)
            if self._crash is not None:
                raise ProducerError(
                    f"The producer ended with an error: {self._crash!r}.",
                    next_step="Restart the task, and report this.",
                ) from self._crash
            if found:
                return True
            if check:
                self._checkpoint()
            if end_s is not None and time.monotonic() >= end_s:
                return False

    def _wait_for_state(self, state: Phase, *, doing: str) -> None:
        self._live()
        passing = (Phase.INITIALIZING, Phase.RENEWING)
        self._wait(lambda: self._view.phase not in passing, None)
        self._require(state, doing=doing)

    def _require(self, *states: Phase, doing: str, ends: bool = False) -> None:
        """Raise unless the producer is in a state. `ends`: an end that was asked for before may be reached by now."""
        self._live()
        self._raise_failure()
        if ends and self._ending_by == doing and self._view.phase in (Phase.READY, Phase.RENEWING):
            return
        if self.transactional_id is None and doing != "initialise transactions":
            raise ProducerError(
                f"Kafka did not let the task {doing}: the producer has no transactional id.",
                next_step="Report this: connectx asked for a transaction that it did not set up.",
            )
        if self._view.phase not in states:
            raise ProducerError(
                f"Kafka did not let the task {doing}: the producer is {self._view.phase}.",
                next_step="Restart the task.",
            )
        if ends:
            self._ending_by = doing

    def _raise_failure(self) -> None:
        failure = self._view.failure if self._net is not None else None
        if failure is not None:
            raise self._typed(failure)

    def _raise_refusal(self) -> None:
        self._raise_failure()
        if self._refusal is not None:
            raise self._refusal

    def _typed(self, failure: msg.Failure) -> ConnectxError:
        return failure_error(failure, self._circumstances())

    def _circumstances(self) -> Circumstances:
        return Circumstances(
            self.transactional_id,
            transaction_timeout_ms=self._options.core.transaction_timeout_ms,
            max_request_size_bytes=self._options.core.max_request_size_bytes,
            open_ms=None if self._begun_s is None else int((time.monotonic() - self._begun_s) * 1000),
        )


def _largest_partition(rows: pa.Table) -> int:
    import pyarrow.compute as pc

    return int(pc.max(rows.column("partition")).as_py()) if names_partitions(rows) else 0


def _bytes_of(rows: pa.Table) -> int:
    import pyarrow.compute as pc

    columns = [rows.column(name) for name in ("key", "value") if name in rows.column_names]
    filled = [column for column in columns if column.null_count < len(column)]
    return sum(pc.sum(pc.binary_length(column)).as_py() for column in filled)
