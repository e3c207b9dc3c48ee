"""What the parts of a worker's core report to each other. Values only.

A part gives orders to the parts below it by calls, and reports to the others by signals. Only `WorkerCore` routes them,
until none is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from connectx.model.causes import Cause
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion
from connectx.model.ids import TaskId
from connectx.values import Value


class WriteKind(StrEnum):
    """Operations on the config topic."""

    CREATE = "create"
    PUT = "put"
    DELETE = "delete"
    TARGET_STATE = "target_state"
    STOP = "stop"
    TASK_CONFIGS = "task_configs"
    TASK_COUNT = "task_count"
    SESSION_KEY = "session_key"
    RESTART = "restart"
    LOGGER_LEVEL = "logger_level"


class RequestOrigin(Value):
    request_id: int


class ConnectorOrigin(Value):
    """A connector instance of this worker published its task configs."""

    connector: str
    instance: int


class FencingOrigin(Value):
    """A fencing round writes its task count record."""

    round_id: int


class LeaderOrigin(Value):
    """The leader itself: a session key."""


class StoppedOrigin(Value):
    """The leader takes the tasks from a stopped connector."""

    connector: str


Origin = RequestOrigin | ConnectorOrigin | FencingOrigin | LeaderOrigin | StoppedOrigin


class WriteOutcome(Value):
    """How an operation ended, with an HTTP status; `fenced` when the right to write has to be claimed again."""

    kind: WriteKind
    origin: Origin
    connector: str
    status: int
    error: str | None = None
    fenced: bool = False


class LocalWaiter(Value):
    """A task of the leader itself waits for the round."""

    task: TaskId
    instance: int


class RequestWaiter(Value):
    """Another worker's request waits for the round."""

    request_id: int


Waiter = LocalWaiter | RequestWaiter


class FencingOutcome(Value):
    """The outcome for a waiting caller; `status` is the HTTP status for a request."""

    waiter: Waiter
    status: int
    error: str | None


class RestartOutcome(Value):
    """A connector or task that a request restarted has started, or has failed to."""

    request_id: int
    error: str | None = None


class JoinPreparing(Value):
    """A join is due: stop work if eager, then call `prepared` with the metadata. Once per attempt to join."""

    reason: Cause


class Elected(Value):
    """This member leads: compute, then call `assignments` with this generation."""

    generation: int
    protocol: ProtocolVersion
    leader_id: str
    members: Mapping[str, MemberMetadata]


class AssignmentReceived(Value):
    """The rebalance is complete; the member is stable."""

    generation: int
    member_id: str
    leader_id: str
    protocol: ProtocolVersion
    assignment: Assignment


class MembershipLost(Value):
    """The generation is no longer ours; rejoining continues by itself.

    `error` is Kafka's name, None when the session ran out by the member's own clock.
    """

    reason: Cause
    error: str | None


class CoordinatorUnknown(Value):
    """No coordinator could be found for `heartbeat_interval_ms`: stop all work (KAFKA-9184). Once per loss."""

    since_ms: int


class FatalGroupError(Value):
    """The group does not take this member and no retry will change that; state FAILED until start()."""

    error: str


MemberSignal = JoinPreparing | Elected | AssignmentReceived | MembershipLost | CoordinatorUnknown | FatalGroupError
Signal = WriteOutcome | FencingOutcome | RestartOutcome | MemberSignal
