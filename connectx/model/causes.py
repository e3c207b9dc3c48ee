"""Why something happened: one class per cause, with its part of a sentence. Pure values.

The core names causes by these types, and views of the history decide by them. Text that comes from elsewhere (an error
of a client or of a plugin) is in a field.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from typing_extensions import override

from connectx.model.ids import TaskId
from connectx.model.json_values import from_json, record_to_json
from connectx.model.states import State, TargetState
from connectx.values import Worded
from connectx.views import Shown

CAUSES: Final[dict[str, type[Cause]]] = {}
"""Each class of a cause, by its name."""


class Cause(Shown, Worded):
    """Base of all causes."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not cls.__name__.startswith("_"):
            CAUSES[cls.__name__] = cls


class _Abort(Cause):
    """A transaction was aborted; `unconfirmed` is the error of the abort, if Kafka did not confirm it."""

    unconfirmed: str | None = None

    @override
    def __str__(self) -> str:
        return super().__str__() + _unconfirmed(self.unconfirmed)


class WorkerStarts(Cause):
    text: ClassVar = "the worker starts"


class GroupRebalances(Cause):
    text: ClassVar = "the group is rebalancing"


class RebalanceSuperseded(Cause):
    text: ClassVar = "another rebalance began before this one was complete"


class GroupNotStable(Cause):
    """An attached cluster's group was seen joining."""

    text: ClassVar = "the group is not stable"


class AssignmentMissing(Cause):
    text: ClassVar = "the leader sent no assignment"


class GroupRequestRefused(Cause):
    """The coordinator refused `request` (JoinGroup, SyncGroup, Heartbeat) with Kafka's `error`."""

    text: ClassVar = "{request} was refused: {error}"
    request: str
    error: str


class SessionExpired(Cause):
    text: ClassVar = "no heartbeat was answered for {session_timeout_ms} ms"
    session_timeout_ms: int


class CoordinatorLost(Cause):
    text: ClassVar = "{reason}"
    reason: str


class CoordinatorUnreachable(Cause):
    """No coordinator was found for a heartbeat interval (KAFKA-9184)."""

    text: ClassVar = "the group coordinator cannot be reached"


class DelayOver(Cause):
    text: ClassVar = "the scheduled rebalance delay has passed"


class ConnectorCreated(Cause):
    text: ClassVar = "connector {connector} was created"
    connector: str


class ConnectorRemoved(Cause):
    text: ClassVar = "connector {connector} was deleted"
    connector: str


class TaskConfigsChanged(Cause):
    text: ClassVar = "connector {connector} has new task configs"
    connector: str


class ConfigMovedOn(Cause):
    text: ClassVar = "the config topic has moved on since the assignment"


class LeaderOutdated(Cause):
    text: ClassVar = "the leader had not read the config topic"


class RevokedWorkStopped(Cause):
    text: ClassVar = "revoked work has stopped and can be assigned again"


class ConfigUnreadable(Cause):
    text: ClassVar = "the config topic cannot be read: {error}"
    error: str


class GroupRefusesWorker(Cause):
    """A group error that no retry heals."""

    text: ClassVar = "the group refuses this worker: {error}"
    error: str


class WorkerShutsDown(Cause):
    text: ClassVar = "the worker shuts down"


class OutsideGroup(Cause):
    """A worker of an attached cluster is no member of the group; `answers` is True while its REST server does."""

    answers: bool

    @override
    def __str__(self) -> str:
        if self.answers:
            return "it answers and is no member of the group: the group has given its work to others"
        return "it is no member of the group and does not answer: it was stopped, killed or cut off"


class ProcessEnded(Cause):
    text: ClassVar = "its process has ended"


class Assigned(Cause):
    text: ClassVar = "it was assigned to this worker"


class Revoked(Cause):
    text: ClassVar = "the leader revoked it"


class NotAssigned(Cause):
    text: ClassVar = "it is not assigned to this worker any more"


class EagerRebalance(Cause):
    text: ClassVar = "eager rebalancing stops everything first"


class WorkDeleted(Cause):
    """Its connector was deleted, or has fewer tasks now."""

    text: ClassVar = "it was deleted"


class ConfigurationChanged(Cause):
    text: ClassVar = "its configuration has changed"


class TargetStateAsked(Cause):
    text: ClassVar = "its target state became {target_state}"
    target_state: TargetState


