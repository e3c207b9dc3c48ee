"""The sentence part of each cause, as histories, stories, the CLI and traces show it. Pure.

The only place that words a cause. Code that decides by a cause uses its type.
"""

from __future__ import annotations

from typing import assert_never

from connectx.model.causes import (
    AbortAsked,
    Assigned,
    AssignmentMissing,
    AutomaticRestart,
    BulkJobEmpty,
    BulkJobFailed,
    BulkModeSet,
    Cause,
    CommitRejected,
    ConfigMovedOn,
    ConfigUnreadable,
    ConfigurationChanged,
    ConnectorCreated,
    ConnectorRemoved,
    CoordinatorLost,
    CoordinatorUnreachable,
    DataCause,
    DelayOver,
    EagerRebalance,
    ExecutorsWithoutKafka,
    FaultAsked,
    FaultCause,
    FaultOfChaos,
    FaultScheduled,
    FencedByLeader,
    FencingNotDone,
    FewCores,
    FlushFailed,
    FormerLeaderFenced,
    GracefulTimeOver,
    GroupNotStable,
    GroupRebalances,
    GroupRefusesWorker,
    GroupRequestRefused,
    JoinReason,
    LagUnknown,
    LaneObstacle,
    LaneReason,
    LeaderBehind,
    LeaderCause,
    LeaderUnknown,
    LittleWaits,
    LostWorkWaits,
    MuchWaits,
    NewerTaskConfigs,
    NewTaskConfigs,
    NotAssigned,
    NothingPolled,
    OutsideGroup,
    ProcessEnded,
    ProducerInitialized,
    ProducersFenced,
    RebalanceSuperseded,
    RecordedText,
    RecordsFailed,
    Refusal,
    RefusedByKafka,
    RestartAsked,
    RestartedHere,
    RevocationsFollow,
    Revoked,
    RevokedWorkStopped,
    SessionExpired,
    StoppedBeforeCommit,
    TakenOver,
    TakenSilently,
    Takeover,
    TakeoverUnknown,
    TargetStateAsked,
    TaskConfigsChanged,
    TaskCountMissing,
    TaskCountOutdated,
    TaskFailing,
    TaskReassigned,
    ThreadEnded,
    WorkCause,
    WorkDeleted,
    WorkerEnd,
    WorkerShutsDown,
    WorkerStarts,
)
from connectx.model.states import State


def cause_text(cause: Cause) -> str:
    """A cause as a part of a sentence, without a capital letter or a full stop."""
    if isinstance(cause, JoinReason):
        return _join(cause)
    if isinstance(cause, WorkerEnd):
        return _end(cause)
    if isinstance(cause, WorkCause):
        return _work(cause)
    if isinstance(cause, Refusal):
        return _refusal(cause)
    if isinstance(cause, LeaderCause):
        return _leader(cause)
    if isinstance(cause, Takeover):
        return takeover_text(cause)
    if isinstance(cause, DataCause):
        return _data(cause)
    if isinstance(cause, LaneReason):
        return _lane(cause)
    if isinstance(cause, FaultCause):
        return _fault(cause)
    if isinstance(cause, RecordedText):
        return cause.text
    assert_never(cause)


def takeover_text(takeover: Takeover, by: str | None = None) -> str:
    """Who fenced a producer. `by` is the worker's name, where that is known; else its host and port are shown."""
    epoch = "" if takeover.newer_epoch is None else f" (epoch {takeover.newer_epoch})"
    match takeover:
        case RestartedHere():
            return f"this worker started it again, as instance {takeover.instance}{epoch}"
        case TakenOver():
            at = "" if takeover.since_ms is None else f" since {_time_of_day(takeover.since_ms)}"
            is_over = takeover.state is State.UNASSIGNED
            now = f"UNASSIGNED again{at}" if is_over else f"{takeover.state} there{at}"
            worker = by or f"worker {takeover.by}"
            return f"{worker} took over {takeover.task} in generation {takeover.generation}{epoch}, {now}"
        case FencedByLeader(connector, tasks):
            count = f"{tasks} task{'' if tasks == 1 else 's'}"
            return f"the leader fenced it{epoch}: {connector} has newer task configs, for {count}"
        case TakeoverUnknown(task):
            return f"who took over {task}{epoch} is not known yet: no other worker reports it in the status topic"
        case _:
            assert_never(takeover)


def _join(cause: JoinReason) -> str:
    match cause:
        case WorkerStarts():
            return "the worker starts"
        case GroupRebalances():
            return "the group is rebalancing"
        case RebalanceSuperseded():
            return "another rebalance began before this one was complete"
        case GroupNotStable():
            return "the group is not stable"
        case AssignmentMissing():
            return "the leader sent no assignment"
        case GroupRequestRefused(request, error):
            return f"{request} was refused: {error}"
        case SessionExpired(session_timeout_ms):
            return f"no heartbeat was answered for {session_timeout_ms} ms"
        case CoordinatorLost(reason):
            return reason
        case CoordinatorUnreachable():
            return "the group coordinator cannot be reached"
        case DelayOver():
            return "the scheduled rebalance delay has passed"
        case ConnectorCreated(connector):
            return f"connector {connector} was created"
        case ConnectorRemoved(connector):
            return f"connector {connector} was deleted"
        case TaskConfigsChanged(connector):
            return f"connector {connector} has new task configs"
        case ConfigMovedOn():
            return "the config topic has moved on since the assignment"
        case LeaderBehind():
            return "the leader had not read the config topic"
        case RevokedWorkStopped():
            return "revoked work has stopped and can be assigned again"
        case _:
            assert_never(cause)


