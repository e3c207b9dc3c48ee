"""The core as a whole: what config changes lead to, start and end, copies, and facts that come too late."""

from __future__ import annotations

import copy

import pytest

from connectx.core import verbs
from connectx.core.config_writer import Claim
from connectx.core.context import WorkerPhase
from connectx.core.group.rebalance import Rebalance
from connectx.core.messages import (
    ClaimConfigWrites,
    ConfigReadToEnd,
    ConfigRecordRead,
    ConfigRecordsWritten,
    ConnectorStarted,
    ConnectorStopped,
    Effect,
    FenceRequestAnswered,
    FindCoordinator,
    HeartbeatReplied,
    PrepareTask,
    ProducersFenced,
    ReadConfigToEnd,
    Refused,
    Request,
    SendHeartbeat,
    SendJoinGroup,
    SendLeaveGroup,
    SessionKeyCreated,
    SetConnectorTargetState,
    SetTaskTargetState,
    SetTimer,
    ShutdownRequested,
    StartConnector,
    StatusRecordRead,
    Step,
    Stimulus,
    StopConnector,
    StopTask,
    TaskConfigsGenerated,
    TaskPrepared,
    TaskStopped,
    TimerFired,
    TopicUsed,
    WorkerShutDown,
    WorkerStarted,
    WriteStatus,
)
from connectx.core.settings import CoreSettings
from connectx.core.signals import CoordinatorUnknown
from connectx.core.timer_keys import GroupTimer, TaskConfigsRetry, TaskStopLimit, WorkerTimer
from connectx.core.worker import WorkerCore
from connectx.model.config_records import (
    ConfigRecord,
    ConnectorConfigRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCommitRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from connectx.model.events import EventKind
from connectx.model.group import WorkSet
from connectx.model.states import State, TargetState
from connectx.model.status_records import ConnectorStatusRecord, Status, TaskStatusRecord, TopicStatusRecord
from tests.support.core_parts import C0, C1, ME, SOURCE, a_core, settings, shown, starting_core, task_config
from tests.support.histories import Because

WORK = (StopTask, StopConnector, PrepareTask, StartConnector, SetTaskTargetState, SetConnectorTargetState)


def working(*, leads: bool = False) -> WorkerCore:
    """A settled member that runs connector c (instance 1) and tasks c-0 and c-1 (instances 2 and 3)."""
    core = a_core(leads=leads)
    core.connectors.start("c", Because(""))
    core.tasks.start(C0, Because(""))
    core.tasks.start(C1, Because(""))
    core.handle(ConnectorStarted("c", 1, TargetState.STARTED), 1_000)
    return core


def see(core: WorkerCore, *records: ConfigRecord) -> Step:
    """The records come in from the config topic; the step of the last one."""
    step = Step()
    for record in records:
        step = core.handle(ConfigRecordRead(core.context.config.offset, record), 1_000)
    return step


def work_of(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, (*WORK, SendJoinGroup))]


def kinds(step: Step) -> list[EventKind]:
    return [transition.kind for transition in step.transitions]


# ------------------------------------------------------------------------------------- changes of the config topic


def test_a_new_connector_makes_the_worker_join_again() -> None:
    step = see(working(), ConnectorConfigRecord("n", SOURCE))
    assert kinds(step) == [EventKind.CONNECTOR_CONFIGURED, EventKind.REBALANCE_STARTED]
    assert [type(effect) for effect in step.effects] == [SendJoinGroup]


def test_a_changed_configuration_restarts_the_connector_here_without_a_rebalance() -> None:
    step = see(working(), ConnectorConfigRecord("c", SOURCE | {"x": "1"}))
    assert kinds(step) == [EventKind.CONNECTOR_CONFIGURED]
    assert work_of(step.effects) == [StopConnector("c", 1)]


def test_a_changed_configuration_of_a_connector_elsewhere_changes_nothing_here() -> None:
    core = a_core(leads=False)
    assert see(core, ConnectorConfigRecord("c", SOURCE | {"x": "1"})).effects == []


def test_a_deleted_connector_makes_the_worker_join_again_and_its_work_waits_for_the_leader() -> None:
    step = see(working(), ConnectorConfigRecord("c", None))
    assert kinds(step) == [EventKind.CONNECTOR_DELETED, EventKind.REBALANCE_STARTED]
    assert [type(effect) for effect in work_of(step.effects)] == [SendJoinGroup]


