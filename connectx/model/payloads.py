"""Kinds of events, and what each records: one class per `EventKind`. Pure values.

`Event.data` shows the same fields as JSON values, under the same names (`from_` as `from`). A field that equals its
default is left out there. Why it happened is the event's cause, not part of the payload; where `has_reason` is True,
`Event.data` also shows the cause as `reason`.

Work is named as text: `orders` is a connector, `orders-0` a task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Any, ClassVar, Final

from connectx.model.json_values import from_json
from connectx.model.states import State, TargetState
from connectx.values import Value
from connectx.views import Shown


class EventKind(StrEnum):
    """Kinds of events, as files, tables and `events.find` spell them. Each has a class below, of the same name."""

    # cluster and workers
    CLUSTER_STARTED = "cluster_started"
    CLUSTER_STOPPED = "cluster_stopped"
    ATTACHED = "attached"
    SIGHT_LOST = "sight_lost"
    SIGHT_REGAINED = "sight_regained"
    DETACHED = "detached"
    WORKER_STARTED = "worker_started"
    WORKER_STOPPED = "worker_stopped"
    WORKER_FAILED = "worker_failed"
    FAULT_INJECTED = "fault_injected"
    FAULT_FAILED = "fault_failed"
    # group
    REBALANCE_STARTED = "rebalance_started"
    REBALANCE_COMPLETED = "rebalance_completed"
    ASSIGNMENT_COMPUTED = "assignment_computed"
    REBALANCE_DELAYED = "rebalance_delayed"
    MEMBER_REMOVED = "member_removed"
    MEMBER_LOST = "member_lost"
    LEADERSHIP_CLAIMED = "leadership_claimed"
    LEADERSHIP_FENCED = "leadership_fenced"
    # config topic
    CONNECTOR_CONFIGURED = "connector_configured"
    CONNECTOR_DELETED = "connector_deleted"
    TASKS_CONFIGURED = "tasks_configured"
    TASKS_INCONSISTENT = "tasks_inconsistent"
    TARGET_STATE_CHANGED = "target_state_changed"
    TASK_COUNT_RECORDED = "task_count_recorded"
    SESSION_KEY_ROTATED = "session_key_rotated"
    RESTART_REQUESTED = "restart_requested"
    # fencing
    FENCING_STARTED = "fencing_started"
    FENCING_COMPLETED = "fencing_completed"
    FENCING_FAILED = "fencing_failed"
    # connectors and tasks: where they are in their life
    CONNECTOR_STATE = "connector_state"
    TASK_STATE = "task_state"
    TASK_STEP = "task_step"
    TASK_REFUSED = "task_refused"
    TASK_ENDED = "task_ended"
    # data
    TRANSACTION_COMMITTED = "transaction_committed"
    TRANSACTION_ABORTED = "transaction_aborted"
    PRODUCER_FENCED = "producer_fenced"
    FENCED_BY = "fenced_by"
    OFFSETS_COMMITTED = "offsets_committed"
    OFFSETS_ALTERED = "offsets_altered"
    COMMIT_REFUSED = "commit_refused"
    PARTITIONS_ASSIGNED = "partitions_assigned"
    PARTITIONS_REVOKED = "partitions_revoked"
    PARTITIONS_LOST = "partitions_lost"
    RECORDS_SKIPPED = "records_skipped"
    LANE_CHANGED = "lane_changed"
    BULK_SENT_BY_WORKER = "bulk_sent_by_worker"
    BULK_STARTED = "bulk_started"
    BULK_STAGED = "bulk_staged"
    BULK_FAILED = "bulk_failed"
    RECORDS_FILTERED = "records_filtered"
    LAG_ALARM = "lag_alarm"
    LAG_ALARM_OVER = "lag_alarm_over"
    TARGET_HELD = "target_held"


PAYLOADS: Final[dict[EventKind, type[Payload]]] = {}
"""The class of each kind of event."""


class Payload(Shown, Value):
    """Base of what events record. A subclass is named after its kind."""

    kind: ClassVar[EventKind]
    has_reason: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.kind = EventKind(re.sub(r"(?<=.)(?=[A-Z])", "_", cls.__name__).lower())
        PAYLOADS[cls.kind] = cls


class ClusterStarted(Payload):
    bootstrap_servers: str
    group_id: str


class ClusterStopped(Payload):
    """The cluster was closed."""


class Attached(Payload):
    """From here on a running cluster is observed from outside; `blind_spots` names what cannot be seen."""

    url: str
    group_id: str | None = None
    blind_spots: tuple[str, ...] = ()


class SightLost(Payload):
    """A source of observations (`origin`) does not answer."""

    origin: str
    error: str


class SightRegained(Payload):
    """It answers again."""

    origin: str


class Detached(Payload):
    """The observation has ended."""


class WorkerStarted(Payload):
    """A worker has read the internal topics and joins the group."""

    url: str


class WorkerStopped(Payload):
    """A worker has left the group."""


class WorkerFailed(Payload):
    error: str


class FaultInjected(Payload):
    """A fault was injected: a verb of a worker, add_worker, broker_kill, broker_restart or executor_kill.

    `direction` is that of a cut, `requests` the kinds that a delay holds, or how many of each were delivered after
    `for_s`, `tasks` what the worker ran. `after_s` is the time since it was scheduled, `chaos_*` the chaos it is of.
    """

    fault: str
    direction: str | None = None
    requests: tuple[str, ...] | Mapping[str, int] | None = None
    for_s: float | None = None
    tasks: tuple[str, ...] | None = None
    after_s: float | None = None
    chaos_seed: int | None = None
    chaos_fault: int | None = None

    def title(self, worker: str | None) -> str:
        """What happened to `worker`, or to the broker or Spark, without a full stop."""
        match self.fault:
            case "broker_kill":
                return "fault: the broker was killed"
            case "broker_restart":
                return "the broker was started again"
            case "executor_kill":
                return "fault: an executor of Spark was killed"
            case "add_worker":
                return f"{worker} was added"
            case fault:
                one_way = "" if self.direction in (None, "both") else f" ({self.direction})"
                return f"fault: {fault} {worker}{one_way}"


class FaultFailed(Payload):
    """A planned or scheduled fault could not be injected when its time had come."""

    fault: str
    error: str
    after_s: float | None = None
    chaos_seed: int | None = None
    chaos_fault: int | None = None


class RebalanceStarted(Payload):
    """The worker prepares to join the group."""

    has_reason: ClassVar = True


class RebalanceCompleted(Payload):
    """The worker got its assignment; `connectors` and `tasks` are all that it has now.

    `error` is that of the assignment (1: the leader had not read the config topic), `took_ms` the time since it
    prepared.
    """

    leader_url: str
    protocol: str
    delay_ms: int
    connectors: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    leader: str = ""
    revoked: tuple[str, ...] = ()
    error: int = 0
    took_ms: int | None = None


class MemberWork(Shown, Value):
    assigned: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()
    owns: tuple[str, ...] = ()


class AssignmentComputed(Payload):
    """The leader divided the work: `members` by URL, `lost` work without a worker, and how long that waits."""

    members: Mapping[str, MemberWork]
    lost: tuple[str, ...]
    delay_ms: int


class RebalanceDelayed(Payload):
    """Lost work, or the next revocation, waits."""

    lost: tuple[str, ...]
    delay_ms: int


class MemberRemoved(Payload):
    """Members of a group were removed for a worker whose process has ended."""

    group: str
    members: tuple[str, ...] = ()


class MemberLost(Payload):
    """The worker was dropped by the coordinator or lost it; `error` is Kafka's, where there is one."""

    error: str | None = None


