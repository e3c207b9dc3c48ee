"""Requests of a worker's core that are not answered yet, and the part that waits for each answer.

An effect that is answered carries a number of this registry. Its answer goes to the part that waits for it and to no
other; an answer to a number that is not in the registry is late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from connectx.core.verbs import ModifyOffsets, RestartConnector, RestartTask
from connectx.model.ids import TaskId
from connectx.values import Value

ReadsFirst = RestartConnector | RestartTask | ModifyOffsets
"""Verbs that are decided after the config topic was read to its end."""


class Single(StrEnum):
    """Parts that a core has once, each for the only answer of its kind that it waits for."""

    OPERATION_WRITTEN = "operation written"  # the first operation of the config writer
    OPERATION_READ_BACK = "operation read back"
    ASSIGNMENT_READ = "assignment read"  # the rebalance, for a read of the config topic
    LEADER_CLAIMED = "leader claimed"  # the leader, for the right to write to the config topic
    LEADER_KEY_CREATED = "leader key created"


class _OfConnector(Value):
    connector: str


class _OfTask(Value):
    task: TaskId


class RoundRead(_OfConnector):
    """A fencing round, for a read of the config topic."""


class RoundFenced(_OfConnector):
    """A fencing round, for the fencing of older producers."""


class TaskFenced(_OfTask):
    """A task that is about to start, for the leader's fencing round."""


class TaskRead(_OfTask):
    """A task that is about to start, for a read of the config topic."""


class ConnectorConfigsSent(_OfConnector):
    """A connector, for the leader to take its task configs."""


class RequestRead(Value):
    """A request of REST, for a read of the config topic."""

    request_id: int
    verb: ReadsFirst


Waiting = Single | RoundRead | RoundFenced | TaskFenced | TaskRead | ConnectorConfigsSent | RequestRead


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
