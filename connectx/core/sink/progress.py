"""Progress of a sink task in each of its partitions: read, put, committed.

Decides which offsets may be committed and what a batch must start at. It never decides when. Mirrors the offset maps
of Kafka Connect's WorkerSinkTask (currentOffsets, lastCommittedOffsets) and its commit sequence numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from connectx.core.lanes import BulkMode, LaneSettings
from connectx.core.loops.retries import Retry
from connectx.core.sink.messages import Fetched, Offsets, Partitions
from connectx.model.ids import TaskId, TopicPartition
from connectx.values import Value


class SinkTaskSettings(Value):
    """The part of the task's configuration that the loop uses; times in milliseconds.

    `exactly_once` means that a put commits rows and offsets to the target. A target that takes them in a flush is not
    that: its offsets rule all the same, where a partition is opened and when it refuses a put.

    `retry_timeout_ms` is how long a put is tried again (0 and -1: until it succeeds). `max_rows_per_s` and
    `max_bytes_per_s` limit puts on average (None: no limit). `lag_alarm_records` is the lag that is an alarm when it
    lasts `lag_alarm_ms` (None: never).

    `puts_nothing` means that a task is called without records, too: when a commit is due and the last poll had none.

    `lanes` decides when executors work in place of the worker, `bulk_obstacle` is why they never can (None: they can).
    `bulk_core_bytes` is the size of a job's records for each core.
    """

    task: TaskId
    exactly_once: bool
    offset_flush_interval_ms: int = 60_000
    offset_flush_timeout_ms: int = 5_000
    poll_timeout_ms: int = 100
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 5_000
    retry_timeout_ms: int = 0
    max_rows_per_s: float | None = None
    max_bytes_per_s: float | None = None
    lag_alarm_records: int | None = None
    lag_alarm_ms: int = 60_000
    lanes: LaneSettings = field(default_factory=lambda: LaneSettings(BulkMode.NEVER))
    bulk_obstacle: str | None = None
    bulk_core_bytes: int = 128 << 20
    query_interval_ms: int = 1_000
    cores_interval_ms: int = 60_000
    instance: int = 0
    puts_nothing: bool = False


@dataclass(slots=True)
class Batch:
    """Fetched records of one topic. `ranges` start at the position, so there are no gaps after what was put.

    `number` is that of the Fetched which brought them, `retry` when they are put again after a put has failed. `token`
    is that of the job that staged them, None when the worker has them.
    """

    ranges: dict[TopicPartition, tuple[int, int]]
    number: int = 0
    token: int | None = None
    retry: Retry | None = None

    @property
    def ends(self) -> dict[TopicPartition, int]:
        return {partition: end for partition, (_, end) in self.ranges.items()}


class Commit(Value):
    """A commit whose outcome is not known yet."""

    sequence: int
    offsets: dict[TopicPartition, int]
    records: int
    sent_ms: int


@dataclass(slots=True)
class Progress:
    """Offsets by owned partition.

    `positions` is the offset after the last record put, `reached` the one below which nothing is left to put (the
    same, or after transaction markers), `committed` what the consumer group holds. `put_records` counts what was put
    and is in no commit yet.
    """

    positions: dict[TopicPartition, int] = field(default_factory=dict)
    reached: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    put_records: int = 0
    sequence: int = 0
    commit: Commit | None = None

    @property
    def owned(self) -> Partitions:
        """Partitions that this task owns, sorted."""
        return tuple(sorted(self.positions))

    def own(self, positions: Offsets) -> None:
        """Partitions were assigned; their positions are what the group holds."""
        for offsets in (self.positions, self.reached, self.committed):
            offsets.update(positions)

    def disown(self, partitions: Partitions) -> None:
        for offsets in (self.positions, self.reached, self.committed):
            for partition in partitions:
                offsets.pop(partition, None)
        if not self.positions:
            self.put_records = 0

    def move(self, offsets: Offsets) -> dict[TopicPartition, int]:
        """Continue at these offsets, where the partition is owned; returns those that differ from the position."""
        moved = {p: offset for p, offset in sorted(offsets.items()) if self.positions.get(p, offset) != offset}
        self.positions |= moved
        self.reached |= moved
        return moved

    def take(self, fetched: Fetched) -> list[Batch] | None:
        """Batches of one topic each, or None when records lie below what was reached: they must be fetched again."""
        ranges = {p: fetched.ranges[p] for p in sorted(fetched.ranges) if p in self.positions}
        if any(first < self.reached[partition] for partition, (first, _) in ranges.items()):
            return None
        for partition, end in fetched.ends.items():
            if partition in self.positions and partition not in ranges:
                self.reached[partition] = max(self.reached[partition], end)
        return [
            Batch({p: (self.positions[p], end) for p, (_, end) in ranges.items() if p.topic == topic}, fetched.number)
            for topic in sorted({partition.topic for partition in ranges})
        ]

    def put(self, batch: Batch, records: int) -> None:
        self.positions |= batch.ends
        self.reached |= batch.ends
        self.put_records += records

    def rewind(self) -> None:
        """What was put since the last commit may be lost: go back there."""
        self.positions, self.reached = dict(self.committed), dict(self.committed)
        self.put_records = 0

    def uncommitted(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """What can be committed of these partitions now."""
        return {p: self.reached[p] for p in partitions if self.reached[p] != self.committed[p]}

    def begin_commit(self, partitions: Partitions, now_ms: int) -> Commit:
        """Number a commit of everything that was put in these partitions."""
        self.sequence += 1
        self.commit = Commit(self.sequence, self.uncommitted(partitions), self.put_records, now_ms)
        self.put_records = 0
        return self.commit

    def active_records(self, batches: Sequence[Batch]) -> int:
        """Offsets from what the group holds to what was read; `batches` were read and are not put yet."""
        ends = dict(self.reached)
        for batch in batches:
            ends |= batch.ends
        return sum(max(0, ends[p] - committed) for p, committed in self.committed.items())

    def end_commit(self, sequence: int, *, committed: bool) -> Commit | None:
        """Note the outcome; None when this commit is no longer waited for."""
        if (commit := self.commit) is None or commit.sequence != sequence:
            return None
        if committed:
            self.commit = None
            self.committed |= {p: offset for p, offset in commit.offsets.items() if p in self.committed}
        else:
            self.forget_commit()
        return commit

    def forget_commit(self) -> None:
        """Its outcome, if it ever comes, is too late to count."""
        if self.commit is not None:
            self.put_records += self.commit.records
            self.commit = None


def named(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    """Offsets by the partition's name, as events carry them."""
    return {str(partition): offsets[partition] for partition in sorted(offsets)}
