"""The loop of one source task: when to poll, send, commit, wait, pause and end.

It decides which offsets may be committed and when, and what a failure means. It never sees records, Kafka or Spark.
Mirrors Kafka Connect's AbstractWorkerSourceTask, WorkerSourceTask (at-least-once) and ExactlyOnceWorkerSourceTask
(KIP-618, transaction boundaries `poll` and `interval`).

Exactly-once: records and the source offset behind them are one transaction; a slice without records commits nothing
and its offset rides with the next record. At-least-once: offsets are committed after everything that was sent before
them is acknowledged. A source position moves only when its slice was handed to the producer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from connectx.core.source_messages import (
    AbortTransaction,
    AwaitCommand,
    Begin,
    BeginTransaction,
    CancelRequested,
    CloseProducer,
    CommitTransaction,
    CommitUndecided,
    EffectFailed,
    FailureKind,
    FlushAndCommitOffsets,
    Idle,
    Idled,
    NotifyCommitted,
    OffsetsFlushed,
    OffsetsFlushFailed,
    OffsetsRead,
    OffsetsWritten,
    PartitionOffset,
    PauseRequested,
    PluginStarted,
    Poll,
    Polled,
    PolledNothing,
    PollFailed,
    ProducerReady,
    ReadOffsets,
    ReportFailed,
    ReportState,
    ReportStopped,
    ResumeRequested,
    SendSlice,
    SliceSent,
    SourceRequest,
    SourceStep,
    SourceStimulus,
    StartPlugin,
    StopPlugin,
    StopRequested,
    TransactionAborted,
    TransactionBegun,
    TransactionCommitted,
    WriteOffsets,
)
from connectx.model.events import EventKind, Transition
from connectx.model.ids import TaskId
from connectx.model.states import TransactionBoundary


class Phase(StrEnum):
    """Where the loop is. Each line says what comes next; a failure leads to ENDED from anywhere."""

    NEW = "new"  # Begin: STARTING, or WAITING when paused
    STARTING = "starting"  # the plugin starts and offsets are read: WORKING
    WORKING = "working"  # one effect of the loop is outstanding
    WAITING = "waiting"  # paused; resumed: STARTING (first time) or WORKING
    FAILING = "failing"  # a last abort or flush is outstanding: ENDED
    ENDED = "ended"  # nothing is accepted any more


@dataclass(frozen=True, slots=True)
class SourceTaskSettings:
    """What the loop needs to know of the task's configuration; times in milliseconds."""

    task: TaskId
    exactly_once: bool
    transactional_id: str = ""
    boundary: TransactionBoundary = TransactionBoundary.POLL
    boundary_interval_ms: int = 60_000
    offset_flush_interval_ms: int = 60_000
    offset_flush_timeout_ms: int = 5_000
    instance: int = 0