class RestartAsked(Cause):
    text: ClassVar = "its restart was requested"


class NewTaskConfigs(Cause):
    text: ClassVar = "its connector has new task configs"


class AutomaticRestart(Cause):
    """Restart number `count` in a row (of `limit`, None: unlimited) after a failure, of which `error` is a line."""

    count: int
    limit: int | None
    pause_ms: int
    error: str

    @override
    def __str__(self) -> str:
        of = "" if self.limit is None else f" of {self.limit}"
        return f"restart {self.count}{of} after a pause of {self.pause_ms} ms, since it failed: {self.error}"


class ProducersFenced(Cause):
    text: ClassVar = "older producers are fenced"


class ProducerInitialized(Cause):
    text: ClassVar = "producer is initialised"


class FencingNotDone(Cause):
    """The leader could not fence older producers yet."""

    text: ClassVar = "{error}"
    error: str


class LeaderUnknown(Cause):
    """The leader, or the key that signs requests to it, is not known yet."""

    text: ClassVar = "the leader or its session key is not known yet"


class GracefulTimeOver(Cause):
    text: ClassVar = "it did not stop within task.shutdown.graceful.timeout.ms"


class TakenSilently(Cause):
    """Of an attached cluster: `by` runs what `worker` never reported as given up."""

    text: ClassVar = "{by} runs it now; {worker} did not report its release"
    by: str
    worker: str


class NewerTaskConfigs(Cause):
    """Newer task configs are in the config topic (KIP-618)."""

    text: ClassVar = "newer task configs are in the config topic"


class TaskCountMissing(Cause):
    """No task count record follows the latest task configs (KIP-618)."""

    text: ClassVar = "no task count record follows the latest task configs; the next rebalance tries again"


class TaskReassigned(Cause):
    text: ClassVar = "the task is no longer assigned to this worker"


class TaskCountOutdated(Cause):
    text: ClassVar = "new task configs follow the last task count record"


class LostWorkWaits(Cause):
    """Lost work waits for its worker to come back (KIP-415)."""

    text: ClassVar = "waiting for a lost worker to come back"


class RevocationsFollow(Cause):
    """Revocations follow each other, so the next one waits (KAFKA-12495)."""

    text: ClassVar = "revocations follow each other"


class FormerLeaderFenced(Cause):
    text: ClassVar = "the former leader's producer is fenced"


class RestartedHere(Cause):
    """This worker started the task again, as `instance`. `newer_epoch` is the producer's epoch that took over."""

    instance: int
    newer_epoch: int | None

    @override
    def __str__(self) -> str:
        return f"this worker started it again, as instance {self.instance}{_epoch(self.newer_epoch)}"


class TakenOver(Cause):
    """Another worker (`by`, host:port) took the task over; `state` and `since_ms` (Unix time) are as it reports."""

    by: str
    task: TaskId
    generation: int
    newer_epoch: int | None
    state: State
    since_ms: int | None

    @override
    def __str__(self) -> str:
        return self.worded(f"worker {self.by}")

    def worded(self, by: str) -> str:
        """The part of a sentence, with `by` as the name of the worker."""
        at = "" if self.since_ms is None else f" since {_time_of_day(self.since_ms)}"
        now = "UNASSIGNED again" if self.state is State.UNASSIGNED else f"{self.state} there"
        epoch = _epoch(self.newer_epoch)
        return f"{by} took over {self.task} in generation {self.generation}{epoch}, {now}{at}"


class FencedByLeader(Cause):
    """The leader fenced the producers because the connector has newer task configs, for `tasks` tasks."""

    connector: str
    tasks: int
    newer_epoch: int | None

    @override
    def __str__(self) -> str:
        count = f"{self.tasks} task{'' if self.tasks == 1 else 's'}"
        return f"the leader fenced it{_epoch(self.newer_epoch)}: {self.connector} has newer task configs, for {count}"


class TakeoverUnknown(Cause):
    task: TaskId
    newer_epoch: int | None

    @override
    def __str__(self) -> str:
        who = f"who took over {self.task}{_epoch(self.newer_epoch)}"
        return f"{who} is not known yet: no other worker reports it in the status topic"


class TaskFailing(Cause):
    """A transaction was aborted because the task fails; `failure` is its kind (fenced, expired, delivery, fatal)."""

    failure: str
    unconfirmed: str | None = None

    @override
    def __str__(self) -> str:
        return self.failure + _unconfirmed(self.unconfirmed)


