"""State of the fetcher's core."""

from __future__ import annotations

from dataclasses import dataclass, field

from connectx.core.clients.messages import Leader
from connectx.core.clients.requests import RequestsInFlight, Retry
from connectx.core.fetcher import messages as msg
from connectx.core.state import FieldState
from connectx.core.stepping import Stepping
from connectx.model.ids import TopicPartition


@dataclass(slots=True)
class Partition:
    """A partition that is fetched.

    `taken` is the offset after the records that the application has, `position` the one after those that are buffered.
    `version` changes when what is in flight no longer counts.
    """

    position: int
    taken: int
    version: int
    fetched_epoch: int = -1
    buffered_bytes: int = 0
    paused: bool = False
    failed: bool = False
    retry: Retry = field(default_factory=Retry)
    replica: int | None = None
    replica_until_ms: int = 0

    @property
    def is_wanted(self) -> bool:
        return not self.paused and not self.failed

    def restart(self, offset: int, version: int) -> None:
        """Continue at an offset; forget what is buffered or in flight."""
        if offset != self.position:
            self.fetched_epoch = -1
        self.position = self.taken = offset
        self.version = version
        self.buffered_bytes = 0
        self.failed = False


@dataclass(slots=True)
class FetcherState(Stepping[msg.FetcherEffect], FieldState):
    """Partitions of one consumer, and what follows from them.

    Attributes:
        trouble: why the last attempt failed; None after one that succeeded.
    """

    settings: msg.FetcherSettings
    trouble: str | None = None
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    leaders: dict[TopicPartition, Leader] = field(default_factory=dict)
    requests: RequestsInFlight[msg.Request] = field(default_factory=RequestsInFlight)
    last_version: int = 0
    metadata_retry: Retry = field(default_factory=Retry)

    @property
    def buffered_bytes(self) -> int:
        """Bytes that the application has not taken."""
        return sum(partition.buffered_bytes for partition in self.partitions.values())

    def node_of(self, target: TopicPartition) -> int:
        """The node to fetch a partition with a leader from."""
        partition = self.partitions[target]
        if partition.replica is not None and self.now_ms < partition.replica_until_ms:
            return partition.replica
        return self.leaders[target].node

    def leaderless(self) -> list[TopicPartition]:
        """Partitions to fetch whose leader is not known."""
        return [t for t, partition in self.partitions.items() if partition.is_wanted and t not in self.leaders]

    def next_time_ms(self) -> int | None:
        times = [partition.retry.due_ms for partition in self.partitions.values() if partition.is_wanted]
        times += [self.metadata_retry.due_ms] if self.leaderless() else []
        return min((time_ms for time_ms in times if time_ms > self.now_ms), default=None)
