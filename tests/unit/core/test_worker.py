"""The core as a whole: what config changes lead to, start and end, copies, and facts that come too late."""

from __future__ import annotations

import copy

import pytest

from connectx.core import verbs
from connectx.core.context import WorkerPhase
from connectx.core.group.rebalance import Rebalance
from connectx.core.group_messages import (
    FindCoordinator,
    GroupRequestFailed,
    SendHeartbeat,
    SendJoinGroup,
    SendLeaveGroup,
)
from connectx.core.messages import (
    ConfigReadToEnd,
    ConfigRecordRead,
    ConnectorStopped,
    Effect,
    PrepareTask,
    SetConnectorTargetState,
    SetTaskTargetState,
    SetTimer,
    ShutdownRequested,
    StartConnector,
    Stimulus,
    StopConnector,
    StopTask,
    TimerFired,
    TopicUsed,
    WorkerShutDown,
    WorkerStarted,
    WorkerStep,
    WriteStatus,
)
from connectx.core.signals import CoordinatorUnknown
from connectx.core.timer_keys import GroupTimer
from connectx.core.worker import WorkerCore
from connectx.model.config_records import (
    ConfigRecord,
    ConnectorConfigRecord,
    RestartRecord,
    SessionKeyRecord,
    TaskCommitRecord,
    TaskCountRecord,
)
from connectx.model.events import EventKind
from connectx.model.states import TargetState
from connectx.model.status_records import ConnectorStatusRecord, TopicStatusRecord
from tests.support.worker_script import (
    C0,
    C1,
    NOTHING,
    NOTHING_HAPPENED,
    SOURCE,
    WorkerScript,
    both,
    committed,
    following,
    kinds,
    leading,
    of_kind,
    resting,
    settings,
    starting,
)

OF_WORK = (StopTask, StopConnector, PrepareTask, StartConnector, SetTaskTargetState, SetConnectorTargetState)


def running() -> WorkerScript:
    """A settled follower that runs connector c (instance 1) and starts c-0 and c-1 (instances 2 and 3)."""
    script = following()
    script.connector_runs()
    return script


def work_of(step: WorkerStep) -> list[Effect]:
    return [effect for effect in step.effects if isinstance(effect, (*OF_WORK, SendJoinGroup))]


def test_a_new_connector_makes_the_worker_join_again() -> None:
    step = running().see(ConnectorConfigRecord("n", SOURCE))
    assert kinds(step) == [EventKind.CONNECTOR_CONFIGURED, EventKind.REBALANCE_STARTED]
    assert [type(effect) for effect in step.effects] == [SendJoinGroup]


def test_a_changed_configuration_restarts_the_connector_here_without_a_rebalance() -> None:
    step = running().see(ConnectorConfigRecord("c", SOURCE | {"x": "1"}))
    assert (kinds(step), work_of(step)) == ([EventKind.CONNECTOR_CONFIGURED], [StopConnector("c", 1)])


def test_a_changed_configuration_of_a_connector_elsewhere_changes_nothing_here() -> None:
    assert following(NOTHING).see(ConnectorConfigRecord("c", SOURCE | {"x": "1"})).effects == []


def test_a_deleted_connector_makes_the_worker_join_again_and_its_work_waits_for_the_leader() -> None:
    step = running().see(ConnectorConfigRecord("c", None))
    assert kinds(step) == [EventKind.CONNECTOR_DELETED, EventKind.REBALANCE_STARTED]
    assert [type(effect) for effect in work_of(step)] == [SendJoinGroup]


def test_a_connector_that_was_deleted_and_created_again_does_not_go_on_with_its_old_instance() -> None:
    script = running()
    step = script.see(ConnectorConfigRecord("c", None), ConnectorConfigRecord("c", {"connector.class": "New"}))
    assert StopConnector("c", 1) in step.effects
    stopped = script.do(ConnectorStopped("c", 1))
    assert work_of(stopped) == [StartConnector("c", 4, {"connector.class": "New"}, TargetState.STARTED)]


@pytest.mark.parametrize("complete", [True, False])
def test_committed_task_configs_stop_the_tasks_here_and_make_the_worker_join_again(complete: bool) -> None:
    step = running().see(*(committed(1) if complete else [TaskCommitRecord("c", 1)]))
    reported = EventKind.TASKS_CONFIGURED if complete else EventKind.TASKS_INCONSISTENT
    refused = [EventKind.TASK_REFUSED, EventKind.TASK_STEP]  # both tasks were about to start
    assert kinds(step) == [reported, *refused, *refused, EventKind.REBALANCE_STARTED]
    assert [type(effect) for effect in work_of(step)] == [StopTask, StopTask, SendJoinGroup]


def test_a_target_state_reaches_the_connector_and_its_tasks_here() -> None:
    step = running().see(resting(TargetState.PAUSED))
    assert kinds(step) == [EventKind.TARGET_STATE_CHANGED]
    assert step.effects == [
        SetConnectorTargetState("c", 1, TargetState.PAUSED),
        SetTaskTargetState(C0, 2, TargetState.PAUSED),
        SetTaskTargetState(C1, 3, TargetState.PAUSED),
    ]


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (TaskCountRecord("c", 2), EventKind.TASK_COUNT_RECORDED),
        (SessionKeyRecord(b"k", "HmacSHA256", 5), EventKind.SESSION_KEY_ROTATED),
    ],
)
def test_task_counts_and_session_keys_are_only_recorded(record: ConfigRecord, kind: EventKind) -> None:
    step = running().see(record)
    assert (kinds(step), step.effects) == ([kind], [])


