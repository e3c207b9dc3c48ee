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
from typing import Any, Final

from typing_extensions import override

from connectx.core.lanes import Lane, LaneChoice
from connectx.core.loops import messages as loops
from connectx.core.loops.lifecycle import Phase, TaskLoop
from connectx.core.loops.retries import Retry, next_retry
from connectx.core.messages import TaskProducerReady
from connectx.core.moves import Moves
from connectx.core.source import messages as msg
from connectx.core.source.bulk import BulkLane
from connectx.core.source.messages import BOTH_ASKED, NO_BOUNDARY, Boundary, SlicePart
from connectx.core.source.progress import SourceProgress, SourceTaskSettings
from connectx.core.source.rules import SOURCE_RULES
from connectx.model import causes, payloads
from connectx.model.causes import Cause, ExecutorsWithoutKafka, RecordsFailed
from connectx.model.payloads import StepName
from connectx.model.states import TransactionBoundary

_FIRST_RETRY_MS: Final = 300
_End = tuple[Mapping[str, Any] | None, Mapping[str, Any]]
"""A source partition, None for the task's own, and the source offset reached in it."""


SOURCE_LOOP_MOVES: Final[Moves[Phase]] = {
    Phase.NEW: frozenset({Phase.STARTING, Phase.WAITING, Phase.ENDING, Phase.ENDED}),
    Phase.WAITING: frozenset({Phase.STARTING, Phase.WORKING, Phase.ENDED}),
    Phase.STARTING: frozenset({Phase.WORKING, Phase.ENDING, Phase.ENDED}),
    Phase.WORKING: frozenset({Phase.WAITING, Phase.ENDING, Phase.ENDED}),
    Phase.ENDING: frozenset({Phase.ENDED}),
    Phase.ENDED: frozenset(),
}
"""A stop or a cancellation leads to ENDED, once the outstanding effect is answered."""


