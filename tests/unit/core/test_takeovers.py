"""Who fenced a producer, and since when: what is known from the status topic and the config topic (KIP-618)."""

from __future__ import annotations

import pytest

from connectx.core import verbs
from connectx.core.messages import TaskFailed, WorkerStep, WriteStatus
from connectx.core.timer_keys import TaskStopLimit
from connectx.model.config_records import ConnectorConfigRecord
from connectx.model.events import EventKind
from connectx.model.group import WorkSet
from connectx.model.ids import TaskId
from connectx.model.states import State
from connectx.model.status_records import TaskStatusRecord
from tests.support.worker_script import (
    C0,
    C1,
    TASK,
    WorkerScript,
    committed,
    following,
    kinds,
    of_kind,
)

pytestmark = pytest.mark.rule("618.7.4")

OTHER = "127.0.0.1:8084"
NOON_MS = 1_764_072_001_000  # 12:00:01 UTC of some day
KNOWN = f"worker {OTHER} took over c-0 in generation 7 (epoch 4), RUNNING there since 12:00:01 UTC"
UNKNOWN = "who took over c-0 (epoch 4) is not known yet: no other worker reports it in the status topic"


def running(task: TaskId = C0) -> WorkerScript:
    """The task, instance 1 of generation 3, runs here."""
    script = following(WorkSet((), (task,)))
    script.task_runs(task=task)
    script.show(task, State.RUNNING)
    return script


def taken_over(
    script: WorkerScript, state: State = State.RUNNING, generation: int = 7, at_ms: int = NOON_MS
) -> WorkerStep:
    """A status of c-0 on another worker is read."""
    return script.show(C0, state, OTHER, generation, at_ms)


def fenced(script: WorkerScript, task: TaskId = C0, newer_epoch: int | None = 4) -> WorkerStep:
    return script.do(TaskFailed(task, 1, "Traceback\nfenced\n", fenced=True, newer_epoch=newer_epoch))


def explained(step: WorkerStep) -> list[str]:
    """What the step records of who fenced a task."""
    return [transition.cause for transition in step.transitions if transition.kind is EventKind.FENCED_BY]


def trace_of(step: WorkerStep) -> str:
    (written,) = of_kind(step, WriteStatus)
    assert isinstance(written.record, TaskStatusRecord)
    assert written.record.status is not None
    assert written.record.status.state is State.FAILED
    return written.record.status.trace or ""


def test_the_worker_that_reports_the_task_under_a_later_generation_took_it_over() -> None:
    script = running()
    taken_over(script)
    assert explained(fenced(script)) == [KNOWN]


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([(State.RUNNING, 8, 60_000)], "in generation 8 (epoch 4), RUNNING there since 12:00:01 UTC"),
        ([(State.PAUSED, 8, 61_000)], "in generation 8 (epoch 4), PAUSED there since 12:01:02 UTC"),
        ([(State.UNASSIGNED, 8, 1_000)], "in generation 8 (epoch 4), UNASSIGNED again since 12:00:02 UTC"),
    ],
    ids=["written again", "another state", "has released it again"],
)
def test_since_is_when_the_state_began_and_not_when_it_was_written_again(
    later: list[tuple[State, int, int]], expected: str
) -> None:
    script = running()
    taken_over(script)
    for state, generation, after_ms in later:
        taken_over(script, state, generation, NOON_MS + after_ms)
    assert explained(fenced(script)) == [f"worker {OTHER} took over c-0 {expected}"]


def test_what_kafka_did_not_report_is_left_out() -> None:
    script = running()
    script.show(C0, State.RUNNING, OTHER, 9)
    takeover = f"worker {OTHER} took over c-0 in generation 9, RUNNING there"
    assert explained(fenced(script, newer_epoch=None)) == [takeover]


def test_a_status_from_before_the_start_names_no_worker() -> None:
    script = running()
    taken_over(script, generation=2)
    assert explained(fenced(script)) == [UNKNOWN]


def test_a_task_that_is_gone_was_fenced_by_the_round_for_the_newer_task_configs() -> None:
    script = running(C1)
    script.see(*committed(1))
    assert explained(fenced(script, C1, None)) == ["the leader fenced it: c has newer task configs, for 1 task"]


def test_a_deleted_connector_explains_nothing() -> None:
    script = running()
    script.see(ConnectorConfigRecord("c", None))
    taken_over(script)
    assert explained(fenced(script)) == [UNKNOWN]


def test_a_fenced_task_fails_with_who_did_it_and_does_not_hide_the_successors_status() -> None:
    script = running()
    script.rebalance(generation=9)  # it has joined again since
    taken_over(script)
    step = fenced(script)
    assert kinds(step) == [EventKind.FENCED_BY, EventKind.TASK_STATE]
    assert step.transitions[0].data == {
        **{"instance": 1, "known": True, "by": OTHER, "by_generation": 7, "newer_epoch": 4},
        **{"state": "RUNNING", "since_ms": NOON_MS},
    }
    assert step.transitions[1].data["trace"] == f"Traceback\nfenced\nc-0 was fenced: {KNOWN}"
    assert step.effects == []
    assert taken_over(script).effects == [], "nor later"


def test_a_healthy_task_that_a_late_zombie_fenced_is_shown_as_failed() -> None:
    assert trace_of(fenced(running())) == f"Traceback\nfenced\nc-0 was fenced: {UNKNOWN}"


def test_who_fenced_a_task_is_recorded_as_soon_as_it_is_known_and_once() -> None:
    script = running()
    assert explained(fenced(script)) == [UNKNOWN]
    assert explained(taken_over(script)) == [KNOWN]
    assert explained(taken_over(script)) == []


@pytest.mark.parametrize(("after_ms", "expected"), [(60_000, [KNOWN]), (60_001, [])])
def test_a_task_that_ended_fenced_is_explained_within_a_minute(after_ms: int, expected: list[str]) -> None:
    script = running()
    script.rebalance(revoked=TASK)
    assert explained(fenced(script)) == [UNKNOWN]
    script.now_ms += after_ms
    assert explained(taken_over(script)) == expected
    assert explained(taken_over(script)) == []


def test_newer_task_configs_explain_a_fencing_too() -> None:
    script = running()
    fenced(script, newer_epoch=None)
    assert explained(script.see(*committed(2))) == ["the leader fenced it: c has newer task configs, for 2 tasks"]


def test_a_zombie_that_was_cancelled_is_explained_in_the_history_only() -> None:
    script = running()
    script.ask(verbs.RestartTask("c", 0))
    script.read_to_end()
    script.fire(TaskStopLimit(C0, 1))
    step = fenced(script)
    assert (explained(step), step.effects) == (["this worker started it again, as instance 2 (epoch 4)"], [])


def test_a_zombie_of_a_task_that_has_left_this_worker_is_explained_too() -> None:
    script = running()
    script.rebalance(revoked=TASK)
    script.fire(TaskStopLimit(C0, 1))
    taken_over(script)
    assert (explained(fenced(script)), explained(taken_over(script))) == ([KNOWN], [])
