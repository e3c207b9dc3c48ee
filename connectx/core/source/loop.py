"""The loop of one source task: when to poll, send, commit, wait, pause and end.

It decides which offsets may be committed and when, and what a failure means. It never sees records, Kafka or Spark.
Mirrors Kafka Connect's AbstractWorkerSourceTask, WorkerSourceTask (at-least-once) and ExactlyOnceWorkerSourceTask
(KIP-618, transaction boundaries `poll`, `interval` and `connector`).

Exactly-once: records and the source offset after them are one transaction. Dropped records commit nothing: their
offset rides with the next transaction that has a record. Only a bulk slice without records commits its offset, because
executors may have opened its transaction in Kafka, which would expire. What the task itself asks to abort is dropped,
and its offsets are committed in a separate transaction, so that it is not read again. At-least-once: offsets are
committed after everything that was sent before them is acknowledged. A position moves only when its slice was handed to
the producer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, assert_never

from connectx.core.lanes import Lane
from connectx.core.moves import Moves, moved
from connectx.core.source import messages as msg
from connectx.core.source.bulk import BulkLane
from connectx.core.source.messages import BOTH_ASKED, NO_BOUNDARY, Boundary, SlicePart
from connectx.core.source.progress import Retry, SourceProgress, SourceTaskSettings, next_retry
from connectx.model import causes, payloads
from connectx.model.causes import Cause, ExecutorsWithoutKafka, RecordsFailed
from connectx.model.events import Transition
from connectx.model.payloads import Payload, StepName
from connectx.model.states import TransactionBoundary

_LoopAnswer = (
    msg.Polled
    | msg.Waiting
    | msg.CoresKnown
    | msg.RouteKnown
    | msg.BulkPolled
    | msg.BulkSent
    | msg.BulkFailed
    | msg.PolledNothing
    | msg.PollFailed
    | msg.ConvertFailed
    | msg.Idled
    | msg.Waited
    | msg.TransactionBegun
    | msg.SliceSent
    | msg.OffsetsWritten
    | msg.CommitUndecided
    | msg.TransactionCommitted
    | msg.TransactionAborted
    | msg.OffsetsFlushed
    | msg.OffsetsFlushFailed
)
"""Answers to the effects of a loop that has begun, but for failures."""

_End = tuple[Mapping[str, Any] | None, Mapping[str, Any]]
"""A source partition, None for the task's own, and the source offset reached in it."""


class Phase(StrEnum):
    """Where the loop is. Each line names the next phases; a failure leads to FAILING, but for a last one."""

    NEW = "new"  # Begin: STARTING, or WAITING when paused
    STARTING = "starting"  # the plugin starts and offsets are read: WORKING
    WORKING = "working"  # one effect of the loop is outstanding
    WAITING = "waiting"  # paused; resumed: STARTING (first time) or WORKING
    FAILING = "failing"  # a last abort or flush is outstanding: ENDED
    ENDED = "ended"  # nothing is accepted any more


SOURCE_LOOP_MOVES: Final[Moves[Phase]] = {
    Phase.NEW: frozenset({Phase.STARTING, Phase.WAITING, Phase.FAILING, Phase.ENDED}),
    Phase.STARTING: frozenset({Phase.WORKING, Phase.FAILING, Phase.ENDED}),
    Phase.WORKING: frozenset({Phase.WAITING, Phase.FAILING, Phase.ENDED}),
    Phase.WAITING: frozenset({Phase.STARTING, Phase.WORKING, Phase.ENDED}),
    Phase.FAILING: frozenset({Phase.ENDED}),
    Phase.ENDED: frozenset(),
}
"""A stop or a cancellation leads to ENDED, once the outstanding effect is answered."""


