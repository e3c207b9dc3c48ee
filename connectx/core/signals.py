"""What the parts of a worker's core report to each other. Values only.

A part gives orders to the parts below it by calls, and reports to the others by signals. Only `WorkerCore` routes them,
until none is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from connectx.model.causes import Cause
from connectx.model.group import Assignment, MemberMetadata, ProtocolVersion
from connectx.model.ids import TaskId


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


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """A request waits for the outcome."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ConnectorOrigin:
    """A connector instance of this worker published its task configs."""

    connector: str
    instance: int


@dataclass(frozen=True, slots=True)
class FencingOrigin:
    """A fencing round writes its task count record."""

    round_id: int


@dataclass(frozen=True, slots=True)
class LeaderOrigin:
    """The leader itself: a session key."""


@dataclass(frozen=True, slots=True)
class StoppedOrigin:
    """The leader takes the tasks from a stopped connector."""

    connector: str


Origin = RequestOrigin | ConnectorOrigin | FencingOrigin | LeaderOrigin | StoppedOrigin


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """How an operation ended, with an HTTP status; `fenced` when the right to write has to be claimed again."""

    kind: WriteKind
    origin: Origin
    connector: str
    status: int
    error: str | None = None
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class LocalWaiter:
    """A task of the leader itself waits for the round."""

    task: TaskId
    instance: int


@dataclass(frozen=True, slots=True)
class RequestWaiter:
    """Another worker's request waits for the round."""

    request_id: int


Waiter = LocalWaiter | RequestWaiter


@dataclass(frozen=True, slots=True)
class FencingOutcome:
    """The outcome for a waiting caller; `status` is the HTTP status for a request."""

    waiter: Waiter
    status: int
    error: str | None


@dataclass(frozen=True, slots=True)
class JoinPreparing:
    """A join is due: stop work if eager, then call `prepared` with the metadata. Once per attempt to join."""

    reason: Cause


@dataclass(frozen=True, slots=True)
class Elected:
    """This member leads: compute, then call `assignments` with this generation."""

    generation: int
    protocol: ProtocolVersion
    leader_id: str
    members: Mapping[str, MemberMetadata]


@dataclass(frozen=True, slots=True)
class AssignmentReceived:
    """The rebalance is complete; the member is stable."""

    generation: int
    member_id: str
    leader_id: str
    protocol: ProtocolVersion
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class MembershipLost:
    """The generation is no longer ours; rejoining continues by itself.

    `error` is Kafka's name, None when the session ran out by the member's own clock.
    """

    reason: Cause
    error: str | None


@dataclass(frozen=True, slots=True)
class CoordinatorUnknown:
    """No coordinator could be found for `heartbeat_interval_ms`: stop all work (KAFKA-9184). Once per loss."""

    since_ms: int


@dataclass(frozen=True, slots=True)
class FatalGroupError:
    """The group does not take this member and no retry will change that; state FAILED until start()."""

    error: str


MemberSignal = JoinPreparing | Elected | AssignmentReceived | MembershipLost | CoordinatorUnknown | FatalGroupError
Signal = WriteOutcome | FencingOutcome | MemberSignal
