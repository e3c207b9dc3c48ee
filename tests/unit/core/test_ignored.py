"""Late stimuli: a core takes nothing from them, says why, and takes something from every other one."""

from __future__ import annotations

import copy
from typing import get_args

import pytest

from connectx.core import verbs
from connectx.core.context import Context
from connectx.core.group_messages import (
    CoordinatorFound,
    GroupRequestFailed,
    GroupStimulus,
    HeartbeatReplied,
    JoinGroupReplied,
    SyncGroupReplied,
)
from connectx.core.messages import (
    Answer,
    ConfigReadToEnd,
    ConfigRecordsWritten,
    ConfigWritesClaimed,
    ConnectorFailed,
    ConnectorStarted,
    ConnectorStateReached,
    ConnectorStopped,
    FenceRequestAnswered,
    ProducersFenced,
    SessionKeyCreated,
    ShutdownRequested,
    Stimulus,
    TaskConfigsGenerated,
    TaskConfigsSent,
    TaskFailed,
    TaskPrepared,
    TaskProducerReady,
    TaskReconfigurationRequested,
    TaskStateReached,
    TaskStopped,
    TimerFired,
    WorkerStep,
)
from connectx.core.timer_keys import GroupTimer, WorkerTimer
from connectx.core.worker import WorkerCore
from connectx.model.config_records import ConnectorConfigRecord
from connectx.model.group import WorkSet
from connectx.model.states import TargetState
from tests.simulation.chaos import Chaos
from tests.support.worker_script import C0, SOURCE, following, leading, starting

NOT_PENDING = "request 99 is not pending"
TASK_GONE = "instance 9 of c-0 is gone, instance 2 follows it"
CONNECTOR_GONE = "instance 9 of c is gone, instance 1 follows it"
LATE: list[tuple[Stimulus, str]] = [
    *((ConfigReadToEnd(99), NOT_PENDING), (ConfigRecordsWritten(99), NOT_PENDING), (ProducersFenced(99), NOT_PENDING)),
    *((ConfigWritesClaimed(99), NOT_PENDING), (SessionKeyCreated(99, b"k"), NOT_PENDING)),
    *((FenceRequestAnswered(99), NOT_PENDING), (TaskConfigsSent(99), NOT_PENDING)),
    *((CoordinatorFound(99), NOT_PENDING), (GroupRequestFailed(99, "cut"), NOT_PENDING)),
    *((HeartbeatReplied(99, None), NOT_PENDING), (SyncGroupReplied(99, None, None), NOT_PENDING)),
    (JoinGroupReplied(99, None, 4, "me", "me", "sessioned", {}), NOT_PENDING),
    (TimerFired(GroupTimer.HEARTBEAT, 99), "timer group.heartbeat was cancelled or set again"),
    (TimerFired(WorkerTimer.MISMATCH, 99), "timer mismatch was cancelled or set again"),
    (TaskPrepared(C0, 9), TASK_GONE),
    *((TaskProducerReady(C0, 9), TASK_GONE), (TaskProducerReady(C0, 2), "instance 2 of c-0 is preparing")),
    *((TaskStateReached(C0, 9, paused=False), TASK_GONE), (TaskFailed(C0, 9, "late"), TASK_GONE)),
    *((TaskStopped(C0, 9), TASK_GONE), (TaskStopped(C0, 2), "instance 2 of c-0 is preparing")),
    (ConnectorStarted("c", 9, TargetState.STARTED), CONNECTOR_GONE),
    (ConnectorStarted("d", 9, TargetState.STARTED), "instance 9 of d is gone"),
    (ConnectorStateReached("c", 9, TargetState.STOPPED), CONNECTOR_GONE),
    (ConnectorStateReached("c", 1, TargetState.STOPPED), "instance 1 of c is starting"),
    *((ConnectorFailed("c", 9, "late"), CONNECTOR_GONE), (ConnectorStopped("c", 9), CONNECTOR_GONE)),
    (ConnectorStopped("c", 1), "instance 1 of c is starting"),
    *((TaskReconfigurationRequested("c", 9), CONNECTOR_GONE), (TaskConfigsGenerated("c", 9), CONNECTOR_GONE)),
    (TaskConfigsGenerated("c", 1), "instance 1 of c is starting"),
]
REPORTS = (
    *(TaskPrepared, TaskProducerReady, TaskStateReached, TaskFailed, TaskStopped),
    *(ConnectorStarted, ConnectorStateReached, ConnectorFailed, ConnectorStopped),
    *(TaskReconfigurationRequested, TaskConfigsGenerated),
)
MAY_BE_LATE = (*get_args(Answer), *get_args(GroupStimulus), *REPORTS, TimerFired)


def working() -> WorkerCore:
    """A settled follower that starts connector c (instance 1) and task c-0 (instance 2)."""
    return following(WorkSet(("c",), (C0,))).core


@pytest.mark.parametrize(("stimulus", "reason"), LATE, ids=repr)
def test_a_late_stimulus_changes_nothing_and_the_step_says_why(stimulus: Stimulus, reason: str) -> None:
    core = working()
    before = copy.deepcopy(core)
    step = core.handle(stimulus, 1_000)
    assert (step.transitions, step.effects, str(step.ignored)) == ([], [], reason)
    assert core == before


def test_every_kind_of_answer_report_and_timer_can_be_late() -> None:
    assert {type(stimulus) for stimulus, _ in LATE} == set(MAY_BE_LATE)


def test_a_worker_that_has_stopped_ignores_all_but_requests() -> None:
    script = starting()
    script.do(ShutdownRequested())
    assert str(script.see(ConnectorConfigRecord("d", SOURCE)).ignored) == "the worker has stopped"
    assert script.ask(verbs.Worker()).ignored is None


def test_a_second_answer_is_late() -> None:
    script = leading()
    script.ask(verbs.Delete("c"))
    assert script.do(ConfigRecordsWritten(2)).ignored is None
    assert str(script.do(ConfigRecordsWritten(2, "late")).ignored) == "request 2 is not pending"
    assert str(script.do(ConfigReadToEnd(2, "late")).ignored) == "request 2 is not pending"


def test_an_answer_of_another_kind_is_a_defect_that_names_both() -> None:
    script = leading()
    script.ask(verbs.Delete("c"))
    with pytest.raises(AssertionError, match=r"ConfigRecordsWritten was awaited, and ConfigReadToEnd"):
        script.do(ConfigReadToEnd(2))


def watch(patch: pytest.MonkeyPatch) -> list[str]:
    """Collect the stimuli that change nothing, order nothing and are not ignored, from all cores that run."""
    silent: list[str] = []
    handle = WorkerCore.handle

    def watched(self: WorkerCore, stimulus: Stimulus, now_ms: int) -> WorkerStep:
        before = copy.deepcopy(self) if isinstance(stimulus, MAY_BE_LATE) else None
        step = handle(self, stimulus, now_ms)
        if before is not None and not (step.ignored or step.transitions or step.effects):
            before.context.now_ms = now_ms
            if before == self:
                silent.append(str(stimulus))
        return step

    patch.setattr(WorkerCore, "handle", watched)
    return silent


def test_no_late_stimulus_is_dropped_silently_in_a_simulated_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = watch(monkeypatch)
    Chaos(seed=7).run(actions=10)
    assert silent == []


def test_a_core_that_drops_late_stimuli_silently_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Context, "ignore", lambda *_: None)
    silent = watch(monkeypatch)
    Chaos(seed=7).run(actions=10)
    assert silent