@dataclass(slots=True)
class SourceTaskCore(TaskLoop[msg.SourceAction, msg.SourceAnswer, TaskProducerReady | loops.EffectFailed]):
    """State of the loop; `handle` is the only method that changes it.

    Of `current_slice` the parts before `part` are sent. `boundary` is what the task asked for after the slice;
    `aborting` that a transaction is aborted because the task asked so, `dropping` that it is because a bulk job failed
    or had nothing to commit. `retry_converts`: the conversion is tried again, not the poll. `committed_ms` is the time
    of the last commit, or of the begin.
    """

    MOVES = SOURCE_LOOP_MOVES
    ANSWERS = msg.ANSWERS
    RULES = SOURCE_RULES

    settings: SourceTaskSettings
    progress: SourceProgress = field(default_factory=SourceProgress, init=False)
    current_slice: msg.Polled | None = field(default=None, init=False)
    part: int = field(default=0, init=False)
    boundary: Boundary = field(default=NO_BOUNDARY, init=False)
    aborting: bool = field(default=False, init=False)
    dropping: bool = field(default=False, init=False)
    retry: Retry | None = field(default=None, init=False)
    retry_converts: bool = field(default=False, init=False)
    idle_next: bool = field(default=False, init=False)
    transaction_open: bool = field(default=False, init=False)
    transaction_began_ms: int = field(default=0, init=False)
    committed_ms: int = field(default=0, init=False)
    bulk: BulkLane = field(init=False)
    shown_choice: LaneChoice | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.bulk = BulkLane.of(self.settings.lanes, self.settings.bulk_obstacle)

    def handle(self, stimulus: msg.SourceStimulus, now_ms: int) -> msg.SourceStep:
        """Apply one stimulus; return transitions and effects, and the choice of the lane when it changes."""
        step = self.take(stimulus, now_ms, self.take_in)
        if self.bulk.choice is not self.shown_choice:
            step.shown = self.shown_choice = self.bulk.choice
        return step

    @override
    def on_begin(self) -> None:
        self.committed_ms = self.now_ms
        self.ask(loops.StartPlugin())

    @override
    def on_resumed(self) -> None:
        self.move(Phase.WORKING)
        self.report_state(paused=False)
        self.ask(self._next_poll())

    @override
    def wait(self) -> None:
        super(SourceTaskCore, self).wait()
        self.retry = None  # a slice that could not be converted is polled again

    @override
    def on_event(self, event: TaskProducerReady | loops.EffectFailed) -> None:
        if isinstance(event, TaskProducerReady):
            self.producer_epoch = event.producer_epoch
        else:
            self._on_failure(event)

    @override
    def on_answer(self, effect: msg.SourceAction, answer: msg.SourceAnswer) -> None:
        if self.cancelled:
            self.end()
            return
        match answer:
            case loops.EffectFailed():
                self._on_failure(answer)
            case msg.PluginStarted(partition):
                self.progress.partition = partition
                self.record(payloads.TaskStep(StepName.READ_OFFSETS, self.settings.instance))
                self.ask(msg.ReadOffsets(partition))
            case msg.OffsetsRead(offset):
                self._on_started(offset)
            case msg.Polled():
                self._on_polled(answer)
            case msg.PolledNothing(boundary):
                if not isinstance(effect, msg.Idle):
                    self.retry, self.idle_next = None, True
                self.boundary = boundary
                self._continue()
            case msg.PollFailed():
                self._on_poll_failed(answer)
            case msg.TransactionBegun(producer_epoch):
                self.producer_epoch = producer_epoch
                self._on_begun()
            case msg.Sent(refused):
                self._on_sent(effect, refused)
            case loops.Done():
                self._on_done(effect)
            case loops.NotDone(error):
                self._on_not_done(effect, error)
            case _:
                self._on_bulk(answer)

    def _on_started(self, offset: Mapping[str, Any] | None) -> None:
        self.progress.begin(offset)
        self.started = True
        self.move(Phase.WORKING)
        self.committed_ms = self.now_ms
        if not self.must_rest:
            self.record(payloads.TaskStep(StepName.POLL, self.settings.instance))
            self.report_state(paused=False)
        self._continue()

    def _on_done(self, effect: msg.SourceAction) -> None:
        match effect:
            case msg.WriteOffsets():
                self.ask(msg.CommitTransaction())
            case msg.CommitTransaction():
                self.transaction_open = False
                self._on_committed(payloads.TransactionCommitted)
            case msg.AbortTransaction():
                self._on_aborted(None)
            case _:  # Wait
                self._continue()

    def _on_not_done(self, effect: msg.SourceAction, error: str) -> None:
        match effect:
            case msg.CommitTransaction():
                self.ask(effect)
            case msg.AbortTransaction():
                self._on_aborted(error)
            case msg.FlushAndCommitOffsets():
                self._on_flush_failed()
            case _:  # Poll, ConvertAgain
                self._on_convert_failed(error)

    def _on_polled(self, polled: msg.Polled) -> None:
        self.retry = None
        if polled.filtered:
            self.record(payloads.RecordsFiltered(polled.filtered))
        if polled.skipped:
            self.record(payloads.RecordsSkipped(polled.skipped), RecordsFailed(polled.skip_reason))
        self.progress.starts(polled.partition, polled.start)
        self.current_slice, self.part, self.boundary = polled, 0, polled.boundary
        self._proceed()

    def _proceed(self) -> None:
        """Send the next part of the current slice that has records; after the last part the loop continues."""
        while (polled := self.current_slice) is not None:
            part = self._parts_left()[0]
            if part.records == 0 and not self._commits_offset(polled, part):
                if part.offset is not None:
                    self.progress.dropped(polled.partition, part.offset)
                if self._end_part(part):
                    return
            elif self.settings.exactly_once and not self.transaction_open:
                self.ask(msg.BeginTransaction())
                return
            elif part.records == 0:
                self.progress.sent(polled.partition, part.offset, 0)
                if self._end_part(part):
                    return
            else:
                self.ask(msg.SendSlice(polled.slice_number, self.part))
                return
        self._continue()

    def _parts_left(self) -> tuple[SlicePart, ...]:
        """The parts of the current slice that are not sent yet."""
        if (polled := self.current_slice) is None:
            return ()
        return (polled.parts or (SlicePart(polled.records, polled.offset),))[self.part :]

    def _commits_offset(self, polled: msg.Polled, part: SlicePart) -> bool:
        """Whether the offset after a part without records is to be committed: also if other tables had records."""
        is_of_tables = any(before.offset is None for before in polled.parts)
        return part.offset is not None and (polled.commits_offset or (is_of_tables and polled.records > 0))

    def _end_part(self, part: SlicePart) -> bool:
        """A part is done; True when the task asked for a boundary after it, which comes first."""
        self.part += 1
        if not self._parts_left():
            self.current_slice = None
        return self._obey(part.boundary)

    def _obey(self, boundary: Boundary) -> bool:
        """Do what the task asked for; False when there is nothing to do, also because no transaction is open."""
        if boundary.commit and boundary.abort:
            self._on_failure(loops.EffectFailed(BOTH_ASKED))
            return True
        if not self.transaction_open or boundary == NO_BOUNDARY:
            return False
        if boundary.commit:
            self._commit()
        else:
            self.aborting = True
            self.ask(msg.AbortTransaction(insist=True))
        return True

    def _on_begun(self) -> None:
        self.transaction_open = True
        self.transaction_began_ms = self.now_ms
        if self.aborting:
            self.aborting = False
            self._commit()
        elif self.bulk.job is not None:
            self._run_bulk()
        else:
            self._proceed()

    def _on_sent(self, effect: msg.SourceAction, refused: int) -> None:
        if refused:
            self.record(payloads.RecordsSkipped(refused), causes.RefusedByKafka())
        if isinstance(effect, msg.FlushAndCommitOffsets):
            self._on_committed(payloads.OffsetsCommitted)
            return
        polled = self.current_slice
        assert polled is not None, "only a current slice is sent"
        part = self._parts_left()[0]
        self.progress.sent(polled.partition, part.offset, part.records)
        if not self._end_part(part):
            self._proceed()

    def _on_bulk(
        self,
        stimulus: msg.Waiting | loops.CoresKnown | msg.RouteKnown | msg.BulkPolled | msg.BulkSent | msg.BulkFailed,
    ) -> None:
        match stimulus:
            case msg.Waiting():
                self._on_waiting(stimulus)
            case loops.CoresKnown(cores):
                self.bulk.cores_known(cores, self.now_ms)
                self._poll_in_lane()
            case msg.RouteKnown(obstacle):
                if self.bulk.route_known(obstacle, self.now_ms):
                    self.record(payloads.BulkSentByWorker(), ExecutorsWithoutKafka(obstacle or ""))
                self._poll_in_lane()
            case msg.BulkPolled():
                self.retry = None
                self.bulk.begin(stimulus)
                if self.settings.exactly_once and not self.transaction_open:
                    self.ask(msg.BeginTransaction())
                else:
                    self._run_bulk()
            case msg.BulkSent():
                self._on_bulk_sent(stimulus)
            case msg.BulkFailed():
                self._on_bulk_failed(stimulus)

    def _on_waiting(self, waiting: msg.Waiting) -> None:
        if waiting.obstacle is not None:
            self.bulk.obstacle = waiting.obstacle
        if waiting.size_bytes is None and waiting.obstacle is None:
            self.ask(msg.Poll(self.progress.position))
            return
        self.bulk.waiting_bytes = waiting.size_bytes or 0
        if self.bulk.needs_cores(self.bulk.waiting_bytes, self.now_ms):
            self.ask(loops.QueryCores())
        else:
            self._poll_in_lane()

    def _poll_in_lane(self) -> None:
        """Poll in the lane that the waiting bytes decide for; what was sent before a bulk slice is committed first."""
        if self.bulk.choose(self.bulk.waiting_bytes, self.now_ms):
            choice = self.bulk.choice
            self.record(payloads.LaneChanged(choice.lane), choice.reason)
        if not self.bulk.waiting_bytes or self.bulk.choice.lane is Lane.TAIL:
            self.ask(msg.Poll(self.progress.position))
        elif self.progress.pending:
            self._commit()
        elif self.bulk.needs_route(self.now_ms):
            self.ask(msg.QueryRoute())
        else:
            self.ask(msg.PollBulk(self.progress.position, self.bulk.slice_bytes))

    def _run_bulk(self) -> None:
        number = self.bulk.run(self.now_ms)
        self.record(payloads.BulkStarted(number))
        self.ask(msg.RunBulk(number, by_worker=self.bulk.by_worker))

    def _on_bulk_sent(self, sent: msg.BulkSent) -> None:
        self.record(payloads.BulkStaged(sent.slice_number, sent.records, sent.skipped))
        if sent.filtered:
            self.record(payloads.RecordsFiltered(sent.filtered))
        if sent.skipped:
            self.record(payloads.RecordsSkipped(sent.skipped), RecordsFailed(sent.skip_reason))
        job = self.bulk.succeed(self.now_ms)
        for read in sent.ranges:
            self.progress.starts(read.partition, read.start)
        ends: list[_End] = [(read.partition, read.end) for read in sent.ranges]
        if job.offset is not None:
            ends.append((job.partition, job.offset))
        if ends and (sent.records or self.transaction_open):
            for partition, offset in ends:
                self.progress.sent(partition, offset, 0)
            self.progress.records += sent.records
            self._commit()
        elif self.transaction_open:
            self._drop_transaction()
        else:
            for partition, offset in ends:
                self.progress.dropped(partition, offset)
            self._continue()

    def _on_bulk_failed(self, failed: msg.BulkFailed) -> None:
        """The slice is read again, after the transaction that the job may have written to is aborted."""
        self.record(payloads.BulkFailed(failed.error, failed.slice_number))
        if self.bulk.fail(failed.error, self.now_ms):
            self._on_failure(loops.EffectFailed(failed.error))
        elif self.transaction_open:
            self._drop_transaction()
        else:
            self._continue()

    def _drop_transaction(self) -> None:
        self.dropping = True
        self.ask(msg.AbortTransaction(insist=not self.stop_requested))

    def _on_poll_failed(self, failed: msg.PollFailed) -> None:
        """Poll again until it succeeds (as Kafka Connect); without a retry time-out it counts as an empty poll."""
        if not failed.retriable:
            self._on_failure(loops.EffectFailed(failed.error))
            return
        self.boundary = failed.boundary
        if self.settings.retry_timeout_ms == 0:
            self.retry, self.idle_next = None, True
        else:
            self._retry(None, converts=False)
        self._continue()

    def _on_convert_failed(self, error: str) -> None:
        """Convert again later, as long as `errors.retry.timeout` allows."""
        timeout_ms = self.settings.retry_timeout_ms
        self._retry(None if timeout_ms < 0 else timeout_ms, converts=True)
        if self.retry is not None or self.must_rest:
            self._continue()
        elif self.settings.tolerate_all:
            self.ask(msg.ConvertAgain(skip_failures=True))
        else:
            self._on_failure(loops.EffectFailed(error, loops.FailureKind.RECORD))

    def _retry(self, timeout_ms: int | None, *, converts: bool) -> None:
        before = self.retry if self.retry_converts == converts else None
        longest_ms = self.settings.retry_delay_max_ms
        self.retry = next_retry(
            before, self.now_ms, first_ms=_FIRST_RETRY_MS, longest_ms=longest_ms, timeout_ms=timeout_ms
        )
        self.retry_converts = converts

    def _continue(self) -> None:
        """What comes after a completed effect: a due commit, the end, a pause, waiting for rows, or the next poll."""
        boundary, self.boundary = self.boundary, NO_BOUNDARY
        due_ms = self._due_ms()
        if self._obey(boundary):
            return
        if due_ms is not None and self.now_ms >= due_ms:
            self._commit()
        elif self.stop_requested and self.transaction_open:
            self.ask(msg.AbortTransaction())
        elif self.stop_requested:
            self.end()
        elif self.pause_requested:
            self.wait()
        elif self.retry is not None and self.now_ms < self.retry.at_ms:
            self.ask(msg.Wait(self.retry.at_ms if due_ms is None else min(due_ms, self.retry.at_ms)))
        elif self.retry is not None and self.retry_converts:
            self.ask(msg.ConvertAgain())
        elif self.idle_next:
            self.idle_next = False
            self.ask(msg.Idle(self.progress.position, due_ms))
        else:
            self.ask(self._next_poll())

    def _next_poll(self) -> msg.SourceAction:
        position = self.progress.position
        return msg.QueryWaiting(position) if self.bulk.is_possible else msg.Poll(position)

    def _due_ms(self) -> int | None:
        """When pending offsets are to be committed; None when nothing is pending, or when only the task decides."""
        settings = self.settings
        by_task = settings.exactly_once and settings.boundary is TransactionBoundary.CONNECTOR
        if not self.progress.pending or (by_task and (self.stop_requested or not self.pause_requested)):
            return None
        if self.must_rest or (settings.exactly_once and settings.boundary is TransactionBoundary.POLL):
            return self.committed_ms
        return self.committed_ms + (
            settings.boundary_interval_ms if settings.exactly_once else settings.offset_flush_interval_ms
        )

    def _commit(self) -> None:
        offsets = self.progress.offsets()
        if self.settings.exactly_once:
            self.ask(msg.WriteOffsets(offsets))
        else:
            self.ask(msg.FlushAndCommitOffsets(offsets, self.settings.offset_flush_timeout_ms))

    def _on_committed(
        self,
        payload: type[payloads.TransactionCommitted | payloads.OffsetsCommitted],
    ) -> None:
        if self.settings.copies_offsets:
            self.emit(msg.CopyOffsets(self.progress.offsets()))
        records = self.progress.records
        covered, moved = self.progress.commit()
        self.record(payload(records, covered, self.settings.instance))
        self.committed_ms = self.now_ms
        self.emit(*(msg.NotifyCommitted(offset) for offset in moved))
        if self.phase is Phase.ENDING:
            self.end()
        else:
            self._proceed()

    def _on_flush_failed(self) -> None:
        """Offsets stay pending; a task that stops or pauses does not try twice: it repeats records at worst."""
        self.committed_ms = self.now_ms
        if self.phase is Phase.ENDING or self.stop_requested:
            self.end()
        elif self.pause_requested:
            self.wait()
        else:
            self._continue()

    def _on_failure(self, failed: loops.EffectFailed) -> None:
        if self.phase is Phase.ENDING:
            self.end()
            return
        self.fail(failed)
        self.move(Phase.ENDING)
        self.aborting = self.dropping = False
        if failed.kind in (loops.FailureKind.FENCED, loops.FailureKind.EXPIRED):
            if failed.kind is loops.FailureKind.FENCED:
                self.record(
                    payloads.ProducerFenced(
                        instance=self.settings.instance,
                        transactional_id=self.settings.transactional_id,
                        error=failed.error,
                        open_ms=self.now_ms - self.transaction_began_ms if self.transaction_open else 0,
                        newer_epoch=failed.newer_epoch,
                    ),
                )
            if self.transaction_open:
                self._record_abort(causes.TaskFailing(failed.kind))
            self.end()
        elif self.transaction_open:
            self.ask(msg.AbortTransaction())
        elif self.progress.pending and not self.settings.exactly_once and failed.kind is not loops.FailureKind.DELIVERY:
            self._commit()
        else:
            self.end()

    def _on_aborted(self, error: str | None) -> None:
        """A failing task ends, and so does one that was stopped; one that asked for it commits its offsets."""
        if self.failure is not None:
            self._record_abort(causes.TaskFailing(self.failure.kind, error))
            self.end()
        elif self.dropping:
            self.dropping = False
            reason = causes.BulkJobFailed if self.bulk.failures else causes.BulkJobEmpty
            self._record_abort(reason(error))
            if error is None:
                self._continue()
            else:
                self.end()
        elif not self.aborting:
            self._record_abort(causes.StoppedBeforeCommit(error))
            self.end()
        else:
            self._record_abort(causes.AbortAsked())
            self.ask(msg.BeginTransaction())

    def _record_abort(self, reason: Cause) -> None:
        """The transaction is over; what was about to be sent into it counts, unless the task continues with it."""
        records, self.progress.records = self.progress.records, 0
        if not self.aborting:
            records += sum(part.records for part in self._parts_left())
        self.record(payloads.TransactionAborted(records), reason)
        self.transaction_open = False

    @override
    def end(self) -> None:
        self.move(Phase.ENDED)
        if self.started or self.failure is not None:
            self.emit(loops.StopPlugin())
        if not self.cancelled:
            self.emit(msg.CloseProducer())
        self.report_end()
