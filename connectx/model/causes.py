"""Why something happened: one class per cause. Pure values; `connectx.model.cause_text` has their sentences.

The core names causes by these types, and views of the history decide by them. Text that comes from elsewhere (an error
of a client or of a plugin) is in a field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from connectx.model.ids import TaskId
from connectx.model.json_values import from_json, record_to_json
from connectx.model.states import State, TargetState
from connectx.views import Shown


@dataclass(frozen=True, slots=True, repr=False)
class WorkerStarts(Shown):
    """The worker joins for the first time."""


@dataclass(frozen=True, slots=True, repr=False)
class GroupRebalances(Shown):
    """The coordinator answered that the group rebalances: the worker follows."""


@dataclass(frozen=True, slots=True, repr=False)
class RebalanceSuperseded(Shown):
    """Another rebalance began before this one was complete: the worker follows."""


@dataclass(frozen=True, slots=True, repr=False)
class GroupNotStable(Shown):
    """An attached cluster's group was seen joining."""


@dataclass(frozen=True, slots=True, repr=False)
class AssignmentMissing(Shown):
    """The leader sent no assignment."""


@dataclass(frozen=True, slots=True, repr=False)
class GroupRequestRefused(Shown):
    """The coordinator refused `request` (JoinGroup, SyncGroup, Heartbeat) with Kafka's `error`."""

    request: str
    error: str


@dataclass(frozen=True, slots=True, repr=False)
class SessionExpired(Shown):
    """No heartbeat was answered within the session timeout."""

    session_timeout_ms: int


@dataclass(frozen=True, slots=True, repr=False)
class CoordinatorLost(Shown):
    """A group request had no answer; `reason` is the client's."""

    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class CoordinatorUnreachable(Shown):
    """No coordinator was found for a heartbeat interval (KAFKA-9184)."""


@dataclass(frozen=True, slots=True, repr=False)
class DelayOver(Shown):
    """The leader's delay for lost work has passed."""


@dataclass(frozen=True, slots=True, repr=False)
class ConnectorCreated(Shown):
    """A connector was created."""

    connector: str


@dataclass(frozen=True, slots=True, repr=False)
class ConnectorRemoved(Shown):
    """A connector was deleted."""

    connector: str


@dataclass(frozen=True, slots=True, repr=False)
class TaskConfigsChanged(Shown):
    """A connector has new task configs."""

    connector: str


@dataclass(frozen=True, slots=True, repr=False)
class ConfigMovedOn(Shown):
    """The config topic has moved on since the assignment."""


@dataclass(frozen=True, slots=True, repr=False)
class LeaderBehind(Shown):
    """The leader had not read the config topic as far as this worker."""


@dataclass(frozen=True, slots=True, repr=False)
class RevokedWorkStopped(Shown):
    """Revoked work has stopped, so the leader can assign it."""


@dataclass(frozen=True, slots=True, repr=False)
class ConfigUnreadable(Shown):
    """The config topic could not be read to its end."""

    error: str


@dataclass(frozen=True, slots=True, repr=False)
class GroupRefusesWorker(Shown):
    """A group error that no retry heals."""

    error: str


@dataclass(frozen=True, slots=True, repr=False)
class WorkerShutsDown(Shown):
    """The worker was asked to end."""


@dataclass(frozen=True, slots=True, repr=False)
class OutsideGroup(Shown):
    """A worker of an attached cluster is no member of the group; `answers` is True while its REST server does."""

    answers: bool


@dataclass(frozen=True, slots=True, repr=False)
class ProcessEnded(Shown):
    """The process of the worker has ended."""


@dataclass(frozen=True, slots=True, repr=False)
class Assigned(Shown):
    """The leader assigned it to this worker."""


@dataclass(frozen=True, slots=True, repr=False)
class Revoked(Shown):
    """The leader revoked it."""


@dataclass(frozen=True, slots=True, repr=False)
class NotAssigned(Shown):
    """Nothing is assigned to this worker any more."""


@dataclass(frozen=True, slots=True, repr=False)
class EagerRebalance(Shown):
    """An eager rebalance stops everything first."""


@dataclass(frozen=True, slots=True, repr=False)
class WorkDeleted(Shown):
    """Its connector was deleted, or has fewer tasks now."""


@dataclass(frozen=True, slots=True, repr=False)
class ConfigurationChanged(Shown):
    """The connector's configuration has changed."""


@dataclass(frozen=True, slots=True, repr=False)
class TargetStateAsked(Shown):
    """A user asked for this state."""

    target_state: TargetState


@dataclass(frozen=True, slots=True, repr=False)
class RestartAsked(Shown):
    """A user asked for a restart."""


@dataclass(frozen=True, slots=True, repr=False)
class NewTaskConfigs(Shown):
    """The task's connector has new task configs."""


