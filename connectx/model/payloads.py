"""What each kind of event records: one class per `EventKind`. Pure values.

`Event.data` shows the same fields as JSON values, under the same names (`from_` as `from`). A field that equals its
default is left out there. Why it happened is the event's cause, not part of the payload; where `has_reason` is True,
`Event.data` also shows the cause as `reason`, as histories of version 1 did.

Work is named as text: `orders` is a connector, `orders-0` a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, ClassVar, Final, get_args

from connectx.model.event_kinds import EventKind
from connectx.model.json_values import from_json
from connectx.model.states import State, TargetState
from connectx.views import Shown


@dataclass(frozen=True, slots=True, repr=False)
class _Payload(Shown):
    """What all payloads share."""

    kind: ClassVar[EventKind]
    has_reason: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, repr=False)
class ClusterStarted(_Payload):
    """A cluster was started or joined."""

    kind: ClassVar = EventKind.CLUSTER_STARTED
    bootstrap_servers: str
    group_id: str


@dataclass(frozen=True, slots=True, repr=False)
class ClusterStopped(_Payload):
    """The cluster was closed."""

    kind: ClassVar = EventKind.CLUSTER_STOPPED


@dataclass(frozen=True, slots=True, repr=False)
class Attached(_Payload):
    """From here on a running cluster is observed from outside; `blind_spots` names what cannot be seen."""

    kind: ClassVar = EventKind.ATTACHED
    url: str
    group_id: str | None = None
    blind_spots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class SightLost(_Payload):
    """A source of observations (`origin`) does not answer."""

    kind: ClassVar = EventKind.SIGHT_LOST
    origin: str
    error: str


@dataclass(frozen=True, slots=True, repr=False)
class SightRegained(_Payload):
    """It answers again."""

    kind: ClassVar = EventKind.SIGHT_REGAINED
    origin: str


@dataclass(frozen=True, slots=True, repr=False)
class Detached(_Payload):
    """The observation has ended."""

    kind: ClassVar = EventKind.DETACHED


@dataclass(frozen=True, slots=True, repr=False)
class WorkerStarted(_Payload):
    """A worker has read the internal topics and joins the group."""

    kind: ClassVar = EventKind.WORKER_STARTED
    url: str


@dataclass(frozen=True, slots=True, repr=False)
class WorkerStopped(_Payload):
    """A worker has left the group."""

    kind: ClassVar = EventKind.WORKER_STOPPED


@dataclass(frozen=True, slots=True, repr=False)
class WorkerFailed(_Payload):
    """A worker has ended by itself."""

    kind: ClassVar = EventKind.WORKER_FAILED
    error: str


@dataclass(frozen=True, slots=True, repr=False)
class FaultInjected(_Payload):
    """A fault was injected: a verb of a worker, add_worker, broker_kill, broker_restart or executor_kill.

    `direction` is that of a cut, `requests` the kinds that a delay holds, or how many of each were delivered after
    `for_s`, `tasks` what the worker ran. `after_s` is the time since it was scheduled, `chaos_*` the chaos it is of.
    """

    kind: ClassVar = EventKind.FAULT_INJECTED
    fault: str
    direction: str | None = None
    requests: tuple[str, ...] | Mapping[str, int] | None = None
    for_s: float | None = None
    tasks: tuple[str, ...] | None = None
    after_s: float | None = None
    chaos_seed: int | None = None
    chaos_fault: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class FaultFailed(_Payload):
    """A planned or scheduled fault could not be injected when its time had come."""

    kind: ClassVar = EventKind.FAULT_FAILED
    fault: str
    error: str
    after_s: float | None = None
    chaos_seed: int | None = None
    chaos_fault: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class RebalanceStarted(_Payload):
    """The worker prepares to join the group."""

    kind: ClassVar = EventKind.REBALANCE_STARTED
    has_reason: ClassVar = True


@dataclass(frozen=True, slots=True, repr=False)
class RebalanceCompleted(_Payload):
    """The worker got its assignment; `connectors` and `tasks` are all that it has now.

    `error` is that of the assignment (1: the leader had not read the config topic), `took_ms` the time since it
    prepared.
    """

    kind: ClassVar = EventKind.REBALANCE_COMPLETED
    leader_url: str
    protocol: str
    delay_ms: int
    connectors: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    leader: str = ""
    revoked: tuple[str, ...] = ()
    error: int = 0
    took_ms: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class MemberWork(Shown):
    """What the leader gives one member."""

    assigned: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()
    owns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class AssignmentComputed(_Payload):
    """The leader divided the work: `members` by URL, `lost` work without a worker, and how long that waits."""

    kind: ClassVar = EventKind.ASSIGNMENT_COMPUTED
    members: Mapping[str, MemberWork]
    lost: tuple[str, ...]
    delay_ms: int


@dataclass(frozen=True, slots=True, repr=False)
class RebalanceDelayed(_Payload):
    """Lost work, or the next revocation, waits."""

    kind: ClassVar = EventKind.REBALANCE_DELAYED
    lost: tuple[str, ...]
    delay_ms: int


@dataclass(frozen=True, slots=True, repr=False)
class MemberRemoved(_Payload):
    """Members of a group were removed for a worker whose process has ended."""

    kind: ClassVar = EventKind.MEMBER_REMOVED
    group: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class MemberLost(_Payload):
    """The worker was dropped by the coordinator or lost it; `error` is Kafka's, where there is one."""

    kind: ClassVar = EventKind.MEMBER_LOST
    error: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class LeadershipClaimed(_Payload):
    """The leader has fenced the former leader's producer."""

    kind: ClassVar = EventKind.LEADERSHIP_CLAIMED
    transactional_id: str