def _end(cause: WorkerEnd) -> str:
    match cause:
        case ConfigUnreadable(error):
            return f"the config topic cannot be read: {error}"
        case GroupRefusesWorker(error):
            return f"the group refuses this worker: {error}"
        case WorkerShutsDown():
            return "the worker shuts down"
        case OutsideGroup(answers=True):
            return "it answers and is no member of the group: the group has given its work to others"
        case OutsideGroup():
            return "it is no member of the group and does not answer: it was stopped, killed or cut off"
        case ProcessEnded():
            return "its process has ended"
        case _:
            assert_never(cause)


def _work(cause: WorkCause) -> str:
    match cause:
        case Assigned():
            return "it was assigned to this worker"
        case Revoked():
            return "the leader revoked it"
        case NotAssigned():
            return "it is not assigned to this worker any more"
        case EagerRebalance():
            return "eager rebalancing stops everything first"
        case WorkDeleted():
            return "it was deleted"
        case ConfigurationChanged():
            return "its configuration has changed"
        case TargetStateAsked(target_state):
            return f"its target state became {target_state}"
        case RestartAsked():
            return "its restart was requested"
        case NewTaskConfigs():
            return "its connector has new task configs"
        case AutomaticRestart(count, limit, pause_ms, error):
            of = "" if limit is None else f" of {limit}"
            return f"restart {count}{of} after a pause of {pause_ms} ms, since it failed: {error}"
        case ProducersFenced():
            return "older producers are fenced"
        case ProducerInitialized():
            return "producer is initialised"
        case FencingNotDone(error):
            return error
        case LeaderUnknown():
            return "the leader or its session key is not known yet"
        case GracefulTimeOver():
            return "it did not stop within task.shutdown.graceful.timeout.ms"
        case TakenSilently(by, worker):
            return f"{by} runs it now; {worker} did not report its release"
        case _:
            assert_never(cause)


def _refusal(cause: Refusal) -> str:
    match cause:
        case NewerTaskConfigs():
            return "newer task configs are in the config topic"
        case TaskCountMissing():
            return "no task count record follows the latest task configs; the next rebalance tries again"
        case TaskReassigned():
            return "the task is no longer assigned to this worker"
        case _:
            assert_never(cause)


def _leader(cause: LeaderCause) -> str:
    match cause:
        case TaskCountOutdated():
            return "new task configs follow the last task count record"
        case LostWorkWaits():
            return "waiting for a lost worker to come back"
        case RevocationsFollow():
            return "revocations follow each other"
        case FormerLeaderFenced():
            return "the former leader's producer is fenced"
        case _:
            assert_never(cause)


def _data(cause: DataCause) -> str:
    match cause:
        case TaskFailing(failure, unconfirmed):
            return _unless_confirmed(failure, unconfirmed)
        case BulkJobFailed(unconfirmed):
            return _unless_confirmed("a bulk job failed", unconfirmed)
        case BulkJobEmpty(unconfirmed):
            return _unless_confirmed("a bulk job had nothing to commit", unconfirmed)
        case StoppedBeforeCommit(unconfirmed):
            return _unless_confirmed("stopped before the task asked for a commit", unconfirmed)
        case AbortAsked():
            return "asked for by the task"
        case CommitRejected(error) | RecordsFailed(error):
            return error
        case FlushFailed(error):
            return f"flush failed: {error}"
        case RefusedByKafka():
            return "refused by Kafka"
        case _:
            assert_never(cause)


def _lane(cause: LaneReason) -> str:
    match cause:
        case BulkModeSet(mode):
            return f"bulk.mode is {mode}"
        case LaneObstacle(reason):
            return reason
        case LittleWaits(waiting_bytes, limit_bytes):
            return f"{_mb(waiting_bytes)} wait, less than {_mb(limit_bytes)}"
        case FewCores(waiting_bytes, cores, least):
            known = "not known" if cores is None else str(cores)
            return f"{_mb(waiting_bytes)} wait, and Spark's cores are {known}, less than {least}"
        case MuchWaits(waiting_bytes, cores):
            return f"{_mb(waiting_bytes)} wait, and Spark has {cores} cores"
        case ExecutorsWithoutKafka(obstacle):
            return f"Spark's executors cannot reach Kafka: {obstacle}"
        case NothingPolled():
            return "nothing was polled yet"
        case LagUnknown():
            return "no lag is known yet"
        case _:
            assert_never(cause)


def _fault(cause: FaultCause) -> str:
    match cause:
        case ThreadEnded(how):
            return how
        case FaultAsked(fault):
            return f"{fault} was asked for"
        case FaultScheduled(after_s):
            return f"it was scheduled {after_s:g} s before"
        case FaultOfChaos(seed, None):
            return f"the end of the chaos with seed {seed}"
        case FaultOfChaos(seed, number):
            return f"fault {number} of the chaos with seed {seed}"
        case _:
            assert_never(cause)


def _unless_confirmed(text: str, unconfirmed: str | None) -> str:
    return text if unconfirmed is None else f"{text}, unconfirmed: {unconfirmed}"


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"


def _time_of_day(time_ms: int) -> str:
    seconds = time_ms // 1000 % 86_400
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02} UTC"
