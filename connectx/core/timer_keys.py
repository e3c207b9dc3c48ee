"""Keys of the timers of a worker's core, one for each purpose. Values only."""

from __future__ import annotations

from enum import StrEnum

from connectx.model.ids import TaskId
from connectx.values import Value


class GroupTimer(StrEnum):
    """Timers of the membership."""

    HEARTBEAT = "group.heartbeat"  # send the next heartbeat
    SESSION = "group.session"  # the coordinator has, by the member's clock, dropped it
    RETRY = "group.retry"  # look for the coordinator, or join, again
    UNKNOWN = "group.coordinator"  # the coordinator has been unknown for too long


class WorkerTimer(StrEnum):
    """Timers that a worker has once."""

    REBALANCE_DELAY = "rebalance-delay"  # the leader's delay for lost work has passed
    MISMATCH = "mismatch"  # ask a leader that lagged for another assignment
    CONFIG_READ = "config-read-retry"  # read the config topic again
    RECLAIM = "reclaim"  # claim the config topic again
    CLAIM_LIMIT = "claim-limit"  # Kafka has not answered a claim of the config topic in time
    WRITE_LIMIT = "write-limit"  # Kafka has not answered a write of the leader's producer in time
    SESSION_KEY = "session-key"  # rotate the session key, or try to write it again
    EMPTY_STOPPED = "empty-stopped"  # take the tasks from stopped connectors again


class TaskStopLimit(Value):
    """The graceful time of a task that stops is over."""

    task: TaskId
    instance: int


class TaskFencingRetry(Value):
    """Ask for the fencing round of a task again."""

    task: TaskId
    instance: int


class TaskRestart(Value):
    """The pause of a failed task is over."""

    task: TaskId
    instance: int


class ConnectorStopLimit(Value):
    """The time of a connector that stops is over."""

    connector: str
    instance: int


class TaskConfigsRetry(Value):
    """Publish a connector's task configs again."""

    connector: str
    instance: int


class TaskCountRetry(Value):
    """Write the task count record of a fencing round again."""

    connector: str
    round_id: int


WorkTimer = (
    WorkerTimer
    | TaskStopLimit
    | TaskFencingRetry
    | TaskRestart
    | ConnectorStopLimit
    | TaskConfigsRetry
    | TaskCountRetry
)
"""Timers of the parts other than the membership."""

TimerKey = GroupTimer | WorkTimer
