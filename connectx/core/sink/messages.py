"""Stimuli and effects of one sink task's loop, beside those in `core/loops/messages.py`.

Two kinds of stimuli come while a Poll is outstanding: rebalances of the consumer group, whose effects must be carried
out before the group continues and may be answered themselves, and outcomes of CommitOffsets that does not wait. A job
of RunBulk runs beside the loop; its end answers a Poll.

Every effect that depends on the assignment carries `epoch`, which grows with each change of it; the answer brings it
back, and an answer from an older epoch changes nothing. `ranges` are per partition the first offset and the offset
after the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from connectx.core.lanes import LaneChoice
from connectx.core.loops import messages as loops
from connectx.core.step import Step
from connectx.model.ids import TopicPartition
from connectx.values import Value

Offsets = Mapping[TopicPartition, int]
Ranges = Mapping[TopicPartition, tuple[int, int]]
Partitions = tuple[TopicPartition, ...]


class JoinGroup(Value):
    """Create the consumer and subscribe. No answer."""


class Poll(Value):
    epoch: int
    timeout_ms: int


class OpenPartitions(Value):
    """Call the plugin's open after a pause. Part of a rebalance."""

    epoch: int
    partitions: Partitions
    wait_ms: int = 0


class ClosePartitions(Value):
    """Call the plugin's close. No answer, failures are logged."""

    partitions: Partitions


class Put(Value):
    """Convert and put the records of these partitions.

    `number` is that of the Fetched which brought them: later ones may have come and been thrown away.
    """

    epoch: int
    ranges: Ranges
    number: int = 0


class PutNothing(Value):
    """Put no records, because none came: the task may flush what it has kept. Done also if it could not."""


class Flush(Value):
    """Call the plugin's flush: afterwards all that was put is durable."""


class CommitOffsets(Value):
    """Commit to the consumer group; its outcome is OffsetsCommitted or CommitFailed of the same sequence.

    `wait` is set while partitions are released: the response comes immediately, not at some later poll.
    """

    sequence: int
    offsets: Offsets
    wait: bool


class Seek(Value):
    """Continue reading at these offsets; while partitions are being opened, start there. No answer."""

    offsets: Offsets


class PausePartitions(Value):
    """Fetch nothing of these partitions. No answer."""

    partitions: Partitions


class ResumePartitions(Value):
    """Fetch these partitions again. No answer."""

    partitions: Partitions


class QueryEnds(Value):
    epoch: int
    partitions: Partitions


class RunBulk(Value):
    """Let executors read, convert and stage these ranges of one topic, invisibly.

    A later Poll is answered by BulkStaged or BulkFailed, unless DiscardBulk comes before. `token` is the number of the
    job in this task instance.
    """

    token: int
    ranges: Ranges


class CommitBulk(Value):
    """Make visible what a job has staged, with its offsets."""

    epoch: int
    token: int
    ranges: Ranges


class DiscardBulk(Value):
    """End a job if it still runs, and remove what it staged. No answer."""

    token: int


class LeaveGroup(Value):
    """Close the consumer. No answer, failures are logged."""


SinkAction = (
    loops.StartPlugin
    | JoinGroup
    | Poll
    | OpenPartitions
    | ClosePartitions
    | Put
    | PutNothing
    | Flush
    | CommitOffsets
    | Seek
    | PausePartitions
    | ResumePartitions
    | QueryEnds
    | loops.QueryCores
    | RunBulk
    | CommitBulk
    | DiscardBulk
    | loops.StopPlugin
    | LeaveGroup
)
"""Effects in the world outside."""

SinkEffect = SinkAction | loops.Asked[SinkAction] | loops.Report


class PartitionsAssigned(Value):
    """The group gave partitions to this member; `positions` are the group's offsets, or those of its reset policy."""

    positions: Offsets


class PartitionsRevoked(Value):
    """The group takes partitions away; this member owns them until the effects of this stimulus are done."""

    partitions: Partitions


class PartitionsLost(Value):
    """This member was dropped from the group: others may own the partitions already."""

    partitions: Partitions


class Opened(Value):
    """Offsets that the target holds, where it holds any."""

    epoch: int
    offsets: Offsets


