"""Connector instances: exact effects for every phase and target state, and the way task configs take."""

from __future__ import annotations

from typing import Any

import pytest

from connectx.core.config_writer import Claim, ConfigWriter
from connectx.core.connectors import ConnectorPhase, Connectors
from connectx.core.context import Context, WorkerPhase
from connectx.core.messages import (
    ConnectorFailed,
    ConnectorStarted,
    ConnectorStateReached,
    ConnectorStopped,
    GenerateTaskConfigs,
    ReadConfigToEnd,
    SendTaskConfigs,
    SetConnectorTargetState,
    SetTimer,
    StartConnector,
    StopConnector,
    TaskConfigsGenerated,
    TaskConfigsSent,
    TaskReconfigurationRequested,
    WriteStatus,
)
from connectx.core.signals import ConnectorOrigin, WriteKind
from connectx.core.timer_keys import ConnectorStopLimit, TaskConfigsRetry
from connectx.model.config_records import ConnectorConfigRecord, TaskCommitRecord, TaskConfigRecord
from connectx.model.events import EventKind
from connectx.model.group import WorkSet
from connectx.model.states import State, TargetState
from connectx.model.status_records import ConnectorStatusRecord, Status
from tests.support.core_parts import (
    C0,
    LEADER_URL,
    ME,
    SOURCE,
    a_context,
    both,
    commit,
    effects,
    read,
    shown,
    target,
    task_config,
    transitions,
)
from tests.support.histories import Because, Recorded

OLD, NEW = (task_config(0), task_config(1)), (task_config(0, "2"),)
STOP_TIMER = SetTimer(ConnectorStopLimit("c", 1), 1, 6_000)


def state(value: State, cause: str = "", trace: str | None = None) -> Recorded:
    return Recorded(EventKind.CONNECTOR_STATE, "c", None, 3, None, cause, {"state": value.value, "trace": trace})


def status(value: State, trace: str | None = None, version: str | None = "1", generation: int = 3) -> WriteStatus:
    return WriteStatus(ConnectorStatusRecord("c", Status(value, ME, generation, trace, version)))


def the_connectors(context: Context) -> Connectors:
    return Connectors(context, ConfigWriter(context, Claim.HELD))


def at(phase: ConnectorPhase, resting: TargetState = TargetState.STARTED, **changes: Any) -> tuple[Context, Connectors]:
    """Connector c, instance 1, in that phase and target state."""
    context = a_context(**changes)
    target(context, resting)
    connectors = the_connectors(context)
    connectors.start("c", Because("a reason"))
    if phase is ConnectorPhase.FAILED:
        connectors.on_failed(ConnectorFailed("c", 1, "oops"))
    elif phase is not ConnectorPhase.STARTING:
        connectors.on_started(ConnectorStarted("c", 1, resting, "1"))
        if phase is ConnectorPhase.STOPPING:
            connectors.stop("c", Because("a reason"))
    assert connectors.lives["c"].phase is phase
    both(context)
    return context, connectors


# ------------------------------------------------------------------------------------------------------ the start


@pytest.mark.parametrize("resting", list(TargetState))
def test_a_connector_starts_in_its_target_state(resting: TargetState) -> None:
    context = a_context()
    target(context, resting)
    the_connectors(context).start("c", Because(""))
    assert both(context) == ([], [StartConnector("c", 1, SOURCE, resting)])


def test_a_started_connector_runs_and_is_asked_for_task_configs() -> None:
    context, connectors = at(ConnectorPhase.STARTING)
    connectors.on_started(ConnectorStarted("c", 1, TargetState.STARTED, "1"))
    assert both(context) == (
        [state(State.RUNNING, "a reason")],
        [status(State.RUNNING), GenerateTaskConfigs("c", 1, SOURCE)],
    )


@pytest.mark.parametrize(
    ("resting", "seen"), [(TargetState.PAUSED, State.PAUSED), (TargetState.STOPPED, State.STOPPED)]
)
def test_a_connector_that_rests_is_not_asked_for_task_configs(resting: TargetState, seen: State) -> None:
    context, connectors = at(ConnectorPhase.STARTING, resting)
    connectors.on_started(ConnectorStarted("c", 1, resting, "1"))
    assert effects(context) == [status(seen)]


def test_a_connector_without_a_configuration_does_not_start() -> None:
    context = a_context()
    read(context, ConnectorConfigRecord("c", None))
    the_connectors(context).start("c", Because(""))
    assert both(context) == ([], [])


def test_a_worker_that_shuts_down_starts_nothing() -> None:
    context = a_context()
    context.phase = WorkerPhase.STOPPING
    the_connectors(context).start("c", Because(""))
    assert both(context) == ([], [])