def test_a_connector_that_was_deleted_and_created_again_does_not_go_on_with_its_old_instance() -> None:
    core = working()
    step = see(core, ConnectorConfigRecord("c", None), ConnectorConfigRecord("c", {"connector.class": "New"}))
    assert StopConnector("c", 1) in step.effects
    effects = core.handle(ConnectorStopped("c", 1), 1_000).effects
    assert work_of(effects) == [StartConnector("c", 4, {"connector.class": "New"}, TargetState.STARTED)]


@pytest.mark.parametrize("complete", [True, False])
def test_committed_task_configs_stop_the_tasks_here_and_make_the_worker_join_again(complete: bool) -> None:
    records = [TaskConfigRecord(C0, task_config(0, "2"))] if complete else []
    step = see(working(), *records, TaskCommitRecord("c", 1))
    reported = EventKind.TASKS_CONFIGURED if complete else EventKind.TASKS_INCONSISTENT
    stopped = [EventKind.TASK_REFUSED, EventKind.TASK_STEP]  # both tasks were about to start
    assert kinds(step) == [reported, *stopped, *stopped, EventKind.REBALANCE_STARTED]
    assert [effect for effect in step.effects if isinstance(effect, StopTask)] == [StopTask(C0, 2), StopTask(C1, 3)]
    assert isinstance(step.effects[-1], SendJoinGroup)


def test_committed_task_configs_cancel_the_fencing_round_of_their_connector_with_a_conflict() -> None:
    core = a_core()
    core.handle(Request(7, verbs.Fence("c")), 1_000)
    step = see(core, TaskCommitRecord("c", 0))
    assert EventKind.FENCING_FAILED in kinds(step)
    assert [effect.status for effect in step.effects if isinstance(effect, Refused)] == [409]


def test_a_target_state_reaches_the_connector_and_its_tasks_here() -> None:
    step = see(working(), TargetStateRecord("c", TargetState.PAUSED))
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
def test_task_counts_and_session_keys_are_only_told(record: ConfigRecord, kind: EventKind) -> None:
    step = see(working(), record)
    assert (kinds(step), step.effects) == ([kind], [])


@pytest.mark.parametrize(
    "record",
    [
        ConnectorConfigRecord("n", SOURCE),
        ConnectorConfigRecord("c", None),
        TaskCommitRecord("c", 0),
        TargetStateRecord("c", TargetState.PAUSED),
        RestartRecord("c", True, False),
    ],
)
@pytest.mark.parametrize("phase", [WorkerPhase.STARTING, WorkerPhase.STOPPING])
def test_changes_before_the_start_and_after_the_stop_are_not_acted_on(record: ConfigRecord, phase: WorkerPhase) -> None:
    core = starting_core()
    if phase is WorkerPhase.STOPPING:
        core = working()
        core.handle(ShutdownRequested(), 1_000)
    step = see(core, record)
    assert (step.transitions, step.effects) == ([], [])
    assert core.context.config.offset == 7


# ------------------------------------------------------------------------------------------------- statuses, topics


def test_a_topic_is_recorded_once_for_a_task_that_is_here() -> None:
    core = working()
    used = WriteStatus(TopicStatusRecord("t", "c", 0, 1_000))
    assert core.handle(TopicUsed(C0, "t"), 1_000).effects == [used]
    core.handle(StatusRecordRead(used.record), 1_000)
    assert core.handle(TopicUsed(C1, "t"), 1_000).effects == []


def test_a_task_that_is_gone_or_a_worker_without_tracking_records_no_topic() -> None:
    assert a_core().handle(TopicUsed(C0, "t"), 1_000).effects == []
    core = working()
    core.context.settings = settings(topic_tracking_enable=False)
    assert core.handle(TopicUsed(C0, "t"), 1_000).effects == []


def test_a_zombies_status_is_written_over() -> None:
    core = working()
    core.context.group.generation = core.membership.generation = 4
    old = Status(State.UNASSIGNED, "other:1", 3)
    assert core.handle(StatusRecordRead(ConnectorStatusRecord("c", old)), 1_000).effects == [
        WriteStatus(ConnectorStatusRecord("c", Status(State.RUNNING, ME, 4)))
    ]
    assert core.handle(StatusRecordRead(ConnectorStatusRecord("c", None)), 1_000).effects == []


def test_the_leader_removes_a_status_that_comes_after_the_deletion() -> None:
    core = a_core()
    late = StatusRecordRead(TaskStatusRecord(C1, Status(State.UNASSIGNED, ME, 3)))
    assert core.handle(late, 1_000).effects == []
    see(core, TaskConfigRecord(C0, {}), TaskCommitRecord("c", 1))
    assert core.handle(late, 1_000).effects == [WriteStatus(TaskStatusRecord(C1, None))]


