"""Progress of a source task: polled, sent, committed.

Decides which source offsets a commit carries, never when to commit. Mirrors Kafka Connect's OffsetStorageWriter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connectx.core.lanes import LaneSettings
from connectx.core.source.messages import PartitionOffset
from connectx.model.ids import TaskId
from connectx.model.payloads import UNKNOWN, SourceRange
from connectx.model.states import TransactionBoundary
from connectx.values import Value


class SourceTaskSettings(Value):
    """The part of the task's configuration that the loop uses; times in milliseconds.

    `copies_offsets`: what was committed is copied to the worker's offsets topic, because the connector has a separate
    one. `tolerate_all`, `retry_timeout_ms` (-1: forever) and `retry_delay_max_ms` are `errors.*`. `lanes` is None for
    a connector without a bulk lane, and `bulk_obstacle` is why this task can never use it.
    """

    task: TaskId
    exactly_once: bool
    transactional_id: str = ""
    boundary: TransactionBoundary = TransactionBoundary.POLL
    boundary_interval_ms: int = 60_000
    offset_flush_interval_ms: int = 60_000
    offset_flush_timeout_ms: int = 5_000
    instance: int = 0
    copies_offsets: bool = False
    tolerate_all: bool = False
    retry_timeout_ms: int = 0
    retry_delay_max_ms: int = 60_000
    lanes: LaneSettings | None = None
    bulk_obstacle: str | None = None


@dataclass(slots=True)
class SourceProgress:
    """Offsets of the source partitions of one task.

    `pending` holds the offsets after records that were sent and are not committed yet, `records` counts those
    records. `passed` holds the offsets after records that were dropped: they are never a reason to commit, and go with
    the next commit that there is a reason for. `committed` holds the offsets that the next commit starts at.
    """

    partition: Mapping[str, Any] = field(default_factory=dict)
    position: Mapping[str, Any] | None = None
    pending: dict[str, PartitionOffset] = field(default_factory=dict)
    passed: dict[str, PartitionOffset] = field(default_factory=dict)
    records: int = 0
    committed: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)

    def begin(self, offset: Mapping[str, Any] | None) -> None:
        """The task's own partition starts at its committed offset."""
        self.position = offset
        self.committed[json.dumps(self.partition)] = offset

    def starts(self, partition: Mapping[str, Any] | None, offset: Mapping[str, Any] | None) -> None:
        """Where a partition was before its first slice: None at its beginning, empty when unknown."""
        if partition is not None and offset != {}:
            self.committed.setdefault(json.dumps(partition), offset)

    def sent(self, partition: Mapping[str, Any] | None, offset: Mapping[str, Any] | None, records: int) -> None:
        """All records before `offset` were handed to the producer; `partition` None is the task's own.

        Without an offset, other records before the next offset are still to be sent.
        """
        self.records += records
        if offset is None:
            return
        reached = self._reach(partition, offset)
        key = json.dumps(reached.partition)
        self.pending[key] = reached
        self.passed.pop(key, None)

    def dropped(self, partition: Mapping[str, Any] | None, offset: Mapping[str, Any]) -> None:
        """All records before `offset` were dropped."""
        reached = self._reach(partition, offset)
        self.passed[json.dumps(reached.partition)] = reached

    def offsets(self) -> tuple[PartitionOffset, ...]:
        return tuple((self.pending | self.passed).values())

    def commit(self) -> tuple[tuple[SourceRange, ...], list[Mapping[str, Any]]]:
        """All offsets are durable: what the commit covers, and the offsets that moved (of dropped records last)."""
        moved = self.pending | self.passed
        covered = []
        for key, reached in moved.items():
            start = self.committed.get(key, UNKNOWN)
            covered.append(SourceRange(dict(reached.partition), dict(reached.offset), start))
        self.committed |= {key: reached.offset for key, reached in moved.items()}
        self.pending, self.passed, self.records = {}, {}, 0
        return tuple(covered), [reached.offset for reached in moved.values()]

    def _reach(self, partition: Mapping[str, Any] | None, offset: Mapping[str, Any]) -> PartitionOffset:
        if partition is None or partition == self.partition:
            self.position = offset
        return PartitionOffset(self.partition if partition is None else partition, offset)
