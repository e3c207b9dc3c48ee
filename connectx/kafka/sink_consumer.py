"""The consumer of one sink task: a member of its consumer group that hands out Arrow tables.

Two clients share the work. librdkafka is the member: it joins, follows rebalances of every protocol, sends
heartbeats and commits. Its partitions are paused as long as they are assigned, so it fetches none of them. The records
come from connectx's own fetcher, which makes Arrow tables of record batches without an object for each record.

It keeps apart records, ends of partitions, rebalances, and outcomes of commits. It never decides what is committed. One
thread owns a consumer; all methods but `abandon` are called from it. Mirrors the consumer of Kafka Connect's
WorkerSinkTask.

Positions of assigned partitions are looked up here and given to the fetcher explicitly, so that an offset outside the
log is an error and never a silent jump.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Tp

from connectx.errors.base import ConnectxError
from connectx.errors.kafka import KafkaPermissionError, KafkaRequestError, OffsetOutOfRangeError
from connectx.kafka.fetcher.fetcher import FetchedRecords, RecordFetcher
from connectx.model.ids import TopicPartition
from connectx.recording.recorder import Recorder
from connectx.values import Value

_log = logging.getLogger(__name__)

_TRY_S = 2.0
_LOOKUP_LIMIT_S = 60.0
_MEMBER_ONLY: Final[Mapping[str, Any]] = {
    "auto.offset.reset": "error",
    # A fetch may leave between the assignment and its pause: it brings one batch at most.
    "max.partition.fetch.bytes": 1,
}
_NOT_OWNER = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._FENCED,
)
_FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_LOOKUP_AGAIN = (
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.LEADER_NOT_AVAILABLE,  # of a topic that was just created, or while a leader changes
    KafkaError.NOT_LEADER_FOR_PARTITION,
)

T = TypeVar("T")


class SinkGroupListener(Protocol):
    """Callbacks for changes of the membership, always called from inside `poll` or `close`."""

    def assigned(self, positions: Mapping[TopicPartition, int]) -> None:
        """Partitions came; `seek` and `pause` may be called for them."""

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions go, and are owned until this returns."""

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """This member was dropped."""

    def committed(self, sequence: int, error: CommitError | None) -> None:
        """Outcome of a commit that did not wait."""


class CommitError(Value):
    """Why a commit failed; `not_owner` when this member no longer belongs to the group."""

    reason: str
    not_owner: bool