# -------------------------------------------------------------------------------------------------- outcomes


def test_a_lost_claim_is_claimed_again_and_the_request_is_told_that_it_may_try_again() -> None:
    core = a_core()
    core.handle(Request(7, verbs.Delete("c")), 1_000)
    step = core.handle(ConfigRecordsWritten(1, "fenced", fenced=True), 1_000)
    assert kinds(step) == [EventKind.LEADERSHIP_FENCED]
    assert [effect.status for effect in step.effects if isinstance(effect, Refused)] == [500]
    timer = next(e for e in step.effects if isinstance(e, SetTimer) and e.key == WorkerTimer.RECLAIM)
    assert SendHeartbeat(5, 3, "me") in step.effects, "the group is asked who leads"
    (again,) = core.handle(TimerFired(WorkerTimer.RECLAIM, timer.token), 1_250).effects
    assert isinstance(again, SetTimer), "a zombie must not fence its successor"
    core.handle(HeartbeatReplied(5, None), 1_260)
    assert core.handle(TimerFired(WorkerTimer.RECLAIM, again.token), 1_500).effects == [ClaimConfigWrites(2)]


@pytest.mark.rule("618.1.6")
def test_a_fenced_leader_that_the_group_has_dropped_joins_again_and_claims_nothing() -> None:
    core = a_core()
    core.handle(Request(7, verbs.Delete("c")), 1_000)
    step = core.handle(ConfigRecordsWritten(1, "fenced", fenced=True), 1_000)
    timer = next(e for e in step.effects if isinstance(e, SetTimer) and e.key == WorkerTimer.RECLAIM)
    dropped = core.handle(HeartbeatReplied(5, "UNKNOWN_MEMBER_ID"), 1_010)
    assert kinds(dropped) == [EventKind.MEMBER_LOST, EventKind.REBALANCE_STARTED]
    assert [type(effect).__name__ for effect in dropped.effects] == ["SendJoinGroup"]
    assert core.handle(TimerFired(WorkerTimer.RECLAIM, timer.token), 1_250).effects == []
    assert core.writer.claim is Claim.NONE


def test_a_round_of_the_leader_starts_its_own_tasks_in_the_same_step() -> None:
    core = working(leads=True)
    step = core.handle(TaskPrepared(C0, 2), 1_000)
    (ordered,) = [effect for effect in step.effects if isinstance(effect, ReadConfigToEnd)]
    effects = core.handle(ConfigReadToEnd(ordered.request_id), 1_000).effects
    assert [type(effect).__name__ for effect in effects] == ["InitTaskProducer"]


# ------------------------------------------------------------------------------------------------- start and end


def test_a_worker_joins_when_it_has_read_its_topics_and_only_once() -> None:
    core = WorkerCore(settings())
    step = core.handle(WorkerStarted(), 1_000)
    assert (kinds(step), step.effects[-1]) == ([EventKind.WORKER_STARTED], FindCoordinator(1))
    step = core.handle(WorkerStarted(), 1_000)
    assert (step.transitions, step.effects) == ([], [])


def test_a_worker_ends_when_all_work_has_stopped_and_leaves_the_group() -> None:
    core = working()
    assert [e for e in core.handle(ShutdownRequested(), 1_000).effects if isinstance(e, StopTask | StopConnector)] == [
        StopTask(C0, 2),
        StopTask(C1, 3),
        StopConnector("c", 1),
    ]
    core.handle(TaskStopped(C0, 2), 1_000)
    core.handle(TaskStopped(C1, 3), 1_000)
    step = core.handle(ConnectorStopped("c", 1), 1_000)
    assert kinds(step) == [EventKind.CONNECTOR_STATE, EventKind.WORKER_STOPPED]
    assert step.effects[-2:] == [SendLeaveGroup(5, "me"), WorkerShutDown()]


def test_work_that_does_not_stop_does_not_hold_the_end() -> None:
    core = working()
    for effect in core.handle(ShutdownRequested(), 1_000).effects:
        if isinstance(effect, SetTimer):
            effects = core.handle(TimerFired(effect.key, effect.token), effect.at_ms).effects
    assert effects[-1] == WorkerShutDown()