def test_a_start_that_fails_shows_the_trace_and_is_not_tried_again() -> None:
    context, connectors = at(ConnectorPhase.STARTING)
    connectors.on_failed(ConnectorFailed("c", 1, "no such class"))
    assert both(context) == (
        [state(State.FAILED, trace="no such class")],
        [status(State.FAILED, "no such class", version=None)],
    )
    connectors.start("c", Because(""))
    assert both(context) == ([], [])


# ------------------------------------------------------------------------------------------------- target states


def test_a_pause_while_starting_follows_the_start() -> None:
    context, connectors = at(ConnectorPhase.STARTING)
    target(context, TargetState.PAUSED)
    connectors.set_target_state("c")
    assert effects(context) == []
    connectors.on_started(ConnectorStarted("c", 1, TargetState.STARTED, "1"))
    assert effects(context) == [status(State.RUNNING), SetConnectorTargetState("c", 1, TargetState.PAUSED)]


def test_a_change_of_mind_is_ordered_once_and_ends_in_the_last_state() -> None:
    context, connectors = at(ConnectorPhase.ACTIVE)
    for wanted in (TargetState.PAUSED, TargetState.STARTED):
        target(context, wanted)
        connectors.set_target_state("c")
    assert effects(context) == [
        SetConnectorTargetState("c", 1, TargetState.PAUSED),
        SetConnectorTargetState("c", 1, TargetState.STARTED),
    ]
    connectors.on_state_reached(ConnectorStateReached("c", 1, TargetState.PAUSED))
    connectors.on_state_reached(ConnectorStateReached("c", 1, TargetState.STARTED))
    assert effects(context) == [status(State.PAUSED), status(State.RUNNING), GenerateTaskConfigs("c", 1, SOURCE)]


@pytest.mark.parametrize("wanted", [TargetState.PAUSED, TargetState.STARTED])
def test_a_failed_connector_does_not_leave_failed_by_pause_or_resume(wanted: TargetState) -> None:
    context, connectors = at(ConnectorPhase.FAILED)
    target(context, wanted)
    connectors.set_target_state("c")
    connectors.on_state_reached(ConnectorStateReached("c", 1, wanted))  # asked for before it failed
    assert both(context) == ([], [])
    assert connectors.is_failed("c")


def test_a_stop_always_ends_in_stopped() -> None:
    context, connectors = at(ConnectorPhase.FAILED)
    target(context, TargetState.STOPPED)
    connectors.set_target_state("c")
    assert effects(context) == [SetConnectorTargetState("c", 1, TargetState.STOPPED)]
    connectors.on_state_reached(ConnectorStateReached("c", 1, TargetState.STOPPED))
    assert effects(context) == [status(State.STOPPED, version=None)]
    assert not connectors.is_failed("c")


# -------------------------------------------------------------------------------------------------- task configs


def test_the_leader_writes_changed_task_configs_itself() -> None:
    context, connectors = at(ConnectorPhase.ACTIVE)
    connectors.on_task_configs(TaskConfigsGenerated("c", 1, NEW))
    assert effects(context) == [ReadConfigToEnd(1, 30_000)]
    (write,) = connectors.writer.queue
    assert (write.kind, write.origin) == (WriteKind.TASK_CONFIGS, ConnectorOrigin("c", 1))
    assert write.batches[0].records == (TaskConfigRecord(C0, NEW[0]),)


def test_a_follower_sends_changed_task_configs_to_the_leader() -> None:
    context, connectors = at(ConnectorPhase.ACTIVE, leads=False)
    connectors.on_task_configs(TaskConfigsGenerated("c", 1, NEW))
    assert both(context) == ([], [SendTaskConfigs(1, LEADER_URL, "c", NEW)])
    connectors.on_task_configs_sent("c", TaskConfigsSent(1))
    assert both(context) == ([], [])


def test_unchanged_task_configs_are_not_published() -> None:
    context, connectors = at(ConnectorPhase.ACTIVE)
    connectors.on_task_configs(TaskConfigsGenerated("c", 1, OLD))
    assert both(context) == ([], [])
    assert connectors.writer.queue == []


def test_the_same_task_configs_are_published_when_the_connectors_configuration_changed() -> None:
    context, connectors = at(ConnectorPhase.ACTIVE, leads=False)
    read(context, ConnectorConfigRecord("c", SOURCE | {"value.converter": "J"}))
    connectors.on_task_configs(TaskConfigsGenerated("c", 1, OLD))
    assert effects(context) == [SendTaskConfigs(1, LEADER_URL, "c", OLD)]