class SinkConsumer:
    """Member of a consumer group.

    Args:
        config: librdkafka settings.
        listener: called with rebalances and commits.
        checkpoint: called at least every two seconds while a lookup waits; what it raises ends the call.
        recorder: keeps the latest steps of the fetcher's core.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        listener: SinkGroupListener,
        *,
        checkpoint: Callable[[], None],
        recorder: Recorder | None = None,
    ) -> None:
        self._config = dict(config)
        self._listener = listener
        self._checkpoint = checkpoint
        self._reset = str(config.get("auto.offset.reset", "earliest")).lower()
        strategies = str(config.get("partition.assignment.strategy", ""))
        self._incremental = "cooperative" in strategies or config.get("group.protocol") == "consumer"
        self._consumer: Consumer | None = None
        self._fetcher = RecordFetcher(config, recorder)
        self._assigned: set[TopicPartition] = set()
        self._starts: dict[TopicPartition, int] | None = None
        self._paused_at_start: list[TopicPartition] = []
        self._commits: list[int] = []
        self._raised: BaseException | None = None

    def join(self, topics: Sequence[str]) -> None:
        """Create the consumer and subscribe; a name that starts with ^ is a regular expression.

        Raises:
            KafkaRequestError: librdkafka refuses the settings.
            ClientSettingError: the fetcher cannot use a security setting.
        """
        try:
            self._consumer = Consumer({**self._config, **_MEMBER_ONLY, "on_commit": self._outside(self._on_commit)})
            self._consumer.subscribe(
                list(topics),
                on_assign=self._outside(self._on_assign),
                on_revoke=self._outside(self._on_revoke),
                on_lost=self._outside(self._on_lost),
            )
        except KafkaException as error:
            raise KafkaRequestError(
                "create the consumer",
                _reason(error),
                next_step="Correct the worker's consumer.* or the connector's consumer.override.* settings.",
            ) from error
        self._fetcher.start()

    def poll(self, timeout_s: float, max_records: int) -> FetchedRecords | None:
        """Wait for the first record, then take what is there; None when the time is over.

        Raises:
            OffsetOutOfRangeError: the log no longer (or not yet) has the position.
            KafkaPermissionError: no ACL for a topic or the group.
            KafkaLoginError: Kafka does not accept the credentials.
            KafkaRequestError: the consumer cannot be used any more.
        """
        consumer = self._live()
        message = consumer.poll(0.0 if self._assigned else timeout_s)
        self._raise_what_came()
        if message is not None and message.error() is not None:
            self._check(message)
        return self._fetcher.poll(timeout_s, max_records) if self._assigned else None

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Continue reading there; of partitions that are being assigned, start there."""
        starts = self._starts if self._starts is not None else {}
        starts |= {partition: offset for partition, offset in offsets.items() if partition in starts}
        self._fetcher.fetch_from({p: offset for p, offset in offsets.items() if p in self._assigned - starts.keys()})

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        if self._starts is not None:
            self._paused_at_start += partitions
        else:
            self._fetcher.pause(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._fetcher.resume(partitions)

    def stable_ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Last stable offsets (high watermarks without read_committed); without those that did not come in time."""
        found = {}
        for partition in partitions:
            self._checkpoint()
            try:
                _, end = self._live().get_watermark_offsets(Tp(partition.topic, partition.partition), timeout=_TRY_S)
                found[partition] = end
            except KafkaException as error:
                _log.debug("The end of %s is not known: %s", partition, error)
        return found

    def known_ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks of the latest fetches; sends no request."""
        return self._fetcher.high_watermarks(partitions)

    def commit(self, offsets: Mapping[TopicPartition, int], sequence: int) -> None:
        """Begin a commit; the listener gets its outcome, here or in a later `poll`."""
        self._commits.append(sequence)
        try:
            self._live().commit(offsets=_with_offsets(offsets), asynchronous=True)
        except KafkaException as error:
            self._commits.remove(sequence)
            self._listener.committed(sequence, _commit_error(error.args[0]))

    def commit_and_wait(self, offsets: Mapping[TopicPartition, int]) -> CommitError | None:
        """Commit and wait for the answer, for at most the group's session timeout."""
        try:
            answers = self._live().commit(offsets=_with_offsets(offsets), asynchronous=False)
        except KafkaException as error:
            return _commit_error(error.args[0])
        return next((_commit_error(answer.error) for answer in answers if answer.error is not None), None)

    def close(self) -> None:
        self._fetcher.close()
        try:
            if self._consumer is not None:
                self._consumer.close()
        finally:
            self._consumer = None
        self._raise_what_came()

    def abandon(self) -> None:
        """Close as a killed process would: sockets drop, nothing is committed, the group is not left."""
        self._fetcher.abandon()
        self._consumer = None

    def _live(self) -> Consumer:
        if self._consumer is None:
            raise KafkaRequestError("use a consumer that is closed", "the task has ended")
        return self._consumer

    def _check(self, message: Message) -> None:
        """Raise what librdkafka reports and a task cannot live with."""
        error = message.error()
        assert error is not None, "checked"
        if error.code() in _FORBIDDEN:
            raise KafkaPermissionError(f"read {message.topic() or 'as a member of its group'}", error.str())
        if error.fatal():
            raise KafkaRequestError("read records", error.str(), next_step="Restart the task.")
        _log.warning("The consumer of group %s: %s", self._config.get("group.id"), error.str())

    def _outside(self, callback: Callable[..., None]) -> Callable[..., None]:
        """The same callback, whose exceptions are raised after librdkafka has returned.

        confluent-kafka never frees the frames of an exception that passes through it. They hold the client, which then
        stays a member of the group after `abandon`, so that its successor gets no partitions.
        """

        def call(*args: Any) -> None:
            if self._raised is None:
                try:
                    callback(*args)
                except BaseException as error:
                    self._raised = error

        return call

    def _raise_what_came(self) -> None:
        if self._raised is not None:
            try:
                raise self._raised
            finally:
                self._raised = None

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[Tp]) -> None:
        if not self._commits:
            return
        failed = error or next((p.error for p in partitions if p.error is not None), None)
        self._listener.committed(self._commits.pop(0), _commit_error(failed) if failed is not None else None)

    def _on_assign(self, consumer: Consumer, partitions: list[Tp]) -> None:
        starts = self._positions(consumer, partitions)
        self._starts, self._paused_at_start = dict(starts), []
        try:
            self._listener.assigned(starts)
            assign = consumer.incremental_assign if self._incremental else consumer.assign
            assign(_with_offsets(self._starts))
            consumer.pause(partitions)
            self._assigned |= self._starts.keys()
            self._fetcher.fetch_from(self._starts)
            self._fetcher.pause(self._paused_at_start)
        finally:
            self._starts = None

    def _on_revoke(self, consumer: Consumer, partitions: list[Tp]) -> None:
        self._listener.revoked([TopicPartition(p.topic, p.partition) for p in partitions])
        self._release(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[Tp]) -> None:
        self._listener.lost([TopicPartition(p.topic, p.partition) for p in partitions])
        self._release(consumer, partitions)

    def _release(self, consumer: Consumer, partitions: list[Tp]) -> None:
        gone = [TopicPartition(p.topic, p.partition) for p in partitions] if self._incremental else self._assigned
        self._fetcher.forget(gone)
        self._assigned = self._assigned.difference(gone)
        if self._incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _positions(self, consumer: Consumer, partitions: list[Tp]) -> dict[TopicPartition, int]:
        """What the group has committed, if the log still has it; otherwise by auto.offset.reset."""
        if not partitions:
            return {}
        committed = self._look_up("look up its committed offsets", lambda: consumer.committed(partitions, _TRY_S))
        found = {}
        for partition in committed:
            if partition.error is not None:
                raise KafkaRequestError("look up its committed offsets", partition.error.str())
            bare = Tp(partition.topic, partition.partition)
            low, high = self._look_up(
                f"look up the ends of {bare.topic}-{bare.partition}",
                partial(consumer.get_watermark_offsets, bare, timeout=_TRY_S),
            )
            offset = partition.offset
            if offset == OFFSET_INVALID or not low <= offset <= high:
                offset = self._reset_position(TopicPartition(bare.topic, bare.partition), offset, low, high)
            found[TopicPartition(bare.topic, bare.partition)] = offset
        return found

    def _reset_position(self, partition: TopicPartition, committed: int, low: int, high: int) -> int:
        if self._reset in ("earliest", "smallest", "beginning"):
            offset = low
        elif self._reset in ("latest", "largest", "end"):
            offset = high
        else:
            raise OffsetOutOfRangeError(str(partition), committed, "auto.offset.reset is none")
        if committed != OFFSET_INVALID:
            _log.warning(
                "The log of %s has offsets %d to %d, but %d was committed: reading resumes at %d (auto.offset.reset).",
                partition,
                low,
                high,
                committed,
                offset,
            )
        return offset

    def _look_up(self, what: str, ask: Callable[[], T]) -> T:
        """Ask again while brokers or the coordinator are not there."""
        end_s = time.monotonic() + _LOOKUP_LIMIT_S
        while True:
            self._checkpoint()
            asked_s = time.monotonic()
            try:
                return ask()
            except KafkaException as error:
                again = error.args[0].retriable() or error.args[0].code() in _LOOKUP_AGAIN
                if not again or time.monotonic() >= end_s:
                    raise _lookup_error(what, error) from error
            time.sleep(max(0.0, 0.1 - (time.monotonic() - asked_s)))


def _with_offsets(offsets: Mapping[TopicPartition, int]) -> list[Tp]:
    return [Tp(partition.topic, partition.partition, offset) for partition, offset in sorted(offsets.items())]


def _commit_error(error: KafkaError) -> CommitError:
    return CommitError(f"{error.name()}: {error.str()}", error.code() in _NOT_OWNER)


def _lookup_error(what: str, error: KafkaException) -> ConnectxError:
    if error.args[0].code() in _FORBIDDEN:
        return KafkaPermissionError(what, _reason(error))
    return KafkaRequestError(what, _reason(error), next_step="Check the brokers, then restart the task.")


def _reason(error: KafkaException) -> str:
    kafka_error = error.args[0]
    return kafka_error.str() if isinstance(kafka_error, KafkaError) else str(kafka_error)
