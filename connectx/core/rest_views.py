"""Views of a worker's snapshot, in the formats of Kafka Connect's REST API. Reads only."""

from __future__ import annotations

from collections.abc import Sequence

from connectx.core import replies
from connectx.core.context import Context, WorkerPhase
from connectx.model.ids import TaskId
from connectx.model.states import State
from connectx.model.status_records import Status


def connector_info(context: Context, connector: str) -> replies.ConnectorInfo:
    """name, config, tasks and type of a connector (Kafka Connect: ConnectorInfo)."""
    return {
        "name": connector,
        "config": context.config.connector_config(connector),
        "tasks": [_task_id(task) for task in context.config.tasks(connector)],
        "type": context.connector_type(connector).value,
    }


def connector_status(context: Context, connector: str) -> replies.ConnectorStatus | None:
    """State of a connector and of its tasks (Kafka Connect: ConnectorStateInfo); None before the first status."""
    status = context.status.connector_status(connector)
    if status is None:
        return None
    statuses = context.status.task_statuses(connector)
    return {
        "name": connector,
        "connector": _state(status),
        "tasks": [{"id": task.task, **_state(statuses[task])} for task in sorted(statuses)],
        "type": context.connector_type(connector).value,
    }


def restart_plan(
    context: Context, connector: str, *, include_tasks: bool, only_failed: bool
) -> replies.ConnectorStatus | None:
    """The status with RESTARTING for what a restart command will restart (Kafka Connect: RestartPlan, KIP-745)."""
    shown = connector_status(context, connector)
    if shown is None:
        return None
    chosen: list[replies.ConnectorState] = [shown["connector"], *(shown["tasks"] if include_tasks else ())]
    for part in chosen:
        if not only_failed or part["state"] == State.FAILED:
            part["state"] = State.RESTARTING.value
            part.pop("trace", None)
    return shown


def task_status(context: Context, task: TaskId) -> replies.TaskState | None:
    """State of one task; None before its first status."""
    status = context.status.task_status(task)
    return None if status is None else {"id": task.task, **_state(status)}


def tasks(context: Context, connector: str) -> list[replies.TaskInfo]:
    """Ids and configs of a connector's tasks (Kafka Connect: TaskInfo)."""
    configs = context.config.all_task_configs(connector)
    return [{"id": _task_id(task), "config": configs[task]} for task in sorted(configs)]


def connectors(context: Context, expand: Sequence[str]) -> replies.Connectors:
    """Sorted names, or with `expand` a map of what was asked for; one without a status yet is left out of it."""
    names = context.config.connectors()
    if not expand:
        return list(names)
    shown: dict[str, replies.Expanded] = {}
    for name in names:
        expanded: replies.Expanded = {}
        if "status" in expand:
            status = connector_status(context, name)
            if status is None:
                continue
            expanded["status"] = status
        if "info" in expand:
            expanded["info"] = connector_info(context, name)
        shown[name] = expanded
    return shown


def worker(context: Context) -> replies.WorkerPlace:
    group = context.group
    known = group.generation >= 0
    state = str(context.phase)
    if context.phase is WorkerPhase.RUNNING:
        state = "stable" if group.settled else "joining"
    return {
        "url": context.settings.url,
        "state": state,
        "member_id": group.member_id or None,
        "generation": group.generation if known else None,
        "protocol": group.protocol.wire_name if known else None,
        "leader": group.leader_id or None,
        "leader_url": group.leader_url or None,
        "connectors": list(group.work.connectors),
        "tasks": [_task_id(task) for task in group.work.tasks],
        "config_offset": context.config.offset,
    }


def _task_id(task: TaskId) -> replies.TaskRef:
    return {"connector": task.connector, "task": task.task}


def _state(status: Status) -> replies.ConnectorState:
    shown: replies.ConnectorState = {
        "state": status.state.value,
        "worker_id": status.worker_id,
        "version": status.version,
    }
    if status.trace:
        shown["trace"] = status.trace
    return shown
