"""What a worker knows of one instance of a task. The moves between its phases are in `connectx.core.tasks`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from connectx.core.context import StartAgain
from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from connectx.model.status_records import Status


class TaskPhase(StrEnum):
    """Where a task instance is. Each line says what comes next.

    A failure in any phase but STOPPING leads to FAILED, a stop to STOPPING.
    """

    PREPARING = "preparing"  # plugins are made: FENCING for an exactly-once source, else STARTING
    FENCING = "fencing"  # the leader fences older producers: INITIALIZING
    INITIALIZING = "initializing"  # the producer's init fences an older instance of the same task: VERIFYING
    VERIFYING = "verifying"  # the config topic is read to its end: STARTING, or refused: STOPPING
    STARTING = "starting"  # the runner reads offsets and starts the plugin: ACTIVE
    ACTIVE = "active"  # running or paused
    FAILED = "failed"  # until it is restarted or revoked; its runner has ended
    STOPPING = "stopping"  # until the runner ends or the graceful time is over: forgotten, or PREPARING again


BEFORE_ITS_START: Final = (TaskPhase.PREPARING, TaskPhase.FENCING, TaskPhase.INITIALIZING, TaskPhase.VERIFYING)
"""Phases in which an exactly-once task may still be refused."""


@dataclass(slots=True)
class TaskLife:
    """One task instance of this worker."""

    task: TaskId
    instance: int
    phase: TaskPhase
    exactly_once: bool
    generation: int
    task_config_generation: int | None
    target_state: TargetState
    request_id: int | None = None
    attempts: int = 0
    refused_since_ms: int | None = None
    """Since when the leader has refused this worker's signature."""
    version: str | None = None
    reported: Status | None = None
    """What was last said of it in the status topic."""
    again: StartAgain | None = None
    """Set while stopping when the task shall start again."""
