"""Carries out the effects of a source task's loop: plugin calls, producer, offsets.

It decides only what a failure is (fenced, expired, refused, of a record, fatal); what follows from it is the core's
decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, assert_never

from typing_extensions import override

from connectx.core.lanes import LaneChoice
from connectx.core.loops.messages import Done, EffectFailed, FailureKind, NotDone, QueryCores, StartPlugin, StopPlugin
from connectx.core.source import messages
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
from connectx.runtime.tasks.runner import Runner
from connectx.runtime.tasks.source.bulk import SourceBulk
from connectx.runtime.tasks.source.context import SourceContext
from connectx.runtime.tasks.source.polling import SourcePoller, topics_of
from connectx.runtime.tasks.source.setup import SourceSetup
from connectx.runtime.tasks.source.topics import SourceTopics
from connectx.runtime.tasks.world import TaskWorld
from connectx.spark.slices import TaskSpark

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


_METRICS: Mapping[str, Any] = {
    "records": 0,
    "bytes": 0,
    "slices": 0,
    "commits": 0,
    "failed_commits": 0,
    "source_offset": None,
    "polled": 0,
    "active": 0,
    "bulk_jobs": 0,
    "bulk_ms": 0,
}


def _kind_of(error: Exception) -> FailureKind:
    return next((kind for cls, kind in _KINDS if isinstance(error, cls)), FailureKind.FATAL)


class SourceWorld(TaskWorld[messages.SourceStimulus, messages.SourceAction]):
    """The outside world of one source task, used by its thread only, but for `unblock` and `metrics`."""

    def __init__(self, setup: SourceSetup, runner: Runner[messages.SourceStimulus, messages.SourceAction]) -> None:
        spark = TaskSpark(runner.services.spark, SESSION_SETTINGS, runner.stopping)
        super().__init__(setup, runner, spark, _METRICS)
        self._setup = setup
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
        self._bulk = SourceBulk(
            setup, runner, self._spark, self._context, self._producer, self._topics, self.query_cores
        )
        self._batches, self._polls, self._commits, self._active = Summary(), Summary(), Summary(), Summary()

    def init_producer(self) -> int | None:
        """Initialise transactions, which fences older producers; returns the epoch of the first transaction."""
        self._producer.init()
        return self._producer.producer_epoch

    @override
    def failure(self, error: Exception) -> EffectFailed:
        kind = _kind_of(error)
        final = kind in (FailureKind.FENCED, FailureKind.EXPIRED)
        if not final and (ending := self._producer.ending()) is not None:
            kind = _kind_of(ending)
            error = ending if kind is not FailureKind.FATAL else error
        return EffectFailed(trace_of(error), kind, self._newer_epoch() if kind is FailureKind.FENCED else None)

    @override
    def execute(self, effect: messages.SourceAction) -> messages.SourceAnswer | None:  # one line per effect: a table
        match effect:
            case messages.Poll():
                return self._timed(self._poller.poll, effect)
            case messages.SendSlice():
                return self._send_slice(effect)
            case messages.BeginTransaction():
                return messages.TransactionBegun(self._producer.begin())
            case messages.WriteOffsets():
                return self._write_offsets(effect)
            case messages.CommitTransaction():
                return self._commit_transaction()
            case messages.Idle():
                return self._poller.idle(effect)
            case messages.Wait():
                return self._wait(effect)
            case messages.FlushAndCommitOffsets():
                return self._flush_and_commit(effect)
            case messages.QueryWaiting():
                return self._bulk.waiting(effect)
            case QueryCores():
                return self.query_cores()
            case messages.QueryRoute():
                return self._bulk.route()
            case messages.PollBulk():
                return self._bulk.poll(effect)
            case messages.RunBulk():
                return self._run_bulk(effect)
            case messages.ConvertAgain():
                return self._convert_again(effect)
            case messages.AbortTransaction():
                return self._abort_transaction(effect)
            case StartPlugin():
                return self._start_plugin()
            case messages.ReadOffsets():
                return self._read_offsets(effect)
            case messages.CopyOffsets():
                self._copier.copy(self._encoded(effect.offsets))
            case messages.NotifyCommitted(offset):
                self._quietly("committed()", self._plugin.committed, offset)
            case StopPlugin():
                self._end_plugin("stop")
            case messages.CloseProducer():
                self._quietly("close of the producer", self._producer.close, _CLOSE_S)
                self._copier.close()
            case _:
                assert_never(effect)
        return None

    @override
    def show(self, shown: LaneChoice) -> None:
        self._show_lane(shown)

    @override
    def metrics(self) -> Mapping[str, object]:
        """Records, bytes and slices sent, commits, source offset, how long the last poll took, why the task waits,
        lane and lane_reason, and of a job that runs its number, parts and parts_done."""
        return {**self._metrics, "job": self._bulk.progress(), "waits": self._plugin.waits}

    @override
    def unblock(self) -> None:
        self._context.gone.set()
        self._producer.cancel()
        self._copier.cancel()
        super().unblock()

    @override
    def abandon_clients(self) -> None:
        self._producer.abandon()
        self._copier.abandon()

    def _start_plugin(self) -> messages.SourceAnswer:
        if not self._setup.loop.exactly_once:
            self._producer.init()
        plugin = self._setup.plugin
        self._started = True
        plugin.start(self._setup.task_config, self._context)
        self._spark.need(self._setup.modules())
        return messages.PluginStarted(dict(plugin.partition))

    def _read_offsets(self, effect: messages.ReadOffsets) -> messages.SourceAnswer:
        offset = self._context.offset(effect.partition)
        self._update(source_offset=offset)
        return messages.OffsetsRead(None if offset is None else dict(offset))

    def _timed(
        self, call: Callable[[Any], messages.SourceAnswer], effect: messages.Poll | messages.ConvertAgain
    ) -> messages.SourceAnswer:
        began_ms = self._clock()
        found = call(effect)
        if isinstance(found, messages.Polled):
            took_ms = self._clock() - began_ms
            self._polls.add(took_ms)
            polled = self._metrics["polled"] + found.records + found.skipped + found.filtered
            self._update(poll_ms=took_ms, polled=polled, **self._polls.metrics("poll_ms"))
        elif isinstance(found, messages.PollFailed):
            self._runner.errors.retries += found.retriable
        self._count_active()
        return found

    def _convert_again(self, effect: messages.ConvertAgain) -> messages.SourceAnswer:
        self._runner.errors.retries += not effect.skip_failures
        return self._timed(self._poller.convert, effect)

    def _wait(self, effect: messages.Wait) -> messages.SourceAnswer:
        self._runner.wait(max(0, effect.until_ms - self._clock()) / 1000)
        return Done()

    def _send_slice(self, effect: messages.SendSlice) -> messages.SourceAnswer:
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
        return messages.Sent(self._refused())

    def _run_bulk(self, effect: messages.RunBulk) -> messages.SourceAnswer:
        began_ms = self._clock()
        try:
            answer, outcome = self._bulk.run(effect)
        finally:
            took_ms = self._clock() - began_ms
            self._update(bulk_jobs=self._metrics["bulk_jobs"] + 1, bulk_ms=took_ms)
        if outcome is not None and isinstance(answer, messages.BulkSent):
            self._update(
                records=self._metrics["records"] + outcome.records,
                bytes=self._metrics["bytes"] + outcome.size_bytes,
                polled=self._metrics["polled"] + outcome.records + outcome.bad + outcome.filtered,
                source_offset=self._bulk.reached,
            )
        return answer

    def _write_offsets(self, effect: messages.WriteOffsets) -> messages.SourceAnswer:
        self._send_offsets(effect.offsets)
        return Done()

    def _send_offsets(self, offsets: tuple[messages.PartitionOffset, ...]) -> None:
        if records := self._encoded(offsets):
            self._producer.send_records(self._setup.offsets_topic, records)

    def _encoded(self, offsets: tuple[messages.PartitionOffset, ...]) -> list[tuple[bytes, bytes | None]]:
        connector = self._setup.task.connector
        return [(encode_offset_key(connector, o.partition), encode_offset_value(o.offset)) for o in offsets]

    def _commit_transaction(self) -> messages.SourceAnswer:
        began_ms = self._clock()
        if not self._producer.commit(_COMMIT_S):
            return NotDone("the broker did not answer the commit in time")
        self._count_commit(began_ms)
        return Done()

    def _abort_transaction(self, effect: messages.AbortTransaction) -> messages.SourceAnswer:
        try:
            self._producer.abort(None if effect.insist else _ABORT_S)
        except Exception as error:
            if effect.insist:
                raise
            self._runner.stay_alive()
            return NotDone(str(error))
        return Done()

    def _flush_and_commit(self, effect: messages.FlushAndCommitOffsets) -> messages.SourceAnswer:
        began_ms = self._clock()
        end_ms = began_ms + effect.timeout_ms
        self._update(failed_commits=self._metrics["failed_commits"] + 1)  # until it has succeeded
        if not self._producer.flush(effect.timeout_ms / 1000):
            return NotDone("the records sent before were not acknowledged within offset.flush.timeout.ms")
        self._send_offsets(effect.offsets)
        if not self._producer.flush(max(0, end_ms - self._clock()) / 1000):
            return NotDone("the source offsets were not acknowledged within offset.flush.timeout.ms")
        self._update(failed_commits=self._metrics["failed_commits"] - 1)
        self._count_commit(began_ms)
        return messages.Sent(self._refused())

    def _newer_epoch(self) -> int | None:
        """Epoch of the producer that fenced this one."""
        setup = self._setup
        return None if setup.epoch_config is None else producer_epoch(setup.epoch_config, setup.loop.transactional_id)

    def _refused(self) -> int:
        refused = self._producer.take_refused()
        self._runner.errors.failed(refused)
        return refused

    def _count_active(self) -> None:
        active = self._poller.buffered + self._producer.unacknowledged
        if active != self._metrics["active"]:
            self._active.add(active)
            self._update(active=active, **self._active.metrics("active"))

    def _count_commit(self, began_ms: int) -> None:
        self._commits.add(self._clock() - began_ms)
        self._count_active()
        self._update(commits=self._metrics["commits"] + 1, **self._commits.metrics("commit_ms"))
