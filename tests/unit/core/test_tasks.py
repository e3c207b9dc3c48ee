"""Tasks of a worker: exact steps from start to end, for every phase, restarts and late answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectx.core.config_writer import Claim, ConfigWriter
from connectx.core.context import Context, WorkerPhase
from connectx.core.fencing import FencingRounds
from connectx.core.messages import (
    BeginTask,
    CancelTask,
    ConfigReadToEnd,
    FenceRequestAnswered,
    InitTaskProducer,
    PrepareTask,
    ReadConfigToEnd,
    SendFenceRequest,
    SetTaskTargetState,
    SetTimer,
    StopTask,
    TaskFailed,
    TaskPrepared,
    TaskProducerReady,
    TaskStateReached,
    TaskStopped,
    WriteStatus,
)
from connectx.core.signals import LocalWaiter
from connectx.core.tasks import TaskPhase, Tasks
from connectx.core.timer_keys import TaskFencingRetry, TaskRestart, TaskStopLimit
from connectx.model.config_records import ConnectorConfigRecord, TaskCommitRecord, TaskConfigRecord
from connectx.model.events import EventKind
from connectx.model.group import WorkSet
from connectx.model.ids import TaskId
from connectx.model.states import State, TargetState
from connectx.model.status_records import Status, TaskStatusRecord
from tests.support.core_parts import (
    C0,
    C1,
    LEADER_URL,
    ME,
    SOURCE,
    a_context,
    both,
    commit,
    configure,
    effects,
    read,
    shown,
    target,
    task_config,
    transitions,
)
from tests.support.histories import Because, Recorded

GRACE_MS = 5_000


def the_tasks(context: Context) -> Tasks:
    return Tasks(context, FencingRounds(context, ConfigWriter(context, Claim.HELD)))


def step(name: str, cause: str = "", instance: int = 1, producer_epoch: int | None = None) -> Recorded:
    data = {"step": name, "instance": instance}
    return Recorded(EventKind.TASK_STEP, "c", 0, 3, producer_epoch, cause, data)


def refused(reason: str) -> Recorded:
    return Recorded(EventKind.TASK_REFUSED, "c", 0, 3, None, reason, {"reason": reason, "instance": 1})


def state(value: State, instance: int = 1, cause: str = "", trace: str | None = None) -> Recorded:
    data = {"state": value.value, "trace": trace, "instance": instance}
    return Recorded(EventKind.TASK_STATE, "c", 0, 3, None, cause, data)


def status(value: State, trace: str | None = None, version: str | None = "1", generation: int = 3) -> WriteStatus:
    return WriteStatus(TaskStatusRecord(C0, Status(value, ME, generation, trace, version)))


def prepare(
    instance: int = 1, *, target_state: TargetState = TargetState.STARTED, exactly_once: bool = True, of: str = "1"
) -> PrepareTask:
    return PrepareTask(C0, instance, SOURCE, task_config(0, of), target_state, 3, exactly_once)


def at(phase: TaskPhase, **changes: Any) -> tuple[Context, Tasks]:
    """Task c-0, instance 1, in that phase; what came out on the way is forgotten."""
    context = a_context(**changes)
    tasks = the_tasks(context)
    tasks.start(C0, Because("a reason"))
    moves: list[Callable[[], None]] = [
        lambda: tasks.on_prepared(TaskPrepared(C0, 1, "1")),
        lambda: tasks.on_fenced(LocalWaiter(C0, 1), None),
        lambda: tasks.on_producer_ready(TaskProducerReady(C0, 1, 7)),
        lambda: tasks.on_config_read(C0, ConfigReadToEnd(tasks.lives[C0].request_id or 0)),
        lambda: tasks.on_state_reached(TaskStateReached(C0, 1, paused=False)),
    ]
    if phase in (TaskPhase.FAILED, TaskPhase.STOPPING):
        moves.append(lambda: tasks.on_failed(TaskFailed(C0, 1, "oops")))
        if phase is TaskPhase.STOPPING:
            moves[-1] = lambda: tasks.stop(C0, Because("a reason"))
    for move in moves:
        if tasks.lives[C0].phase is phase:
            break
        move()
    assert tasks.lives[C0].phase is phase
    both(context)
    return context, tasks


# ------------------------------------------------------------------------------------------------------ the start


def test_a_task_is_prepared_with_the_configs_of_the_snapshot() -> None:
    context = a_context()
    the_tasks(context).start(C0, Because("it was assigned to this worker"))
    assert both(context) == ([step("prepare", "it was assigned to this worker")], [prepare()])


def test_a_partly_written_set_of_task_configs_starts_no_task() -> None:
    context = a_context()
    read(context, TaskConfigRecord(C0, task_config(0, "2")), TaskCommitRecord("c", 2))
    the_tasks(context).start(C0, Because(""))
    assert both(context) == ([], [])


def test_a_task_beyond_the_number_of_the_last_commit_does_not_start() -> None:
    context = a_context()
    commit(context, tasks=1)
    the_tasks(context).start(C1, Because(""))
    assert both(context) == ([], [])


def test_a_worker_that_shuts_down_starts_nothing() -> None:
    context = a_context()
    context.phase = WorkerPhase.STOPPING
    the_tasks(context).start(C0, Because(""))
    assert both(context) == ([], [])


def test_a_task_that_is_there_is_not_started_again() -> None:
    context, tasks = at(TaskPhase.FAILED)
    tasks.start(C0, Because(""))
    assert both(context) == ([], [])


def test_without_exactly_once_a_task_begins_as_soon_as_it_is_prepared() -> None:
    context = a_context()
    read(context, ConnectorConfigRecord("c", {"connector.class": "Sink"}))
    tasks = the_tasks(context)
    tasks.start(C0, Because(""))
    both(context)
    tasks.on_prepared(TaskPrepared(C0, 1, "1"))
    assert both(context) == ([step("begin")], [BeginTask(C0, 1)])


@pytest.mark.rule("618.3.2")
def test_an_exactly_once_source_task_starts_in_the_order_of_kip_618() -> None:
    context = a_context()
    tasks = the_tasks(context)
    tasks.start(C0, Because(""))
    both(context)
    tasks.on_prepared(TaskPrepared(C0, 1, "1"))
    assert both(context) == ([step("request_fencing")], [ReadConfigToEnd(1, 3_000)])
    tasks.on_fenced(LocalWaiter(C0, 1), None)
    assert both(context) == ([step("init_producer", "older producers are fenced")], [InitTaskProducer(C0, 1)])
    tasks.on_producer_ready(TaskProducerReady(C0, 1, 7))
    verify = step("read_config_to_end", "producer is initialised", producer_epoch=7)
    assert both(context) == ([verify], [ReadConfigToEnd(2, None)])
    tasks.on_config_read(C0, ConfigReadToEnd(2))
    assert both(context) == ([step("begin")], [BeginTask(C0, 1)])
    tasks.on_state_reached(TaskStateReached(C0, 1, paused=False))
    assert both(context) == ([state(State.RUNNING)], [status(State.RUNNING)])


# ------------------------------------------------------------------------------------------------------ fencing


@pytest.mark.rule("618.2.5")
def test_a_follower_asks_the_leader_to_fence() -> None:
    context, tasks = at(TaskPhase.PREPARING, leads=False)
    tasks.on_prepared(TaskPrepared(C0, 1))
    assert both(context) == ([step("request_fencing")], [SendFenceRequest(1, LEADER_URL, "c")])
    tasks.on_fence_request_answered(C0, FenceRequestAnswered(1))
    assert effects(context) == [InitTaskProducer(C0, 1)]


@pytest.mark.parametrize("missing", ["leader", "key"])
def test_a_task_waits_while_the_leader_or_its_key_is_unknown(missing: str) -> None:
    context, tasks = at(TaskPhase.PREPARING, leads=False)
    if missing == "leader":
        context.group.leader_url = ""
    else:
        context.config.session_key = None
    tasks.on_prepared(TaskPrepared(C0, 1))
    retry = step("retry_fencing", "the leader or its session key is not known yet")
    assert both(context) == ([step("request_fencing"), retry], [SetTimer(TaskFencingRetry(C0, 1), 1, 1_250)])


def test_a_leader_that_is_away_is_asked_again_later_and_later() -> None:
    context, tasks = at(TaskPhase.FENCING, leads=False)
    delays_ms = []
    for _ in range(7):
        answer = FenceRequestAnswered(tasks.lives[C0].request_id or 0, "leader moved", retriable=True)
        tasks.on_fence_request_answered(C0, answer)
        timer = effects(context)[0]
        assert isinstance(timer, SetTimer)
        delays_ms.append(timer.at_ms - context.now_ms)
        tasks.on_fence_timer(TaskFencingRetry(C0, 1))
        assert [type(effect) for effect in effects(context)] == [SendFenceRequest]
    assert delays_ms == [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]


@pytest.mark.rule("618.2.5")
def test_a_signature_that_is_refused_is_tried_with_the_next_key_but_not_for_ever() -> None:
    context, tasks = at(TaskPhase.FENCING, leads=False)

    def ask_again(now_ms: int, *, is_refused: bool = True) -> None:
        context.now_ms = now_ms
        request_id = tasks.lives[C0].request_id or 0
        tasks.on_fence_request_answered(C0, FenceRequestAnswered(request_id, "no", retriable=True, refused=is_refused))
        if tasks.lives[C0].phase is TaskPhase.FENCING:
            tasks.on_fence_timer(TaskFencingRetry(C0, 1))

    ask_again(1_000)
    ask_again(60_000)
    ask_again(60_500, is_refused=False)  # the leader moved: what counts is how long this one refuses
    ask_again(60_600)
    ask_again(120_599)
    assert not tasks.is_failed(C0)
    both(context)
    ask_again(120_600)
    assert tasks.is_failed(C0)
    (recorded,) = transitions(context)
    assert "Fencing of older producers of c failed: no" in recorded.data["trace"]


def test_a_real_fencing_error_fails_the_task() -> None:
    context, tasks = at(TaskPhase.FENCING, leads=False)
    tasks.on_fence_request_answered(C0, FenceRequestAnswered(tasks.lives[C0].request_id or 0, "not authorised"))
    trace = "Fencing of older producers of c failed: not authorised"
    assert both(context) == (
        [state(State.FAILED, trace=trace)],
        [StopTask(C0, 1), status(State.FAILED, trace)],
    )
    assert tasks.is_failed(C0)


def test_a_task_that_was_told_to_stop_never_touches_its_producer() -> None:
    context, tasks = at(TaskPhase.FENCING)
    tasks.stop(C0, Because("the leader revoked it"))
    both(context)
    tasks.on_fenced(LocalWaiter(C0, 1), None)
    assert both(context) == ([], [])


# ------------------------------------------------------------------------------------------- the check before the start


@pytest.mark.rule("618.3.3")
def test_newer_task_configs_end_the_start() -> None:
    context, tasks = at(TaskPhase.VERIFYING)
    commit(context)
    tasks.on_config_read(C0, ConfigReadToEnd(tasks.lives[C0].request_id or 0))
    reason = "newer task configs are in the config topic"
    assert both(context) == (
        [refused(reason), step("stop", reason)],
        [StopTask(C0, 1), SetTimer(TaskStopLimit(C0, 1), 1, 1_000 + GRACE_MS)],
    )


def test_a_task_that_is_no_longer_assigned_does_not_begin() -> None:
    context, tasks = at(TaskPhase.VERIFYING)
    context.group.assignment = WorkSet()
    tasks.on_config_read(C0, ConfigReadToEnd(tasks.lives[C0].request_id or 0))
    assert effects(context) == [StopTask(C0, 1), SetTimer(TaskStopLimit(C0, 1), 1, 1_000 + GRACE_MS)]


@pytest.mark.rule("618.3.1")
def test_without_a_task_count_record_behind_the_latest_task_configs_a_task_is_refused_until_a_rebalance() -> None:
    context, tasks = at(TaskPhase.VERIFYING)
    read(context, TaskCommitRecord("c", 0), TaskCommitRecord("c", 2))  # of no generation that counts
    tasks.lives[C0].task_config_generation = context.config.task_config_generation("c")
    tasks.on_config_read(C0, ConfigReadToEnd(tasks.lives[C0].request_id or 0))
    reason = "no task count record follows the latest task configs; the next rebalance tries again"
    assert both(context) == (
        [refused(reason), step("stop", reason)],
        [StopTask(C0, 1), SetTimer(TaskStopLimit(C0, 1), 1, 1_000 + GRACE_MS)],
    )
    tasks.on_stopped(TaskStopped(C0, 1))
    assert tasks.running() == (), "it has not failed, and waits for nothing of this worker"
    commit(context)
    tasks.start(C0, Because("it was assigned to this worker"))  # what the next rebalance does
    assert tasks.lives[C0].phase is TaskPhase.PREPARING


@pytest.mark.rule("618.3.3")
@pytest.mark.parametrize("phase", [TaskPhase.PREPARING, TaskPhase.FENCING, TaskPhase.INITIALIZING, TaskPhase.VERIFYING])
def test_newer_task_configs_refuse_a_start_as_soon_as_they_are_read(phase: TaskPhase) -> None:
    context, tasks = at(phase)
    tasks.on_new_task_configs("c")
    reason = "newer task configs are in the config topic"
    assert transitions(context) == [refused(reason), step("stop", reason)]
    assert tasks.lives[C0].phase is TaskPhase.STOPPING


@pytest.mark.parametrize("phase", [TaskPhase.STARTING, TaskPhase.ACTIVE])
def test_newer_task_configs_stop_what_runs(phase: TaskPhase) -> None:
    context, tasks = at(phase)
    tasks.on_new_task_configs("c")
    assert transitions(context) == [step("stop", "its connector has new task configs")]


def test_a_config_topic_that_cannot_be_read_fails_the_start() -> None:
    context, tasks = at(TaskPhase.VERIFYING)
    tasks.on_config_read(C0, ConfigReadToEnd(tasks.lives[C0].request_id or 0, "gone"))
    trace = "Could not read the config topic before the start of c-0: gone"
    assert effects(context) == [StopTask(C0, 1), status(State.FAILED, trace)]


# ------------------------------------------------------------------------------------------------- pause and resume


@pytest.mark.parametrize("phase", [TaskPhase.PREPARING, TaskPhase.FENCING, TaskPhase.STARTING, TaskPhase.ACTIVE])
def test_a_pause_reaches_a_task_in_every_phase(phase: TaskPhase) -> None:
    context, tasks = at(phase)
    target(context, TargetState.PAUSED)
    tasks.set_target_state("c")
    assert both(context) == ([], [SetTaskTargetState(C0, 1, TargetState.PAUSED)])
    tasks.set_target_state("c")
    assert both(context) == ([], [])


def test_a_task_of_a_paused_connector_is_prepared_as_such() -> None:
    context = a_context()
    target(context, TargetState.PAUSED)
    the_tasks(context).start(C0, Because(""))
    assert effects(context) == [prepare(target_state=TargetState.PAUSED)]


def test_stopped_comes_to_tasks_as_an_empty_set_of_task_configs_only() -> None:
    context, tasks = at(TaskPhase.ACTIVE)
    target(context, TargetState.STOPPED)
    tasks.set_target_state("c")
    assert both(context) == ([], [])


def test_a_task_that_rests_is_paused_and_one_that_goes_on_runs() -> None:
    context, tasks = at(TaskPhase.ACTIVE)
    tasks.on_state_reached(TaskStateReached(C0, 1, paused=True))
    tasks.on_state_reached(TaskStateReached(C0, 1, paused=False))
    assert effects(context) == [status(State.PAUSED), status(State.RUNNING)]


# -------------------------------------------------------------------------------------------------------- the end


def test_a_task_that_stops_in_time_is_unassigned() -> None:
    context, tasks = at(TaskPhase.ACTIVE)
    tasks.stop(C0, Because("the leader revoked it"))
    timer = SetTimer(TaskStopLimit(C0, 1), 1, 1_000 + GRACE_MS)
    assert both(context) == ([step("stop", "the leader revoked it")], [StopTask(C0, 1), timer])
    tasks.on_stopped(TaskStopped(C0, 1))
    assert both(context) == ([state(State.UNASSIGNED)], [status(State.UNASSIGNED)])
    assert tasks.running() == ()
    assert not context.timers.is_set(TaskStopLimit(C0, 1))


def test_a_task_that_does_not_stop_is_cancelled_and_says_nothing_more() -> None:
    context, tasks = at(TaskPhase.STOPPING)
    tasks.on_stop_timer(TaskStopLimit(C0, 1))
    cause = "it did not stop within task.shutdown.graceful.timeout.ms"
    assert both(context) == ([step("cancel", cause)], [CancelTask(C0, 1)])
    tasks.on_stopped(TaskStopped(C0, 1))
    tasks.on_failed(TaskFailed(C0, 1, "late"))
    assert both(context) == ([], [])


def test_a_failed_task_stays_until_it_is_stopped_and_then_goes_without_a_word() -> None:
    context, tasks = at(TaskPhase.ACTIVE)
    tasks.on_failed(TaskFailed(C0, 1, "oops"))
    assert both(context) == ([state(State.FAILED, trace="oops")], [status(State.FAILED, "oops")])
    tasks.stop(C0, Because(""))
    assert both(context) == ([], [])
    assert tasks.running() == ()


def test_a_failure_while_stopping_is_shown_and_ends_the_wait() -> None:
    context, tasks = at(TaskPhase.STOPPING)
    tasks.on_failed(TaskFailed(C0, 1, "oops"))
    assert both(context) == ([state(State.FAILED, trace="oops")], [status(State.FAILED, "oops")])
    assert tasks.running() == ()


def test_unassigned_and_failed_do_not_hide_what_a_later_generation_says_elsewhere() -> None:
    context, tasks = at(TaskPhase.ACTIVE)
    shown(context, C0, State.RUNNING, "other:1", generation=4)
    tasks.on_failed(TaskFailed(C0, 1, "oops"))
    assert both(context) == ([state(State.FAILED, trace="oops")], [])


def test_a_status_from_an_earlier_generation_is_written_over() -> None:
    context, tasks = at(TaskPhase.ACTIVE)
    context.group.generation = 4
    shown(context, C0, State.UNASSIGNED, "other:1", generation=3)
    tasks.remind(C0)
    assert effects(context) == [status(State.RUNNING, generation=4)]
    shown(context, C0, State.UNASSIGNED, "other:1", generation=4)
    tasks.remind(C0)
    assert effects(context) == []


# ------------------------------------------------------------------------------------------------------- restarts


def test_a_restarted_task_stops_is_shown_as_restarting_and_starts_as_a_new_instance() -> None:
    context, tasks = at(TaskPhase.ACTIVE)
    tasks.restart(C0, Because("its restart was requested"))
    assert [type(effect) for effect in effects(context)] == [StopTask, SetTimer]
    transitions(context)
    tasks.on_stopped(TaskStopped(C0, 1))
    restarting = state(State.RESTARTING, cause="its restart was requested")
    assert both(context) == (
        [state(State.UNASSIGNED), restarting, step("prepare", "its restart was requested", instance=2)],
        [status(State.UNASSIGNED), status(State.RESTARTING, version=None), prepare(2)],
    )


def test_a_failed_task_restarts_at_once() -> None:
    context, tasks = at(TaskPhase.FAILED)
    tasks.restart(C0, Because("asked"))
    assert effects(context) == [status(State.RESTARTING, version=None), prepare(2)]


def restartable(**config: str) -> tuple[Context, Tasks]:
    """Task c-0, running, of a connector with these settings."""
    context, tasks = at(TaskPhase.ACTIVE)
    given = {key.replace("_", "."): value for key, value in config.items()}
    read(context, ConnectorConfigRecord("c", SOURCE | given))
    both(context)
    return context, tasks


def failed_again(context: Context, tasks: Tasks) -> list[int]:
    """The pauses until a restart, for each failure until there is no restart any more."""
    pauses: list[int] = []
    while True:
        instance = tasks.lives[C0].instance
        tasks.on_failed(TaskFailed(C0, instance, "oops\n  at x"))
        timers = [effect for effect in effects(context) if isinstance(effect, SetTimer)]
        transitions(context)
        if not timers:
            return pauses
        pauses.append(timers[0].at_ms - context.now_ms)
        context.now_ms = timers[0].at_ms
        assert context.timers.is_set(TaskRestart(C0, instance))
        tasks.on_restart_timer(TaskRestart(C0, instance))


def test_a_failed_task_is_not_restarted_unless_its_connector_asks_for_it() -> None:
    assert failed_again(*restartable()) == []
    assert failed_again(*restartable(task_restart_max="nonsense")) == []


def test_a_failed_task_is_restarted_after_growing_pauses_up_to_the_limit_and_the_history_says_why() -> None:
    context, tasks = restartable(task_restart_max="2", task_restart_backoff_ms="500")
    tasks.on_failed(TaskFailed(C0, 1, "oops\n  at x"))
    both(context)
    tasks.on_restart_timer(TaskRestart(C0, 1))
    cause = "restart 1 of 2 after a pause of 500 ms, since it failed: oops"
    assert transitions(context) == [state(State.RESTARTING, cause=cause), step("prepare", cause, instance=2)]
    assert failed_again(*restartable(task_restart_max="3", task_restart_backoff_ms="500")) == [500, 1_000, 2_000]


def test_restarts_count_from_zero_when_a_user_restarts_or_the_task_has_run_for_long() -> None:
    context, tasks = restartable(task_restart_max="1")
    assert failed_again(context, tasks) == [10_000]
    tasks.restart(C0, Because("asked"))
    both(context)
    assert failed_again(context, tasks) == [10_000]
    context, tasks = restartable(task_restart_max="1")
    tasks.restarts[C0] = 1
    context.now_ms += 300_000
    assert failed_again(context, tasks) == [10_000]


def test_a_fenced_task_is_not_restarted_since_it_has_a_successor() -> None:
    context, tasks = restartable(task_restart_max="5")
    tasks.on_failed(TaskFailed(C0, 1, "fenced", fenced=True))
    assert not [effect for effect in effects(context) if isinstance(effect, SetTimer)]


def test_a_task_that_was_revoked_before_its_restart_stays_away() -> None:
    context, tasks = restartable(task_restart_max="5")
    tasks.on_failed(TaskFailed(C0, 1, "oops"))
    tasks.stop(C0, Because(""))
    assert not context.timers.is_set(TaskRestart(C0, 1))
    both(context)
    tasks.on_restart_timer(TaskRestart(C0, 1))
    assert both(context) == ([], [])


def test_a_cancelled_task_restarts_beside_its_zombie() -> None:
    context, tasks = at(TaskPhase.ACTIVE)
    tasks.restart(C0, Because("asked"))
    both(context)
    tasks.on_stop_timer(TaskStopLimit(C0, 1))
    assert effects(context) == [CancelTask(C0, 1), status(State.RESTARTING, version=None), prepare(2)]
    transitions(context)
    tasks.on_stopped(TaskStopped(C0, 1))
    assert both(context) == ([], [])
    assert tasks.lives[C0].instance == 2


def test_a_task_assigned_while_it_stops_starts_with_its_new_config_when_it_has_stopped() -> None:
    context, tasks = at(TaskPhase.STOPPING)
    commit(context)
    tasks.start(C0, Because("it was assigned to this worker"))
    assert both(context) == ([], [])
    tasks.on_stopped(TaskStopped(C0, 1))
    assert effects(context) == [status(State.UNASSIGNED), prepare(2, of="2")]


def test_a_stop_takes_a_restart_back() -> None:
    context, tasks = at(TaskPhase.ACTIVE)
    tasks.restart(C0, Because("asked"))
    tasks.stop(C0, Because("the leader revoked it"))
    both(context)
    tasks.on_stopped(TaskStopped(C0, 1))
    assert effects(context) == [status(State.UNASSIGNED)]


def test_work_that_was_revoked_meanwhile_is_not_started_again() -> None:
    context, tasks = at(TaskPhase.ACTIVE)
    tasks.restart(C0, Because("asked"))
    context.group.assignment = None
    both(context)
    tasks.on_stopped(TaskStopped(C0, 1))
    assert effects(context) == [status(State.UNASSIGNED)]


# ----------------------------------------------------------------------------------------------------- late answers


@pytest.mark.parametrize("phase", list(TaskPhase))
def test_answers_of_an_older_instance_change_nothing(phase: TaskPhase) -> None:
    context, tasks = at(phase)
    tasks.on_prepared(TaskPrepared(C0, 0))
    tasks.on_fenced(LocalWaiter(C0, 0), "error")
    tasks.on_producer_ready(TaskProducerReady(C0, 0, 1))
    tasks.on_state_reached(TaskStateReached(C0, 0, paused=True))
    tasks.on_failed(TaskFailed(C0, 0, "late"))
    tasks.on_stopped(TaskStopped(C0, 0))
    tasks.on_stop_timer(TaskStopLimit(C0, 0))
    tasks.on_fence_timer(TaskFencingRetry(C0, 0))
    assert both(context) == ([], [])
    assert tasks.lives[C0].phase is phase


@pytest.mark.parametrize("phase", [TaskPhase.FAILED, TaskPhase.STOPPING])
def test_what_an_instance_says_after_its_end_began_does_not_revive_it(phase: TaskPhase) -> None:
    context, tasks = at(phase)
    tasks.on_prepared(TaskPrepared(C0, 1))
    tasks.on_producer_ready(TaskProducerReady(C0, 1, 1))
    tasks.on_state_reached(TaskStateReached(C0, 1, paused=False))
    assert both(context) == ([], [])


def test_tasks_are_listed_in_order() -> None:
    context = a_context()
    configure(context, tasks=12)
    tasks = the_tasks(context)
    for number in (10, 2, 0):
        tasks.start(TaskId("c", number), Because(""))
    assert tasks.running() == (C0, TaskId("c", 2), TaskId("c", 10))