class BulkJobFailed(_Abort):
    text: ClassVar = "a bulk job failed"


class BulkJobEmpty(_Abort):
    text: ClassVar = "a bulk job had nothing to commit"


class StoppedBeforeCommit(_Abort):
    text: ClassVar = "stopped before the task asked for a commit"


class AbortAsked(Cause):
    text: ClassVar = "asked for by the task"


class CommitRejected(Cause):
    """The sink's group or target refused a commit."""

    text: ClassVar = "{error}"
    error: str


class FlushFailed(Cause):
    """The sink's flush failed, so nothing of it may be committed."""

    text: ClassVar = "flush failed: {error}"
    error: str


class RefusedByKafka(Cause):
    text: ClassVar = "refused by Kafka"


class RecordsFailed(Cause):
    """Records could not be read, converted, transformed or written; `error` is the reason."""

    text: ClassVar = "{error}"
    error: str


class BulkModeSet(Cause):
    text: ClassVar = "bulk.mode is {mode}"
    mode: str


class LaneObstacle(Cause):
    """The connector cannot use Spark; `reason` is the plugin's."""

    text: ClassVar = "{reason}"
    reason: str


class LittleWaits(Cause):
    waiting_bytes: int
    limit_bytes: int

    @override
    def __str__(self) -> str:
        return f"{_mb(self.waiting_bytes)} wait, less than {_mb(self.limit_bytes)}"


class FewCores(Cause):
    """Enough bytes wait, but Spark has too few cores (None: it is not known how many)."""

    waiting_bytes: int
    cores: int | None
    least: int

    @override
    def __str__(self) -> str:
        known = "not known" if self.cores is None else str(self.cores)
        return f"{_mb(self.waiting_bytes)} wait, and Spark's cores are {known}, less than {self.least}"


class MuchWaits(Cause):
    waiting_bytes: int
    cores: int

    @override
    def __str__(self) -> str:
        return f"{_mb(self.waiting_bytes)} wait, and Spark has {self.cores} cores"


class ExecutorsWithoutKafka(Cause):
    """Spark's executors cannot reach Kafka; `obstacle` is what they met."""

    text: ClassVar = "Spark's executors cannot reach Kafka: {obstacle}"
    obstacle: str


class NothingPolled(Cause):
    """The first choice of a source, before anything was polled."""

    text: ClassVar = "nothing was polled yet"


class LagUnknown(Cause):
    """The first choice of a sink, before its lag is known."""

    text: ClassVar = "no lag is known yet"


class ThreadEnded(Cause):
    """A task's thread has ended: stopped, failed, killed, or with its worker (`how`)."""

    text: ClassVar = "{how}"
    how: str


class FaultAsked(Cause):
    text: ClassVar = "{fault} was asked for"
    fault: str


class FaultScheduled(Cause):
    text: ClassVar = "it was scheduled {after_s:g} s before"
    after_s: float


class FaultOfChaos(Cause):
    """Fault `number` of a chaos (None: its end) with this seed."""

    seed: int
    number: int | None = None

    @override
    def __str__(self) -> str:
        which = "the end" if self.number is None else f"fault {self.number}"
        return f"{which} of the chaos with seed {self.seed}"


Takeover = RestartedHere | TakenOver | FencedByLeader | TakeoverUnknown
"""Why a producer was fenced."""


def cause_to_json(cause: Cause | None) -> dict[str, Any] | None:
    """A cause as a JSON object: the name of its class as `type`, and its fields."""
    return None if cause is None else {"type": type(cause).__name__, **record_to_json(cause)}


def cause_from_json(value: Any) -> Cause | None:
    """Inverse of `cause_to_json`. Raises KeyError, ValueError or TypeError for anything else."""
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("type") not in CAUSES:
        raise ValueError(f"{value!r} is no cause")
    found: Cause = from_json(CAUSES[value["type"]], value)
    return found


def _epoch(newer_epoch: int | None) -> str:
    return "" if newer_epoch is None else f" (epoch {newer_epoch})"


def _unconfirmed(error: str | None) -> str:
    return "" if error is None else f", unconfirmed: {error}"


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"


def _time_of_day(time_ms: int) -> str:
    seconds = time_ms // 1000 % 86_400
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02} UTC"