@dataclass(frozen=True, slots=True, repr=False)
class LeadershipFenced(_Payload):
    """A privileged write failed."""

    kind: ClassVar = EventKind.LEADERSHIP_FENCED
    error: str


@dataclass(frozen=True, slots=True, repr=False)
class ConnectorConfigured(_Payload):
    """A configuration was read. `config_offset` is one past the record's offset, as the group counts."""

    kind: ClassVar = EventKind.CONNECTOR_CONFIGURED
    is_new: bool
    config_offset: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ConnectorDeleted(_Payload):
    """A connector's tombstone was read."""

    kind: ClassVar = EventKind.CONNECTOR_DELETED
    config_offset: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TasksConfigured(_Payload):
    """A complete set of task configs was read; `tasks` is their number."""

    kind: ClassVar = EventKind.TASKS_CONFIGURED
    tasks: int
    task_config_generation: int | None = None
    config_offset: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TasksInconsistent(_Payload):
    """An incomplete set of task configs was read."""

    kind: ClassVar = EventKind.TASKS_INCONSISTENT
    tasks: int
    task_config_generation: int | None = None
    config_offset: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TargetStateChanged(_Payload):
    """A user paused, resumed or stopped a connector."""

    kind: ClassVar = EventKind.TARGET_STATE_CHANGED
    target_state: TargetState
    config_offset: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TaskCountRecorded(_Payload):
    """A task count record was read (KIP-618)."""

    kind: ClassVar = EventKind.TASK_COUNT_RECORDED
    task_count: int
    config_offset: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class SessionKeyRotated(_Payload):
    """A new session key was read (KIP-507)."""

    kind: ClassVar = EventKind.SESSION_KEY_ROTATED
    config_offset: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class RestartRequested(_Payload):
    """A restart command was read (KIP-745)."""

    kind: ClassVar = EventKind.RESTART_REQUESTED
    include_tasks: bool
    only_failed: bool
    config_offset: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class FencingStarted(_Payload):
    """The leader fences the producers of a connector's older tasks."""

    kind: ClassVar = EventKind.FENCING_STARTED
    task_count: int
    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class FencingCompleted(_Payload):
    """They are fenced, and the task count record is written."""

    kind: ClassVar = EventKind.FENCING_COMPLETED
    task_count: int


@dataclass(frozen=True, slots=True, repr=False)
class FencingFailed(_Payload):
    """A fencing round has failed or was cancelled."""

    kind: ClassVar = EventKind.FENCING_FAILED
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