@dataclass(slots=True)
class SourceTaskCore:
    """State of the loop; `handle` is the only method that changes it.

    `pending` holds, by source partition, the offsets behind records that were sent and are not committed yet;
    `pending_records` counts those records. `committed` holds, in the same way, the offsets that the next commit starts
    at, `committed_ms` is the time of the last commit, or of the begin.
    """

    settings: SourceTaskSettings
    phase: Phase = Phase.NEW
    producer_epoch: int | None = None
    partition: Mapping[str, Any] = field(default_factory=dict)
    position: Mapping[str, Any] | None = None
    started: bool = False
    stop_requested: bool = False
    pause_requested: bool = False
    cancelled: bool = False
    slice_at_hand: Polled | None = None
    idle_next: bool = False
    transaction_open: bool = False
    transaction_began_ms: int = 0
    pending: dict[str, PartitionOffset] = field(default_factory=dict)
    pending_records: int = 0
    committed: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)
    committed_ms: int = 0
    failure: EffectFailed | None = None

    @property
    def ended(self) -> bool:
        """True when nothing is accepted any more."""
        return self.phase is Phase.ENDED

    def handle(self, stimulus: SourceStimulus, now_ms: int) -> SourceStep:
        """Take one fact; return what changed and what to do now."""
        step = SourceStep()
        if self.ended:
            return step
        if isinstance(stimulus, SourceRequest):
            self._on_request(stimulus, step)
            return step
        if self.cancelled:
            self._end(step)
            return step
        match stimulus:
            case ProducerReady(producer_epoch):
                self.producer_epoch = producer_epoch
            case Begin(paused):
                self.committed_ms = now_ms
                self.pause_requested = paused
                self._start_or_wait(step)
            case PluginStarted(partition):
                self.partition = partition
                self._record(step, EventKind.TASK_STEP, step="read_offsets", instance=self.settings.instance)
                step.effects.append(ReadOffsets(partition))
            case OffsetsRead(offset):
                self.position = offset
                self.committed[json.dumps(self.partition)] = offset
                self.started = True
                self.phase = Phase.WORKING
                self.committed_ms = now_ms
                if not self._must_rest():
                    self._record(step, EventKind.TASK_STEP, step="poll", instance=self.settings.instance)
                    step.effects.append(ReportState(paused=False))
                self._go_on(step, now_ms)
            case EffectFailed():
                self._on_failure(stimulus, step, now_ms)
            case _:
                self._on_loop(stimulus, step, now_ms)
        return step

    # ------------------------------------------------------------------------------------------ requests, start

    def _on_request(self, request: SourceRequest, step: SourceStep) -> None:
        """Only a loop that waits acts on a request at once; otherwise the outstanding effect's answer does."""
        match request:
            case StopRequested():
                self.stop_requested = True
            case CancelRequested():
                self.cancelled = True
            case PauseRequested():
                self.pause_requested = True
            case ResumeRequested():
                self.pause_requested = False
        if self.phase not in (Phase.NEW, Phase.WAITING):
            return
        if self.cancelled or self.stop_requested:
            self._end(step)
        elif self.phase is Phase.WAITING and self.pause_requested:
            step.effects.append(AwaitCommand())
        elif self.phase is Phase.WAITING and not self.started:
            self._start_or_wait(step)
        elif self.phase is Phase.WAITING:
            self.phase = Phase.WORKING
            step.effects += [ReportState(paused=False), Poll(self.position)]

    def _start_or_wait(self, step: SourceStep) -> None:
        """A paused task waits before its plugin starts (Kafka Connect: WorkerTask.doRun)."""
        if self.pause_requested:
            self._wait(step)
        else:
            self.phase = Phase.STARTING
            step.effects.append(StartPlugin())

    def _wait(self, step: SourceStep) -> None:
        self.phase = Phase.WAITING
        step.effects += [ReportState(paused=True), AwaitCommand()]

    # ---------------------------------------------------------------------------------------------- the loop

    def _on_loop(self, stimulus: SourceStimulus, step: SourceStep, now_ms: int) -> None:
        match stimulus:
            case Polled():
                self._on_polled(stimulus, step, now_ms)
            case PolledNothing() | PollFailed(retriable=True):
                self.idle_next = True
                self._go_on(step, now_ms)
            case PollFailed(error):
                self._on_failure(EffectFailed(error), step, now_ms)
            case Idled():
                self._go_on(step, now_ms)
            case TransactionBegun():
                self.transaction_open = True
                self.transaction_began_ms = now_ms
                self._send(step)
            case SliceSent(slice_number, refused):
                self._on_sent(slice_number, refused, step, now_ms)
            case OffsetsWritten() | CommitUndecided():
                step.effects.append(CommitTransaction())
            case TransactionCommitted():
                self.transaction_open = False
                self._on_committed(EventKind.TRANSACTION_COMMITTED, step, now_ms)
            case TransactionAborted(error):
                self._on_aborted(error, step)
            case OffsetsFlushed(refused):
                self._report_refused(refused, step)
                self._on_committed(EventKind.OFFSETS_COMMITTED, step, now_ms)
            case OffsetsFlushFailed():
                self._on_flush_failed(step, now_ms)
            case _:
                raise AssertionError(f"{type(stimulus).__name__} in phase {self.phase} of {self.settings.task}")

    def _on_polled(self, polled: Polled, step: SourceStep, now_ms: int) -> None:
        if polled.filtered:
            self._record(step, EventKind.RECORDS_FILTERED, records=polled.filtered)
        if polled.skipped:
            self._record(step, EventKind.RECORDS_SKIPPED, records=polled.skipped, reason=polled.skip_reason)
        if polled.records == 0:
            self._move(polled)
            self._go_on(step, now_ms)
            return
        self.slice_at_hand = polled
        if self.settings.exactly_once and not self.transaction_open:
            step.effects.append(BeginTransaction())
        else:
            self._send(step)

    def _send(self, step: SourceStep) -> None:
        assert self.slice_at_hand is not None, "a transaction begins only with a slice at hand"
        step.effects.append(SendSlice(self.slice_at_hand.slice_number))

    def _on_sent(self, slice_number: int, refused: int, step: SourceStep, now_ms: int) -> None:
        polled = self.slice_at_hand
        assert polled is not None, "only a slice at hand is sent"
        assert polled.slice_number == slice_number, f"slice {polled.slice_number} is at hand, not {slice_number}"
        self.slice_at_hand = None
        self._report_refused(refused, step)
        self._move(polled)
        partition = self.partition if polled.partition is None else polled.partition
        self.pending[json.dumps(partition)] = PartitionOffset(partition, polled.offset)
        self.pending_records += polled.records
        self._go_on(step, now_ms)

    def _move(self, polled: Polled) -> None:
        if polled.partition is None or polled.partition == self.partition:
            self.position = polled.offset

    def _go_on(self, step: SourceStep, now_ms: int) -> None:
        """What comes after a completed effect: a due commit, the end, a pause, waiting for rows, or the next poll."""
        if self.pending and (self._must_rest() or now_ms >= self._due_ms()):
            self._commit(step)
        elif self.stop_requested:
            self._end(step)
        elif self.pause_requested:
            self._wait(step)
        elif self.idle_next:
            self.idle_next = False
            step.effects.append(Idle(self.position, self._due_ms() if self.pending else None))
        else:
            step.effects.append(Poll(self.position))

    def _must_rest(self) -> bool:
        return self.stop_requested or self.pause_requested

    def _due_ms(self) -> int:
        """When pending offsets are to be committed."""
        settings = self.settings
        if not settings.exactly_once:
            return self.committed_ms + settings.offset_flush_interval_ms
        interval = settings.boundary is TransactionBoundary.INTERVAL
        return self.committed_ms + (settings.boundary_interval_ms if interval else 0)

    def _commit(self, step: SourceStep) -> None:
        offsets = tuple(self.pending.values())
        if self.settings.exactly_once:
            step.effects.append(WriteOffsets(offsets))
        else:
            step.effects.append(FlushAndCommitOffsets(offsets, self.settings.offset_flush_timeout_ms))

    def _on_committed(self, kind: EventKind, step: SourceStep, now_ms: int) -> None:
        offsets = [self._slice(key, pending) for key, pending in self.pending.items()]
        self._record(step, kind, records=self.pending_records, offsets=offsets)
        self.committed |= {key: pending.offset for key, pending in self.pending.items()}
        own = self.pending.get(json.dumps(self.partition))
        self.pending = {}
        self.pending_records = 0
        self.committed_ms = now_ms
        if own is not None:
            step.effects.append(NotifyCommitted(own.offset))
        if self.phase is Phase.FAILING:
            self._end(step)
        else:
            self._go_on(step, now_ms)

    def _slice(self, key: str, pending: PartitionOffset) -> dict[str, Any]:
        """What a commit covers of a source partition; without `from` where nobody knows what was committed before."""
        start = {"from": self.committed[key]} if key in self.committed else {}
        return {"partition": dict(pending.partition), **start, "offset": dict(pending.offset)}

    def _on_flush_failed(self, step: SourceStep, now_ms: int) -> None:
        """Offsets stay pending; a task that stops or pauses does not try twice: it repeats records at worst."""
        self.committed_ms = now_ms
        if self.phase is Phase.FAILING or self.stop_requested:
            self._end(step)
        elif self.pause_requested:
            self._wait(step)
        else:
            self._go_on(step, now_ms)

    # -------------------------------------------------------------------------------------------------- the end

    def _on_failure(self, failed: EffectFailed, step: SourceStep, now_ms: int) -> None:
        if self.phase is Phase.FAILING:
            self._end(step)
            return
        self.failure = failed
        self.phase = Phase.FAILING
        if failed.kind in (FailureKind.FENCED, FailureKind.EXPIRED):
            if failed.kind is FailureKind.FENCED:
                self._record(
                    step,
                    EventKind.PRODUCER_FENCED,
                    transactional_id=self.settings.transactional_id,
                    error=failed.error,
                    open_ms=now_ms - self.transaction_began_ms if self.transaction_open else 0,
                    newer_epoch=failed.newer_epoch,
                )
            if self.transaction_open:
                self._on_aborted(None, step)
            else:
                self._end(step)
        elif self.transaction_open:
            step.effects.append(AbortTransaction())
        elif self.pending and not self.settings.exactly_once and failed.kind is not FailureKind.DELIVERY:
            self._commit(step)
        else:
            self._end(step)

    def _on_aborted(self, error: str | None, step: SourceStep) -> None:
        assert self.failure is not None, "only a failing task aborts"
        records = self.pending_records + (self.slice_at_hand.records if self.slice_at_hand else 0)
        reason = self.failure.kind.value if error is None else f"{self.failure.kind.value}, unconfirmed: {error}"
        self._record(step, EventKind.TRANSACTION_ABORTED, records=records, reason=reason)
        self.transaction_open = False
        self._end(step)

    def _end(self, step: SourceStep) -> None:
        self.phase = Phase.ENDED
        if self.started or self.failure is not None:
            step.effects.append(StopPlugin())
        if self.cancelled:
            step.effects.append(ReportStopped())
            return
        step.effects.append(CloseProducer())
        if self.failure is not None:
            fenced = self.failure.kind is FailureKind.FENCED
            step.effects.append(ReportFailed(self.failure.error, fenced, self.failure.newer_epoch))
        else:
            step.effects.append(ReportStopped())

    # --------------------------------------------------------------------------------------------------- helpers

    def _report_refused(self, refused: int, step: SourceStep) -> None:
        if refused:
            self._record(step, EventKind.RECORDS_SKIPPED, records=refused, reason="refused by Kafka")

    def _record(self, step: SourceStep, kind: EventKind, /, **data: Any) -> None:
        task = self.settings.task
        step.transitions.append(
            Transition(kind, task.connector, task.task, producer_epoch=self.producer_epoch, data=data)
        )