@dataclass(frozen=True, slots=True, repr=False)
class AutomaticRestart(Shown):
    """Restart number `count` in a row (of `limit`, None: unlimited) after a failure, of which `error` is a line."""

    count: int
    limit: int | None
    pause_ms: int
    error: str


@dataclass(frozen=True, slots=True, repr=False)
class ProducersFenced(Shown):
    """Older producers of the connector are fenced."""


@dataclass(frozen=True, slots=True, repr=False)
class ProducerInitialized(Shown):
    """The task's producer is initialized."""


@dataclass(frozen=True, slots=True, repr=False)
class FencingNotDone(Shown):
    """The leader could not fence older producers yet."""

    error: str


@dataclass(frozen=True, slots=True, repr=False)
class LeaderUnknown(Shown):
    """The leader, or the key that signs requests to it, is not known yet."""


@dataclass(frozen=True, slots=True, repr=False)
class GracefulTimeOver(Shown):
    """The task did not stop within task.shutdown.graceful.timeout.ms."""


@dataclass(frozen=True, slots=True, repr=False)
class TakenSilently(Shown):
    """Of an attached cluster: `by` runs what `worker` never reported as given up."""

    by: str
    worker: str


@dataclass(frozen=True, slots=True, repr=False)
class NewerTaskConfigs(Shown):
    """Newer task configs are in the config topic (KIP-618)."""


@dataclass(frozen=True, slots=True, repr=False)
class TaskCountMissing(Shown):
    """No task count record follows the latest task configs (KIP-618)."""


@dataclass(frozen=True, slots=True, repr=False)
class TaskReassigned(Shown):
    """The task is not assigned to this worker any more."""


@dataclass(frozen=True, slots=True, repr=False)
class TaskCountOutdated(Shown):
    """New task configs follow the last task count record, so older producers must be fenced."""


@dataclass(frozen=True, slots=True, repr=False)
class LostWorkWaits(Shown):
    """Lost work waits for its worker to come back (KIP-415)."""


@dataclass(frozen=True, slots=True, repr=False)
class RevocationsFollow(Shown):
    """Revocations follow each other, so the next one waits (KAFKA-12495)."""


@dataclass(frozen=True, slots=True, repr=False)
class FormerLeaderFenced(Shown):
    """The former leader's producer is fenced."""


@dataclass(frozen=True, slots=True, repr=False)
class RestartedHere(Shown):
    """This worker started the task again, as `instance`. `newer_epoch` is the producer's epoch that took over."""

    instance: int
    newer_epoch: int | None


@dataclass(frozen=True, slots=True, repr=False)
class TakenOver(Shown):
    """Another worker (`by`, host:port) took the task over; `state` and `since_ms` (Unix time) are as it reports."""

    by: str
    task: TaskId
    generation: int
    newer_epoch: int | None
    state: State
    since_ms: int | None


@dataclass(frozen=True, slots=True, repr=False)
class FencedByLeader(Shown):
    """The leader fenced the producers because the connector has newer task configs, for `tasks` tasks."""

    connector: str
    tasks: int
    newer_epoch: int | None


@dataclass(frozen=True, slots=True, repr=False)
class TakeoverUnknown(Shown):
    """No other worker has reported the task in the status topic yet."""

    task: TaskId
    newer_epoch: int | None


@dataclass(frozen=True, slots=True, repr=False)
class TaskFailing(Shown):
    """A transaction was aborted because the task fails; `failure` is its kind (fenced, expired, delivery, fatal)."""

    failure: str
    unconfirmed: str | None = None
    """Error of the abort, if Kafka did not confirm it."""


@dataclass(frozen=True, slots=True, repr=False)
class BulkJobFailed(Shown):
    """A transaction was aborted because a bulk job failed."""

    unconfirmed: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class BulkJobEmpty(Shown):
    """A transaction was aborted because a bulk job had nothing to commit."""

    unconfirmed: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class StoppedBeforeCommit(Shown):
    """A transaction was aborted because the task stopped before it asked for a commit."""

    unconfirmed: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class AbortAsked(Shown):
    """The task asked for the abort."""


@dataclass(frozen=True, slots=True, repr=False)
class CommitRejected(Shown):
    """The sink's group or target refused a commit."""

    error: str


@dataclass(frozen=True, slots=True, repr=False)
class FlushFailed(Shown):
    """The sink's flush failed, so nothing of it may be committed."""

    error: str


@dataclass(frozen=True, slots=True, repr=False)
class RefusedByKafka(Shown):
    """Kafka refused the records."""


@dataclass(frozen=True, slots=True, repr=False)
class RecordsFailed(Shown):
    """Records could not be read, converted, transformed or written; `error` is the reason."""

    error: str


