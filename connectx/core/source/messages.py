"""Stimuli and effects of one source task's loop, beside those in `core/loops/messages.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from connectx.core.loops import messages as loops
from connectx.core.messages import TaskProducerReady
from connectx.core.step import Step
from connectx.values import Value


class Boundary(Value):
    """Requests of the task to its TransactionContext after a slice or a record; both together are an error.

    Mirrors Kafka Connect's WorkerTransactionContext (KIP-618).
    """

    commit: bool = False
    abort: bool = False

    def __or__(self, other: Boundary) -> Boundary:
        return Boundary(self.commit or other.commit, self.abort or other.abort)


NO_BOUNDARY: Final = Boundary()
BOTH_ASKED: Final = (
    "The connector asked to commit and to abort the same transaction, so nothing of it was committed. Correct the "
    "connector: after one slice or row it may ask for one of the two."
)


class SlicePart(Value):
    """Records of a slice up to a place where the task asked for a boundary, or one of its tables.

    `records` are those left to send. `offset` is the source offset after the part; None if it is reached only with a
    later part.
    """

    records: int
    offset: Mapping[str, Any] | None
    boundary: Boundary = NO_BOUNDARY


class PartitionOffset(Value):
    partition: Mapping[str, Any]
    offset: Mapping[str, Any]


class PartitionRange(Value):
    """What was read of a source partition: from `start`, None at its beginning, to `end`."""

    partition: Mapping[str, Any]
    start: Mapping[str, Any] | None
    end: Mapping[str, Any]


class ReadOffsets(Value):
    """Look up the committed offset of a source partition."""

    partition: Mapping[str, Any]


class Poll(Value):
    """Poll the plugin and convert what it yields."""

    offset: Mapping[str, Any] | None


class QueryWaiting(Value):
    """Ask the plugin how many bytes wait after `offset`."""

    offset: Mapping[str, Any] | None


class QueryRoute(Value):
    """Ask whether Spark's executors can reach Kafka."""


class PollBulk(Value):
    """Let the plugin name about `max_bytes` for executors to read; nothing is read yet."""

    offset: Mapping[str, Any] | None
    max_bytes: int


class RunBulk(Value):
    """Let executors read, convert and send a slice into the open transaction.

    With `by_worker` executors only make the batches, and the worker sends them. Without transactions, all records are
    acknowledged when it is answered by BulkSent.
    """

    slice_number: int
    by_worker: bool = False


class ConvertAgain(Value):
    """Convert the current slice again; `skip_failures` leaves out the rows that still fail."""

    skip_failures: bool = False


class Wait(Value):
    """Wait until `until_ms`; a command ends it early."""

    until_ms: int


class Idle(Value):
    """Let the plugin wait for rows, at most until `until_ms`; a command ends it early."""

    offset: Mapping[str, Any] | None
    until_ms: int | None


class BeginTransaction(Value):
    """Begin a transaction of the producer."""


class SendSlice(Value):
    """Hand the records of one part of the polled slice to the producer."""

    slice_number: int
    part: int = 0


class WriteOffsets(Value):
    """Send source offsets inside the open transaction."""

    offsets: tuple[PartitionOffset, ...]


class CommitTransaction(Value):
    """Commit the open transaction."""


class AbortTransaction(Value):
    """Abort the open transaction; if that is not done, the next instance or the time-out aborts it.

    With `insist` the task continues afterwards: wait for the broker without a timeout; a failure is an EffectFailed.
    """

    insist: bool = False


class FlushAndCommitOffsets(Value):
    """At-least-once: wait until all sent records are acknowledged, then write offsets and wait for them."""

    offsets: tuple[PartitionOffset, ...]
    timeout_ms: int


class CopyOffsets(Value):
    """Copy committed offsets to the worker's offsets topic without waiting. No answer, failures are logged."""

    offsets: tuple[PartitionOffset, ...]


class NotifyCommitted(Value):
    """Report to the plugin what is durable (Kafka Connect: SourceTask.commit). No answer, failures are logged."""

    offset: Mapping[str, Any]


class CloseProducer(Value):
    """Close the producer in an orderly way. No answer, failures are logged."""


SourceAction = (
    loops.StartPlugin
    | ReadOffsets
    | Poll
    | QueryWaiting
    | loops.QueryCores
    | QueryRoute
    | PollBulk
    | RunBulk
    | ConvertAgain
    | Wait
    | Idle
    | BeginTransaction
    | SendSlice
    | WriteOffsets
    | CommitTransaction
    | AbortTransaction
    | FlushAndCommitOffsets
    | CopyOffsets
    | NotifyCommitted
    | loops.StopPlugin
    | CloseProducer
)
"""Effects in the world outside."""

SourceEffect = SourceAction | loops.Asked[SourceAction] | loops.Report


class PluginStarted(Value):
    """The plugin runs and named its own source partition."""

    partition: Mapping[str, Any]


