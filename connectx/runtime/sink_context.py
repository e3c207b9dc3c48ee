"""What a sink plugin may know and say (SinkTaskContext)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from connectx.model.ids import TaskId, TopicPartition
from connectx.runtime.sink_setup import SinkSetup

log = logging.getLogger(__name__)


class SinkContext:
    """SinkTaskContext of one task. `skipped` and `reason` tell of records reported within the current put."""

    def __init__(self, setup: SinkSetup, group_id: str) -> None:
        self._setup = setup
        self._group_id = group_id
        self._assignment: list[TopicPartition] = []
        self.skipped = 0
        self.reason = ""

    @property
    def task(self) -> TaskId:
        """Id of the task."""
        return self._setup.task

    @property
    def group_id(self) -> str:
        """The consumer group."""
        return self._group_id

    @property
    def assignment(self) -> Sequence[TopicPartition]:
        """Partitions that this task owns now, sorted."""
        return tuple(self._assignment)

    def report(self, partition: TopicPartition, offset: int, error: Exception) -> None:
        """Count a record that the target refuses, or raise `error`."""
        if not self._setup.settings.errors.tolerate_all:
            raise error
        if self._setup.settings.errors.log_enable:
            log.warning("%s skips offset %d of %s: %s", self.task, offset, partition, error)
        self.skipped += 1
        self.reason = str(error)

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions were assigned."""
        self._assignment = sorted({*self._assignment, *partitions})

    def remove(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions were taken away."""
        self._assignment = [partition for partition in self._assignment if partition not in partitions]
