"""Requests of a worker's core that are not answered yet, and the part that waits for each answer.

An effect that is answered carries a number of this registry. Its answer goes to the part that waits for it and to no
other; an answer to a number that is not in the registry is late.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from connectx.core.verbs import ModifyOffsets, RestartConnector, RestartTask
from connectx.model.ids import TaskId
from connectx.values import Value

ReadsFirst = RestartConnector | RestartTask | ModifyOffsets
"""Verbs that are decided after the config topic was read to its end."""


class OperationWritten(Value):
    """The first operation of the config writer, for its write."""


class OperationReadBack(Value):
    """The first operation of the config writer, for its read."""


class RoundRead(Value):
    """A fencing round, for a read of the config topic."""

    connector: str


class RoundFenced(Value):
    """A fencing round, for the fencing of older producers."""

    connector: str


class AssignmentRead(Value):
    """The rebalance, for a read of the config topic."""


class LeaderClaimed(Value):
    """The leader, for the right to write to the config topic."""


class LeaderKeyCreated(Value):
    """The leader, for a session key."""


class TaskFenced(Value):
    """A task that is about to start, for the leader's fencing round."""

    task: TaskId


class TaskRead(Value):
    """A task that is about to start, for a read of the config topic."""

    task: TaskId


class ConnectorConfigsSent(Value):
    """A connector, for the leader to take its task configs."""

    connector: str


class RequestRead(Value):
    """A request of REST, for a read of the config topic."""

    request_id: int
    verb: ReadsFirst


Waiting = (
    OperationWritten
    | OperationReadBack
    | RoundRead
    | RoundFenced
    | AssignmentRead
    | LeaderClaimed
    | LeaderKeyCreated
    | TaskFenced
    | TaskRead
    | ConnectorConfigsSent
    | RequestRead
)


@dataclass(slots=True)
class Pending:
    """The registry. A number is never used twice; parts keep the number of what they wait for, to drop it."""

    last_id: int = 0
    waiting: dict[int, Waiting] = field(default_factory=dict)

    def begin(self, waiting: Waiting) -> int:
        """Return the number of a new request."""
        self.last_id += 1
        self.waiting[self.last_id] = waiting
        return self.last_id

    def drop(self, request_id: int | None) -> None:
        """Wait for an answer no longer; None and unknown numbers are fine."""
        if request_id is not None:
            self.waiting.pop(request_id, None)
