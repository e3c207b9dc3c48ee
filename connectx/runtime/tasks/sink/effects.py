"""Carries out the effects of a sink task's loop: the consumer, conversion, plugin calls, jobs of executors.

It decides only what a failure is (retriable, refused, final); what follows from it is the core's decision.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import pyarrow as pa
from typing_extensions import override

from connectx.core.loops.messages import Done, NotDone, QueryCores, StartPlugin, StopPlugin
from connectx.core.sink import messages as m
from connectx.core.sink.progress import named
from connectx.errors.base import ConnectxError
from connectx.errors.transient import is_transient
from connectx.kafka.admin.client import Admin
from connectx.kafka.fetcher.chunks import SCHEMA
from connectx.kafka.sink_consumer import CommitError, SinkConsumer
from connectx.model.ids import TopicPartition
from connectx.model.summary import Summary
from connectx.plugins.errors import CommitRefusedError, NotStageableError
from connectx.plugins.slices import SinkBatch
from connectx.runtime.tasks.connector_host import trace_of
from connectx.runtime.tasks.runner import Runner, TaskCancelled
from connectx.runtime.tasks.sink.bulk import BulkJobs, report_staged
from connectx.runtime.tasks.sink.context import SinkContext
from connectx.runtime.tasks.sink.dead_letters import DeadLetterQueue
from connectx.runtime.tasks.sink.latency import CommitLatency
from connectx.runtime.tasks.sink.records import FetchedRecords
from connectx.runtime.tasks.sink.setup import SinkSetup
from connectx.runtime.tasks.world import TaskWorld
from connectx.spark.slices import TaskSpark

log = logging.getLogger(__name__)

_LAG_EVERY_S = 0.5
_NO_RECORDS = pa.schema({**{each.name: each.type for each in SCHEMA}, "key": pa.null(), "value": pa.null()})
_METRICS: Mapping[str, Any] = {
    "records": 0,
    "read": 0,
    "skipped": 0,
    "lag": None,
    "positions": {},
    "retrying": None,
    "commits": 0,
    "failed_commits": 0,
    "late_commits": 0,
    "commit_sequence": 0,
    "active": 0,
}


class SinkWorld(TaskWorld[m.SinkStimulus, m.SinkAction]):
    """The outside world of one sink task, used by its thread only, but for `unblock` and `metrics`."""

    def __init__(self, setup: SinkSetup, runner: Runner[m.SinkStimulus, m.SinkAction]) -> None:
        super().__init__(setup, runner, TaskSpark(runner.services.spark, {}, runner.stopping), _METRICS)
        self._setup = setup
        self._dead_letters = _dead_letters(setup, runner)
        group_id = str(setup.consumer_config.get("group.id"))
        self._context = SinkContext(setup, group_id, self._dead_letters, runner.errors, self._spark.session)
        self._consumer = SinkConsumer(
            setup.consumer_config, self, checkpoint=runner.checkpoint, recorder=runner.services.clients.recorder
        )
        self._records = FetchedRecords(setup, self._dead_letters, runner.errors)
        self._jobs = BulkJobs(setup, self._spark, self._context.group_id)
        self._reached: m.Offsets = {}
        self._lag_at_s = 0.0
        self._dead_lettered = 0
        self._flush_error: str | None = None  # of the last flush: puts succeed between two that fail
        self._latency = CommitLatency(put_commits=setup.loop.exactly_once)
        self._sent_commit = 0, 0  # sequence and time of the last one
        self._batches, self._puts, self._commits, self._active = Summary(), Summary(), Summary(), Summary()

    @override
    def execute(self, effect: m.SinkAction) -> m.SinkAnswer | None:  # one line per effect: a table
        match effect:
            case m.Poll():
                return self._poll(effect)
            case m.Put():
                return self._put(effect)
            case m.PutNothing():
                return self._put_nothing()
            case m.Flush():
                return self._flush()
            case m.CommitOffsets():
                return self._commit(effect)
            case m.QueryEnds():
                return m.EndsKnown(effect.epoch, self._consumer.stable_ends(effect.partitions))
            case QueryCores():
                return self.query_cores()
            case m.CommitBulk():
                return self._commit_bulk(effect)
            case m.OpenPartitions():
                return self._open(effect)
            case StartPlugin():
                return self._start_plugin()
            case m.RunBulk():
                self._jobs.run(effect)
            case m.DiscardBulk():
                self._jobs.discard(effect.token)
            case m.Seek():
                self._consumer.seek(effect.offsets)
            case m.PausePartitions():
                self._consumer.pause(effect.partitions)
            case m.ResumePartitions():
                self._consumer.resume(effect.partitions)
            case m.ClosePartitions():
                self._close(effect)
            case m.JoinGroup():
                self._consumer.join(self._setup.subscription)
            case StopPlugin():
                self._stop_plugin()
            case m.LeaveGroup():
                self._quietly("leaving the group", self._consumer.close)
            case _:
                assert_never(effect)
        return None

    @override
    def show(self, shown: m.SinkShown) -> None:
        self._show_lane(shown.choice)
        self._reached = shown.reached
        if shown.active != self._metrics["active"]:
            self._active.add(shown.active)
            self._update(active=shown.active, **self._active.metrics("active"))

    @override
    def unblock(self) -> None:
        self._cancel(self._plugin.cancel)
        super().unblock()

    @override
    def abandon_clients(self) -> None:
        self._consumer.abandon()
        if self._dead_letters is not None:
            self._dead_letters.abandon()

    def assigned(self, positions: Mapping[TopicPartition, int]) -> None:
        """Inside a poll."""
        self._runner.feed(m.PartitionsAssigned(dict(positions)))

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Inside a poll, or while leaving."""
        self._runner.feed(m.PartitionsRevoked(tuple(partitions)))

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Inside a poll."""
        self._runner.feed(m.PartitionsLost(tuple(partitions)))

    def committed(self, sequence: int, error: CommitError | None) -> None:
        """Inside a poll, or in the commit itself."""
        if self._runner.feed(_outcome(sequence, error)):
            self._count_commit(sequence, error)
        else:
            self._update(late_commits=self._metrics["late_commits"] + 1)

    def _poll(self, effect: m.Poll) -> m.SinkAnswer:
        timeout_s = 0.0 if self._runner.has_command else max(0, effect.timeout_ms) / 1000
        limit = self._setup.max_poll_records
        fetched = self._consumer.poll(timeout_s, limit)
        self._update_lag()
        if fetched is None:
            return self._jobs.ended() or Done()
        number = self._records.fetched(fetched.rows, fetched.ranges.keys())
        for topic in sorted({partition.topic for partition in fetched.ranges}):
            self._runner.topic_used(topic)
        full = fetched.rows.num_rows * 2 >= limit
        return m.Fetched(effect.epoch, fetched.ranges, fetched.ends, full, number, fetched.rows.nbytes)

    def _commit(self, effect: m.CommitOffsets) -> m.SinkAnswer | None:
        self._latency.commit_sent(effect.sequence)
        self._sent_commit = effect.sequence, self._clock()
        self._update(commit_sequence=effect.sequence)
        if not effect.wait:
            self._consumer.commit(effect.offsets, effect.sequence)
            return None
        try:
            refused: CommitError | ConnectxError | None = self._consumer.commit_and_wait(effect.offsets)
        except ConnectxError as error:
            refused = error
        self._count_commit(effect.sequence, refused)
        if isinstance(refused, ConnectxError):
            return m.CommitFailed(effect.sequence, str(refused))
        return _outcome(effect.sequence, refused)

    def _start_plugin(self) -> m.SinkAnswer:
        if self._dead_letters is not None:
            self._dead_letters.start()
        self._started = True
        self._plugin.start(self._setup.task_config, self._context)
        if (mark := self._plugin.mark()) is not None:
            self._runner.feed(m.TargetKnown(mark))
        return Done()

    def _open(self, effect: m.OpenPartitions) -> m.SinkAnswer:
        self._context.add(effect.partitions)
        time.sleep(effect.wait_ms / 1000)
        self._runner.checkpoint()
        try:
            opened = dict(self._plugin.open(effect.partitions))
            self._update(retrying=None)
            return m.Opened(effect.epoch, opened)
        except Exception as error:
            self._runner.stay_alive()
            if not _is_retriable(error):
                raise
            self._runner.errors.retries += 1
            shown = str(error)
            log.info("%s could not open its partitions: %s", self._setup.task, shown)
            self._update(retrying=shown)
            return NotDone(trace_of(error))

    def _close(self, effect: m.ClosePartitions) -> None:
        self._context.remove(effect.partitions)
        if self._dead_letters is not None:
            self._dead_letters.closed(effect.partitions)
        self._quietly("close()", self._plugin.close, effect.partitions)

    def _put(self, effect: m.Put) -> m.SinkAnswer:
        records = self._records.of(effect.number, effect.ranges)
        began_ms = self._clock()
        try:
            rows, unreadable = records.readable(self._plugin)
            self._context.skipped, self._context.retry_in_ms = 0, None
            self._context.records = records
            if rows.num_rows or self._plugin.exactly_once:
                schemaless = not self._setup.conversion.value_converter.has_schemas
                self._plugin.put(SinkBatch(rows, effect.ranges, schemaless))
            if self._context.skipped and self._dead_letters is not None:
                self._dead_letters.flush()
        except CommitRefusedError as refused:
            return m.PutRefused(effect.epoch, refused.committed, str(refused), records.count)
        except TaskCancelled:
            return m.PutFailed(effect.epoch, False, "the task was cancelled")
        except Exception as error:
            return self._put_failed(effect, error)
        skipped = unreadable + self._context.skipped
        reason = records.reason or self._context.reason if skipped else ""
        put = rows.num_rows - self._context.skipped
        self._latency.put(rows, self._clock())
        return self._put_done(effect, began_ms, records.count, put, skipped, reason, records.filtered, rows.nbytes)

    def _put_nothing(self) -> m.SinkAnswer:
        """What the task could not write now it keeps: it is called again."""
        try:
            self._plugin.put(SinkBatch(_NO_RECORDS.empty_table(), {}))
        except Exception as error:
            self._runner.stay_alive()
            if not (_is_retriable(error) or isinstance(error, CommitRefusedError)):
                raise
            log.info("%s could not write what it has kept: %s", self._setup.task, error)
        return Done()

    def _commit_bulk(self, effect: m.CommitBulk) -> m.SinkAnswer:
        """Bad records are reported before the commit, and once."""
        job = self._jobs.staged(effect.token)
        results = job.results
        records = sum(result.records for result in results)
        bad = [each for result in results for each in result.bad]
        began_ms = self._clock()
        self._context.retry_in_ms = None
        try:
            if bad and not job.reported:
                report_staged(self._setup, self._dead_letters, self._runner.errors, results)
                job.reported = True
            uncertain, job.uncertain = job.uncertain, True
            messages = [message for result in results for message in result.messages]
            self._plugin.commit(job.token, effect.ranges, messages)
        except CommitRefusedError as refused:
            job.uncertain = uncertain
            return m.PutRefused(effect.epoch, refused.committed, str(refused), records)
        except NotStageableError as error:
            job.uncertain = uncertain
            return m.BulkFailed(effect.token, error.message, {})
        except TaskCancelled:
            return m.PutFailed(effect.epoch, False, "the task was cancelled")
        except Exception as error:
            return self._put_failed(effect, error)
        self._jobs.committed()
        self._runner.topic_used(next(iter(effect.ranges)).topic)
        rows, filtered = (sum(each) for each in zip(*((r.rows, r.filtered) for r in results), strict=True))
        reason = str(getattr(bad[0].error, "message", bad[0].error)) if bad else ""
        return self._put_done(effect, began_ms, records, rows, len(bad), reason, filtered)

    def _put_done(
        self,
        effect: m.Put | m.CommitBulk,
        began_ms: int,
        read: int,
        put: int,
        skipped: int,
        reason: str,
        filtered: int,
        size_bytes: int = 0,
    ) -> m.SinkAnswer:
        if self._dead_letters is not None:
            self._dead_letters.settled({partition: end for partition, (_, end) in effect.ranges.items()})
        self._puts.add(self._clock() - began_ms)
        self._batches.add(read)
        self._update(
            **self._puts.metrics("put_ms"),
            **self._batches.metrics("batch"),
            latency=self._latency.buckets,
            read=self._metrics["read"] + read,
            records=self._metrics["records"] + put,
            skipped=self._metrics["skipped"] + skipped,
            retrying=self._flush_error,
        )
        dead_letters = self._runner.errors.dead_letters - self._dead_lettered
        self._dead_lettered += dead_letters
        return m.PutDone(effect.epoch, put, skipped, reason, filtered, dead_letters, size_bytes)

    def _put_failed(self, effect: m.Put | m.CommitBulk, error: Exception) -> m.SinkAnswer:
        self._runner.stay_alive()
        retriable = _is_retriable(error)
        if retriable:
            shown = str(error)
            log.info("%s will put again: %s", self._setup.task, shown)
            self._runner.errors.retries += 1
            self._update(retrying=shown)
        shown = str(error) if retriable else trace_of(error)
        return m.PutFailed(effect.epoch, retriable, shown, self._context.retry_in_ms)

    def _flush(self) -> m.SinkAnswer:
        try:
            self._plugin.flush()
        except Exception as error:
            self._runner.stay_alive()
            if not (is_transient(error) or isinstance(error, CommitRefusedError)):
                raise
            self._latency.rewound()
            log.warning("%s: flush() failed\n%s", self._setup.task, trace_of(error))
            self._runner.errors.retries += 1
            self._flush_error = str(error) or type(error).__name__
            self._update(retrying=self._flush_error)
            return NotDone(str(error))
        if self._flush_error is not None:
            self._flush_error = None
            self._update(retrying=None)
        return Done()

    def _stop_plugin(self) -> None:
        self._jobs.close()
        if self._dead_letters is not None:
            self._dead_letters.close()
        self._end_plugin("stop")

    def _update_lag(self) -> None:
        if time.monotonic() < self._lag_at_s:
            return
        self._lag_at_s = time.monotonic() + _LAG_EVERY_S
        reached = self._reached
        ends = self._consumer.known_ends(tuple(sorted(reached)))
        lags = [max(0, ends[partition] - offset) for partition, offset in reached.items() if partition in ends]
        lag = sum(lags) if len(lags) == len(reached) else None
        self._update(lag=lag, positions=named(reached), job=self._jobs.progress())
        if lag is not None:
            self._runner.feed(m.LagKnown(lag))

    def _count_commit(self, sequence: int, error: object) -> None:
        """A commit that the core no longer expects is counted apart."""
        self._latency.commit_ended(sequence, self._clock(), committed=error is None)
        name, (sent, sent_ms) = "commits" if error is None else "failed_commits", self._sent_commit
        if error is None and sent == sequence:
            self._commits.add(self._clock() - sent_ms)
        counts = {name: self._metrics[name] + 1, "latency": self._latency.buckets}
        self._update(**counts, **self._commits.metrics("commit_ms"))


def _dead_letters(setup: SinkSetup, runner: Runner[m.SinkStimulus, m.SinkAction]) -> DeadLetterQueue | None:
    if setup.dead_letter_config is None:
        return None
    return DeadLetterQueue(
        setup.task,
        setup.settings,
        setup.dead_letter_config,
        Admin(setup.admin_config),
        runner.checkpoint,
        runner.services.providers.masked,
        runner.errors,
        runner.services.clients.recorder,
    )


def _outcome(sequence: int, error: CommitError | None) -> m.CommitOutcome:
    if error is None:
        return m.OffsetsCommitted(sequence)
    return m.CommitFailed(sequence, error.reason, error.not_owner)


def _is_retriable(error: Exception) -> bool:
    return isinstance(error, ConnectxError) and error.retriable
