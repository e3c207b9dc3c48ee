"""Why a core drops a stimulus: an answer that no part waits for, or a report of an instance that is gone. Pure."""

from __future__ import annotations

from connectx.core.context import WorkerPhase
from connectx.core.invariants import Parts, pending_requests
from connectx.core.messages import (
    ConfigReadToEnd,
    ConfigRecordsWritten,
    ConfigWritesClaimed,
    ConnectorFailed,
    ConnectorStarted,
    ConnectorStateReached,
    ConnectorStopped,
    CoordinatorFound,
    FenceRequestAnswered,
    GroupRequestFailed,
    HeartbeatReplied,
    JoinGroupReplied,
    ProducersFenced,
    Request,
    SessionKeyCreated,
    Stimulus,
    SyncGroupReplied,
    TaskConfigsGenerated,
    TaskConfigsSent,
    TaskFailed,
    TaskPrepared,
    TaskProducerReady,
    TaskReconfigurationRequested,
    TaskStateReached,
    TaskStopped,
    TimerFired,
)

_GROUP = (CoordinatorFound, GroupRequestFailed, JoinGroupReplied, SyncGroupReplied, HeartbeatReplied)
_HERDER = (
    *(ConfigReadToEnd, ConfigRecordsWritten, ConfigWritesClaimed, FenceRequestAnswered),
    *(ProducersFenced, SessionKeyCreated, TaskConfigsSent),
)
_TASKS = (TaskPrepared, TaskProducerReady, TaskStateReached, TaskFailed, TaskStopped)
_CONNECTORS = (
    *(ConnectorStarted, ConnectorStateReached, ConnectorFailed, ConnectorStopped),
    *(TaskReconfigurationRequested, TaskConfigsGenerated),
)


def reason_to_drop(core: Parts, stimulus: Stimulus) -> str | None:
    """Return why the next step of this core drops `stimulus` as late, None for one that it waits for."""
    if core.context.phase is WorkerPhase.STOPPED and not isinstance(stimulus, Request):
        return "the worker has stopped"
    if isinstance(stimulus, TimerFired):
        awaited = (timers.awaited.get(stimulus.key) for timers in (core.membership.timers, core.context.timers))
        is_awaited = stimulus.token in awaited
        return None if is_awaited else f"timer {stimulus.key} was cancelled or set again"
    if isinstance(stimulus, _GROUP):
        pending = (core.membership.request_id, core.membership.heartbeat_request_id)
        return None if stimulus.request_id in pending else f"group request {stimulus.request_id} is not pending"
    if isinstance(stimulus, _HERDER):
        is_pending = stimulus.request_id in pending_requests(core)
        return None if is_pending else f"request {stimulus.request_id} is not pending"
    if isinstance(stimulus, _TASKS):
        task = core.tasks.lives.get(stimulus.task)
        return _other_instance(str(stimulus.task), stimulus.instance, None if task is None else task.instance)
    if isinstance(stimulus, _CONNECTORS):
        host = core.connectors.lives.get(stimulus.connector)
        return _other_instance(stimulus.connector, stimulus.instance, None if host is None else host.instance)
    return None


def _other_instance(name: str, reported: int, present: int | None) -> str | None:
    if present == reported:
        return None
    return f"instance {reported} of {name} is gone" + ("" if present is None else f", instance {present} follows it")
