"""Connector instances: exact effects for every phase and target state, and the way task configs take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from connectx.core import verbs
from connectx.core.connectors import ConnectorPhase
from connectx.core.messages import (
    ConnectorFailed,
    ConnectorStarted,
    ConnectorStateReached,
    ConnectorStopped,
    Done,
    GenerateTaskConfigs,
    ReadConfigToEnd,
    Refused,
    SendTaskConfigs,
    SetConnectorTargetState,
    SetTimer,
    ShutdownRequested,
    StartConnector,
    Stimulus,
    StopConnector,
    TaskConfigsGenerated,
    TaskConfigsSent,
    TaskReconfigurationRequested,
    TimerFired,
    WorkerStep,
    WriteConfigRecords,
    WriteStatus,
)
from connectx.core.timer_keys import ConnectorStopLimit, TaskConfigsRetry, WorkerTimer
from connectx.model.config_records import (
    ConfigRecord,
    ConnectorConfigRecord,
    TaskCommitRecord,
    TaskConfigRecord,
)
from connectx.model.events import EventKind
from connectx.model.states import State, TargetState
from connectx.model.status_records import ConnectorStatusRecord, Status
from tests.support.histories import Recorded
from tests.support.worker_script import (
    C0,
    CONNECTOR,
    KEY,
    LEADER_URL,
    ME,
    NOTHING_HAPPENED,
    SOURCE,
    WorkerScript,
    both,
    committed,
    configured,
    following,
    leading,
    merged,
    of_kind,
    replies,
    resting,
    starting,
    task_config,
)

OLD, NEW = (task_config(0), task_config(1)), (task_config(0, "2"),)
ASSIGNED = "it was assigned to this worker"
CHANGED = ConnectorConfigRecord("c", SOURCE | {"x": "1"})


def state(value: State, cause: str = "", trace: str | None = None, generation: int = 3) -> Recorded:
    data = {"state": value.value, "trace": trace}
    return Recorded(EventKind.CONNECTOR_STATE, "c", None, generation, None, cause, data)


def status(value: State, trace: str | None = None, version: str | None = "1", generation: int = 3) -> WriteStatus:
    return WriteStatus(ConnectorStatusRecord("c", Status(value, ME, generation, trace, version)))


def at(phase: ConnectorPhase, rests: TargetState = TargetState.STARTED, *records: ConfigRecord) -> WorkerScript:
    """A follower whose only work is connector c, instance 1, in that phase and target state; a restart stops it."""
    script = following(CONNECTOR, (*(records or configured()), resting(rests)))
    if phase is ConnectorPhase.FAILED:
        script.do(ConnectorFailed("c", 1, "oops"))
    elif phase is not ConnectorPhase.STARTING:
        script.connector_runs(state=rests)
    if phase is ConnectorPhase.STOPPING:
        assert of_kind(restarted(script), StopConnector) == [StopConnector("c", 1)]
    return script


def running(*records: ConfigRecord) -> WorkerScript:
    return at(ConnectorPhase.ACTIVE, TargetState.STARTED, *records)


def restarted(script: WorkerScript) -> WorkerStep:
    """A user restarts the connector."""
    return merged(script.ask(verbs.RestartConnector("c")), script.read_to_end())


def generated(script: WorkerScript, *task_configs: dict[str, str | None], instance: int = 1) -> WorkerStep:
    """The plugin answers with its task configs."""
    return script.do(TaskConfigsGenerated("c", instance, task_configs))


def sent(script: WorkerScript, error: str | None = None) -> WorkerStep:
    """The leader answers the task configs."""
    return script.do(TaskConfigsSent(script.take(SendTaskConfigs).request_id, error))


def starts(step: WorkerStep) -> list[StartConnector]:
    return of_kind(step, StartConnector)


@pytest.mark.parametrize("rests", list(TargetState))
def test_a_connector_starts_in_its_target_state(rests: TargetState) -> None:
    script = starting((*configured(), resting(rests)))
    script.start()
    script.joined()
    assert script.assigned(CONNECTOR).effects == [StartConnector("c", 1, SOURCE, rests)]


def test_a_started_connector_runs_and_is_asked_for_task_configs() -> None:
    assert both(at(ConnectorPhase.STARTING).connector_runs()) == (
        [state(State.RUNNING, ASSIGNED)],
        [status(State.RUNNING), GenerateTaskConfigs("c", 1, SOURCE)],
    )


@pytest.mark.parametrize(("rests", "seen"), [(TargetState.PAUSED, State.PAUSED), (TargetState.STOPPED, State.STOPPED)])
def test_a_connector_that_rests_is_not_asked_for_task_configs(rests: TargetState, seen: State) -> None:
    assert at(ConnectorPhase.STARTING, rests).connector_runs(state=rests).effects == [status(seen)]


def test_a_connector_without_a_configuration_does_not_start() -> None:
    script = starting([KEY])
    script.start()
    script.joined()
    assert script.assigned(CONNECTOR).effects == []


def test_a_worker_that_shuts_down_starts_nothing() -> None:
    script = at(ConnectorPhase.STOPPING)
    script.do(ShutdownRequested())
    assert starts(script.do(ConnectorStopped("c", 1))) == []


def test_a_start_that_fails_shows_the_trace_and_is_not_tried_again() -> None:
    script = at(ConnectorPhase.STARTING)
    assert both(script.do(ConnectorFailed("c", 1, "no such class"))) == (
        [state(State.FAILED, trace="no such class")],
        [status(State.FAILED, "no such class", version=None)],
    )
    assert starts(script.rebalance()) == []


def test_a_pause_while_starting_follows_the_start() -> None:
    script = at(ConnectorPhase.STARTING)
    assert script.see(resting(TargetState.PAUSED)).effects == []
    pause = SetConnectorTargetState("c", 1, TargetState.PAUSED)
    assert script.connector_runs().effects == [status(State.RUNNING), pause]


def test_a_change_of_mind_is_ordered_once_and_ends_in_the_last_state() -> None:
    script = running()
    assert script.see(resting(TargetState.PAUSED), resting(TargetState.STARTED)).effects == [
        SetConnectorTargetState("c", 1, TargetState.PAUSED),
        SetConnectorTargetState("c", 1, TargetState.STARTED),
    ]
    reached = (ConnectorStateReached("c", 1, wanted) for wanted in (TargetState.PAUSED, TargetState.STARTED))
    assert both(script.do(*reached)) == (
        [
            state(State.PAUSED, "its target state became STARTED"),
            state(State.RUNNING, "its target state became STARTED"),
        ],
        [status(State.PAUSED), status(State.RUNNING), GenerateTaskConfigs("c", 1, SOURCE)],
    )


@pytest.mark.parametrize("wanted", [TargetState.PAUSED, TargetState.STARTED])
def test_a_failed_connector_does_not_leave_failed_by_pause_or_resume(wanted: TargetState) -> None:
    script = at(ConnectorPhase.FAILED)
    assert script.see(resting(wanted)).effects == []
    late = script.do(ConnectorStateReached("c", 1, wanted))  # asked for before it failed
    assert (*both(late), str(late.ignored)) == (*NOTHING_HAPPENED, "instance 1 of c is failed")


def test_a_stop_always_ends_in_stopped() -> None:
    script = at(ConnectorPhase.FAILED)
    stop = resting(TargetState.STOPPED)
    assert script.see(stop).effects == [SetConnectorTargetState("c", 1, TargetState.STOPPED)]
    reached = script.do(ConnectorStateReached("c", 1, TargetState.STOPPED))
    assert reached.effects == [status(State.STOPPED, version=None)]


def test_the_leader_reads_the_config_topic_and_writes_changed_task_configs_itself() -> None:
    script = leading()
    script.connector_runs()
    assert generated(script, *NEW).effects == [ReadConfigToEnd(2, 30_000)]
    written = WriteConfigRecords(3, (TaskConfigRecord(C0, NEW[0]),), privileged=True)
    assert script.read_to_end().effects == [written, script.timers[WorkerTimer.WRITE_LIMIT]]


def test_a_follower_sends_changed_task_configs_to_the_leader() -> None:
    script = running()
    assert both(generated(script, *NEW)) == ([], [SendTaskConfigs(1, LEADER_URL, "c", NEW)])
    assert both(sent(script)) == NOTHING_HAPPENED


@pytest.mark.parametrize("make", [running, leading])
def test_unchanged_task_configs_are_not_published(make: Callable[[], WorkerScript]) -> None:
    script = make()
    script.connector_runs()
    assert both(generated(script, *OLD)) == NOTHING_HAPPENED


def test_the_same_task_configs_are_published_when_the_connectors_configuration_changed() -> None:
    script = running()
    script.stops(script.see(CHANGED))
    script.connector_runs(2)
    assert generated(script, *OLD, instance=2).effects == [SendTaskConfigs(1, LEADER_URL, "c", OLD)]


def test_the_same_task_configs_are_published_over_a_partly_written_set() -> None:
    script = running(*configured(), TaskCommitRecord("c", 3))
    assert generated(script, *OLD).effects == [SendTaskConfigs(1, LEADER_URL, "c", OLD)]


def test_placeholders_are_put_back_before_task_configs_are_published() -> None:
    script = running(*configured(password="${file:secret}"))
    raw = ({"password": "${file:secret}"},)
    assert generated(script, {"password": "hunter2"}).effects == [SendTaskConfigs(1, LEADER_URL, "c", raw)]


def test_task_configs_that_were_not_taken_are_generated_again_later_and_later() -> None:
    script = running()
    delays_ms = []
    for _ in range(11):
        generated(script, *NEW)
        (timer,) = of_kind(sent(script, "409"), SetTimer)
        delays_ms.append(timer.at_ms - script.now_ms)
        assert script.fire(TaskConfigsRetry("c", 1)).effects == [GenerateTaskConfigs("c", 1, SOURCE)]
    assert delays_ms == [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


def test_the_pauses_begin_again_after_task_configs_were_taken() -> None:
    script = running()
    for error in ("409", "409", None):
        generated(script, *NEW)
        sent(script, error)
    generated(script, *NEW)
    assert sent(script, "409").effects == [SetTimer(TaskConfigsRetry("c", 1), 3, 1_250)]


def test_a_write_of_the_leader_that_fails_is_retried_like_a_request() -> None:
    script = leading()
    script.connector_runs()
    generated(script, *NEW)
    script.read_to_end()
    failed = script.written("timed out")
    assert [(timer.key, timer.at_ms) for timer in of_kind(failed, SetTimer)] == [(TaskConfigsRetry("c", 1), 1_250)]


def test_task_configs_wait_while_the_session_key_is_unknown() -> None:
    script = running(*configured()[:-1])
    assert both(generated(script, *NEW)) == ([], [SetTimer(TaskConfigsRetry("c", 1), 1, 1_250)])


def test_task_configs_wait_while_the_leader_is_unknown() -> None:
    script = leading()
    script.connector_runs()
    script.heartbeat("UNKNOWN_MEMBER_ID")
    assert both(generated(script, *NEW)) == ([], [SetTimer(TaskConfigsRetry("c", 1), 3, script.now_ms + 250)])


def test_a_stopped_connector_does_not_send_its_task_configs_again() -> None:
    script = running()
    generated(script, *NEW)
    script.see(resting(TargetState.STOPPED))
    script.do(ConnectorStateReached("c", 1, TargetState.STOPPED))
    sent(script, "400 stopped")
    for late in (script.fire(TaskConfigsRetry("c", 1)), generated(script, *NEW)):
        assert (*both(late), str(late.ignored)) == (*NOTHING_HAPPENED, "instance 1 of c is STOPPED")


def test_task_configs_that_another_instance_overwrote_are_published_again() -> None:
    script = running()
    generated(script, *OLD)
    overwritten = script.see(*committed(2, "3"))
    assert of_kind(overwritten, SendTaskConfigs) == [SendTaskConfigs(1, LEADER_URL, "c", OLD)]


def test_a_connector_that_cannot_make_its_task_configs_fails() -> None:
    failed = running().do(TaskConfigsGenerated("c", 1, error="oops"))
    assert both(failed) == ([state(State.FAILED, trace="oops")], [status(State.FAILED, "oops")])


def test_a_plugin_may_ask_for_new_task_configs_while_it_runs() -> None:
    asked = TaskReconfigurationRequested("c", 1)
    assert running().do(asked).effects == [GenerateTaskConfigs("c", 1, SOURCE)]
    assert at(ConnectorPhase.ACTIVE, TargetState.PAUSED).do(asked).effects == []


@pytest.mark.parametrize("phase", [ConnectorPhase.STARTING, ConnectorPhase.ACTIVE, ConnectorPhase.FAILED])
def test_a_revoked_connector_stops_from_every_phase_and_is_unassigned(phase: ConnectorPhase) -> None:
    script = at(phase)
    timer = SetTimer(ConnectorStopLimit("c", 1), 1, 4_000 + 5_000)
    assert script.rebalance(revoked=CONNECTOR).effects == [StopConnector("c", 1), timer]
    unassigned = state(State.UNASSIGNED, "the leader revoked it", generation=4)
    assert script.do(ConnectorStopped("c", 1)).transitions[0] == unassigned


def test_a_connector_that_does_not_stop_is_left_alone_after_five_seconds() -> None:
    script = running()
    script.rebalance(revoked=CONNECTOR)
    left = script.fire(ConnectorStopLimit("c", 1))
    assert script.now_ms == 9_000
    assert left.effects[0] == status(State.UNASSIGNED, generation=4)
    late = script.do(ConnectorStopped("c", 1))
    assert (*both(late), str(late.ignored)) == (*NOTHING_HAPPENED, "instance 1 of c is gone")


def test_a_restart_is_shown_as_such_and_makes_a_new_instance() -> None:
    script = running()
    timer = SetTimer(ConnectorStopLimit("c", 1), 1, 6_000)
    assert restarted(script).effects[1:] == [StopConnector("c", 1), timer]
    cause = "its restart was requested"
    assert both(script.do(ConnectorStopped("c", 1))) == (
        [state(State.UNASSIGNED, cause), state(State.RESTARTING, cause)],
        [
            status(State.UNASSIGNED),
            status(State.RESTARTING, version=None),
            StartConnector("c", 2, SOURCE, TargetState.STARTED),
        ],
    )


def test_a_restart_is_answered_when_the_connector_has_started_and_made_its_task_configs() -> None:
    script = running()
    answers = [
        replies(restarted(script)),
        replies(script.do(ConnectorStopped("c", 1))),
        replies(script.connector_runs(2)),
        replies(generated(script, *OLD, instance=2)),
    ]
    assert answers == [[], [], [], [Done(77, 204)]]


@pytest.mark.parametrize("rests", [TargetState.PAUSED, TargetState.STOPPED])
def test_the_restart_of_a_connector_that_rests_does_not_wait_for_task_configs(rests: TargetState) -> None:
    script = at(ConnectorPhase.ACTIVE, rests)
    restarted(script)
    script.do(ConnectorStopped("c", 1))
    assert replies(script.connector_runs(2, rests)) == [Done(77, 204)]


def test_a_restart_is_answered_though_the_connector_was_paused_before_it_made_task_configs() -> None:
    script = running()
    restarted(script)
    script.do(ConnectorStopped("c", 1))
    script.connector_runs(2)
    script.see(resting(TargetState.PAUSED))
    assert replies(script.do(ConnectorStateReached("c", 2, TargetState.PAUSED))) == [Done(77, 204)]


def restart_fails(script: WorkerScript, *then: Stimulus) -> bool:
    """Whether a restart gets the error of Kafka Connect when this happens, and no reply before."""
    assert replies(restarted(script)) == []
    return replies(script.do(*then)) == [Refused(77, 500, "Failed to start connector: c")]


@pytest.mark.parametrize(
    "then",
    [
        (ConnectorStopped("c", 1), ConnectorFailed("c", 2, "oops")),
        (
            ConnectorStopped("c", 1),
            ConnectorStarted("c", 2, TargetState.STARTED),
            TaskConfigsGenerated("c", 2, (), "oops"),
        ),
        (ConnectorStopped("c", 1), ConnectorStarted("c", 2, TargetState.STARTED), ConnectorFailed("c", 2, "oops")),
        (ConnectorStopped("c", 1), ShutdownRequested()),
        (ShutdownRequested(),),
    ],
)
def test_a_restart_that_fails_or_is_overtaken_is_a_500(then: tuple[Stimulus, ...]) -> None:
    assert restart_fails(running(), *then)


def test_a_restart_fails_when_the_connector_is_configured_anew_or_deleted_before_it_has_started() -> None:
    script = running()
    restarted(script)
    script.do(ConnectorStopped("c", 1))
    assert replies(script.see(CHANGED)) == [Refused(77, 500, "Failed to start connector: c")]


def test_restarts_of_a_connector_that_stops_wait_for_the_same_start() -> None:
    script = running()
    restarted(script)
    merged(script.ask(verbs.RestartConnector("c"), 78), script.read_to_end())
    script.do(ConnectorStopped("c", 1))
    script.connector_runs(2)
    assert replies(generated(script, *OLD, instance=2)) == [Done(77, 204), Done(78, 204)]


@pytest.mark.parametrize("phase", list(ConnectorPhase))
def test_a_new_configuration_makes_a_new_instance_in_every_phase(phase: ConnectorPhase) -> None:
    script = at(phase)
    script.see(CHANGED)
    stopped = script.do(ConnectorStopped("c", 1))
    assert stopped.effects[1:] == [StartConnector("c", 2, SOURCE | {"x": "1"}, TargetState.STARTED)]


def test_a_connector_that_is_assigned_while_it_stops_starts_when_it_has_stopped() -> None:
    script = running()
    script.see(ConnectorConfigRecord("c", None))
    assert of_kind(script.rebalance(), StopConnector) == [StopConnector("c", 1)]  # no leader revoked it
    script.see(*configured())
    for generation in (5, 6):  # what was read during the first leads to a second
        assert starts(script.rebalance(CONNECTOR, generation=generation)) == []
    stopped = script.do(ConnectorStopped("c", 1))
    assert starts(stopped) == [StartConnector("c", 2, SOURCE, TargetState.STARTED)]


def test_a_restart_is_dropped_when_the_connector_was_revoked_meanwhile() -> None:
    script = at(ConnectorPhase.STOPPING)
    script.rebalance(revoked=CONNECTOR)
    stopped = script.do(ConnectorStopped("c", 1))
    assert (of_kind(stopped, WriteStatus), starts(stopped)) == ([status(State.UNASSIGNED, generation=4)], [])


def test_a_restart_is_dropped_when_the_connector_was_deleted_meanwhile() -> None:
    script = running()
    script.see(CHANGED, ConnectorConfigRecord("c", None))
    assert script.do(ConnectorStopped("c", 1)).effects == [status(State.UNASSIGNED)]


@pytest.mark.parametrize("phase", list(ConnectorPhase))
def test_answers_of_an_older_instance_change_nothing(phase: ConnectorPhase) -> None:
    script = at(phase)
    late: tuple[Stimulus, ...] = (
        *(ConnectorStarted("c", 0, TargetState.STARTED), ConnectorStateReached("c", 0, TargetState.STOPPED)),
        *(ConnectorFailed("c", 0, "late"), ConnectorStopped("c", 0), TaskReconfigurationRequested("c", 0)),
        *(TaskConfigsGenerated("c", 0, NEW), TimerFired(ConnectorStopLimit("c", 0), 1)),
        TimerFired(TaskConfigsRetry("c", 0), 1),
    )
    for stimulus in late:
        assert script.ignores(stimulus), stimulus


def test_reports_of_an_instance_that_stops_are_ignored() -> None:
    script = at(ConnectorPhase.STOPPING)
    late: tuple[Stimulus, ...] = (
        *(ConnectorStarted("c", 1, TargetState.STARTED), ConnectorStateReached("c", 1, TargetState.STOPPED)),
        *(ConnectorFailed("c", 1, "late"), TaskConfigsGenerated("c", 1, NEW)),
    )
    for stimulus in late:
        assert script.ignores(stimulus), stimulus


def test_a_connector_that_stops_does_not_retry_its_task_configs() -> None:
    script = leading()
    script.connector_runs()
    generated(script, *NEW)
    script.read_to_end()
    script.see(CHANGED)
    assert of_kind(script.written("timed out"), SetTimer) == []


def test_an_answer_to_task_configs_that_were_sent_before_newer_ones_counts_no_more() -> None:
    script = running()
    generated(script, *NEW)
    first = script.take(SendTaskConfigs)
    generated(script, *OLD, *NEW)
    assert script.ignores(TaskConfigsSent(first.request_id, "409"))


def test_a_status_from_an_earlier_generation_is_written_over() -> None:
    script = running()
    script.rebalance()
    over = script.show("c", State.UNASSIGNED, "other:1", generation=3)
    assert over.effects == [status(State.RUNNING, generation=4)]
    assert script.show("c", State.UNASSIGNED, "other:1", generation=4).effects == []
