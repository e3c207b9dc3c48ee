"""Carries out the effects of a source task's loop: plugin calls, producer, offsets.

It decides only what a failure is (fenced, expired, refused, of a record, fatal); what follows from it is the core's
decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, assert_never

from connectx.core.source.loop import SourceTaskCore
from connectx.core.source.messages import (
    AbortTransaction,
    AwaitCommand,
    BeginTransaction,
    BulkSent,
    CloseProducer,
    CommitTransaction,
    CommitUndecided,
    ConvertAgain,
    CopyOffsets,
    EffectFailed,
    FailureKind,
    FlushAndCommitOffsets,
    Idle,
    NotifyCommitted,
    OffsetsFlushed,
    OffsetsFlushFailed,
    OffsetsRead,
    OffsetsWritten,
    PartitionOffset,
    PluginStarted,
    Poll,
    PollBulk,
    Polled,
    PollFailed,
    QueryCores,
    QueryRoute,
    QueryWaiting,
    ReadOffsets,
    RunBulk,
    SendSlice,
    SliceSent,
    SourceAction,
    SourceStimulus,
    StartPlugin,
    StopPlugin,
    TransactionAborted,
    TransactionBegun,
    TransactionCommitted,
    Wait,
    Waited,
    WriteOffsets,
)
from connectx.data.converters import SESSION_SETTINGS
from connectx.errors.kafka import ProducerFencedError, RecordRefusedError, RecordTooLargeError, TransactionExpiredError
from connectx.errors.plugins import ConversionError, TransformError
from connectx.kafka.admin.client import Admin
from connectx.kafka.internal.offset_topics import OffsetCopier
from connectx.kafka.producer.producer import KafkaProducer
from connectx.kafka.producer_epochs import producer_epoch
from connectx.model.summary import Summary
from connectx.protocol.offsets_topic import encode_offset_key, encode_offset_value
from connectx.runtime.tasks.connector_host import trace_of
from connectx.runtime.tasks.runner import Runner, TaskCancelled
from connectx.runtime.tasks.services import WorkerGone
from connectx.runtime.tasks.source.bulk import SourceBulk
from connectx.runtime.tasks.source.context import SourceContext
from connectx.runtime.tasks.source.polling import SourcePoller, topics_of
from connectx.runtime.tasks.source.setup import SourceSetup
from connectx.runtime.tasks.source.topics import SourceTopics
from connectx.spark.slices import TaskSpark

log = logging.getLogger(__name__)

_COMMIT_S = 1.0
_ABORT_S = 5.0
_CLOSE_S = 30.0
_KINDS: tuple[tuple[type[Exception], FailureKind], ...] = (
    (ProducerFencedError, FailureKind.FENCED),
    (TransactionExpiredError, FailureKind.EXPIRED),
    (RecordTooLargeError, FailureKind.DELIVERY),
    (RecordRefusedError, FailureKind.DELIVERY),
    (ConversionError, FailureKind.RECORD),
    (TransformError, FailureKind.RECORD),
)


def _kind_of(error: Exception) -> FailureKind:
    return next((kind for cls, kind in _KINDS if isinstance(error, cls)), FailureKind.FATAL)


class SourceWorld:
    """The outside world of one source task, used by its thread only, but for `unblock` and `metrics`.

    Args:
        setup: plugin, converters, settings.
        runner: the task's thread.
        core: the loop, of which only the choice of the lane is read.
    """

    def __init__(self, setup: SourceSetup, runner: Runner[SourceStimulus, SourceAction], core: SourceTaskCore) -> None:
        self._setup = setup
        self._runner = runner
        self._core = core
        self._started = False
        self._clock = runner.services.clock
        self._spark = TaskSpark(runner.services.spark, SESSION_SETTINGS, runner.stopping)
        self._context = SourceContext(
            setup.task, runner, setup.offsets, defines_transactions=setup.defines_transactions
        )
        self._poller = SourcePoller(setup, runner, self._spark, self._context)
        self._producer = KafkaProducer(
            setup.producer_config,
            checkpoint=runner.checkpoint,
            tolerate_refused=setup.settings.errors.tolerate_all and not setup.loop.exactly_once,
            recorder=runner.services.clients.recorder,
        )
        self._copier = OffsetCopier(runner.services.clients, runner.services.config.offset_topic.name, str(setup.task))
        self._topics = SourceTopics(
            setup.settings,
            create=setup.creates_topics,
            offsets_topic=setup.offsets_topic,
            admin=lambda: Admin(setup.admin_config),
            checkpoint=runner.checkpoint,
            used=runner.topic_used,
        )
        self._bulk = SourceBulk(setup, runner, self._spark, self._context, self._producer, self._topics)
        self._metrics: Mapping[str, Any] = {
            **{"records": 0, "bytes": 0, "slices": 0, "commits": 0, "source_offset": None, "polled": 0},
            **{"failed_commits": 0, "active": 0, "bulk_jobs": 0, "bulk_ms": 0},
        }
        self._batches, self._polls, self._commits, self._active = Summary(), Summary(), Summary(), Summary()

    def init_producer(self) -> int | None:
        """Initialise transactions, which fences older producers; returns the epoch of the first transaction."""
        self._producer.init()
        return self._producer.producer_epoch

    def carry_out(self, effect: SourceAction) -> SourceStimulus | None:
        """Do it; what failed comes back as EffectFailed. WorkerGone passes through."""
        try:
            return self._execute(effect)
        except TaskCancelled:
            return EffectFailed("the task was cancelled")
        except Exception as error:
            self._runner.stay_alive()
            kind = _kind_of(error)
            final = kind in (FailureKind.FENCED, FailureKind.EXPIRED)
            if not final and (ending := self._producer.ending()) is not None:
                kind = _kind_of(ending)
                error = ending if kind is not FailureKind.FATAL else error
            return EffectFailed(trace_of(error), kind, self._newer_epoch() if kind is FailureKind.FENCED else None)

    def _execute(self, effect: SourceAction) -> SourceStimulus | None:  # one line per effect: a table
        match effect:
            case Poll():
                return self._timed(self._poller.poll, effect)
            case SendSlice():
                return self._send_slice(effect)
            case BeginTransaction():
                return TransactionBegun(self._producer.begin())
            case WriteOffsets():
                return self._write_offsets(effect)
            case CommitTransaction():
                return self._commit_transaction()
            case Idle():
                return self._poller.idle(effect)
            case Wait():
                return self._wait(effect)
            case FlushAndCommitOffsets():
                return self._flush_and_commit(effect)
            case QueryWaiting():
                return self._bulk.waiting(effect)
            case QueryCores():
                return self._bulk.cores()
            case QueryRoute():
                return self._bulk.route()
            case PollBulk():
                return self._bulk.poll(effect)
            case RunBulk():
                return self._run_bulk(effect)
            case ConvertAgain():
                return self._convert_again(effect)
            case AbortTransaction():
                return self._abort_transaction(effect)
            case StartPlugin():
                return self._start_plugin()
            case ReadOffsets():
                return self._read_offsets(effect)
            case CopyOffsets():
                self._copier.copy(self._encoded(effect.offsets))
            case NotifyCommitted():
                self._notify_committed(effect)
            case StopPlugin():
                self._end_plugin("stop", self._setup.plugin.stop)
            case CloseProducer():
                self._close_producer()
            case AwaitCommand():
                pass
            case _:
                assert_never(effect)
        return None

    def metrics(self) -> Mapping[str, object]:
        """Records, bytes and slices sent, commits, source offset, how long the last poll took, why the task waits,
        lane and lane_reason, and of a job that runs its number, parts and parts_done."""
        choice, masked = self._core.bulk.choice, self._setup.masked
        lane = {"lane": choice.lane.value, "lane_reason": masked(str(choice.reason))}
        return {**self._metrics, **lane, "job": self._bulk.progress(), "waits": masked(self._setup.plugin.waits)}

    @property
    def abandoned(self) -> bool:
        """True once a stop has ended the wait for Spark's start."""
        return self._spark.abandoned

    def unblock(self) -> None:
        """From another thread: end what the task's thread waits for in Kafka or Spark."""
        self._context.gone.set()
        self._producer.cancel()
        self._copier.cancel()
        try:
            self._spark.interrupt()
        except Exception as error:
            trace = self._setup.masked(trace_of(error))
            log.warning("Spark of %s could not be interrupted\n%s", self._setup.task, trace)

    def release(self) -> None:
        """Close producers, plugin and Spark session as they are. Only the session is left after an orderly end."""
        try:
            self._producer.abandon()
            self._copier.abandon()
            if self._started:
                self._end_plugin("abandon", self._setup.plugin.abandon)
        except WorkerGone:
            log.debug("%s: abandon() waited for its worker", self._setup.task)
        finally:
            self._spark.release()

    def _start_plugin(self) -> SourceStimulus:
        if not self._setup.loop.exactly_once:
            self._producer.init()
        plugin = self._setup.plugin
        self._started = True
        plugin.start(self._setup.task_config, self._context)
        self._spark.need(self._setup.modules())
        return PluginStarted(dict(plugin.partition))

    def _read_offsets(self, effect: ReadOffsets) -> SourceStimulus:
        offset = self._context.offset(effect.partition)
        self._update(source_offset=offset)
        return OffsetsRead(None if offset is None else dict(offset))

    def _timed(self, call: Callable[[Any], SourceStimulus], effect: Poll | ConvertAgain) -> SourceStimulus:
        began_ms = self._clock()
        found = call(effect)
        if isinstance(found, Polled):
            took_ms = self._clock() - began_ms
            self._polls.add(took_ms)
            polled = self._metrics["polled"] + found.records + found.skipped + found.filtered
            self._update(poll_ms=took_ms, polled=polled, **self._polls.metrics("poll_ms"))
        elif isinstance(found, PollFailed):
            self._runner.errors.retries += found.retriable
        self._count_active()
        return found

    def _convert_again(self, effect: ConvertAgain) -> SourceStimulus:
        self._runner.errors.retries += not effect.give_up
        return self._timed(self._poller.convert, effect)

    def _wait(self, effect: Wait) -> SourceStimulus:
        self._runner.wait(max(0, effect.until_ms - self._clock()) / 1000)
        return Waited()

    def _notify_committed(self, effect: NotifyCommitted) -> None:
        try:
            self._setup.plugin.committed(effect.offset)
        except Exception as error:
            log.warning("%s: committed() failed\n%s", self._setup.task, self._setup.masked(trace_of(error)))

    def _end_plugin(self, name: str, end: Callable[[], None]) -> None:
        """Call the plugin's `stop` or `abandon`."""
        self._started = False
        try:
            end()
        except Exception as error:
            log.warning("%s: %s() failed\n%s", self._setup.task, name, self._setup.masked(trace_of(error)))

    def _send_slice(self, effect: SendSlice) -> SourceStimulus:
        topic, offset, records = self._poller.take(effect.part)
        self._topics.ensure(topics_of(topic, records))
        sent_bytes = self._producer.send(records, topic)
        self._batches.add(records.num_rows)
        self._update(
            **self._batches.metrics("batch"),
            records=self._metrics["records"] + records.num_rows,
            bytes=self._metrics["bytes"] + sent_bytes,
            slices=effect.slice_number,
            source_offset=self._metrics["source_offset"] if offset is None else dict(offset),
        )
        self._count_active()
        return SliceSent(effect.slice_number, self._refused())

    def _run_bulk(self, effect: RunBulk) -> SourceStimulus:
        began_ms = self._clock()
        try:
            answer, outcome = self._bulk.run(effect)
        finally:
            took_ms = self._clock() - began_ms
            self._update(bulk_jobs=self._metrics["bulk_jobs"] + 1, bulk_ms=took_ms)
        if outcome is not None and isinstance(answer, BulkSent):
            self._update(
                records=self._metrics["records"] + outcome.records,
                bytes=self._metrics["bytes"] + outcome.size_bytes,
                polled=self._metrics["polled"] + outcome.records + outcome.bad + outcome.filtered,
                source_offset=self._bulk.reached,
            )
        return answer

    def _write_offsets(self, effect: WriteOffsets) -> SourceStimulus:
        self._send_offsets(effect.offsets)
        return OffsetsWritten()

    def _send_offsets(self, offsets: tuple[PartitionOffset, ...]) -> None:
        if records := self._encoded(offsets):
            self._producer.send_records(self._setup.offsets_topic, records)

    def _encoded(self, offsets: tuple[PartitionOffset, ...]) -> list[tuple[bytes, bytes | None]]:
        connector = self._setup.task.connector
        return [(encode_offset_key(connector, o.partition), encode_offset_value(o.offset)) for o in offsets]

    def _commit_transaction(self) -> SourceStimulus:
        began_ms = self._clock()
        if not self._producer.commit(_COMMIT_S):
            return CommitUndecided()
        self._count_commit(began_ms)
        return TransactionCommitted()

    def _abort_transaction(self, effect: AbortTransaction) -> SourceStimulus:
        try:
            self._producer.abort(None if effect.insist else _ABORT_S)
        except Exception as error:
            if effect.insist:
                raise
            self._runner.stay_alive()
            return TransactionAborted(str(error))
        return TransactionAborted()

    def _flush_and_commit(self, effect: FlushAndCommitOffsets) -> SourceStimulus:
        began_ms = self._clock()
        end_ms = began_ms + effect.timeout_ms
        self._update(failed_commits=self._metrics["failed_commits"] + 1)  # until it has succeeded
        if not self._producer.flush(effect.timeout_ms / 1000):
            return OffsetsFlushFailed("the records sent before were not acknowledged within offset.flush.timeout.ms")
        self._send_offsets(effect.offsets)
        if not self._producer.flush(max(0, end_ms - self._clock()) / 1000):
            return OffsetsFlushFailed("the source offsets were not acknowledged within offset.flush.timeout.ms")
        self._update(failed_commits=self._metrics["failed_commits"] - 1)
        self._count_commit(began_ms)
        return OffsetsFlushed(self._refused())

    def _close_producer(self) -> None:
        try:
            self._producer.close(_CLOSE_S)
        except Exception as error:
            trace = self._setup.masked(trace_of(error))
            log.warning("%s: the producer could not be closed\n%s", self._setup.task, trace)
        self._copier.close()

    def _newer_epoch(self) -> int | None:
        """Epoch of the producer that fenced this one."""
        setup = self._setup
        return None if setup.epoch_config is None else producer_epoch(setup.epoch_config, setup.loop.transactional_id)

    def _refused(self) -> int:
        refused = self._producer.take_refused()
        self._runner.errors.failed(refused)
        return refused

    def _count_active(self) -> None:
        active = self._poller.at_hand + self._producer.unacknowledged
        if active != self._metrics["active"]:
            self._active.add(active)
            self._update(active=active, **self._active.metrics("active"))

    def _count_commit(self, began_ms: int) -> None:
        self._commits.add(self._clock() - began_ms)
        self._count_active()
        self._update(commits=self._metrics["commits"] + 1, **self._commits.metrics("commit_ms"))

    def _update(self, **metrics: object) -> None:
        self._metrics = {**self._metrics, **metrics}