def test_the_same_task_configs_are_published_over_a_partly_written_set() -> None:
    context, connectors = at(ConnectorPhase.ACTIVE, leads=False)
    read(context, TaskCommitRecord("c", 3), TaskCommitRecord("c", 2))
    connectors.on_task_configs(TaskConfigsGenerated("c", 1, OLD))
    assert effects(context) == [SendTaskConfigs(1, LEADER_URL, "c", OLD)]


def test_placeholders_are_put_back_before_task_configs_are_published() -> None:
    context, connectors = at(ConnectorPhase.ACTIVE, leads=False)
    read(context, ConnectorConfigRecord("c", SOURCE | {"password": "${file:secret}"}))
    connectors.on_task_configs(TaskConfigsGenerated("c", 1, ({"password": "hunter2"},)))
    assert effects(context) == [SendTaskConfigs(1, LEADER_URL, "c", ({"password": "${file:secret}"},))]


def test_task_configs_that_were_not_taken_are_asked_for_anew_later_and_later() -> None:
    context, connectors = at(ConnectorPhase.ACTIVE, leads=False)
    delays_ms = []
    for _ in range(11):
        connectors.on_task_configs(TaskConfigsGenerated("c", 1, NEW))
        connectors.on_task_configs_sent("c", TaskConfigsSent(connectors.lives["c"].request_id or 0, "409"))
        timer = effects(context)[-1]
        assert isinstance(timer, SetTimer)
        delays_ms.append(timer.at_ms - context.now_ms)
        connectors.on_retry_timer(TaskConfigsRetry("c", 1))
        assert effects(context) == [GenerateTaskConfigs("c", 1, SOURCE)]
    assert delays_ms == [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


@pytest.mark.parametrize("missing", ["leader", "key"])
def test_task_configs_wait_while_the_leader_or_its_key_is_unknown(missing: str) -> None:
    context, connectors = at(ConnectorPhase.ACTIVE, leads=False)
    if missing == "leader":
        context.group.leader_url = ""
    else:
        context.config.session_key = None
    connectors.on_task_configs(TaskConfigsGenerated("c", 1, NEW))
    assert both(context) == ([], [SetTimer(TaskConfigsRetry("c", 1), 1, 1_250)])


def test_a_stopped_connector_does_not_send_its_task_configs_again() -> None:
    context, connectors = at(ConnectorPhase.ACTIVE, leads=False)
    connectors.on_task_configs(TaskConfigsGenerated("c", 1, NEW))
    target(context, TargetState.STOPPED)
    connectors.set_target_state("c")
    connectors.on_state_reached(ConnectorStateReached("c", 1, TargetState.STOPPED))
    connectors.on_task_configs_sent("c", TaskConfigsSent(1, "400 stopped"))
    both(context)
    connectors.on_retry_timer(TaskConfigsRetry("c", 1))
    connectors.on_task_configs(TaskConfigsGenerated("c", 1, NEW))
    assert both(context) == ([], [])


def test_task_configs_that_another_instance_overwrote_are_published_again() -> None:
    context, connectors = at(ConnectorPhase.ACTIVE, leads=False)
    connectors.on_task_configs(TaskConfigsGenerated("c", 1, OLD))
    commit(context, of="3")
    connectors.on_tasks_committed("c")
    assert effects(context) == [SendTaskConfigs(1, LEADER_URL, "c", OLD)]


def test_a_connector_that_cannot_say_its_task_configs_fails_and_its_tasks_go_on() -> None:
    context, connectors = at(ConnectorPhase.ACTIVE)
    connectors.on_task_configs(TaskConfigsGenerated("c", 1, error="oops"))
    assert both(context) == ([state(State.FAILED, trace="oops")], [status(State.FAILED, "oops")])


def test_a_plugin_may_ask_for_new_task_configs_while_it_runs() -> None:
    context, connectors = at(ConnectorPhase.ACTIVE)
    connectors.on_reconfiguration_requested(TaskReconfigurationRequested("c", 1))
    assert effects(context) == [GenerateTaskConfigs("c", 1, SOURCE)]
    context, connectors = at(ConnectorPhase.ACTIVE, TargetState.PAUSED)
    connectors.on_reconfiguration_requested(TaskReconfigurationRequested("c", 1))
    assert effects(context) == []


# ---------------------------------------------------------------------------------------------- stop and restart


@pytest.mark.parametrize("phase", [ConnectorPhase.STARTING, ConnectorPhase.ACTIVE, ConnectorPhase.FAILED])
def test_a_connector_stops_from_every_phase_and_is_unassigned(phase: ConnectorPhase) -> None:
    context, connectors = at(phase)
    connectors.stop("c", Because("the leader revoked it"))
    assert both(context) == ([], [StopConnector("c", 1), STOP_TIMER])
    connectors.on_stopped(ConnectorStopped("c", 1))
    assert transitions(context) == [state(State.UNASSIGNED, "the leader revoked it")]
    assert connectors.running() == ()


def test_a_connector_that_does_not_stop_is_left_alone_after_five_seconds() -> None:
    context, connectors = at(ConnectorPhase.STOPPING)
    connectors.on_stop_timer(ConnectorStopLimit("c", 1))
    assert both(context) == ([state(State.UNASSIGNED, "a reason")], [status(State.UNASSIGNED)])
    connectors.on_stopped(ConnectorStopped("c", 1))
    assert both(context) == ([], [])


def test_a_restart_is_shown_as_such_and_makes_a_new_instance() -> None:
    context, connectors = at(ConnectorPhase.ACTIVE)
    connectors.restart("c", Because("asked"))
    connectors.on_stopped(ConnectorStopped("c", 1))
    assert effects(context) == [
        StopConnector("c", 1),
        STOP_TIMER,
        status(State.UNASSIGNED),
        status(State.RESTARTING, version=None),
        StartConnector("c", 2, SOURCE, TargetState.STARTED),
    ]


@pytest.mark.parametrize("phase", list(ConnectorPhase))
def test_a_new_configuration_makes_a_new_instance_in_every_phase(phase: ConnectorPhase) -> None:
    context, connectors = at(phase)
    read(context, ConnectorConfigRecord("c", SOURCE | {"x": "1"}))
    connectors.reconfigure("c")
    both(context)
    connectors.on_stopped(ConnectorStopped("c", 1))
    assert effects(context)[1:] == [StartConnector("c", 2, SOURCE | {"x": "1"}, TargetState.STARTED)]


def test_a_connector_assigned_while_it_stops_starts_when_it_has_stopped() -> None:
    context, connectors = at(ConnectorPhase.STOPPING)
    connectors.start("c", Because("it was assigned to this worker"))
    assert both(context) == ([], [])
    connectors.on_stopped(ConnectorStopped("c", 1))
    assert effects(context) == [status(State.UNASSIGNED), StartConnector("c", 2, SOURCE, TargetState.STARTED)]


@pytest.mark.parametrize("what", ["revoked", "deleted", "stopped for good"])
def test_a_restart_is_off_when_the_work_is_no_longer_ours(what: str) -> None:
    context, connectors = at(ConnectorPhase.ACTIVE)
    connectors.reconfigure("c")
    if what == "revoked":
        context.group.assignment = WorkSet()
    elif what == "deleted":
        read(context, ConnectorConfigRecord("c", None))
    else:
        connectors.stop("c", Because(""))
    both(context)
    connectors.on_stopped(ConnectorStopped("c", 1))
    assert effects(context) == [status(State.UNASSIGNED)]


# ----------------------------------------------------------------------------------------------------- late answers


@pytest.mark.parametrize("phase", list(ConnectorPhase))
def test_answers_of_an_older_instance_change_nothing(phase: ConnectorPhase) -> None:
    context, connectors = at(phase)
    connectors.on_started(ConnectorStarted("c", 0, TargetState.STARTED))
    connectors.on_state_reached(ConnectorStateReached("c", 0, TargetState.STOPPED))
    connectors.on_failed(ConnectorFailed("c", 0, "late"))
    connectors.on_stopped(ConnectorStopped("c", 0))
    connectors.on_stop_timer(ConnectorStopLimit("c", 0))
    connectors.on_reconfiguration_requested(TaskReconfigurationRequested("c", 0))
    connectors.on_task_configs(TaskConfigsGenerated("c", 0, NEW))
    connectors.on_task_configs_written(ConnectorOrigin("c", 0), "late")
    connectors.on_retry_timer(TaskConfigsRetry("c", 0))
    assert both(context) == ([], [])
    assert connectors.lives["c"].phase is phase


def test_what_an_instance_says_while_it_stops_counts_no_more() -> None:
    context, connectors = at(ConnectorPhase.STOPPING)
    connectors.on_started(ConnectorStarted("c", 1, TargetState.STARTED))
    connectors.on_state_reached(ConnectorStateReached("c", 1, TargetState.STOPPED))
    connectors.on_failed(ConnectorFailed("c", 1, "late"))
    connectors.on_task_configs(TaskConfigsGenerated("c", 1, NEW))
    connectors.on_task_configs_written(ConnectorOrigin("c", 1), "late")
    assert both(context) == ([], [])


def test_a_status_from_an_earlier_generation_is_written_over() -> None:
    context, connectors = at(ConnectorPhase.ACTIVE)
    context.group.generation = 4
    shown(context, "c", State.UNASSIGNED, "other:1", generation=3)
    connectors.remind("c")
    assert effects(context) == [status(State.RUNNING, generation=4)]
    shown(context, "c", State.RUNNING, generation=4)
    connectors.remind("c")
    assert effects(context) == []