def test_a_worker_may_be_stopped_before_it_has_started() -> None:
    core = WorkerCore(settings())
    assert core.handle(ShutdownRequested(), 1_000).effects == [WorkerShutDown()]


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
    core = a_core()
    core.handle(ShutdownRequested(), 1_000)
    step = core.handle(stimulus, 1_000)
    assert (step.transitions, step.effects) == ([], [])


# ----------------------------------------------------------------------------------------------------- late, copies


@pytest.mark.parametrize(
    "stimulus",
    [
        ConfigReadToEnd(99),
        ConfigRecordsWritten(99),
        ProducersFenced(99),
        SessionKeyCreated(99, b"k"),
        FenceRequestAnswered(99),
        TimerFired(WorkerTimer.REBALANCE_DELAY, 99),
        TimerFired(GroupTimer.SESSION, 99),
        TimerFired(TaskStopLimit(C0, 2), 99),
    ],
)
def test_answers_and_timers_that_nobody_awaits_change_nothing(stimulus: Stimulus) -> None:
    core = working(leads=True)
    step = core.handle(stimulus, 1_000)
    assert (step.transitions, step.effects) == ([], [])


def test_a_copy_goes_its_own_way() -> None:
    core = working(leads=True)
    untouched = copy.deepcopy(core)
    other = copy.deepcopy(core)
    see(other, ConnectorConfigRecord("n", SOURCE))
    other.handle(Request(7, verbs.Stop("c")), 1_000)
    other.handle(ShutdownRequested(), 1_000)
    assert core == untouched
    assert core != other
    assert isinstance(other.context.settings, CoreSettings)
    assert other.context.settings is core.context.settings  # which never changes


def test_the_same_stimuli_give_the_same_steps() -> None:
    one, other = working(), working()
    for record in (ConnectorConfigRecord("n", SOURCE), TaskCommitRecord("c", 0), RestartRecord("c", True, False)):
        assert see(one, record) == see(other, record)


def test_work_that_was_stopped_for_new_task_configs_is_claimed_all_the_same() -> None:
    core = working()
    step = see(core, TaskConfigRecord(C0, task_config(0, "2")), TaskCommitRecord("c", 1))
    (join,) = [effect for effect in step.effects if isinstance(effect, SendJoinGroup)]
    claim = join.protocols[0].allocation
    assert claim is not None
    assert claim.assigned == WorkSet(("c",), (C0, C1))


def test_a_restart_record_is_carried_out_by_the_part_that_runs_here() -> None:
    core = working()
    shown(core.context, "c", State.RUNNING)
    step = see(core, RestartRecord("c", False, False))
    assert (kinds(step), work_of(step.effects)) == ([EventKind.RESTART_REQUESTED], [StopConnector("c", 1)])


def test_a_task_configs_outcome_reaches_its_connector() -> None:
    core = working(leads=True)
    core.handle(TaskConfigsGenerated("c", 1, ({"new": "1"},)), 1_000)
    core.handle(ConfigReadToEnd(1), 1_000)
    step = core.handle(ConfigRecordsWritten(2, "timed out"), 1_000)
    assert [effect.key for effect in step.effects if isinstance(effect, SetTimer)] == [TaskConfigsRetry("c", 1)]


def test_a_core_that_takes_over_a_state_is_equal_and_decides_alike() -> None:
    core = working(leads=True)
    core.handle(Request(7, verbs.RestartTask("c", 0)), 1_000)
    other = WorkerCore(core.context.settings)
    assert other != core
    other.restore(copy.deepcopy(core.state()))
    assert other == core
    assert other.handle(ConfigReadToEnd(1), 2_000) == core.handle(ConfigReadToEnd(1), 2_000)
    assert other == core


def test_cores_differ_in_each_field_of_their_parts() -> None:
    core = working()
    for part, fields_of_part in core.state().items():
        for name in fields_of_part:
            other = copy.deepcopy(core)
            state = copy.deepcopy(core.state())
            state[part][name] = "another value"
            other.restore(state)
            assert other != core, f"{part}.{name}"


@pytest.mark.unchecked
def test_signals_that_do_not_end_are_a_defect_that_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    core = a_core()
    unknown = CoordinatorUnknown(0)
    monkeypatch.setattr(Rebalance, "on_coordinator_unknown", lambda self: self.context.signal(unknown))
    core.context.signal(unknown)
    with pytest.raises(AssertionError, match=r"signals do not end in one step; the next is CoordinatorUnknown"):
        core.handle(StatusRecordRead(ConnectorStatusRecord("c", None)), 1_000)