@dataclass(frozen=True, slots=True, repr=False)
class BulkModeSet(Shown):
    """`bulk.mode` decides: never or always."""

    mode: str


@dataclass(frozen=True, slots=True, repr=False)
class LaneObstacle(Shown):
    """The connector cannot use Spark; `reason` is the plugin's."""

    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class LittleWaits(Shown):
    """Fewer bytes wait than `limit_bytes`."""

    waiting_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class FewCores(Shown):
    """Enough bytes wait, but Spark has too few cores (None: it is not known how many)."""

    waiting_bytes: int
    cores: int | None
    least: int


@dataclass(frozen=True, slots=True, repr=False)
class MuchWaits(Shown):
    """Enough bytes wait, and Spark has cores for them."""

    waiting_bytes: int
    cores: int


@dataclass(frozen=True, slots=True, repr=False)
class ExecutorsWithoutKafka(Shown):
    """Spark's executors cannot reach Kafka; `obstacle` is what they met."""

    obstacle: str


@dataclass(frozen=True, slots=True, repr=False)
class NothingPolled(Shown):
    """The first choice of a source, before anything was polled."""


@dataclass(frozen=True, slots=True, repr=False)
class LagUnknown(Shown):
    """The first choice of a sink, before its lag is known."""


@dataclass(frozen=True, slots=True, repr=False)
class ThreadEnded(Shown):
    """A task's thread has ended: stopped, failed, killed, or with its worker (`how`)."""

    how: str


@dataclass(frozen=True, slots=True, repr=False)
class FaultAsked(Shown):
    """A user asked for the fault."""

    fault: str


@dataclass(frozen=True, slots=True, repr=False)
class FaultScheduled(Shown):
    """The fault was scheduled `after_s` seconds before."""

    after_s: float


@dataclass(frozen=True, slots=True, repr=False)
class FaultOfChaos(Shown):
    """Fault `number` of a chaos (None: its end) with this seed."""

    seed: int
    number: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class RecordedText(Shown):
    """A sentence of a history file of version 1, which held no types."""

    text: str


JoinReason = (
    WorkerStarts
    | GroupRebalances
    | RebalanceSuperseded
    | GroupNotStable
    | AssignmentMissing
    | GroupRequestRefused
    | SessionExpired
    | CoordinatorLost
    | CoordinatorUnreachable
    | DelayOver
    | ConnectorCreated
    | ConnectorRemoved
    | TaskConfigsChanged
    | ConfigMovedOn
    | LeaderBehind
    | RevokedWorkStopped
)
WorkerEnd = ConfigUnreadable | GroupRefusesWorker | WorkerShutsDown | OutsideGroup | ProcessEnded
WorkCause = (
    Assigned
    | Revoked
    | NotAssigned
    | EagerRebalance
    | WorkDeleted
    | ConfigurationChanged
    | TargetStateAsked
    | RestartAsked
    | NewTaskConfigs
    | AutomaticRestart
    | ProducersFenced
    | ProducerInitialized
    | FencingNotDone
    | LeaderUnknown
    | GracefulTimeOver
    | TakenSilently
)
Refusal = NewerTaskConfigs | TaskCountMissing | TaskReassigned
LeaderCause = TaskCountOutdated | LostWorkWaits | RevocationsFollow | FormerLeaderFenced
Takeover = RestartedHere | TakenOver | FencedByLeader | TakeoverUnknown
DataCause = (
    TaskFailing
    | BulkJobFailed
    | BulkJobEmpty
    | StoppedBeforeCommit
    | AbortAsked
    | CommitRejected
    | FlushFailed
    | RefusedByKafka
    | RecordsFailed
)
LaneReason = (
    BulkModeSet | LaneObstacle | LittleWaits | FewCores | MuchWaits | ExecutorsWithoutKafka | NothingPolled | LagUnknown
)
FaultCause = ThreadEnded | FaultAsked | FaultScheduled | FaultOfChaos
Cause = (
    JoinReason
    | WorkerEnd
    | WorkCause
    | Refusal
    | LeaderCause
    | Takeover
    | DataCause
    | LaneReason
    | FaultCause
    | RecordedText
)

_TYPES: dict[str, type] = {kind.__name__: kind for kind in get_args(Cause)}


def cause_to_json(cause: Cause | None) -> dict[str, Any] | None:
    """A cause as a JSON object: the name of its class as `type`, and its fields."""
    return None if cause is None else {"type": type(cause).__name__, **record_to_json(cause)}


def cause_from_json(value: Any) -> Cause | None:
    """Inverse of `cause_to_json`. Raises KeyError, ValueError or TypeError for anything else."""
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("type") not in _TYPES:
        raise ValueError(f"{value!r} is no cause")
    found: Cause = from_json(_TYPES[value["type"]], value)
    return found