@pytest.mark.parametrize(
    "record",
    [
        ConnectorConfigRecord("n", SOURCE),
        ConnectorConfigRecord("c", None),
        TaskCommitRecord("c", 0),
        resting(TargetState.PAUSED),
        RestartRecord("c", True, False),
    ],
)
@pytest.mark.parametrize("phase", [WorkerPhase.STARTING, WorkerPhase.STOPPING])
def test_changes_before_the_start_and_after_the_stop_are_not_acted_on(record: ConfigRecord, phase: WorkerPhase) -> None:
    script = starting()
    if phase is WorkerPhase.STOPPING:
        script = running()
        script.do(ShutdownRequested())
    assert both(script.see(record)) == NOTHING_HAPPENED
    assert script.place()["config_offset"] == 7


def test_a_topic_is_recorded_once_for_a_task_that_is_here() -> None:
    script = running()
    used = WriteStatus(TopicStatusRecord("t", "c", 0, 1_000))
    assert script.do(TopicUsed(C0, "t")).effects == [used]
    script.status(used.record)
    assert script.do(TopicUsed(C1, "t")).effects == []


@pytest.mark.parametrize("script", [following(NOTHING), following(topic_tracking_enable=False)])
def test_a_task_that_is_gone_or_a_worker_without_tracking_records_no_topic(script: WorkerScript) -> None:
    assert script.do(TopicUsed(C0, "t")).effects == []


def test_a_tombstone_of_a_status_is_not_written_over() -> None:
    assert running().status(ConnectorStatusRecord("c", None)).effects == []


def test_a_worker_joins_when_it_has_read_its_topics_and_only_once() -> None:
    script = starting()
    step = script.do(WorkerStarted())
    assert (kinds(step), step.effects[-1]) == ([EventKind.WORKER_STARTED], FindCoordinator(1))
    assert both(script.do(WorkerStarted())) == NOTHING_HAPPENED


def test_a_worker_ends_when_all_work_has_stopped_and_leaves_the_group() -> None:
    script = running()
    stop = script.do(ShutdownRequested())
    assert work_of(stop) == [StopTask(C0, 2), StopTask(C1, 3), StopConnector("c", 1)]
    ended = script.stops(stop)
    assert kinds(ended)[-2:] == [EventKind.CONNECTOR_STATE, EventKind.WORKER_STOPPED]
    assert ended.effects[-2:] == [SendLeaveGroup(5, "me"), WorkerShutDown()]


def test_work_that_does_not_stop_does_not_hold_the_end() -> None:
    script = running()
    limits = of_kind(script.do(ShutdownRequested()), SetTimer)
    ended = [script.fire(limit.key) for limit in limits][-1]
    assert ended.effects[-1] == WorkerShutDown()


def test_a_worker_may_be_stopped_before_it_has_started() -> None:
    assert starting().do(ShutdownRequested()).effects == [WorkerShutDown()]


@pytest.mark.parametrize(
    "stimulus",
    [
        WorkerStarted(),
        ShutdownRequested(),
        ConfigRecordRead(9, ConnectorConfigRecord("n", SOURCE)),
        ConfigReadToEnd(1),
        TopicUsed(C0, "t"),
        ConnectorStopped("c", 1),
    ],
)
def test_after_its_end_nothing_moves_any_more(stimulus: Stimulus) -> None:
    script = following(NOTHING)
    script.do(ShutdownRequested())
    late = script.do(stimulus)
    assert (*both(late), str(late.ignored)) == (*NOTHING_HAPPENED, "the worker has stopped")


def test_a_copy_goes_its_own_way() -> None:
    core = leading().core
    untouched, other = copy.deepcopy(core), copy.deepcopy(core)
    other.handle(ConfigRecordRead(6, ConnectorConfigRecord("n", SOURCE)), 1_000)
    other.handle(ShutdownRequested(), 1_000)
    assert core == untouched
    assert core not in (other, "a core")


def test_the_same_stimuli_give_the_same_steps() -> None:
    one, other = running(), running()
    for record in (ConnectorConfigRecord("n", SOURCE), TaskCommitRecord("c", 0), RestartRecord("c", True, False)):
        assert one.see(record) == other.see(record)


def test_a_core_that_takes_over_a_state_is_equal_and_decides_alike() -> None:
    script = leading()
    script.ask(verbs.RestartTask("c", 0))
    other = WorkerCore(settings())
    assert other != script.core
    other.restore(copy.deepcopy(script.core.state()))
    assert other == script.core
    assert other.handle(ConfigReadToEnd(2), 2_000) == script.core.handle(ConfigReadToEnd(2), 2_000)
    assert other == script.core


def test_cores_differ_in_each_field_of_their_parts() -> None:
    core = running().core
    for part, fields_of_part in core.state().items():
        for name in fields_of_part:
            other = copy.deepcopy(core)
            state = copy.deepcopy(core.state())
            state[part][name] = "another value"
            other.restore(state)
            assert other != core, f"{part}.{name}"


@pytest.mark.unchecked
def test_signals_that_do_not_end_are_a_defect_that_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    script = following()
    script.fire(GroupTimer.HEARTBEAT)
    script.do(GroupRequestFailed(script.take(SendHeartbeat).request_id, "cut"))
    monkeypatch.setattr(
        Rebalance, "on_coordinator_unknown", lambda self, *_: self.context.signal(CoordinatorUnknown(0))
    )
    timer = script.timers[GroupTimer.UNKNOWN]
    with pytest.raises(AssertionError, match=r"signals do not end in one step; the next is CoordinatorUnknown"):
        script.core.handle(TimerFired(timer.key, timer.token), timer.at_ms)