@dataclass(frozen=True, slots=True, repr=False)
class ConnectorState(_Payload):
    """A connector reached a state; `trace` is the trace of a failure."""

    kind: ClassVar = EventKind.CONNECTOR_STATE
    state: State
    trace: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TaskState(_Payload):
    """A task instance reached a state; `trace` is the trace of a failure."""

    kind: ClassVar = EventKind.TASK_STATE
    state: State
    trace: str | None = None
    instance: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TaskStep(_Payload):
    """A task instance takes a step of its start or its end."""

    kind: ClassVar = EventKind.TASK_STEP
    step: StepName
    instance: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TaskRefused(_Payload):
    """An exactly-once start was aborted (KIP-618)."""

    kind: ClassVar = EventKind.TASK_REFUSED
    has_reason: ClassVar = True
    instance: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TaskEnded(_Payload):
    """The thread of a task instance has ended; a zombie ends here."""

    kind: ClassVar = EventKind.TASK_ENDED
    has_reason: ClassVar = True
    instance: int | None = None


class Unknown(Enum):
    """Where a value is not known, and None is one."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


@dataclass(frozen=True, slots=True, repr=False)
class SourceRange(Shown):
    """What a commit covers of one source partition: after `from_` (None: from its begin) up to `offset`."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any]
    from_: Mapping[str, Any] | Unknown | None = UNKNOWN


@dataclass(frozen=True, slots=True, repr=False)
class TransactionCommitted(_Payload):
    """Records and source offsets were committed in one transaction."""

    kind: ClassVar = EventKind.TRANSACTION_COMMITTED
    records: int
    offsets: tuple[SourceRange, ...] | None = None
    instance: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TransactionAborted(_Payload):
    """A transaction with `records` was aborted."""

    kind: ClassVar = EventKind.TRANSACTION_ABORTED
    has_reason: ClassVar = True
    records: int


@dataclass(frozen=True, slots=True, repr=False)
class ProducerFenced(_Payload):
    """The broker refused a task's producer after `open_ms` of an open transaction; `newer_epoch` took over."""

    kind: ClassVar = EventKind.PRODUCER_FENCED
    instance: int | None = None
    transactional_id: str | None = None
    error: str = ""
    open_ms: int | None = None
    newer_epoch: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class FencedBy(_Payload):
    """Who fenced a producer; the cause names it. `by` is a worker (host:port), the rest is as that worker reports."""

    kind: ClassVar = EventKind.FENCED_BY
    known: bool
    instance: int | None = None
    by: str | None = None
    by_generation: int | None = None
    newer_epoch: int | None = None
    state: State | None = None
    since_ms: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class OffsetsCommitted(_Payload):
    """Offsets were committed: ranges of a source, or the end offset of each of a sink's partitions."""

    kind: ClassVar = EventKind.OFFSETS_COMMITTED
    records: int
    offsets: tuple[SourceRange, ...] | Mapping[str, int] | None = None
    instance: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class OffsetsAltered(_Payload):
    """A user altered a connector's offsets (`partition` and `offset` each); None: all were reset."""

    kind: ClassVar = EventKind.OFFSETS_ALTERED
    offsets: tuple[Mapping[str, Any], ...] | None


@dataclass(frozen=True, slots=True, repr=False)
class CommitRefused(_Payload):
    """A sink's commit was refused: it does not own the partitions, or the target is ahead (`offsets`)."""

    kind: ClassVar = EventKind.COMMIT_REFUSED
    has_reason: ClassVar = True
    partitions: tuple[str, ...] = ()
    offsets: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class PartitionsAssigned(_Payload):
    """A sink task got partitions."""

    kind: ClassVar = EventKind.PARTITIONS_ASSIGNED
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class PartitionsRevoked(_Payload):
    """A sink task gave up partitions."""

    kind: ClassVar = EventKind.PARTITIONS_REVOKED
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class PartitionsLost(_Payload):
    """A sink task lost partitions."""

    kind: ClassVar = EventKind.PARTITIONS_LOST
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class RecordsSkipped(_Payload):
    """Records were dropped because of errors; `dead_letters` of them are in the dead letter queue."""

    kind: ClassVar = EventKind.RECORDS_SKIPPED
    has_reason: ClassVar = True
    records: int
    dead_letters: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class LaneChanged(_Payload):
    """The connector's records take the other lane: tail or bulk."""

    kind: ClassVar = EventKind.LANE_CHANGED
    has_reason: ClassVar = True
    lane: str


