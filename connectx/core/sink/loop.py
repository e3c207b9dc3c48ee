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
from enum import StrEnum
from typing import Final, assert_never

from connectx.core.moves import Moves, moved
from connectx.core.sink import messages as m
from connectx.core.sink.bulk import BulkLane
from connectx.core.sink.messages import Partitions, SinkStep
from connectx.core.sink.progress import Batch, Progress, SinkTaskSettings, named
from connectx.model import payloads
from connectx.model.causes import Cause, CommitRejected, FlushFailed, RecordsFailed
from connectx.model.events import Transition
from connectx.model.payloads import Payload

_OPEN_LIMIT_MS: Final = 60_000
_OPEN_RETRY_MS: Final = 250


_LoopAnswer = (
    m.Begin
    | m.SinkStarted
    | m.Fetched
    | m.FetchedNothing
    | m.EndsKnown
    | m.CoresKnown
    | m.BulkStaged
    | m.BulkFailed
    | m.PutDone
    | m.PutFailed
    | m.PutRefused
    | m.Flushed
    | m.FlushFailed
    | m.EffectFailed
)
"""Begin, and answers to the effects of the loop."""


class Phase(StrEnum):
    """Where the loop is. Each line names the next phases."""

    NEW = "new"  # Begin: STARTING, or WAITING when paused
    WAITING = "waiting"  # paused before the plugin started; resumed: STARTING
    STARTING = "starting"  # the plugin starts: WORKING
    WORKING = "working"  # one effect of the loop is outstanding; a stop or failure leads to CLOSING
    CLOSING = "closing"  # a last flush and commit: ENDED
    ENDED = "ended"  # nothing is accepted any more


SINK_LOOP_MOVES: Final[Moves[Phase]] = {
    Phase.NEW: frozenset({Phase.STARTING, Phase.WAITING, Phase.ENDED}),
    Phase.WAITING: frozenset({Phase.STARTING, Phase.ENDED}),
    Phase.STARTING: frozenset({Phase.WORKING, Phase.CLOSING}),
    Phase.WORKING: frozenset({Phase.CLOSING}),
    Phase.CLOSING: frozenset({Phase.ENDED}),
    Phase.ENDED: frozenset(),
}
"""A sink that runs is paused in WORKING, because it stays a member of its group."""


