"""Names of the things that a cluster runs."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from connectx.views import Shown


@dataclass(frozen=True, slots=True, order=True)
class TaskId(Shown):
    """One task of a connector, numbered from 0 (Kafka Connect: ConnectorTaskId)."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


TASK_ORDER = attrgetter("connector", "task")
"""Sorts TaskIds as they compare themselves, but many times as fast: for collections of all tasks."""


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition(Shown):
    """One partition of a Kafka topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
