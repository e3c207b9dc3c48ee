"""What a world must come to when nothing fails any more (invariant 9): stable, all runs once, no lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectx.core.status_log import StatusLog
from connectx.model.states import State, TargetState

if TYPE_CHECKING:
    from tests.simulation.world import World

SHOWN = {
    TargetState.STARTED: (State.RUNNING, State.RUNNING),
    TargetState.PAUSED: (State.PAUSED, State.PAUSED),
    TargetState.STOPPED: (State.STOPPED, State.UNASSIGNED),
}
"""Target state to the states that connector and tasks must come to show."""


def unsettled(world: World) -> str | None:
    """What is not as it should be in the end, None when all is well."""
    views = [worker.core.context for worker in world.living]
    if not all(view.group.settled for view in views):
        return "a worker is not settled"
    if {view.group.generation for view in views} != {world.broker.coordinator.generation}:
        return "workers are in different generations"
    truth = world.broker.config
    wanted = {task: 1 for connector in truth.connectors() for task in truth.tasks(connector)}
    if {task: len(names) for task, names in world.owners().items()} != wanted:
        return f"tasks do not run as configured: {world.owners()}"
    if sorted(c for view in views for c in view.group.work.connectors) != list(truth.connectors()):
        return "connectors are not assigned once each"
    return wrong_tasks(world) or wrong_status(world) or lag(world)


def lag(world: World) -> str | None:
    """What started connectors have not moved yet, None when they have moved all."""
    truth = world.broker.config
    for connector in truth.connectors():
        if truth.target_state(connector) is not TargetState.STARTED or truth.task_count(connector) == 0:
            continue
        is_sink = world.is_sink(truth.connector_config(connector) or {})
        checks = world.checks.sinks if is_sink else world.checks.data
        if (missing := checks.lag(connector)) is not None:
            return missing
    return None


def wrong_tasks(world: World) -> str | None:
    """Tasks that were not made from their connector's configuration, or do not run with theirs."""
    truth = world.broker.config
    for connector in truth.connectors():
        config = truth.connector_config(connector) or {}
        made_from = {properties["set"] for properties in truth.all_task_configs(connector).values()}
        if truth.target_state(connector) is TargetState.STARTED and made_from != {str(config)}:
            return f"{connector} has tasks of an older configuration"
    for task in world.all_tasks():
        if task.running and not task.stopping and task.order.task_config != truth.task_config(task.order.task):
            return f"{task.order.task} runs with an older configuration"
    return None


def wrong_status(world: World) -> str | None:
    """A status that is missing, wrong or left over, None when all are right; for worlds where nothing fails."""
    truth, statuses = world.broker.config, StatusLog()
    for record in world.broker.status_log:
        statuses.apply(record)
    shown_connectors = {*statuses.connectors(), *statuses.topic_connectors()}
    if (left_over := sorted(shown_connectors - set(truth.connectors()))) != []:
        return f"statuses are left over: {left_over}"
    for connector in truth.connectors():
        of_connector, of_task = SHOWN[truth.target_state(connector) or TargetState.STARTED]
        shown = statuses.connector_status(connector)
        if shown is None or shown.state is not of_connector:
            return f"{connector} shows {shown}"
        of_tasks = {task: status.state for task, status in statuses.task_statuses(connector).items()}
        if of_tasks != dict.fromkeys(truth.tasks(connector), of_task):
            return f"tasks of {connector} show {of_tasks}"
    return None