class OffsetsRead(Value):
    """The committed offset; None when there is none."""

    offset: Mapping[str, Any] | None


class Polled(Value):
    """A slice was polled and converted.

    `partition` is None for the task's own, `offset` the position after the slice, `records` what is left to send.
    `start` is where another partition than the task's own was before: None at its beginning, empty when unknown.
    `skipped` how many were dropped because of errors and `skip_reason` why, `filtered` how many a transformation
    dropped on purpose. `boundary` is what the task asked for after the slice. `parts` are its tables, or divide it
    where the task asked for boundaries after single records, otherwise there are none. The last part has an offset.
    `commits_offset` asks for a commit of the offset even when no record is left.
    """

    slice_number: int
    records: int
    offset: Mapping[str, Any]
    partition: Mapping[str, Any] | None = None
    skipped: int = 0
    skip_reason: str = ""
    filtered: int = 0
    boundary: Boundary = NO_BOUNDARY
    parts: tuple[SlicePart, ...] = ()
    start: Mapping[str, Any] | None = field(default_factory=dict)
    commits_offset: bool = False


class Waiting(Value):
    """Bytes after a source offset; None if the plugin does not know.

    Attributes:
        obstacle: why executors cannot read for the task, from now on; None if they can.
    """

    size_bytes: int | None
    obstacle: str | None = None


class RouteKnown(Value):
    """Why executors cannot reach Kafka; None if they can."""

    obstacle: str | None


class BulkPolled(Value):
    """A slice for executors. Its rows are not read yet; `offset` and `partition` as in Polled.

    `offset` is None if only the job finds out how far it reads: then BulkSent has the ranges.
    """

    slice_number: int
    size_bytes: int
    offset: Mapping[str, Any] | None
    partition: Mapping[str, Any] | None = None


class BulkSent(Value):
    """Kafka has all records of a job. `skipped`, `skip_reason` and `filtered` as in Polled.

    `ranges` are what the job has read, if BulkPolled has no offset.
    """

    slice_number: int
    records: int
    skipped: int = 0
    skip_reason: str = ""
    filtered: int = 0
    ranges: tuple[PartitionRange, ...] = ()


class BulkFailed(Value):
    """A job failed. Records of it may have been sent: an open transaction can only be aborted."""

    slice_number: int
    error: str


class PolledNothing(Value):
    """There is nothing to read now, or a wait for rows is over. `boundary` as in Polled, of what was sent before."""

    boundary: Boundary = NO_BOUNDARY


class PollFailed(Value):
    """poll raised; `retriable` counts as nothing polled. `boundary` as in PolledNothing."""

    error: str
    retriable: bool
    boundary: Boundary = NO_BOUNDARY


class Sent(Value):
    """The producer accepted all records of the part, which are not acknowledged yet; or everything was flushed.

    `refused` counts records of earlier slices that Kafka refused and errors.tolerance lets go (KIP-779).
    """

    refused: int = 0


class TransactionBegun(Value):
    """`producer_epoch` is that of the transaction (KIP-890: each has its own)."""

    producer_epoch: int


SourceAnswer = (
    PluginStarted
    | OffsetsRead
    | Polled
    | PolledNothing
    | PollFailed
    | Waiting
    | loops.CoresKnown
    | RouteKnown
    | BulkPolled
    | BulkSent
    | BulkFailed
    | TransactionBegun
    | Sent
    | loops.Done
    | loops.NotDone
    | loops.EffectFailed
)
SourceStimulus = loops.Request | loops.Answered[SourceAnswer] | TaskProducerReady | loops.EffectFailed
SourceStep = Step[SourceEffect]

ANSWERS: Final[Mapping[type, tuple[type, ...]]] = {
    loops.StartPlugin: (PluginStarted,),
    ReadOffsets: (OffsetsRead,),
    Poll: (Polled, PolledNothing, PollFailed, loops.NotDone),  # NotDone: polled, and converting may succeed later
    QueryWaiting: (Waiting,),
    loops.QueryCores: (loops.CoresKnown,),
    QueryRoute: (RouteKnown,),
    PollBulk: (BulkPolled, PolledNothing, PollFailed),
    RunBulk: (BulkSent, BulkFailed),
    ConvertAgain: (Polled, PolledNothing, loops.NotDone),
    Wait: (loops.Done,),
    Idle: (PolledNothing, PollFailed),
    BeginTransaction: (TransactionBegun,),
    SendSlice: (Sent,),
    WriteOffsets: (loops.Done,),
    CommitTransaction: (loops.Done, loops.NotDone),  # NotDone: undecided, so it has to be asked again, and nothing else
    AbortTransaction: (loops.Done, loops.NotDone),
    FlushAndCommitOffsets: (Sent, loops.NotDone),
}
"""Effect to the answers that it can have, beside EffectFailed; other effects have none."""