@dataclass(frozen=True, slots=True, repr=False)
class BulkSentByWorker(_Payload):
    """From here on executors make a source's record batches, and the worker sends them."""

    kind: ClassVar = EventKind.BULK_SENT_BY_WORKER
    has_reason: ClassVar = True


@dataclass(frozen=True, slots=True, repr=False)
class BulkStarted(_Payload):
    """Job `token` of the task began on Spark's executors. `ranges`: a sink's first offset and end by partition."""

    kind: ClassVar = EventKind.BULK_STARTED
    token: int
    ranges: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class BulkStaged(_Payload):
    """The job has staged `records`, or sent those of a source, and left out `refused`. The worker commits next."""

    kind: ClassVar = EventKind.BULK_STAGED
    token: int
    records: int
    refused: int


@dataclass(frozen=True, slots=True, repr=False)
class BulkFailed(_Payload):
    """A bulk job failed. A sink adds the offsets up to which the worker reads on."""

    kind: ClassVar = EventKind.BULK_FAILED
    error: str
    token: int | None = None
    offsets: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class RecordsFiltered(_Payload):
    """A transformation dropped records on purpose."""

    kind: ClassVar = EventKind.RECORDS_FILTERED
    records: int


@dataclass(frozen=True, slots=True, repr=False)
class LagAlarm(_Payload):
    """The lag is above lag.alarm.records for lag.alarm.ms."""

    kind: ClassVar = EventKind.LAG_ALARM
    lag: int
    since_ms: int


@dataclass(frozen=True, slots=True, repr=False)
class LagAlarmOver(_Payload):
    """The lag is below it again."""

    kind: ClassVar = EventKind.LAG_ALARM_OVER
    lag: int
    lasted_ms: int


Payload = (
    ClusterStarted
    | ClusterStopped
    | Attached
    | SightLost
    | SightRegained
    | Detached
    | WorkerStarted
    | WorkerStopped
    | WorkerFailed
    | FaultInjected
    | FaultFailed
    | RebalanceStarted
    | RebalanceCompleted
    | AssignmentComputed
    | RebalanceDelayed
    | MemberRemoved
    | MemberLost
    | LeadershipClaimed
    | LeadershipFenced
    | ConnectorConfigured
    | ConnectorDeleted
    | TasksConfigured
    | TasksInconsistent
    | TargetStateChanged
    | TaskCountRecorded
    | SessionKeyRotated
    | RestartRequested
    | FencingStarted
    | FencingCompleted
    | FencingFailed
    | ConnectorState
    | TaskState
    | TaskStep
    | TaskRefused
    | TaskEnded
    | TransactionCommitted
    | TransactionAborted
    | ProducerFenced
    | FencedBy
    | OffsetsCommitted
    | OffsetsAltered
    | CommitRefused
    | PartitionsAssigned
    | PartitionsRevoked
    | PartitionsLost
    | RecordsSkipped
    | LaneChanged
    | BulkSentByWorker
    | BulkStarted
    | BulkStaged
    | BulkFailed
    | RecordsFiltered
    | LagAlarm
    | LagAlarmOver
)

PAYLOADS: Final[Mapping[EventKind, type]] = {payload.kind: payload for payload in get_args(Payload)}
"""The class of each kind of event."""


def payload_of(kind: EventKind, data: Mapping[str, Any]) -> Payload:
    """The payload that `data` shows as JSON values; unknown keys are ignored.

    Raises:
        KeyError: a field is missing. ValueError, TypeError: a field has a wrong value; the message names it.
    """
    payload: Payload = from_json(PAYLOADS[kind], data)
    return payload