@dataclass(slots=True)
class SinkTaskCore:
    """State of the loop; `handle` is the only method that changes it.

    `batches` wait to be put, one topic each, the first is the next. A limit of the target delays it to `put_at_ms`.
    `held`: partitions are paused at the consumer, `giving_up` names partitions that a last commit is made for.
    """

    settings: SinkTaskSettings
    phase: Phase = Phase.NEW
    epoch: int = 0
    progress: Progress = field(default_factory=Progress)
    batches: list[Batch] = field(default_factory=list)
    commit_at_ms: int = 0
    giving_up: Partitions | None = None
    held: bool = False
    put_at_ms: float = 0
    open_since_ms: int | None = None
    """Since when the target cannot be reached to open partitions."""
    lag_since_ms: int | None = None
    lag_alarm: bool = False
    bulk: BulkLane = field(init=False)
    paused: bool = False
    pause_requested: bool = False
    stop_requested: bool = False
    cancelled: bool = False
    failure: str | None = None

    def __post_init__(self) -> None:
        """The lane follows from the settings."""
        self.bulk = BulkLane(self.settings)

    @property
    def ended(self) -> bool:
        """True when nothing is accepted any more."""
        return self.phase is Phase.ENDED

    def handle(self, stimulus: m.SinkStimulus, now_ms: int) -> SinkStep:
        """Apply one stimulus; return transitions and effects."""
        step = SinkStep()
        if self.ended:
            return step
        if isinstance(stimulus, m.SinkRequest):
            self._on_request(stimulus, step)
        elif isinstance(stimulus, m.Rebalance):
            self._on_rebalance(stimulus, step, now_ms)
        elif isinstance(stimulus, m.CommitOutcome):
            self._on_commit_outcome(stimulus, step)
        elif isinstance(stimulus, m.LagKnown):
            self._on_lag(stimulus.records, step, now_ms)
        elif self.giving_up is not None:
            self._on_last_flush(stimulus, step, now_ms)
        else:
            self._on_loop(stimulus, step, now_ms)
        return step

    def _on_request(self, request: m.SinkRequest, step: SinkStep) -> None:
        """Only a waiting loop acts on a request immediately; otherwise the response to the outstanding effect does."""
        match request:
            case m.StopRequested():
                self.stop_requested = True
            case m.CancelRequested():
                self.cancelled = True
            case m.PauseRequested():
                self.pause_requested = True
            case m.ResumeRequested():
                self.pause_requested = False
        if self.phase not in (Phase.NEW, Phase.WAITING):
            return
        if self.cancelled or self.stop_requested:
            self._end(step)
        elif self.phase is Phase.WAITING and self.pause_requested:
            step.effects.append(m.AwaitCommand())
        elif self.phase is Phase.WAITING:
            self._start(step)

    def _start(self, step: SinkStep) -> None:
        """A paused task waits before its plugin starts (Kafka Connect: WorkerTask.doRun)."""
        if self.pause_requested:
            self._move(Phase.WAITING)
            step.effects += [m.ReportState(paused=True), m.AwaitCommand()]
        else:
            self._move(Phase.STARTING)
            step.effects.append(m.StartPlugin())

    def _on_loop(self, stimulus: _LoopAnswer, step: SinkStep, now_ms: int) -> None:
        match stimulus:
            case m.Begin(paused):
                self.pause_requested = paused
                self._start(step)
                return
            case m.SinkStarted():
                self._move(Phase.WORKING)
                self.commit_at_ms = now_ms + self.settings.offset_flush_interval_ms
                step.effects.append(m.JoinGroup())
                if not self.pause_requested:
                    step.effects.append(m.ReportState(paused=False))
            case m.Fetched():
                self._on_fetched(stimulus, step)
            case m.PutFailed(_, False, error):
                self.failure = self.failure or error
            case m.CoresKnown(cores):
                self.bulk.cores_known(cores, now_ms)
            case m.BulkStaged():
                self._on_staged(stimulus, step)
            case m.BulkFailed():
                self._on_bulk_failed(stimulus, step)
            case m.EndsKnown() | m.PutDone() | m.PutFailed() | m.PutRefused():
                if stimulus.epoch == self.epoch:
                    self._on_answer(stimulus, step, now_ms)
            case m.FetchedNothing():
                pass
            case m.Flushed():
                self._send_commit(step, now_ms)
            case m.FlushFailed(error):
                self._on_flush_failed(error, step)
                self._seek(self.progress.owned, step)
            case m.EffectFailed():
                self.failure = self.failure or stimulus.error
            case _:
                assert_never(stimulus)
        self._go_on(step, now_ms)

    def _on_fetched(self, fetched: m.Fetched, step: SinkStep) -> None:
        """Take records after the positions; others are dropped and fetched again."""
        free = fetched.epoch == self.epoch and not self.batches and not self.bulk.is_bulk
        taken = self.progress.take(fetched) if free else None
        if taken is None:
            self._seek(tuple(sorted({*fetched.ranges, *fetched.ends})), step)
        else:
            self.bulk.fetched(fetched)
            self.batches = taken

    def _on_answer(
        self, answer: m.EndsKnown | m.PutDone | m.PutFailed | m.PutRefused, step: SinkStep, now_ms: int
    ) -> None:
        match answer:
            case m.EndsKnown(_, ends):
                self.bulk.ends = {p: ends[p] for p in self.progress.owned if p in ends}
            case m.PutDone():
                if answer.filtered:
                    self._record(step, payloads.RecordsFiltered(answer.filtered))
                if answer.skipped:
                    skipped = payloads.RecordsSkipped(answer.skipped, answer.dead_letters)
                    self._record(step, skipped, RecordsFailed(answer.skip_reason))
                self._limit(answer, now_ms)
                self._put_done(answer.records, step)
            case m.PutFailed():
                self._on_put_failed(answer, now_ms)
            case m.PutRefused():
                self._on_refused(answer, step)

    def _on_put_failed(self, failed: m.PutFailed, now_ms: int) -> None:
        """Put again after growing pauses, or when the plugin asks for it, as long as errors.retry.timeout allows."""
        batch, settings = self.batches[0], self.settings
        backoff_ms = min(settings.retry_backoff_ms * 2 ** min(batch.attempts, 20), settings.retry_backoff_max_ms)
        batch.attempts += 1
        batch.since_ms = now_ms if batch.since_ms is None else batch.since_ms
        batch.retry_at_ms = now_ms + (backoff_ms if failed.retry_in_ms is None else failed.retry_in_ms)
        if settings.retry_timeout_ms > 0:
            end_ms = batch.since_ms + settings.retry_timeout_ms
            batch.retry_at_ms = min(batch.retry_at_ms, end_ms)
            if now_ms >= end_ms:
                self.failure = self.failure or (
                    f"{failed.error} It was tried {batch.attempts} times in {now_ms - batch.since_ms} ms; "
                    f"errors.retry.timeout is {settings.retry_timeout_ms} ms."
                )

    def _limit(self, done: m.PutDone, now_ms: int) -> None:
        """The next put waits as long as the rows of this one take at the highest rate."""
        rates = ((done.records, self.settings.max_rows_per_s), (done.size_bytes, self.settings.max_bytes_per_s))
        wait_ms = max([0.0, *(1000 * amount / rate for amount, rate in rates if rate is not None)])
        self.put_at_ms = max(self.put_at_ms, now_ms) + wait_ms

    def _on_lag(self, records: int, step: SinkStep, now_ms: int) -> None:
        """An event when the lag stays high, and one when it is over."""
        limit = self.settings.lag_alarm_records
        if limit is None:
            return
        if records <= limit:
            if self.lag_alarm and self.lag_since_ms is not None:
                self._record(step, payloads.LagAlarmOver(records, now_ms - self.lag_since_ms))
            self.lag_since_ms, self.lag_alarm = None, False
            return
        self.lag_since_ms = now_ms if self.lag_since_ms is None else self.lag_since_ms
        if not self.lag_alarm and now_ms - self.lag_since_ms >= self.settings.lag_alarm_ms:
            self.lag_alarm = True
            self._record(step, payloads.LagAlarm(records, self.lag_since_ms))

    def _put_done(self, records: int, step: SinkStep) -> None:
        batch = self.batches.pop(0)
        self.progress.put(batch, records)
        if self.settings.exactly_once:
            self._record(step, payloads.OffsetsCommitted(records, named(batch.ends)))

    def _on_refused(self, refused: m.PutRefused, step: SinkStep) -> None:
        """Continue where the target is. A refusal after a lost response may show that the batch did arrive."""
        batch = self.batches[0]
        arrived = batch.attempts and all(refused.committed.get(p) == end for p, end in batch.ends.items())
        if arrived:
            self._put_done(refused.records, step)
        else:
            self.batches.pop(0)
            self._discard(batch.token, step)
            partitions = tuple(sorted(batch.ranges))
            self._record_refusal(step, CommitRejected(refused.error), partitions, named(refused.committed))
        moved = self.progress.move(refused.committed)  # also of other partitions, whose buffered rows were dropped
        self._seek(tuple(sorted(moved if arrived else {*batch.ranges, *moved})), step)

    def _on_flush_failed(self, error: str, step: SinkStep) -> None:
        """What was put since the last commit may be lost, of all partitions: nothing of it may be committed."""
        refused = tuple(self.progress.uncommitted(self.progress.owned))
        self._record_refusal(step, FlushFailed(error), refused)
        self.progress.rewind()
        self._drop_records(step)

    def _seek(self, partitions: Partitions, step: SinkStep) -> None:
        if offsets := {p: self.progress.reached[p] for p in partitions if p in self.progress.reached}:
            step.effects.append(m.Seek(offsets))

    def _go_on(self, step: SinkStep, now_ms: int) -> None:
        """What comes after a completed effect: the end, a pause, a due commit, a put, a job, or the next poll."""
        if self.cancelled or self.stop_requested or self.failure is not None:
            self._move(Phase.CLOSING)
            self._drop_records(step)
            self._give_up(self.progress.owned, step, now_ms)
            return
        self._follow_target_state(step, now_ms)
        self._choose_lane(step, now_ms)
        self._hold(step, now_ms)
        if self._commit_is_due(now_ms):
            if not self.settings.exactly_once:
                step.effects.append(m.Flush())
                return
            self._send_commit(step, now_ms)
        wait_ms = min(self.settings.poll_timeout_ms, self.commit_at_ms - now_ms)
        put_at_ms = max(self.batches[0].retry_at_ms, math.ceil(self.put_at_ms)) if self.batches else 0
        if not self.batches:
            self._read_on(step, wait_ms, now_ms)
        elif now_ms < put_at_ms:
            step.effects.append(m.Poll(self.epoch, min(wait_ms, put_at_ms - now_ms)))
        elif (token := self.batches[0].token) is not None:
            step.effects.append(m.CommitBulk(self.epoch, token, dict(self.batches[0].ranges)))
        else:
            step.effects.append(m.Put(self.epoch, dict(self.batches[0].ranges), self.batches[0].number))

    def _read_on(self, step: SinkStep, wait_ms: int, now_ms: int) -> None:
        """Ask for what decides the lane, let executors read, or poll. A job begins after a flush of what was put."""
        is_free = not self.paused and self.bulk.job is None
        if is_free and self.bulk.needs_cores(self.progress, now_ms):
            step.effects.append(m.QueryCores())
            return
        ranges = self.bulk.next_ranges(self.progress) if is_free else {}
        is_put = self.progress.put_records and self.progress.uncommitted(self.progress.owned)
        if ranges and is_put and not self.settings.exactly_once:
            is_committing = self.progress.commit is not None
            step.effects.append(m.Poll(self.epoch, wait_ms) if is_committing else m.Flush())
        elif ranges:
            job = self.bulk.begin(ranges)
            self._record(step, payloads.BulkStarted(job.token, _named_ranges(ranges)))
            step.effects += [m.RunBulk(job.token, ranges), m.Poll(self.epoch, wait_ms)]
        elif is_free and self.bulk.should_query(self.progress, now_ms):
            self.bulk.queried(now_ms)
            step.effects.append(m.QueryEnds(self.epoch, self.progress.owned))
        else:
            step.effects.append(m.Poll(self.epoch, wait_ms))

    def _follow_target_state(self, step: SinkStep, now_ms: int) -> None:
        if self.pause_requested != self.paused:
            self.paused = self.pause_requested
            self.commit_at_ms = now_ms
            if self.paused:
                self._end_job(step)
            self._hold(step, now_ms)
            step.effects.append(m.ReportState(paused=self.paused))

    def _hold(self, step: SinkStep, now_ms: int) -> None:
        """Pause all partitions while the task is paused, a batch waits for a try or a limit, or executors read."""
        waits = any(batch.attempts for batch in self.batches) or (bool(self.batches) and self.put_at_ms > now_ms)
        hold = self.paused or self.bulk.is_bulk or waits
        owned = self.progress.owned
        if hold != self.held and owned:
            step.effects.append(m.PausePartitions(owned) if hold else m.ResumePartitions(owned))
        self.held = hold

    def _choose_lane(self, step: SinkStep, now_ms: int) -> None:
        if self.bulk.ends and not self.bulk.needs_cores(self.progress, now_ms) and self.bulk.choose(self.progress):
            self._lane_changed(step)

    def _lane_changed(self, step: SinkStep) -> None:
        """The consumer continues after the records that executors read."""
        choice = self.bulk.choice
        self._record(step, payloads.LaneChanged(choice.lane), choice.reason)
        if not self.bulk.is_bulk:
            self._seek(self.progress.owned, step)

    def _on_staged(self, staged: m.BulkStaged, step: SinkStep) -> None:
        """Commit it next. A job that was discarded meanwhile changes nothing."""
        if (job := self.bulk.end(staged.token)) is not None:
            self.batches = [Batch(dict(job.ranges), token=job.token)]
            self._record(step, payloads.BulkStaged(job.token, staged.records, staged.refused))

    def _on_bulk_failed(self, failed: m.BulkFailed, step: SinkStep) -> None:
        """The worker reads on past what executors cannot take, or what cannot be committed as it was staged."""
        if self.batches and self.batches[0].token == failed.token:
            ranges: m.Ranges = self.batches.pop(0).ranges
            self._discard(failed.token, step)
        elif (job := self.bulk.end(failed.token)) is not None:
            ranges = job.ranges
        else:
            return
        ends = failed.ends or {partition: end for partition, (_, end) in ranges.items()}
        self._record(step, payloads.BulkFailed(failed.error, failed.token, named(ends)))
        self.bulk.fail(failed.error, ends)
        if self.bulk.choose(self.progress):
            self._lane_changed(step)

    def _drop_records(self, step: SinkStep) -> None:
        """Forget what was read or staged and is not put."""
        for batch in self.batches:
            self._discard(batch.token, step)
        self.batches = []
        self._end_job(step)

    def _end_job(self, step: SinkStep) -> None:
        if (job := self.bulk.job) is not None:
            self.bulk.end(job.token)
            self._discard(job.token, step)

    def _discard(self, token: int | None, step: SinkStep) -> None:
        if token is not None:
            step.effects.append(m.DiscardBulk(token))

    def _commit_is_due(self, now_ms: int) -> bool:
        commit = self.progress.commit
        if commit is not None and now_ms >= commit.sent_ms + self.settings.offset_flush_timeout_ms:
            self.progress.forget_commit()
        if now_ms < self.commit_at_ms:
            return False
        self.commit_at_ms = now_ms + self.settings.offset_flush_interval_ms
        return self.progress.commit is None and bool(self.progress.uncommitted(self.progress.owned))

    def _send_commit(self, step: SinkStep, now_ms: int) -> None:
        partitions = self.progress.owned if self.giving_up is None else self.giving_up
        commit = self.progress.begin_commit(partitions, now_ms)
        step.effects.append(m.CommitOffsets(commit.sequence, commit.offsets, wait=self.giving_up is not None))

    def _on_commit_outcome(self, outcome: m.CommitOutcome, step: SinkStep) -> None:
        committed = isinstance(outcome, m.OffsetsCommitted)
        commit = self.progress.end_commit(outcome.sequence, committed=committed)
        if commit is None:
            return
        if committed and not self.settings.exactly_once:
            offsets = named(commit.offsets)
            self._record(step, payloads.OffsetsCommitted(commit.records, offsets))
        elif isinstance(outcome, m.CommitFailed) and outcome.not_owner:
            self._record_refusal(step, CommitRejected(outcome.error), tuple(sorted(commit.offsets)))
        if self.giving_up is not None:
            self._given_up(step)

    def _on_rebalance(self, stimulus: m.Rebalance, step: SinkStep, now_ms: int) -> None:
        match stimulus:
            case m.PartitionsAssigned(positions):
                self._on_assigned(positions, step)
            case m.OpenRetriable():
                self._on_open_retriable(stimulus, step, now_ms)
            case m.Opened(epoch, offsets):
                self.open_since_ms = None
                if moved := self.progress.move(offsets) if epoch == self.epoch else {}:
                    step.effects.append(m.Seek(moved))
            case m.OpenFailed(error):
                self.failure = self.failure or error
                if self.giving_up is not None:  # its last flush or commit was cut off
                    self._given_up(step)
            case m.PartitionsRevoked(partitions):
                self._give_up(self._mine(partitions), step, now_ms)
            case m.PartitionsLost(partitions):
                self.progress.forget_commit()
                self._drop(self._mine(partitions), payloads.PartitionsLost, step)

    def _on_assigned(self, positions: m.Offsets, step: SinkStep) -> None:
        if not (added := tuple(sorted(positions))):
            return
        self.epoch += 1
        self.progress.own(positions)
        self._record(step, payloads.PartitionsAssigned(tuple(str(p) for p in added)))
        if self.held:
            step.effects.append(m.PausePartitions(added))
        step.effects.append(m.OpenPartitions(self.epoch, added))

    def _on_open_retriable(self, refused: m.OpenRetriable, step: SinkStep, now_ms: int) -> None:
        """Open again for a minute: nothing is lost by waiting. After that the task fails."""
        if refused.epoch != self.epoch:
            return
        self.open_since_ms = now_ms if self.open_since_ms is None else self.open_since_ms
        if now_ms - self.open_since_ms < _OPEN_LIMIT_MS:
            step.effects.append(m.OpenPartitions(refused.epoch, refused.partitions, _OPEN_RETRY_MS))
        else:
            self.open_since_ms = None
            self.failure = self.failure or refused.error

    def _mine(self, partitions: Partitions) -> Partitions:
        return tuple(p for p in sorted(partitions) if p in self.progress.positions)

    def _give_up(self, partitions: Partitions, step: SinkStep, now_ms: int) -> None:
        """Commit what was put of these partitions while they are still owned, then close them."""
        self.progress.forget_commit()
        self.giving_up = partitions
        if self.cancelled or not self.progress.uncommitted(partitions):
            self._given_up(step)
        elif self.settings.exactly_once:
            self._send_commit(step, now_ms)
        else:
            step.effects.append(m.Flush())

    def _on_last_flush(self, stimulus: _LoopAnswer, step: SinkStep, now_ms: int) -> None:
        """Only what is durable may be committed; partitions are given up in any case."""
        match stimulus:
            case m.Flushed():
                self._send_commit(step, now_ms)
                return
            case m.FlushFailed(error):
                self._on_flush_failed(error, step)
                self._seek(tuple(p for p in self.progress.owned if p not in (self.giving_up or ())), step)
            case m.EffectFailed(error):
                self.failure = self.failure or error
            case _:
                raise AssertionError(f"{type(stimulus).__name__} while {self.settings.task} loses partitions")
        self._given_up(step)

    def _given_up(self, step: SinkStep) -> None:
        partitions, self.giving_up = self.giving_up or (), None
        self._drop(partitions, payloads.PartitionsRevoked, step)
        if self.phase is Phase.CLOSING:
            self._end(step)

    def _drop(
        self,
        partitions: Partitions,
        payload: type[payloads.PartitionsRevoked | payloads.PartitionsLost],
        step: SinkStep,
    ) -> None:
        if not partitions:
            return
        self.epoch += 1
        self.progress.disown(partitions)
        self.bulk.disown(partitions)
        if self.bulk.job is not None and not self.bulk.job.ranges.keys().isdisjoint(partitions):
            self._end_job(step)
        self._drop_batches(partitions, step)
        self._record(step, payload(tuple(str(p) for p in partitions)))
        step.effects.append(m.ClosePartitions(partitions))

    def _drop_batches(self, partitions: Partitions, step: SinkStep) -> None:
        """Of what was staged all goes, because it is committed as a whole."""
        for batch in self.batches:
            kept = {p: ends for p, ends in batch.ranges.items() if p not in partitions}
            if batch.token is not None and len(kept) < len(batch.ranges):
                self._discard(batch.token, step)
                kept = {}
            batch.ranges = kept
        self.batches = [batch for batch in self.batches if batch.ranges]

    def _end(self, step: SinkStep) -> None:
        if self.phase is Phase.CLOSING:
            step.effects += [m.StopPlugin(), m.LeaveGroup()]
        self._move(Phase.ENDED)
        if self.failure is not None and not self.cancelled:
            step.effects.append(m.ReportFailed(self.failure))
        else:
            step.effects.append(m.ReportStopped())

    def _record_refusal(
        self,
        step: SinkStep,
        reason: CommitRejected | FlushFailed,
        partitions: Partitions,
        offsets: Mapping[str, int] | None = None,
    ) -> None:
        names = tuple(str(partition) for partition in partitions)
        self._record(step, payloads.CommitRefused(names, offsets), reason)

    def _move(self, after: Phase) -> None:
        self.phase = moved(SINK_LOOP_MOVES, self.phase, after, self.settings.task)

    def _record(self, step: SinkStep, payload: Payload, why: Cause | None = None) -> None:
        task = self.settings.task
        step.transitions.append(Transition(payload, task.connector, task.task, why=why))


def _named_ranges(ranges: m.Ranges) -> dict[str, tuple[int, int]]:
    """First offset and end by the partition's name, as events carry them."""
    return {str(partition): ranges[partition] for partition in sorted(ranges)}