class Fetched(Value):
    """Records came, or it is known that none lie below some offset.

    `ranges` holds partitions with records, `ends` those where only the position moved (transaction markers); `full`
    means that the batch reached its limit, so there may be a lag. `number` is the driver's, for Put. `size_bytes` is
    that of the records in memory.
    """

    epoch: int
    ranges: Ranges
    ends: Offsets = field(default_factory=dict)
    full: bool = False
    number: int = 0
    size_bytes: int = 0


class EndsKnown(Value):
    """The last stable offsets; empty when they could not be found out in time."""

    epoch: int
    ends: Offsets


class BulkStaged(Value):
    """A job is done: `records` were read, `refused` of them cannot be read, transformed or written."""

    token: int
    records: int
    refused: int = 0


class BulkFailed(Value):
    """A job failed, or found records that only the worker can put: `ends` are offsets after those, empty: the ends of
    its ranges."""

    token: int
    error: str
    ends: Offsets


class PutDone(Value):
    """The plugin took the batch: `records` put, `skipped` dropped because of `skip_reason` (errors.tolerance).

    `filtered` counts records that a transformation dropped on purpose, `dead_letters` those of the skipped that were
    sent to the dead letter queue. `size_bytes` is the size of the rows that were put.
    """

    epoch: int
    records: int
    skipped: int = 0
    skip_reason: str = ""
    filtered: int = 0
    dead_letters: int = 0
    size_bytes: int = 0


class PutFailed(Value):
    """The plugin did not take the batch; `retriable` means that it may accept the same batch later.

    `retry_in_ms` is when, if the plugin has set it.
    """

    epoch: int
    retriable: bool
    error: str
    retry_in_ms: int | None = None


class LagKnown(Value):
    """Records that the task's partitions have and the task has not read; part of no effect."""

    records: int


class TargetKnown(Value):
    """Up to where the target was filled when the plugin started (`SinkTask.mark`); part of no effect."""

    mark: int


class PutRefused(Value):
    """An exactly-once target holds other offsets than the batch of `records` starts at: `committed`."""

    epoch: int
    committed: Offsets
    error: str
    records: int = 0


class OffsetsCommitted(Value):
    sequence: int


class CommitFailed(Value):
    """CommitOffsets has failed; `not_owner` when this member no longer belongs to the group."""

    sequence: int
    error: str
    not_owner: bool = False


Rebalance = PartitionsAssigned | PartitionsRevoked | PartitionsLost
CommitOutcome = OffsetsCommitted | CommitFailed
SinkAnswer = (
    Opened
    | Fetched
    | EndsKnown
    | loops.CoresKnown
    | BulkStaged
    | BulkFailed
    | PutDone
    | PutFailed
    | PutRefused
    | CommitOutcome
    | loops.Done
    | loops.NotDone
    | loops.EffectFailed
)
SinkEvent = Rebalance | LagKnown | TargetKnown | CommitOutcome | loops.EffectFailed
SinkStimulus = loops.Request | loops.Answered[SinkAnswer] | SinkEvent
SinkStep = Step[SinkEffect]

ANSWERS: Final[Mapping[type, tuple[type, ...]]] = {
    loops.StartPlugin: (loops.Done,),
    Poll: (Fetched, loops.Done, BulkStaged, BulkFailed),  # Done: nothing came in its time
    OpenPartitions: (Opened, loops.NotDone),  # NotDone: the target cannot be reached now
    Put: (PutDone, PutFailed, PutRefused),
    PutNothing: (loops.Done,),
    Flush: (loops.Done, loops.NotDone),  # NotDone: what was put since the last commit may be lost
    CommitOffsets: (OffsetsCommitted, CommitFailed),
    QueryEnds: (EndsKnown,),
    loops.QueryCores: (loops.CoresKnown,),
    CommitBulk: (PutDone, PutFailed, PutRefused, BulkFailed),
}
"""Effect to the answers that it can have, beside EffectFailed; other effects have none."""


class SinkShown(Value):
    """What a sink task shows to users.

    Attributes:
        choice: the lane, and why.
        reached: offset by partition below which nothing is left to put.
        active: offsets from what the group holds to what was read.
    """

    choice: LaneChoice
    reached: Offsets
    active: int
