"""Names of the things that a cluster runs."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from connectx.views import Shown


@dataclass(frozen=True, slots=True, order=True)
class TaskId(Shown):
    """One task of a connector, numbered from 0 (Kafka Connect: ConnectorTaskId)."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


MOST_TASKS: Final = 100_000
"""Of a connector. Records may name any number, and for each task there is work to do."""


def parse_task(text: str) -> TaskId | None:
    """The task of `<connector>-<number>`, the number being what follows the last dash; None if it names none."""
    connector, _, number = text.rpartition("-")
    if not connector or not (number.isascii() and number.isdigit()) or len(number) > 10 or int(number) >= 2**31:
        return None
    return TaskId(connector, int(number))


TASK_ORDER = attrgetter("connector", "task")
"""Sorts TaskIds as they compare themselves, but many times as fast: for collections of all tasks."""


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition(Shown):
    """One partition of a Kafka topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