class LeadershipClaimed(Payload):
    """The leader has fenced the former leader's producer."""

    transactional_id: str


class LeadershipFenced(Payload):
    """A privileged write failed."""

    error: str


class ConnectorConfigured(Payload):
    """A configuration was read. `config_offset` is one past the record's offset, as the group counts."""

    is_new: bool
    config_offset: int | None = None


class ConnectorDeleted(Payload):
    """A connector's tombstone was read."""

    config_offset: int | None = None


class TasksConfigured(Payload):
    """A complete set of task configs was read; `tasks` is their number."""

    tasks: int
    task_config_generation: int | None = None
    config_offset: int | None = None


class TasksInconsistent(Payload):
    """An incomplete set of task configs was read."""

    tasks: int
    task_config_generation: int | None = None
    config_offset: int | None = None


class TargetStateChanged(Payload):
    """A user paused, resumed or stopped a connector."""

    target_state: TargetState
    config_offset: int | None = None


class TaskCountRecorded(Payload):
    """A task count record was read (KIP-618)."""

    task_count: int
    config_offset: int | None = None


class SessionKeyRotated(Payload):
    """A new session key was read (KIP-507)."""

    config_offset: int | None = None


class RestartRequested(Payload):
    """A restart command was read (KIP-745)."""

    include_tasks: bool
    only_failed: bool
    config_offset: int | None = None


class FencingStarted(Payload):
    """The leader fences the producers of a connector's older tasks."""

    task_count: int
    transactional_ids: tuple[str, ...]


class FencingCompleted(Payload):
    """They are fenced, and the task count record is written."""

    task_count: int


class FencingFailed(Payload):
    """A fencing round has failed or was cancelled."""

    error: str


class StepName(StrEnum):
    """Steps in the life of a task instance."""

    PREPARE = "prepare"
    REQUEST_FENCING = "request_fencing"
    RETRY_FENCING = "retry_fencing"
    INIT_PRODUCER = "init_producer"
    READ_CONFIG_TO_END = "read_config_to_end"
    BEGIN = "begin"
    READ_OFFSETS = "read_offsets"
    POLL = "poll"
    STOP = "stop"
    CANCEL = "cancel"


