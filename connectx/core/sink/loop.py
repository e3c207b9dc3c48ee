"""The loop of one sink task: when to poll, put, flush, commit, retry, pause and end, and what a rebalance takes away.

It decides which offsets may be committed: those of partitions that the task owns, and only after records that were
put. It never sees records, Kafka, Spark or the target. Mirrors Kafka Connect's WorkerSinkTask, with three additions:
ranges of offsets in place of records, an exactly-once target whose own offsets rule, and a bulk lane: executors stage
records beside the loop, which polls on with its partitions paused and then commits or discards what they staged.

Positions move after a successful put. At-least-once: what was put is flushed, then committed to the consumer group.
Exactly-once: the target holds rows and offsets; the group's offsets follow later, for tools that show lag.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from typing_extensions import override

from connectx.core.ignored import NotAwaited, NotOwned, OtherEpoch
from connectx.core.loops.lifecycle import Phase, TaskLoop
from connectx.core.loops.messages import CoresKnown, Done, EffectFailed, NotDone, QueryCores, StartPlugin, StopPlugin
from connectx.core.loops.retries import next_retry
from connectx.core.moves import Moves
from connectx.core.rules import Marks
from connectx.core.sink import messages as m
from connectx.core.sink.bulk import BulkLane
from connectx.core.sink.messages import Partitions, SinkStep
from connectx.core.sink.progress import Batch, Progress, SinkTaskSettings, named
from connectx.core.sink.rules import SINK_RULES
from connectx.model import payloads
from connectx.model.causes import CommitRejected, FlushFailed, RecordsFailed

_OPEN_LIMIT_MS: Final = 60_000
_OPEN_RETRY_MS: Final = 250


SINK_LOOP_MOVES: Final[Moves[Phase]] = {
    Phase.NEW: frozenset({Phase.STARTING, Phase.WAITING, Phase.ENDED}),
    Phase.WAITING: frozenset({Phase.STARTING, Phase.ENDED}),
    Phase.STARTING: frozenset({Phase.WORKING, Phase.ENDING}),
    Phase.WORKING: frozenset({Phase.ENDING}),
    Phase.ENDING: frozenset({Phase.ENDED}),
    Phase.ENDED: frozenset(),
}
"""A sink that runs is paused in WORKING, because it stays a member of its group."""


@dataclass(slots=True)
class SinkTaskCore(TaskLoop[m.SinkAction, m.SinkAnswer, m.SinkEvent]):
    """State of the loop; `handle` is the only method that changes it.

    `batches` wait to be put, one topic each, the first is the next. A limit of the target delays it to `put_at_ms`.
    `held`: partitions are paused at the consumer, `releasing` names partitions that a last commit is made for.
    `paused` is what the worker knows. `open_since_ms` is since when the target cannot be reached to open partitions.
    """

    MOVES = SINK_LOOP_MOVES
    ANSWERS = m.ANSWERS
    RULES = SINK_RULES

    settings: SinkTaskSettings
    epoch: int = field(default=0, init=False)
    progress: Progress = field(default_factory=Progress, init=False)
    batches: list[Batch] = field(default_factory=list, init=False)
    commit_at_ms: int = field(default=0, init=False)
    releasing: Partitions | None = field(default=None, init=False)
    held: bool = field(default=False, init=False)
    paused: bool = field(default=False, init=False)
    put_at_ms: float = field(default=0, init=False)
    open_since_ms: int | None = field(default=None, init=False)
    lag_since_ms: int | None = field(default=None, init=False)
    lag_alarm: bool = field(default=False, init=False)
    bulk: BulkLane = field(init=False)
    shown: m.SinkShown | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """The lane follows from the settings."""
        self.bulk = BulkLane.of(self.settings)

    def handle(self, stimulus: m.SinkStimulus, now_ms: int) -> SinkStep:
        """Apply one stimulus; return transitions and effects, and what is shown when it changes."""
        step = self.take(stimulus, now_ms, self.take_in)
        shown = m.SinkShown(self.bulk.choice, dict(self.progress.reached), self.progress.active_records(self.batches))
        if shown != self.shown:
            step.shown = self.shown = shown
        return step

    @override
    def marks(self) -> Marks:
        numbers = {"epoch": self.epoch, "commits": self.progress.sequence, "jobs": self.bulk.tokens}
        return {"now_ms": self.now_ms, "last_number": self.last_number, **numbers}

    @override
    def on_begin(self) -> None:
        self.ask(StartPlugin())

    @override
    def on_event(self, event: m.SinkEvent) -> None:
        match event:
            case m.PartitionsAssigned(positions):
                self._on_assigned(positions)
            case m.PartitionsRevoked(partitions) | m.PartitionsLost(partitions):
                self._on_taken_away(event, self._mine(partitions))
            case m.LagKnown(records):
                self._on_lag(records)
            case m.TargetKnown(mark):
                self.record(payloads.TargetHeld(mark))
            case m.OffsetsCommitted() | m.CommitFailed():
                self._on_commit_outcome(event)
            case EffectFailed():
                self._on_rebalance_failed(event)
            case _:
                assert_never(event)

    @override
    def on_answer(self, effect: m.SinkAction, answer: m.SinkAnswer) -> None:
        if isinstance(effect, m.OpenPartitions):
            self._on_opened(effect, answer)
        elif self.releasing is not None:
            self._on_last_flush(answer)
        else:
            self._on_loop(effect, answer)
            if self._is_idle(effect, answer):
                self.ask(m.PutNothing())
            else:
                self._continue()

    def _on_loop(self, effect: m.SinkAction, answer: m.SinkAnswer) -> None:
        match answer:
            case m.Fetched():
                self._on_fetched(answer)
            case m.PutFailed(_, False, error):
                self.fail(error)
            case m.EndsKnown() | m.PutDone() | m.PutFailed() | m.PutRefused():
                if answer.epoch == self.epoch:
                    self._on_put(answer)
                else:
                    self.ignore(OtherEpoch(answer.epoch, self.epoch))
            case CoresKnown(cores):
                self.bulk.cores_known(cores, self.now_ms)
            case m.BulkStaged():
                self._on_staged(answer)
            case m.BulkFailed():
                self._on_bulk_failed(answer)
            case NotDone(error):
                self._on_flush_failed(error)
                self._seek(self.progress.owned)
            case EffectFailed():
                self.fail(answer)
            case Done() if isinstance(effect, StartPlugin):
                self._on_started()
            case Done() if isinstance(effect, m.Flush):
                self._send_commit()
            case _:
                pass  # the time of a poll is over

    def _on_started(self) -> None:
        self.move(Phase.WORKING)
        self.started = True
        self.commit_at_ms = self.now_ms + self.settings.offset_flush_interval_ms
        self.emit(m.JoinGroup())
        if not self.pause_requested:
            self.report_state(paused=False)

    def _on_fetched(self, fetched: m.Fetched) -> None:
        """Take records after the positions; others are dropped and fetched again."""
        if fetched.epoch != self.epoch:
            self.ignore(OtherEpoch(fetched.epoch, self.epoch))
        free = fetched.epoch == self.epoch and not self.batches and not self.bulk.is_bulk
        taken = self.progress.take(fetched) if free else None
        if taken is None:
            self._seek(tuple(sorted({*fetched.ranges, *fetched.ends})))
        else:
            self.bulk.fetched(fetched)
            self.batches = taken

    def _on_put(self, answer: m.EndsKnown | m.PutDone | m.PutFailed | m.PutRefused) -> None:
        match answer:
            case m.EndsKnown(_, ends):
                self.bulk.ends = {p: ends[p] for p in self.progress.owned if p in ends}
            case m.PutDone():
                if answer.filtered:
                    self.record(payloads.RecordsFiltered(answer.filtered))
                if answer.skipped:
                    skipped = payloads.RecordsSkipped(answer.skipped, answer.dead_letters)
                    self.record(skipped, RecordsFailed(answer.skip_reason))
                self._limit(answer)
                self._put_done(answer.records)
            case m.PutFailed():
                self._on_put_failed(answer)
            case m.PutRefused():
                self._on_refused(answer)

    def _on_put_failed(self, failed: m.PutFailed) -> None:
        """Put again after growing pauses, or when the plugin asks for it, as long as errors.retry.timeout allows."""
        batch, settings, before = self.batches[0], self.settings, self.batches[0].retry
        batch.retry = next_retry(
            before,
            self.now_ms,
            first_ms=settings.retry_backoff_ms,
            longest_ms=settings.retry_backoff_max_ms,
            timeout_ms=settings.retry_timeout_ms if settings.retry_timeout_ms > 0 else None,
            pause_ms=failed.retry_in_ms,
        )
        if batch.retry is None and before is not None:
            self.fail(
                f"{failed.error} It was tried {before.attempt + 1} times in {self.now_ms - before.since_ms} ms; "
                f"errors.retry.timeout is {settings.retry_timeout_ms} ms."
            )

    def _limit(self, done: m.PutDone) -> None:
        """The next put waits as long as the rows of this one take at the highest rate."""
        rates = ((done.records, self.settings.max_rows_per_s), (done.size_bytes, self.settings.max_bytes_per_s))
        wait_ms = max([0.0, *(1000 * amount / rate for amount, rate in rates if rate is not None)])
        self.put_at_ms = max(self.put_at_ms, self.now_ms) + wait_ms

    def _on_lag(self, records: int) -> None:
        """An event when the lag stays high, and one when it is over."""
        limit = self.settings.lag_alarm_records
        if limit is None:
            return
        if records <= limit:
            if self.lag_alarm and self.lag_since_ms is not None:
                self.record(payloads.LagAlarmOver(records, self.now_ms - self.lag_since_ms))
            self.lag_since_ms, self.lag_alarm = None, False
            return
        self.lag_since_ms = self.now_ms if self.lag_since_ms is None else self.lag_since_ms
        if not self.lag_alarm and self.now_ms - self.lag_since_ms >= self.settings.lag_alarm_ms:
            self.lag_alarm = True
            self.record(payloads.LagAlarm(records, self.lag_since_ms))

    def _put_done(self, records: int) -> None:
        batch = self.batches.pop(0)
        self.progress.put(batch, records)
        if self.settings.exactly_once:
            self.record(payloads.OffsetsCommitted(records, named(batch.ends)))

    def _on_refused(self, refused: m.PutRefused) -> None:
        """Continue where the target is. A refusal after a lost response may show that the batch did arrive."""
        batch = self.batches[0]
        arrived = batch.retry is not None and all(refused.committed.get(p) == end for p, end in batch.ends.items())
        if arrived:
            self._put_done(refused.records)
        else:
            self.batches.pop(0)
            self._discard(batch.token)
            partitions = tuple(sorted(batch.ranges))
            self._record_refusal(CommitRejected(refused.error), partitions, named(refused.committed))
        moved = self.progress.move(refused.committed)  # also of other partitions, whose buffered rows were dropped
        self._seek(tuple(sorted(moved if arrived else {*batch.ranges, *moved})))

    def _on_flush_failed(self, error: str) -> None:
        """What was put since the last commit may be lost, of all partitions: nothing of it may be committed."""
        refused = tuple(self.progress.uncommitted(self.progress.owned))
        self._record_refusal(FlushFailed(error), refused)
        self.progress.rewind()
        self._drop_records()

    def _seek(self, partitions: Partitions) -> None:
        if offsets := {p: self.progress.reached[p] for p in partitions if p in self.progress.reached}:
            self.emit(m.Seek(offsets))

    def _continue(self) -> None:
        """What comes after a completed effect: the end, a pause, a due commit, a put, a job, or the next poll."""
        if self.cancelled or self.stop_requested or self.failure is not None:
            self.move(Phase.ENDING)
            self._drop_records()
            self._release(self.progress.owned)
            return
        self._follow_target_state()
        self._choose_lane()
        self._hold()
        if self._commit_is_due():
            if not self.settings.exactly_once:
                self.ask(m.Flush())
                return
            self._send_commit()
        wait_ms = min(self.settings.poll_timeout_ms, self.commit_at_ms - self.now_ms)
        put_at_ms = self._put_at_ms()
        if not self.batches:
            self._read_on(wait_ms)
        elif self.now_ms < put_at_ms:
            self.ask(m.Poll(self.epoch, min(wait_ms, put_at_ms - self.now_ms)))
        elif (token := self.batches[0].token) is not None:
            self.ask(m.CommitBulk(self.epoch, token, dict(self.batches[0].ranges)))
        else:
            self.ask(m.Put(self.epoch, dict(self.batches[0].ranges), self.batches[0].number))

    def _is_idle(self, effect: m.SinkAction, answer: m.SinkAnswer) -> bool:
        """A commit is due, and nothing came: a task that flushes by time can do it before. Executors may be at work."""
        is_over = isinstance(effect, m.Poll) and isinstance(answer, Done) and self.now_ms >= self.commit_at_ms
        ends = self.cancelled or self.stop_requested or self.failure is not None
        has_records = bool(self.batches) or self.bulk.job is not None
        return self.settings.puts_nothing and is_over and not ends and not has_records

    def _put_at_ms(self) -> int:
        """When the first batch may be put: after its pause, and as its limit allows."""
        retry = self.batches[0].retry if self.batches else None
        return max(0 if retry is None else retry.at_ms, math.ceil(self.put_at_ms))

    def _read_on(self, wait_ms: int) -> None:
        """Ask for what decides the lane, let executors read, or poll. A job begins after a flush of what was put."""
        is_free = not self.paused and self.bulk.job is None
        if is_free and self.bulk.needs_cores(self.progress, self.now_ms):
            self.ask(QueryCores())
            return
        ranges = self.bulk.next_ranges(self.progress) if is_free else {}
        is_put = self.progress.put_records and self.progress.uncommitted(self.progress.owned)
        if ranges and is_put and not self.settings.exactly_once:
            is_committing = self.progress.commit is not None
            self.ask(m.Poll(self.epoch, wait_ms) if is_committing else m.Flush())
        elif ranges:
            job = self.bulk.begin(ranges)
            self.record(payloads.BulkStarted(job.token, _named_ranges(ranges)))
            self.emit(m.RunBulk(job.token, ranges))
            self.ask(m.Poll(self.epoch, wait_ms))
        elif is_free and self.bulk.should_query(self.progress, self.now_ms):
            self.bulk.queried(self.now_ms)
            self.ask(m.QueryEnds(self.epoch, self.progress.owned))
        else:
            self.ask(m.Poll(self.epoch, wait_ms))

    def _follow_target_state(self) -> None:
        if self.pause_requested != self.paused:
            self.paused = self.pause_requested
            self.commit_at_ms = self.now_ms
            if self.paused:
                self._end_job()
            self._hold()
            self.report_state(paused=self.paused)

    def _hold(self) -> None:
        """Pause all partitions while the task is paused, a batch waits for a try or a limit, or executors read."""
        waits = any(batch.retry for batch in self.batches) or (bool(self.batches) and self.put_at_ms > self.now_ms)
        hold = self.paused or self.bulk.is_bulk or waits
        owned = self.progress.owned
        if hold != self.held and owned:
            self.emit(m.PausePartitions(owned) if hold else m.ResumePartitions(owned))
        self.held = hold

    def _choose_lane(self) -> None:
        if self.bulk.ends and not self.bulk.needs_cores(self.progress, self.now_ms) and self.bulk.choose(self.progress):
            self._lane_changed()

    def _lane_changed(self) -> None:
        """The consumer continues after the records that executors read."""
        choice = self.bulk.choice
        self.record(payloads.LaneChanged(choice.lane), choice.reason)
        if not self.bulk.is_bulk:
            self._seek(self.progress.owned)

    def _on_staged(self, staged: m.BulkStaged) -> None:
        """Commit it next. A job that was discarded meanwhile changes nothing."""
        if (job := self.bulk.end(staged.token)) is None:
            self.ignore(NotAwaited("BulkStaged", staged.token))
        else:
            self.batches = [Batch(dict(job.ranges), token=job.token)]
            self.record(payloads.BulkStaged(job.token, staged.records, staged.refused))

    def _on_bulk_failed(self, failed: m.BulkFailed) -> None:
        """The worker reads on past what executors cannot take, or what cannot be committed as it was staged."""
        if self.batches and self.batches[0].token == failed.token:
            ranges: m.Ranges = self.batches.pop(0).ranges
            self._discard(failed.token)
        elif (job := self.bulk.end(failed.token)) is not None:
            ranges = job.ranges
        else:
            self.ignore(NotAwaited("BulkFailed", failed.token))
            return
        ends = failed.ends or {partition: end for partition, (_, end) in ranges.items()}
        self.record(payloads.BulkFailed(failed.error, failed.token, named(ends)))
        self.bulk.fail(failed.error, ends)
        if self.bulk.choose(self.progress):
            self._lane_changed()

    def _drop_records(self) -> None:
        """Forget what was read or staged and is not put."""
        for batch in self.batches:
            self._discard(batch.token)
        self.batches = []
        self._end_job()

    def _end_job(self) -> None:
        if (job := self.bulk.job) is not None:
            self.bulk.end(job.token)
            self._discard(job.token)

    def _discard(self, token: int | None) -> None:
        if token is not None:
            self.emit(m.DiscardBulk(token))

    def _commit_is_due(self) -> bool:
        commit = self.progress.commit
        if commit is not None and self.now_ms >= commit.sent_ms + self.settings.offset_flush_timeout_ms:
            self.progress.forget_commit()
        if self.now_ms < self.commit_at_ms:
            return False
        self.commit_at_ms = self.now_ms + self.settings.offset_flush_interval_ms
        return self.progress.commit is None and bool(self.progress.uncommitted(self.progress.owned))

    def _send_commit(self) -> None:
        partitions = self.progress.owned if self.releasing is None else self.releasing
        commit = self.progress.begin_commit(partitions, self.now_ms)
        effect = m.CommitOffsets(commit.sequence, commit.offsets, wait=self.releasing is not None)
        if effect.wait:
            self.ask(effect)
        else:
            self.emit(effect)

    def _on_commit_outcome(self, outcome: m.CommitOutcome) -> None:
        committed = isinstance(outcome, m.OffsetsCommitted)
        commit = self.progress.end_commit(outcome.sequence, committed=committed)
        if commit is None:
            self.ignore(NotAwaited(type(outcome).__name__, outcome.sequence))
            return
        if committed and not self.settings.exactly_once:
            offsets = named(commit.offsets)
            self.record(payloads.OffsetsCommitted(commit.records, offsets))
        elif isinstance(outcome, m.CommitFailed) and outcome.not_owner:
            self._record_refusal(CommitRejected(outcome.error), tuple(sorted(commit.offsets)))
        if self.releasing is not None:
            self._released()

    def _on_taken_away(self, event: m.PartitionsRevoked | m.PartitionsLost, mine: Partitions) -> None:
        if not mine:
            self.ignore(NotOwned(event.partitions))
        elif isinstance(event, m.PartitionsRevoked):
            self._release(mine)
        else:
            self.progress.forget_commit()
            self._drop(mine, payloads.PartitionsLost)

    def _on_opened(self, effect: m.OpenPartitions, answer: m.SinkAnswer) -> None:
        """The target holds partitions, cannot be reached now, or the task fails."""
        epoch = answer.epoch if isinstance(answer, m.Opened) else effect.epoch
        match answer:
            case EffectFailed():
                self._on_rebalance_failed(answer)
            case _ if epoch != self.epoch:
                self.ignore(OtherEpoch(epoch, self.epoch))
            case m.Opened(_, offsets):
                self.open_since_ms = None
                if moved := self.progress.move(offsets):
                    self.emit(m.Seek(moved))
            case NotDone(error):
                self._on_open_retriable(effect, error)
            case _:
                raise AssertionError(f"{answer} does not answer {effect}")

    def _on_rebalance_failed(self, failed: EffectFailed) -> None:
        self.fail(failed)
        if self.releasing is not None:  # its last flush or commit was cut off
            self._released()

    def _on_assigned(self, positions: m.Offsets) -> None:
        if not (added := tuple(sorted(positions))):
            self.ignore(NotOwned(()))
            return
        self.epoch += 1
        self.progress.own(positions)
        self.record(payloads.PartitionsAssigned(tuple(str(p) for p in added)))
        if self.held:
            self.emit(m.PausePartitions(added))
        self.ask(m.OpenPartitions(self.epoch, added))

    def _on_open_retriable(self, effect: m.OpenPartitions, error: str) -> None:
        """Open again for a minute: nothing is lost by waiting. After that the task fails."""
        self.open_since_ms = self.now_ms if self.open_since_ms is None else self.open_since_ms
        if self.now_ms - self.open_since_ms < _OPEN_LIMIT_MS:
            self.ask(m.OpenPartitions(effect.epoch, effect.partitions, _OPEN_RETRY_MS))
        else:
            self.open_since_ms = None
            self.fail(error)

    def _mine(self, partitions: Partitions) -> Partitions:
        return tuple(p for p in sorted(partitions) if p in self.progress.positions)

    def _release(self, partitions: Partitions) -> None:
        """Commit what was put of these partitions while they are still owned, then close them."""
        self.progress.forget_commit()
        self.releasing = partitions
        if self.cancelled or not self.progress.uncommitted(partitions):
            self._released()
        elif self.settings.exactly_once:
            self._send_commit()
        else:
            self.ask(m.Flush())

    def _on_last_flush(self, answer: m.SinkAnswer) -> None:
        """Only what is durable may be committed; partitions are released in any case."""
        match answer:
            case Done():
                self._send_commit()
                return
            case m.OffsetsCommitted() | m.CommitFailed():
                self._on_commit_outcome(answer)
                return
            case NotDone(error):
                self._on_flush_failed(error)
                self._seek(tuple(p for p in self.progress.owned if p not in (self.releasing or ())))
            case EffectFailed():
                self.fail(answer)
            case _:
                raise AssertionError(f"{type(answer).__name__} while {self.settings.task} loses partitions")
        self._released()

    def _released(self) -> None:
        partitions, self.releasing = self.releasing or (), None
        self._drop(partitions, payloads.PartitionsRevoked)
        if self.phase is Phase.ENDING:
            self.end()

    def _drop(
        self,
        partitions: Partitions,
        payload: type[payloads.PartitionsRevoked | payloads.PartitionsLost],
    ) -> None:
        if not partitions:
            return
        self.epoch += 1
        self.progress.disown(partitions)
        self.bulk.disown(partitions)
        if self.bulk.job is not None and not self.bulk.job.ranges.keys().isdisjoint(partitions):
            self._end_job()
        self._drop_batches(partitions)
        self.record(payload(tuple(str(p) for p in partitions)))
        self.emit(m.ClosePartitions(partitions))

    def _drop_batches(self, partitions: Partitions) -> None:
        """Of what was staged all goes, because it is committed as a whole."""
        for batch in self.batches:
            kept = {p: ends for p, ends in batch.ranges.items() if p not in partitions}
            if batch.token is not None and len(kept) < len(batch.ranges):
                self._discard(batch.token)
                kept = {}
            batch.ranges = kept
        self.batches = [batch for batch in self.batches if batch.ranges]

    @override
    def end(self) -> None:
        if self.phase is Phase.ENDING:
            self.emit(StopPlugin(), m.LeaveGroup())
        self.move(Phase.ENDED)
        self.report_end()

    def _record_refusal(
        self,
        reason: CommitRejected | FlushFailed,
        partitions: Partitions,
        offsets: Mapping[str, int] | None = None,
    ) -> None:
        names = tuple(str(partition) for partition in partitions)
        self.record(payloads.CommitRefused(names, offsets), reason)


def _named_ranges(ranges: m.Ranges) -> dict[str, tuple[int, int]]:
    """First offset and end by the partition's name, as events carry them."""
    return {str(partition): ranges[partition] for partition in sorted(ranges)}