@dataclass(slots=True)
class SourceTaskCore:
    """State of the loop; `handle` is the only method that changes it.

    Of `slice_at_hand` the parts before `part` are sent. `asked` is what the task asked for after the slice;
    `aborting` that a transaction is aborted because the task asked so, `dropping` that it is because a bulk job failed
    or had nothing to commit. `committed_ms` is the time of the last commit, or of the begin. `producer_epoch` is that
    of the open or last transaction.
    """

    settings: SourceTaskSettings
    phase: Phase = Phase.NEW
    producer_epoch: int | None = None
    progress: SourceProgress = field(default_factory=SourceProgress)
    started: bool = False
    stop_requested: bool = False
    pause_requested: bool = False
    cancelled: bool = False
    slice_at_hand: msg.Polled | None = None
    part: int = 0
    asked: Boundary = NO_BOUNDARY
    aborting: bool = False
    dropping: bool = False
    retry: Retry | None = None
    idle_next: bool = False
    transaction_open: bool = False
    transaction_began_ms: int = 0
    committed_ms: int = 0
    failure: msg.EffectFailed | None = None
    bulk: BulkLane = field(init=False)

    def __post_init__(self) -> None:
        self.bulk = BulkLane(self.settings.lanes, self.settings.bulk_obstacle)

    @property
    def ended(self) -> bool:
        """True when nothing is accepted any more."""
        return self.phase is Phase.ENDED

    def handle(self, stimulus: msg.SourceStimulus, now_ms: int) -> msg.SourceStep:
        """Apply one stimulus; return transitions and effects."""
        step = msg.SourceStep()
        if self.ended:
            return step
        if isinstance(stimulus, msg.SourceRequest):
            self._on_request(stimulus, step)
            return step
        if self.cancelled:
            self._end(step)
            return step
        match stimulus:
            case msg.ProducerReady(producer_epoch):
                self.producer_epoch = producer_epoch
            case msg.Begin(paused):
                self.committed_ms = now_ms
                self.pause_requested = paused
                self._start_or_wait(step)
            case msg.PluginStarted(partition):
                self.progress.partition = partition
                self._record(step, payloads.TaskStep(StepName.READ_OFFSETS, self.settings.instance))
                step.effects.append(msg.ReadOffsets(partition))
            case msg.OffsetsRead(offset):
                self.progress.begin(offset)
                self.started = True
                self._move(Phase.WORKING)
                self.committed_ms = now_ms
                if not self._must_rest():
                    self._record(step, payloads.TaskStep(StepName.POLL, self.settings.instance))
                    step.effects.append(msg.ReportState(paused=False))
                self._go_on(step, now_ms)
            case msg.EffectFailed():
                self._on_failure(stimulus, step, now_ms)
            case _:
                self._on_loop(stimulus, step, now_ms)
        return step

    def _on_request(self, request: msg.SourceRequest, step: msg.SourceStep) -> None:
        """Only a waiting loop acts on a request immediately; otherwise the response to the outstanding effect does."""
        match request:
            case msg.StopRequested():
                self.stop_requested = True
            case msg.CancelRequested():
                self.cancelled = True
            case msg.PauseRequested():
                self.pause_requested = True
            case msg.ResumeRequested():
                self.pause_requested = False
        if self.phase not in (Phase.NEW, Phase.WAITING):
            return
        if self.cancelled or self.stop_requested:
            self._end(step)
        elif self.phase is Phase.WAITING and self.pause_requested:
            step.effects.append(msg.AwaitCommand())
        elif self.phase is Phase.WAITING and not self.started:
            self._start_or_wait(step)
        elif self.phase is Phase.WAITING:
            self._move(Phase.WORKING)
            step.effects += [msg.ReportState(paused=False), self._next_poll()]

    def _start_or_wait(self, step: msg.SourceStep) -> None:
        """A paused task waits before its plugin starts (Kafka Connect: WorkerTask.doRun)."""
        if self.pause_requested:
            self._wait(step)
        else:
            self._move(Phase.STARTING)
            step.effects.append(msg.StartPlugin())

    def _wait(self, step: msg.SourceStep) -> None:
        self._move(Phase.WAITING)
        self.retry = None  # a slice that could not be converted is polled again
        step.effects += [msg.ReportState(paused=True), msg.AwaitCommand()]

    def _on_loop(self, stimulus: _LoopAnswer, step: msg.SourceStep, now_ms: int) -> None:
        match stimulus:
            case msg.Polled():
                self._on_polled(stimulus, step, now_ms)
            case msg.Waiting() | msg.CoresKnown() | msg.RouteKnown():
                self._on_bulk(stimulus, step, now_ms)
            case msg.BulkPolled() | msg.BulkSent() | msg.BulkFailed():
                self._on_bulk(stimulus, step, now_ms)
            case msg.PolledNothing(boundary):
                self.asked, self.retry, self.idle_next = boundary, None, True
                self._go_on(step, now_ms)
            case msg.PollFailed() | msg.ConvertFailed():
                self._on_poll_failed(stimulus, step, now_ms)
            case msg.Idled(boundary):
                self.asked = boundary
                self._go_on(step, now_ms)
            case msg.Waited():
                self._go_on(step, now_ms)
            case msg.TransactionBegun(producer_epoch):
                self.producer_epoch = producer_epoch
                self._on_begun(step, now_ms)
            case msg.SliceSent(slice_number, refused):
                self._on_sent(slice_number, refused, step, now_ms)
            case msg.OffsetsWritten() | msg.CommitUndecided():
                step.effects.append(msg.CommitTransaction())
            case msg.TransactionCommitted():
                self.transaction_open = False
                self._on_committed(payloads.TransactionCommitted, step, now_ms)
            case msg.TransactionAborted():
                self._on_aborted(stimulus, step, now_ms)
            case msg.OffsetsFlushed(refused):
                self._report_refused(refused, step)
                self._on_committed(payloads.OffsetsCommitted, step, now_ms)
            case msg.OffsetsFlushFailed():
                self._on_flush_failed(step, now_ms)
            case _:
                assert_never(stimulus)

    def _on_polled(self, polled: msg.Polled, step: msg.SourceStep, now_ms: int) -> None:
        self.retry = None
        if polled.filtered:
            self._record(step, payloads.RecordsFiltered(polled.filtered))
        if polled.skipped:
            self._record(step, payloads.RecordsSkipped(polled.skipped), RecordsFailed(polled.skip_reason))
        self.progress.starts(polled.partition, polled.start)
        self.slice_at_hand, self.part, self.asked = polled, 0, polled.boundary
        self._proceed(step, now_ms)

    def _proceed(self, step: msg.SourceStep, now_ms: int) -> None:
        """Send the next part of the current slice that has records; after the last part the loop continues."""
        while (polled := self.slice_at_hand) is not None:
            part = self._parts_left()[0]
            if part.records == 0 and not self._commits_offset(polled, part):
                if part.offset is not None:
                    self.progress.dropped(polled.partition, part.offset)
                if self._end_part(part, step, now_ms):
                    return
            elif self.settings.exactly_once and not self.transaction_open:
                step.effects.append(msg.BeginTransaction())
                return
            elif part.records == 0:
                self.progress.sent(polled.partition, part.offset, 0)
                if self._end_part(part, step, now_ms):
                    return
            else:
                step.effects.append(msg.SendSlice(polled.slice_number, self.part))
                return
        self._go_on(step, now_ms)

    def _parts_left(self) -> tuple[SlicePart, ...]:
        """The parts of the current slice that are not sent yet."""
        if (polled := self.slice_at_hand) is None:
            return ()
        return (polled.parts or (SlicePart(polled.records, polled.offset),))[self.part :]

    def _commits_offset(self, polled: msg.Polled, part: SlicePart) -> bool:
        """Whether the offset after a part without records is to be committed: also if other tables had records."""
        is_of_tables = any(before.offset is None for before in polled.parts)
        return part.offset is not None and (polled.commits_offset or (is_of_tables and polled.records > 0))

    def _end_part(self, part: SlicePart, step: msg.SourceStep, now_ms: int) -> bool:
        """A part is done; True when the task asked for a boundary after it, which comes first."""
        self.part += 1
        if not self._parts_left():
            self.slice_at_hand = None
        return self._obey(part.boundary, step, now_ms)

    def _obey(self, boundary: Boundary, step: msg.SourceStep, now_ms: int) -> bool:
        """Do what the task asked for; False when there is nothing to do, also because no transaction is open."""
        if boundary.commit and boundary.abort:
            self._on_failure(msg.EffectFailed(BOTH_ASKED), step, now_ms)
            return True
        if not self.transaction_open or boundary == NO_BOUNDARY:
            return False
        if boundary.commit:
            self._commit(step)
        else:
            self.aborting = True
            step.effects.append(msg.AbortTransaction(insist=True))
        return True

    def _on_begun(self, step: msg.SourceStep, now_ms: int) -> None:
        self.transaction_open = True
        self.transaction_began_ms = now_ms
        if self.aborting:
            self.aborting = False
            self._commit(step)
        elif self.bulk.job is not None:
            self._run_bulk(step, now_ms)
        else:
            self._proceed(step, now_ms)

    def _on_sent(self, slice_number: int, refused: int, step: msg.SourceStep, now_ms: int) -> None:
        polled = self.slice_at_hand
        assert polled is not None, "only a current slice is sent"
        assert polled.slice_number == slice_number, f"slice {polled.slice_number} is current, not {slice_number}"
        part = self._parts_left()[0]
        self._report_refused(refused, step)
        self.progress.sent(polled.partition, part.offset, part.records)
        if not self._end_part(part, step, now_ms):
            self._proceed(step, now_ms)

    def _on_bulk(
        self,
        stimulus: msg.Waiting | msg.CoresKnown | msg.RouteKnown | msg.BulkPolled | msg.BulkSent | msg.BulkFailed,
        step: msg.SourceStep,
        now_ms: int,
    ) -> None:
        match stimulus:
            case msg.Waiting():
                self._on_waiting(stimulus, step, now_ms)
            case msg.CoresKnown(cores):
                self.bulk.cores_known(cores, now_ms)
                self._poll_in_lane(step, now_ms)
            case msg.RouteKnown(obstacle):
                if self.bulk.route_known(obstacle, now_ms):
                    self._record(step, payloads.BulkSentByWorker(), ExecutorsWithoutKafka(obstacle or ""))
                self._poll_in_lane(step, now_ms)
            case msg.BulkPolled():
                self.retry = None
                self.bulk.begin(stimulus)
                if self.settings.exactly_once and not self.transaction_open:
                    step.effects.append(msg.BeginTransaction())
                else:
                    self._run_bulk(step, now_ms)
            case msg.BulkSent():
                self._on_bulk_sent(stimulus, step, now_ms)
            case msg.BulkFailed():
                self._on_bulk_failed(stimulus, step, now_ms)

    def _on_waiting(self, waiting: msg.Waiting, step: msg.SourceStep, now_ms: int) -> None:
        if waiting.obstacle is not None:
            self.bulk.obstacle = waiting.obstacle
        if waiting.size_bytes is None and waiting.obstacle is None:
            step.effects.append(msg.Poll(self.progress.position))
            return
        self.bulk.waiting_bytes = waiting.size_bytes or 0
        if self.bulk.needs_cores(self.bulk.waiting_bytes, now_ms):
            step.effects.append(msg.QueryCores())
        else:
            self._poll_in_lane(step, now_ms)

    def _poll_in_lane(self, step: msg.SourceStep, now_ms: int) -> None:
        """Poll in the lane that the waiting bytes decide for; what was sent before a bulk slice is committed first."""
        if self.bulk.choose(self.bulk.waiting_bytes, now_ms):
            choice = self.bulk.choice
            self._record(step, payloads.LaneChanged(choice.lane), choice.reason)
        if not self.bulk.waiting_bytes or self.bulk.choice.lane is Lane.TAIL:
            step.effects.append(msg.Poll(self.progress.position))
        elif self.progress.pending:
            self._commit(step)
        elif self.bulk.needs_route(now_ms):
            step.effects.append(msg.QueryRoute())
        else:
            step.effects.append(msg.PollBulk(self.progress.position, self.bulk.slice_bytes))

    def _run_bulk(self, step: msg.SourceStep, now_ms: int) -> None:
        number = self.bulk.run(now_ms)
        self._record(step, payloads.BulkStarted(number))
        step.effects.append(msg.RunBulk(number, by_worker=self.bulk.by_worker))

    def _on_bulk_sent(self, sent: msg.BulkSent, step: msg.SourceStep, now_ms: int) -> None:
        self._record(step, payloads.BulkStaged(sent.slice_number, sent.records, sent.skipped))
        if sent.filtered:
            self._record(step, payloads.RecordsFiltered(sent.filtered))
        if sent.skipped:
            self._record(step, payloads.RecordsSkipped(sent.skipped), RecordsFailed(sent.skip_reason))
        job = self.bulk.succeed(now_ms)
        for read in sent.ranges:
            self.progress.starts(read.partition, read.start)
        ends: list[_End] = [(read.partition, read.end) for read in sent.ranges]
        if job.offset is not None:
            ends.append((job.partition, job.offset))
        if ends and (sent.records or self.transaction_open):
            for partition, offset in ends:
                self.progress.sent(partition, offset, 0)
            self.progress.records += sent.records
            self._commit(step)
        elif self.transaction_open:
            self._drop_transaction(step)
        else:
            for partition, offset in ends:
                self.progress.dropped(partition, offset)
            self._go_on(step, now_ms)

    def _on_bulk_failed(self, failed: msg.BulkFailed, step: msg.SourceStep, now_ms: int) -> None:
        """The slice is read again, after the transaction that the job may have written to is aborted."""
        self._record(step, payloads.BulkFailed(failed.error, failed.slice_number))
        if self.bulk.fail(failed.error, now_ms):
            self._on_failure(msg.EffectFailed(failed.error), step, now_ms)
        elif self.transaction_open:
            self._drop_transaction(step)
        else:
            self._go_on(step, now_ms)

    def _drop_transaction(self, step: msg.SourceStep) -> None:
        self.dropping = True
        step.effects.append(msg.AbortTransaction(insist=not self.stop_requested))

    def _on_poll_failed(self, failed: msg.PollFailed | msg.ConvertFailed, step: msg.SourceStep, now_ms: int) -> None:
        """Try again later, as long as `errors.retry.timeout` allows; without it a failed poll is an empty one."""
        converting, settings = isinstance(failed, msg.ConvertFailed), self.settings
        if isinstance(failed, msg.PollFailed) and not failed.retriable:
            self._on_failure(msg.EffectFailed(failed.error), step, now_ms)
            return
        if isinstance(failed, msg.PollFailed):
            self.asked = failed.boundary
        before = self.retry if self.retry is not None and self.retry.converting == converting else None
        self.retry = next_retry(before, settings, now_ms, converting=converting)
        if not converting and settings.retry_timeout_ms == 0:
            self.retry, self.idle_next = None, True
        if self.retry is not None or not converting or self._must_rest():
            self._go_on(step, now_ms)
        elif settings.tolerate_all:
            step.effects.append(msg.ConvertAgain(give_up=True))
        else:
            self._on_failure(msg.EffectFailed(failed.error, msg.FailureKind.RECORD), step, now_ms)

    def _go_on(self, step: msg.SourceStep, now_ms: int) -> None:
        """What comes after a completed effect: a due commit, the end, a pause, waiting for rows, or the next poll."""
        asked, self.asked = self.asked, NO_BOUNDARY
        due_ms = self._due_ms()
        if self._obey(asked, step, now_ms):
            return
        if due_ms is not None and now_ms >= due_ms:
            self._commit(step)
        elif self.stop_requested and self.transaction_open:
            step.effects.append(msg.AbortTransaction())
        elif self.stop_requested:
            self._end(step)
        elif self.pause_requested:
            self._wait(step)
        elif self.retry is not None and now_ms < self.retry.at_ms:
            step.effects.append(msg.Wait(self.retry.at_ms if due_ms is None else min(due_ms, self.retry.at_ms)))
        elif self.retry is not None and self.retry.converting:
            step.effects.append(msg.ConvertAgain())
        elif self.idle_next:
            self.idle_next = False
            step.effects.append(msg.Idle(self.progress.position, due_ms))
        else:
            step.effects.append(self._next_poll())

    def _next_poll(self) -> msg.SourceEffect:
        position = self.progress.position
        return msg.QueryWaiting(position) if self.bulk.is_possible else msg.Poll(position)

    def _must_rest(self) -> bool:
        return self.stop_requested or self.pause_requested

    def _due_ms(self) -> int | None:
        """When pending offsets are to be committed; None when nothing is pending, or when only the task decides."""
        settings = self.settings
        by_task = settings.exactly_once and settings.boundary is TransactionBoundary.CONNECTOR
        if not self.progress.pending or (by_task and (self.stop_requested or not self.pause_requested)):
            return None
        if self._must_rest() or (settings.exactly_once and settings.boundary is TransactionBoundary.POLL):
            return self.committed_ms
        return self.committed_ms + (
            settings.boundary_interval_ms if settings.exactly_once else settings.offset_flush_interval_ms
        )

    def _commit(self, step: msg.SourceStep) -> None:
        offsets = self.progress.offsets()
        if self.settings.exactly_once:
            step.effects.append(msg.WriteOffsets(offsets))
        else:
            step.effects.append(msg.FlushAndCommitOffsets(offsets, self.settings.offset_flush_timeout_ms))

    def _on_committed(
        self,
        payload: type[payloads.TransactionCommitted | payloads.OffsetsCommitted],
        step: msg.SourceStep,
        now_ms: int,
    ) -> None:
        if self.settings.copies_offsets:
            step.effects.append(msg.CopyOffsets(self.progress.offsets()))
        records = self.progress.records
        covered, moved = self.progress.commit()
        self._record(step, payload(records, covered, self.settings.instance))
        self.committed_ms = now_ms
        step.effects += [msg.NotifyCommitted(offset) for offset in moved]
        if self.phase is Phase.FAILING:
            self._end(step)
        else:
            self._proceed(step, now_ms)

    def _on_flush_failed(self, step: msg.SourceStep, now_ms: int) -> None:
        """Offsets stay pending; a task that stops or pauses does not try twice: it repeats records at worst."""
        self.committed_ms = now_ms
        if self.phase is Phase.FAILING or self.stop_requested:
            self._end(step)
        elif self.pause_requested:
            self._wait(step)
        else:
            self._go_on(step, now_ms)

    def _on_failure(self, failed: msg.EffectFailed, step: msg.SourceStep, now_ms: int) -> None:
        if self.phase is Phase.FAILING:
            self._end(step)
            return
        self.failure = failed
        self._move(Phase.FAILING)
        self.aborting = self.dropping = False
        if failed.kind in (msg.FailureKind.FENCED, msg.FailureKind.EXPIRED):
            if failed.kind is msg.FailureKind.FENCED:
                self._record(
                    step,
                    payloads.ProducerFenced(
                        instance=self.settings.instance,
                        transactional_id=self.settings.transactional_id,
                        error=failed.error,
                        open_ms=now_ms - self.transaction_began_ms if self.transaction_open else 0,
                        newer_epoch=failed.newer_epoch,
                    ),
                )
            if self.transaction_open:
                self._record_abort(causes.TaskFailing(failed.kind), step)
            self._end(step)
        elif self.transaction_open:
            step.effects.append(msg.AbortTransaction())
        elif self.progress.pending and not self.settings.exactly_once and failed.kind is not msg.FailureKind.DELIVERY:
            self._commit(step)
        else:
            self._end(step)

    def _on_aborted(self, aborted: msg.TransactionAborted, step: msg.SourceStep, now_ms: int) -> None:
        """A failing task ends, and so does one that was stopped; one that asked for it commits its offsets."""
        if self.failure is not None:
            self._record_abort(causes.TaskFailing(self.failure.kind, aborted.error), step)
            self._end(step)
        elif self.dropping:
            self.dropping = False
            reason = causes.BulkJobFailed if self.bulk.failures else causes.BulkJobEmpty
            self._record_abort(reason(aborted.error), step)
            if aborted.error is None:
                self._go_on(step, now_ms)
            else:
                self._end(step)
        elif not self.aborting:
            self._record_abort(causes.StoppedBeforeCommit(aborted.error), step)
            self._end(step)
        else:
            self._record_abort(causes.AbortAsked(), step)
            step.effects.append(msg.BeginTransaction())

    def _record_abort(self, reason: Cause, step: msg.SourceStep) -> None:
        """The transaction is over; what was about to be sent into it counts, unless the task continues with it."""
        records, self.progress.records = self.progress.records, 0
        if not self.aborting:
            records += sum(part.records for part in self._parts_left())
        self._record(step, payloads.TransactionAborted(records), reason)
        self.transaction_open = False

    def _end(self, step: msg.SourceStep) -> None:
        self._move(Phase.ENDED)
        if self.started or self.failure is not None:
            step.effects.append(msg.StopPlugin())
        if self.cancelled:
            step.effects.append(msg.ReportStopped())
            return
        step.effects.append(msg.CloseProducer())
        if self.failure is not None:
            failed = self.failure
            step.effects.append(msg.ReportFailed(failed.error, failed.kind, failed.newer_epoch))
        else:
            step.effects.append(msg.ReportStopped())

    def _report_refused(self, refused: int, step: msg.SourceStep) -> None:
        if refused:
            self._record(step, payloads.RecordsSkipped(refused), causes.RefusedByKafka())

    def _move(self, after: Phase) -> None:
        self.phase = moved(SOURCE_LOOP_MOVES, self.phase, after, self.settings.task)

    def _record(self, step: msg.SourceStep, payload: Payload, why: Cause | None = None) -> None:
        task = self.settings.task
        step.transitions.append(
            Transition(payload, task.connector, task.task, producer_epoch=self.producer_epoch, why=why)
        )