class ConnectorState(Payload):
    """A connector reached a state; `trace` is the trace of a failure."""

    state: State
    trace: str | None = None


class TaskState(Payload):
    """A task instance reached a state; `trace` is the trace of a failure."""

    state: State
    trace: str | None = None
    instance: int | None = None


class TaskStep(Payload):
    """A task instance takes a step of its start or its end."""

    step: StepName
    instance: int | None = None


class TaskRefused(Payload):
    """An exactly-once start was aborted (KIP-618)."""

    has_reason: ClassVar = True
    instance: int | None = None


class TaskEnded(Payload):
    """The thread of a task instance has ended; a zombie ends here."""

    has_reason: ClassVar = True
    instance: int | None = None


class Unknown(Enum):
    """Where a value is not known, and None is one."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


class SourceRange(Shown, Value):
    """What a commit covers of one source partition: after `from_` (None: from its begin) up to `offset`."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any]
    from_: Mapping[str, Any] | Unknown | None = UNKNOWN


class TransactionCommitted(Payload):
    """Records and source offsets were committed in one transaction."""

    records: int
    offsets: tuple[SourceRange, ...] | None = None
    instance: int | None = None


class TransactionAborted(Payload):
    has_reason: ClassVar = True
    records: int


class ProducerFenced(Payload):
    """The broker refused a task's producer after `open_ms` of an open transaction; `newer_epoch` took over."""

    instance: int | None = None
    transactional_id: str | None = None
    error: str = ""
    open_ms: int | None = None
    newer_epoch: int | None = None


class FencedBy(Payload):
    """Who fenced a producer; the cause names it. `by` is a worker (host:port), the rest is as that worker reports."""

    known: bool
    instance: int | None = None
    by: str | None = None
    by_generation: int | None = None
    newer_epoch: int | None = None
    state: State | None = None
    since_ms: int | None = None


class OffsetsCommitted(Payload):
    """Offsets were committed: ranges of a source, or the end offset of each of a sink's partitions."""

    records: int
    offsets: tuple[SourceRange, ...] | Mapping[str, int] | None = None
    instance: int | None = None


class OffsetsAltered(Payload):
    """A user altered a connector's offsets (`partition` and `offset` each); None: all were reset."""

    offsets: tuple[Mapping[str, Any], ...] | None


class CommitRefused(Payload):
    """A sink's commit was refused: it does not own the partitions, or the target is ahead (`offsets`)."""

    has_reason: ClassVar = True
    partitions: tuple[str, ...] = ()
    offsets: Mapping[str, int] | None = None


class PartitionsAssigned(Payload):
    partitions: tuple[str, ...]


class PartitionsRevoked(Payload):
    partitions: tuple[str, ...]


class PartitionsLost(Payload):
    partitions: tuple[str, ...]


class RecordsSkipped(Payload):
    """Records were dropped because of errors; `dead_letters` of them are in the dead letter queue."""

    has_reason: ClassVar = True
    records: int
    dead_letters: int = 0


class LaneChanged(Payload):
    """The connector's records take the other lane: tail or bulk."""

    has_reason: ClassVar = True
    lane: str


class BulkSentByWorker(Payload):
    """From here on executors make a source's record batches, and the worker sends them."""

    has_reason: ClassVar = True


class BulkStarted(Payload):
    """Job `token` of the task began on Spark's executors. `ranges`: a sink's first offset and end by partition."""

    token: int
    ranges: Mapping[str, tuple[int, ...]] | None = None


class BulkStaged(Payload):
    """The job has staged `records`, or sent those of a source, and left out `refused`. The worker commits next."""

    token: int
    records: int
    refused: int


class BulkFailed(Payload):
    """A bulk job failed. A sink adds the offsets up to which the worker reads on."""

    error: str
    token: int | None = None
    offsets: Mapping[str, int] | None = None


class RecordsFiltered(Payload):
    """A transformation dropped records on purpose."""

    records: int


class LagAlarm(Payload):
    """The lag is above lag.alarm.records for lag.alarm.ms."""

    lag: int
    since_ms: int


class LagAlarmOver(Payload):
    """The lag is below it again."""

    lag: int
    lasted_ms: int


class TargetHeld(Payload):
    """What a sink's target held when the task started, up to `mark`, whose meaning is the plugin's."""

    mark: int


def payload_of(kind: EventKind, data: Mapping[str, Any]) -> Payload:
    """The payload that `data` shows as JSON values; unknown keys are ignored.

    Raises:
        KeyError: a field is missing. ValueError, TypeError: a field has a wrong value; the message names it.
    """
    payload: Payload = from_json(PAYLOADS[kind], data)
    return payload
