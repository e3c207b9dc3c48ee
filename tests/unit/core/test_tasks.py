"""Tasks of a worker: exact steps from start to end, for every phase, restarts and late answers."""

from __future__ import annotations

import pytest

from connectx.core import verbs
from connectx.core.messages import (
    BeginTask,
    CancelTask,
    Done,
    InitTaskProducer,
    PrepareTask,
    ReadConfigToEnd,
    Refused,
    SendFenceRequest,
    SetTaskTargetState,
    SetTimer,
    ShutdownRequested,
    Stimulus,
    StopTask,
    TaskFailed,
    TaskPrepared,
    TaskProducerReady,
    TaskStateReached,
    TaskStopped,
    TimerFired,
    WorkerStep,
    WriteStatus,
)
from connectx.core.tasks import TaskPhase
from connectx.core.timer_keys import TaskFencingRetry, TaskRestart, TaskStopLimit
from connectx.model.config_records import (
    ConfigRecord,
    ConnectorConfigRecord,
    RestartRecord,
    TaskCommitRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from connectx.model.events import EventKind
from connectx.model.group import WorkSet
from connectx.model.ids import TaskId
from connectx.model.states import State, TargetState
from connectx.model.status_records import Status, TaskStatusRecord
from tests.support.histories import Recorded
from tests.support.worker_script import (
    C0,
    C1,
    KEY,
    LEADER_URL,
    ME,
    NOTHING_HAPPENED,
    SOURCE,
    TASK,
    WorkerScript,
    both,
    committed,
    configured,
    following,
    leading,
    member,
    merged,
    of_kind,
    replies,
    resting,
    starting,
    task_config,
)

GRACE_MS = 5_000
NEWER = "newer task configs are in the config topic"
DELETED = "it was deleted"


def step(
    name: str, cause: str = "", instance: int = 1, producer_epoch: int | None = None, generation: int = 3
) -> Recorded:
    data = {"step": name, "instance": instance}
    return Recorded(EventKind.TASK_STEP, "c", 0, generation, producer_epoch, cause, data)


def refused(reason: str) -> Recorded:
    return Recorded(EventKind.TASK_REFUSED, "c", 0, 3, None, reason, {"reason": reason, "instance": 1})


def state(value: State, cause: str = "", trace: str | None = None, generation: int = 3) -> Recorded:
    data = {"state": value.value, "trace": trace, "instance": 1}
    return Recorded(EventKind.TASK_STATE, "c", 0, generation, None, cause, data)


def status(value: State, trace: str | None = None, version: str | None = "1", generation: int = 3) -> WriteStatus:
    return WriteStatus(TaskStatusRecord(C0, Status(value, ME, generation, trace, version)))


def prepare(
    instance: int = 1, target_state: TargetState = TargetState.STARTED, of: str = "1", generation: int = 3
) -> PrepareTask:
    return PrepareTask(
        C0, instance, SOURCE, task_config(0, of), target_state, generation, exactly_once=True, task_count=2
    )


def at(phase: TaskPhase, *records: ConfigRecord) -> WorkerScript:
    """A follower whose only work is task c-0, instance 1, in that phase; new task configs stop it."""
    script = following(TASK, records or configured())
    if phase in (TaskPhase.ACTIVE, TaskPhase.FAILED, TaskPhase.STOPPING):
        script.task_runs()
    if phase is TaskPhase.FAILED:
        script.do(TaskFailed(C0, 1, "oops"))
    elif phase is TaskPhase.STOPPING:
        assert stops(script.see(*committed(2))) == [StopTask(C0, 1)]
    elif phase not in (TaskPhase.PREPARING, TaskPhase.ACTIVE):
        _start_up_to(phase, script)
    return script


def _start_up_to(phase: TaskPhase, script: WorkerScript) -> None:
    script.do(TaskPrepared(C0, 1, "1"))
    if phase is TaskPhase.FENCING:
        return
    script.answer_fencing()
    if phase is TaskPhase.INITIALIZING:
        return
    script.do(TaskProducerReady(C0, 1, 7))
    if phase is TaskPhase.STARTING:
        script.read_to_end()


def restarted(script: WorkerScript, task: int = 0) -> WorkerStep:
    """A user restarts the task."""
    return merged(script.ask(verbs.RestartTask("c", task)), script.read_to_end())


def starts(step: WorkerStep) -> list[PrepareTask]:
    return of_kind(step, PrepareTask)


def stops(step: WorkerStep) -> list[StopTask]:
    return of_kind(step, StopTask)


def test_a_task_is_prepared_with_the_configs_of_the_snapshot() -> None:
    script = starting()
    script.start()
    script.joined()
    assigned = script.assigned(TASK)
    assert assigned.transitions[1:] == [step("prepare", "it was assigned to this worker")]
    assert assigned.effects == [prepare()]


@pytest.mark.parametrize(
    ("records", "task"),
    [
        pytest.param((TaskConfigRecord(C0, task_config(0, "2")), TaskCommitRecord("c", 2)), C0, id="partly written"),
        pytest.param(committed(1), C1, id="beyond the last commit"),
    ],
)
def test_a_task_without_a_complete_config_does_not_start(records: tuple[ConfigRecord, ...], task: TaskId) -> None:
    script = starting((*configured(), *records))
    script.start()
    script.joined()
    assert script.assigned(WorkSet((), (task,))).effects == []


def test_a_worker_that_shuts_down_starts_nothing() -> None:
    script = at(TaskPhase.ACTIVE)
    restarted(script)
    script.do(ShutdownRequested())
    stopped = script.do(TaskStopped(C0, 1))
    assert (stopped.effects[0], starts(stopped)) == (status(State.UNASSIGNED), [])


def test_a_failed_task_that_is_assigned_again_is_not_started_again() -> None:
    script = at(TaskPhase.FAILED)
    step = script.rebalance(TASK)
    assert (starts(step), stops(step)) == ([], [])


def test_without_exactly_once_a_task_begins_as_soon_as_it_is_prepared() -> None:
    script = at(TaskPhase.PREPARING, *configured(connector_class="Sink"))
    assert both(script.do(TaskPrepared(C0, 1, "1"))) == ([step("begin")], [BeginTask(C0, 1)])


@pytest.mark.rule("618.2.5", "618.3.2")
def test_an_exactly_once_source_task_starts_in_the_order_of_kip_618() -> None:
    script = at(TaskPhase.PREPARING)
    asked = script.do(TaskPrepared(C0, 1, "1"))
    assert both(asked) == ([step("request_fencing")], [SendFenceRequest(1, LEADER_URL, "c")])
    initialised = step("init_producer", "older producers are fenced")
    assert both(script.answer_fencing()) == ([initialised], [InitTaskProducer(C0, 1)])
    verify = step("read_config_to_end", "producer is initialised", producer_epoch=7)
    assert both(script.do(TaskProducerReady(C0, 1, 7))) == ([verify], [ReadConfigToEnd(2, None)])
    assert both(script.read_to_end()) == ([step("begin")], [BeginTask(C0, 1)])
    running = script.do(TaskStateReached(C0, 1, paused=False))
    assert both(running) == ([state(State.RUNNING)], [status(State.RUNNING)])


def test_a_leader_asks_no_other_worker_to_fence() -> None:
    script = leading(others={"other": member()})
    prepared = script.do(TaskPrepared(C0, 2))
    assert both(prepared) == ([step("request_fencing", instance=2)], [ReadConfigToEnd(2, 3_000)])
    assert script.read_to_end().effects == [InitTaskProducer(C0, 2)]


def test_a_task_waits_while_the_session_key_is_unknown() -> None:
    script = at(TaskPhase.PREPARING, *configured()[:-1])
    retry = step("retry_fencing", "the leader or its session key is not known yet")
    prepared = script.do(TaskPrepared(C0, 1))
    assert both(prepared) == ([step("request_fencing"), retry], [SetTimer(TaskFencingRetry(C0, 1), 1, 1_250)])
    script.see(KEY)
    assert of_kind(script.fire(TaskFencingRetry(C0, 1)), SendFenceRequest) == [SendFenceRequest(1, LEADER_URL, "c")]


def test_a_task_waits_while_the_leader_is_unknown() -> None:
    script = leading()
    script.heartbeat("UNKNOWN_MEMBER_ID")
    prepared = script.do(TaskPrepared(C0, 2))
    assert prepared.transitions[1] == step(
        "retry_fencing", "the leader or its session key is not known yet", instance=2
    )
    assert [effect.key for effect in of_kind(prepared, SetTimer)] == [TaskFencingRetry(C0, 2)]


def test_a_task_that_stops_does_not_ask_for_fencing_again() -> None:
    script = at(TaskPhase.FENCING)
    script.answer_fencing("leader moved", retriable=True)
    script.see(*committed(2))
    late = script.fire(TaskFencingRetry(C0, 1))
    assert (*both(late), str(late.ignored)) == (*NOTHING_HAPPENED, "instance 1 of c-0 is stopping")


def test_a_leader_that_is_away_is_asked_again_later_and_later() -> None:
    script = at(TaskPhase.FENCING)
    delays_ms = []
    for _ in range(7):
        (timer,) = of_kind(script.answer_fencing("leader moved", retriable=True), SetTimer)
        delays_ms.append(timer.at_ms - script.now_ms)
        assert len(of_kind(script.fire(TaskFencingRetry(C0, 1)), SendFenceRequest)) == 1
    assert delays_ms == [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]


@pytest.mark.rule("618.2.5")
@pytest.mark.parametrize(("now_ms", "fails"), [(134_999, False), (135_000, True)])
def test_a_signature_that_is_refused_is_tried_with_the_next_key_for_a_minute(now_ms: int, fails: bool) -> None:
    script = at(TaskPhase.FENCING)
    for asked_ms, is_refused in ((1_000, True), (55_000, True), (65_000, False), (75_000, True)):
        script.now_ms = asked_ms  # in between the leader moved: what counts is how long this one refuses
        script.answer_fencing("no", retriable=True, is_refused=is_refused)
        script.fire(TaskFencingRetry(C0, 1))
    script.now_ms = now_ms
    answered = script.answer_fencing("no", retriable=True, is_refused=True)
    failed = status(State.FAILED, "Fencing of older producers of c failed: no")
    assert ([failed] == of_kind(answered, WriteStatus), len(of_kind(answered, SetTimer))) == (fails, int(not fails))


def test_a_real_fencing_error_fails_the_task() -> None:
    script = at(TaskPhase.FENCING)
    trace = "Fencing of older producers of c failed: not authorised"
    assert both(script.answer_fencing("not authorised")) == (
        [state(State.FAILED, trace=trace)],
        [StopTask(C0, 1), status(State.FAILED, trace)],
    )


def test_a_task_that_was_revoked_while_it_was_fenced_never_touches_its_producer() -> None:
    script = at(TaskPhase.FENCING)
    assert stops(script.rebalance(revoked=TASK)) == [StopTask(C0, 1)]
    late = script.answer_fencing()
    assert (*both(late), str(late.ignored)) == (*NOTHING_HAPPENED, "request 1 is not pending")


def test_a_task_that_restarts_while_its_leader_fences_never_touches_its_producer() -> None:
    script = leading(others={"other": member()})
    script.do(TaskPrepared(C0, 2))
    assert stops(script.see(RestartRecord("c", True, False))) == [StopTask(C0, 2)]
    assert both(script.read_to_end()) == NOTHING_HAPPENED


@pytest.mark.rule("618.3.3")
@pytest.mark.parametrize("phase", [TaskPhase.PREPARING, TaskPhase.FENCING, TaskPhase.INITIALIZING, TaskPhase.VERIFYING])
def test_newer_task_configs_end_a_start_as_soon_as_they_are_read(phase: TaskPhase) -> None:
    script = at(phase)
    read = script.see(*committed(2))
    assert read.transitions[1:3] == [refused(NEWER), step("stop", NEWER)]
    assert read.effects[:2] == [StopTask(C0, 1), SetTimer(TaskStopLimit(C0, 1), 1, 1_000 + GRACE_MS)]


def test_a_task_that_was_revoked_before_its_check_was_done_does_not_begin() -> None:
    script = at(TaskPhase.VERIFYING)
    assert stops(script.rebalance(revoked=TASK)) == [StopTask(C0, 1)]
    late = script.read_to_end()
    assert (*both(late), str(late.ignored)) == (*NOTHING_HAPPENED, "request 2 is not pending")


def test_a_task_whose_connector_was_deleted_before_its_check_was_done_does_not_begin() -> None:
    script = at(TaskPhase.VERIFYING)
    script.see(ConnectorConfigRecord("c", None))
    checked = script.read_to_end()
    assert checked.transitions == [refused(DELETED), step("stop", DELETED)]
    assert stops(checked) == [StopTask(C0, 1)]
    assert of_kind(checked, BeginTask) == []


@pytest.mark.rule("618.3.1")
def test_without_a_task_count_record_after_the_latest_task_configs_a_task_is_refused_until_a_rebalance() -> None:
    script = at(TaskPhase.VERIFYING, ConnectorConfigRecord("c", SOURCE), *committed(2, "1"), KEY)
    reason = "no task count record follows the latest task configs; the next rebalance tries again"
    assert both(script.read_to_end()) == (
        [refused(reason), step("stop", reason)],
        [StopTask(C0, 1), SetTimer(TaskStopLimit(C0, 1), 1, 1_000 + GRACE_MS)],
    )
    stopped = script.do(TaskStopped(C0, 1))
    assert both(stopped) == ([state(State.UNASSIGNED)], [status(State.UNASSIGNED)]), "it has not failed"
    script.see(TaskCountRecord("c", 2))
    assert starts(script.rebalance()) == [prepare(2, generation=4)]


@pytest.mark.parametrize("phase", [TaskPhase.STARTING, TaskPhase.ACTIVE])
def test_newer_task_configs_stop_what_runs(phase: TaskPhase) -> None:
    read = at(phase).see(*committed(2))
    assert read.transitions[1] == step("stop", "its connector has new task configs")
    assert stops(read) == [StopTask(C0, 1)]


def test_a_config_topic_that_cannot_be_read_fails_the_start() -> None:
    script = at(TaskPhase.VERIFYING)
    trace = "Could not read the config topic before the start of c-0: gone"
    assert script.read_to_end(error="gone").effects == [StopTask(C0, 1), status(State.FAILED, trace)]


@pytest.mark.parametrize("phase", [TaskPhase.PREPARING, TaskPhase.FENCING, TaskPhase.STARTING, TaskPhase.ACTIVE])
def test_a_pause_reaches_a_task_in_every_phase_and_once(phase: TaskPhase) -> None:
    script = at(phase)
    assert script.see(resting(TargetState.PAUSED)).effects == [SetTaskTargetState(C0, 1, TargetState.PAUSED)]
    assert script.see(resting(TargetState.PAUSED)).effects == []


@pytest.mark.parametrize("phase", [TaskPhase.FAILED, TaskPhase.STOPPING])
def test_a_pause_does_not_reach_a_task_that_has_ended(phase: TaskPhase) -> None:
    assert at(phase).see(resting(TargetState.PAUSED)).effects == []


def test_a_task_of_a_paused_connector_is_prepared_as_such() -> None:
    script = starting((*configured(), resting(TargetState.PAUSED)))
    script.start()
    script.joined()
    assert script.assigned(TASK).effects == [prepare(target_state=TargetState.PAUSED)]


def test_stopped_comes_to_tasks_as_an_empty_set_of_task_configs_only() -> None:
    assert at(TaskPhase.ACTIVE).see(resting(TargetState.STOPPED)).effects == []


def test_a_task_that_rests_is_paused_and_one_that_goes_on_runs() -> None:
    script = at(TaskPhase.ACTIVE)
    rested = script.do(TaskStateReached(C0, 1, paused=True), TaskStateReached(C0, 1, paused=False))
    assert rested.effects == [status(State.PAUSED), status(State.RUNNING)]


def test_a_task_that_stops_in_time_is_unassigned() -> None:
    script = at(TaskPhase.ACTIVE)
    revoked = script.rebalance(revoked=TASK)
    timer = SetTimer(TaskStopLimit(C0, 1), 1, script.now_ms + GRACE_MS)
    assert step("stop", "the leader revoked it", generation=4) in revoked.transitions
    assert revoked.effects == [StopTask(C0, 1), timer]
    stopped = script.do(TaskStopped(C0, 1))
    assert stopped.transitions[0] == state(State.UNASSIGNED, generation=4)
    assert of_kind(stopped, WriteStatus) == [status(State.UNASSIGNED, generation=4)]
    assert script.fire_late(timer).ignored is not None


def test_a_task_that_does_not_stop_is_cancelled_and_reports_nothing_more() -> None:
    script = at(TaskPhase.STOPPING)
    cause = "it did not stop within task.shutdown.graceful.timeout.ms"
    assert both(script.fire(TaskStopLimit(C0, 1))) == ([step("cancel", cause)], [CancelTask(C0, 1)])
    for late in (TaskStopped(C0, 1), TaskFailed(C0, 1, "late")):
        said = script.do(late)
        assert (*both(said), str(said.ignored)) == (*NOTHING_HAPPENED, "instance 1 of c-0 is gone")


def test_a_failed_task_stays_until_it_is_revoked_and_then_reports_nothing() -> None:
    script = at(TaskPhase.ACTIVE)
    failed = script.do(TaskFailed(C0, 1, "oops"))
    assert both(failed) == ([state(State.FAILED, trace="oops")], [status(State.FAILED, "oops")])
    revoked = script.rebalance(revoked=TASK)
    assert (stops(revoked), of_kind(revoked, WriteStatus)) == ([], [])
    assert both(script.do(TaskFailed(C0, 1, "late"))) == NOTHING_HAPPENED


def test_a_failure_while_stopping_is_shown_and_ends_the_wait() -> None:
    script = at(TaskPhase.STOPPING)
    failed = script.do(TaskFailed(C0, 1, "oops"))
    assert both(failed) == ([state(State.FAILED, trace="oops")], [status(State.FAILED, "oops")])
    assert str(script.do(TaskStopped(C0, 1)).ignored) == "instance 1 of c-0 is gone"


def test_a_failure_does_not_hide_what_a_later_generation_says_elsewhere() -> None:
    script = at(TaskPhase.ACTIVE)
    script.show(C0, State.RUNNING, "other:1", generation=4)
    assert both(script.do(TaskFailed(C0, 1, "oops"))) == ([state(State.FAILED, trace="oops")], [])


def test_a_status_from_an_earlier_generation_is_written_over() -> None:
    script = at(TaskPhase.ACTIVE)
    script.rebalance()
    over = script.show(C0, State.UNASSIGNED, "other:1", generation=3)
    assert over.effects == [status(State.RUNNING, generation=4)]
    assert script.show(C0, State.UNASSIGNED, "other:1", generation=4).effects == []


def test_a_restarted_task_stops_is_shown_as_restarting_and_starts_as_a_new_instance() -> None:
    script = at(TaskPhase.ACTIVE)
    assert [type(effect) for effect in restarted(script).effects] == [ReadConfigToEnd, StopTask, SetTimer]
    cause = "its restart was requested"
    assert both(script.do(TaskStopped(C0, 1))) == (
        [state(State.UNASSIGNED), state(State.RESTARTING, cause), step("prepare", cause, instance=2)],
        [status(State.UNASSIGNED), status(State.RESTARTING, version=None), prepare(2)],
    )


def test_a_failed_task_restarts_at_once() -> None:
    restart = restarted(at(TaskPhase.FAILED)).effects
    assert restart[1:] == [status(State.RESTARTING, version=None), prepare(2)]


def test_a_restart_is_answered_when_the_plugins_of_the_task_are_made() -> None:
    script = at(TaskPhase.ACTIVE)
    answers = [
        replies(restarted(script)),
        replies(script.do(TaskStopped(C0, 1))),
        replies(script.do(TaskPrepared(C0, 2))),
    ]
    assert answers == [[], [], [Done(77, 204)]]


@pytest.mark.parametrize(
    "then",
    [
        (TaskStopped(C0, 1), TaskFailed(C0, 2, "oops")),
        (TaskStopped(C0, 1), ShutdownRequested()),
        (ShutdownRequested(),),
    ],
)
def test_a_restart_of_a_task_that_fails_or_is_overtaken_is_a_500(then: tuple[Stimulus, ...]) -> None:
    script = at(TaskPhase.ACTIVE)
    assert replies(restarted(script)) == []
    assert replies(script.do(*then)) == [Refused(77, 500, "Failed to start task: c-0")]


def test_a_restart_fails_when_newer_task_configs_come_before_the_task_has_started() -> None:
    script = at(TaskPhase.ACTIVE)
    restarted(script)
    script.do(TaskStopped(C0, 1))
    assert replies(script.see(*committed(1))) == [Refused(77, 500, "Failed to start task: c-0")]


def test_restarts_of_a_task_that_stops_wait_for_the_same_start() -> None:
    script = at(TaskPhase.ACTIVE)
    restarted(script)
    merged(script.ask(verbs.RestartTask("c", 0), 78), script.read_to_end())
    script.do(TaskStopped(C0, 1))
    assert replies(script.do(TaskPrepared(C0, 2))) == [Done(77, 204), Done(78, 204)]


def failed_again(script: WorkerScript, instance: int = 1) -> tuple[list[int], int]:
    """The pauses until a restart, for each failure until there is none any more, and the last instance."""
    pauses: list[int] = []
    while timers := of_kind(script.do(TaskFailed(C0, instance, "oops\n  at x")), SetTimer):
        pauses.append(timers[0].at_ms - script.now_ms)
        (prepared,) = starts(script.fire(TaskRestart(C0, instance)))
        instance = prepared.instance
    return pauses, instance


def restartable(**config: str) -> WorkerScript:
    """Task c-0, running, of a connector with these settings."""
    return at(TaskPhase.ACTIVE, *configured(**config))


def test_a_failed_task_is_not_restarted_unless_its_connector_asks_for_it() -> None:
    assert failed_again(restartable()) == ([], 1)
    assert failed_again(restartable(task_restart_max="nonsense")) == ([], 1)


def test_a_failed_task_is_restarted_after_growing_pauses_up_to_the_limit_and_the_history_says_why() -> None:
    script = restartable(task_restart_max="2", task_restart_backoff_ms="500")
    script.do(TaskFailed(C0, 1, "oops\n  at x"))
    cause = "restart 1 of 2 after a pause of 500 ms, since it failed: oops"
    again = script.fire(TaskRestart(C0, 1))
    assert again.transitions == [state(State.RESTARTING, cause), step("prepare", cause, instance=2)]
    script = restartable(task_restart_max="3", task_restart_backoff_ms="500")
    assert failed_again(script) == ([500, 1_000, 2_000], 4)


def test_restarts_count_from_zero_after_a_users_restart() -> None:
    script = restartable(task_restart_max="1")
    assert failed_again(script) == ([10_000], 2)
    assert [prepared.instance for prepared in starts(restarted(script))] == [3]
    assert failed_again(script, instance=3) == ([10_000], 4)


@pytest.mark.parametrize(("ran_ms", "pauses"), [(299_999, []), (300_000, [10_000])])
def test_restarts_count_from_zero_once_the_task_has_run_for_five_minutes(ran_ms: int, pauses: list[int]) -> None:
    script = restartable(task_restart_max="1")
    script.do(TaskFailed(C0, 1, "oops"))
    script.fire(TaskRestart(C0, 1))
    script.task_runs(2)
    script.now_ms += ran_ms
    assert failed_again(script, instance=2)[0] == pauses


def test_a_fenced_task_is_not_restarted_since_it_has_a_successor() -> None:
    script = restartable(task_restart_max="5")
    assert of_kind(script.do(TaskFailed(C0, 1, "fenced", fenced=True)), SetTimer) == []


def test_a_fenced_task_that_the_group_leaves_with_its_worker_starts_again() -> None:
    script = at(TaskPhase.ACTIVE)
    script.do(TaskFailed(C0, 1, "fenced", fenced=True))
    assert starts(script.rebalance()) == [prepare(2, generation=4)]


@pytest.mark.parametrize(("worker", "generation", "restarts"), [("w2", 5, True), ("w2", 3, False), (ME, 5, False)])
def test_a_task_that_ran_elsewhere_meanwhile_starts_again_before_it_learns_that_it_is_fenced(
    worker: str, generation: int, restarts: bool
) -> None:
    script = at(TaskPhase.ACTIVE)
    script.show(C0, State.UNASSIGNED, worker, generation)
    assert stops(script.rebalance()) == ([StopTask(C0, 1)] if restarts else [])
    if restarts:
        assert starts(script.do(TaskStopped(C0, 1))) == [prepare(2, generation=4)]


def test_a_task_that_was_revoked_before_its_restart_stays_away() -> None:
    script = restartable(task_restart_max="5")
    (timer,) = of_kind(script.do(TaskFailed(C0, 1, "oops")), SetTimer)
    script.rebalance(revoked=TASK)
    late = script.fire_late(timer)
    assert (*both(late), late.ignored is None) == (*NOTHING_HAPPENED, False)


def test_a_cancelled_task_restarts_beside_its_zombie() -> None:
    script = at(TaskPhase.ACTIVE)
    restarted(script)
    cancelled = script.fire(TaskStopLimit(C0, 1))
    assert cancelled.effects == [CancelTask(C0, 1), status(State.RESTARTING, version=None), prepare(2)]
    late = script.do(TaskStopped(C0, 1))
    assert (*both(late), str(late.ignored)) == (*NOTHING_HAPPENED, "instance 1 of c-0 is gone, instance 2 follows it")


def test_a_task_assigned_while_it_stops_starts_with_its_new_config_when_it_has_stopped() -> None:
    script = at(TaskPhase.STOPPING)
    assert starts(script.rebalance()) == []
    stopped = script.do(TaskStopped(C0, 1))
    assert stopped.effects == [status(State.UNASSIGNED, generation=4), prepare(2, of="2", generation=4)]


def test_a_revocation_takes_a_restart_back() -> None:
    script = at(TaskPhase.ACTIVE)
    restarted(script)
    script.rebalance(revoked=TASK)
    stopped = script.do(TaskStopped(C0, 1))
    assert (of_kind(stopped, WriteStatus), starts(stopped)) == ([status(State.UNASSIGNED, generation=4)], [])


def test_a_restart_is_dropped_when_the_connector_was_deleted_meanwhile() -> None:
    script = at(TaskPhase.ACTIVE)
    restarted(script)
    script.see(ConnectorConfigRecord("c", None))
    assert starts(script.do(TaskStopped(C0, 1))) == []


@pytest.mark.parametrize("phase", list(TaskPhase))
def test_answers_of_an_older_instance_change_nothing(phase: TaskPhase) -> None:
    script = at(phase)
    late: tuple[Stimulus, ...] = (
        *(TaskPrepared(C0, 0), TaskProducerReady(C0, 0, 1), TaskStateReached(C0, 0, paused=True)),
        *(TaskFailed(C0, 0, "late"), TaskStopped(C0, 0)),
        *(TimerFired(key, 1) for key in (TaskStopLimit(C0, 0), TaskFencingRetry(C0, 0), TaskRestart(C0, 0))),
    )
    for stimulus in late:
        assert script.ignores(stimulus), stimulus


@pytest.mark.parametrize("phase", [TaskPhase.FAILED, TaskPhase.STOPPING])
def test_late_reports_do_not_revive_an_instance(phase: TaskPhase) -> None:
    script = at(phase)
    for stimulus in (TaskPrepared(C0, 1), TaskProducerReady(C0, 1, 1), TaskStateReached(C0, 1, paused=False)):
        assert script.ignores(stimulus), stimulus


def test_a_failure_is_reported_once() -> None:
    assert at(TaskPhase.FAILED).ignores(TaskFailed(C0, 1, "again"))


def test_tasks_stop_in_order() -> None:
    tasks = tuple(TaskId("c", number) for number in (10, 2, 0))
    script = following(WorkSet((), tasks), configured("c", 12))
    assert [effect.task for effect in stops(script.do(ShutdownRequested()))] == sorted(tasks)
