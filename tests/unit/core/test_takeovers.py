"""Who fenced a producer, and since when: what is known from the status topic and the config topic (KIP-618)."""

from __future__ import annotations

import copy

import pytest

from connectx.core.config_writer import Claim, ConfigWriter
from connectx.core.context import Context
from connectx.core.fencing import FencingRounds
from connectx.core.messages import ConfigReadToEnd, TaskFailed, TaskPrepared, TaskProducerReady, TaskStateReached
from connectx.core.signals import LocalWaiter
from connectx.core.takeovers import Fenced, find_takeover
from connectx.core.tasks import TaskPhase, Tasks
from connectx.core.timer_keys import TaskStopLimit
from connectx.model.cause_text import takeover_text
from connectx.model.causes import TakenOver, TakeoverUnknown
from connectx.model.config_records import ConnectorConfigRecord
from connectx.model.events import EventKind
from connectx.model.states import State
from connectx.model.status_records import Status, TaskStatusRecord
from tests.support.core_parts import C0, C1, ME, a_context, both, commit, read, transitions
from tests.support.histories import Because

pytestmark = pytest.mark.rule("618.7.4")

OTHER = "127.0.0.1:8084"
NOON_MS = 1_764_072_001_000  # 12:00:01 UTC of some day
KNOWN = f"worker {OTHER} took over c-0 in generation 7 (epoch 4), RUNNING there since 12:00:01 UTC"


def reports(context: Context, state: State, worker_id: str = OTHER, generation: int = 7, at_ms: int = NOON_MS) -> None:
    """A status of c-0 was read."""
    context.status.apply(TaskStatusRecord(C0, Status(state, worker_id, generation)), at_ms)


def fenced(generation: int = 3, task_config_generation: int | None = 0, newer_epoch: int | None = 4) -> Fenced:
    return Fenced(C0, 1, generation, task_config_generation, newer_epoch)


def running() -> tuple[Context, Tasks]:
    """Task c-0, instance 1 of generation 3, runs here."""
    context = a_context()
    tasks = Tasks(context, FencingRounds(context, ConfigWriter(context, Claim.HELD)))
    tasks.start(C0, Because(""))
    tasks.on_prepared(TaskPrepared(C0, 1, "1"))
    tasks.on_fenced(LocalWaiter(C0, 1), None)
    tasks.on_producer_ready(TaskProducerReady(C0, 1, 3))
    tasks.on_config_read(C0, ConfigReadToEnd(tasks.lives[C0].request_id or 0))
    tasks.on_state_reached(TaskStateReached(C0, 1, paused=False))
    assert tasks.lives[C0].phase is TaskPhase.ACTIVE
    reports(context, State.RUNNING, ME, 3)
    both(context)
    return context, tasks


def test_the_worker_that_reports_the_task_under_a_later_generation_took_it_over() -> None:
    context = a_context()
    reports(context, State.RUNNING)
    takeover = find_takeover(context, fenced())
    assert takeover == TakenOver(OTHER, C0, 7, 4, State.RUNNING, NOON_MS)
    assert takeover_text(takeover) == KNOWN


def test_since_is_when_the_state_began_and_not_when_it_was_written_again() -> None:
    context = a_context()
    reports(context, State.RUNNING)
    reports(context, State.RUNNING, generation=8, at_ms=NOON_MS + 60_000)
    assert "in generation 8 (epoch 4), RUNNING there since 12:00:01 UTC" in takeover_text(
        find_takeover(context, fenced())
    )
    reports(context, State.PAUSED, generation=8, at_ms=NOON_MS + 61_000)
    assert "PAUSED there since 12:01:02 UTC" in takeover_text(find_takeover(context, fenced()))
    context.status.apply(TaskStatusRecord(C0, Status(State.RUNNING, OTHER, 9)))
    assert takeover_text(find_takeover(context, fenced(newer_epoch=None))) == (
        f"worker {OTHER} took over c-0 in generation 9, RUNNING there"
    ), "what was not told is left out"


def test_a_successor_that_has_given_the_task_up_is_named_all_the_same() -> None:
    context = a_context()
    reports(context, State.UNASSIGNED)
    assert takeover_text(find_takeover(context, fenced())).endswith("(epoch 4), UNASSIGNED again since 12:00:01 UTC")


def test_a_status_from_before_the_start_names_nobody() -> None:
    context = a_context()
    reports(context, State.RUNNING, generation=2)
    takeover = find_takeover(context, fenced())
    assert isinstance(takeover, TakeoverUnknown)
    assert takeover_text(takeover) == (
        "who took over c-0 (epoch 4) is not known yet: no other worker reports it in the status topic"
    )


def test_a_task_that_is_gone_was_fenced_by_the_round_for_the_newer_task_configs() -> None:
    context = a_context()
    commit(context, tasks=1)
    takeover = find_takeover(context, Fenced(C1, 1, 3, 0))
    assert takeover_text(takeover) == "the leader fenced it: c has newer task configs, for 1 task"
    assert isinstance(find_takeover(context, Fenced(C1, 1, 3, 1)), TakeoverUnknown)


def test_an_instance_that_this_worker_started_again_says_so() -> None:
    context = a_context()
    takeover = find_takeover(context, fenced(), restarted_as=5)
    assert takeover_text(takeover) == "this worker started it again, as instance 5 (epoch 4)"


def test_a_fenced_task_fails_with_who_did_it_and_does_not_hide_the_successors_status() -> None:
    context, tasks = running()
    reports(context, State.RUNNING)
    context.group.generation = 9  # it has joined again since
    tasks.on_failed(TaskFailed(C0, 1, "Traceback\nfenced\n", fenced=True, newer_epoch=4))
    recorded, ordered = both(context)
    assert [t.kind for t in recorded] == [EventKind.FENCED_BY, EventKind.TASK_STATE]
    assert recorded[0].data == {
        **{"instance": 1, "known": True, "by": OTHER, "by_generation": 7, "newer_epoch": 4},
        **{"state": "RUNNING", "since_ms": NOON_MS},
    }
    assert recorded[1].data["trace"] == f"Traceback\nfenced\nc-0 was fenced: {KNOWN}"
    assert ordered == []
    tasks.remind(C0)
    assert both(context) == ([], []), "nor later"


def test_a_healthy_task_that_a_late_zombie_fenced_is_shown_as_failed() -> None:
    context, tasks = running()
    tasks.on_failed(TaskFailed(C0, 1, "fenced", fenced=True))
    _, (written,) = both(context)
    assert written.record.status.state is State.FAILED  # type: ignore[union-attr]
    assert "who took over c-0 is not known yet" in (written.record.status.trace or "")  # type: ignore[union-attr]


def test_who_fenced_a_task_is_told_as_soon_as_it_is_known_and_once() -> None:
    context, tasks = running()
    tasks.on_failed(TaskFailed(C0, 1, "fenced", fenced=True, newer_epoch=4))
    both(context)
    reports(context, State.RUNNING)
    tasks.takeovers.explain(C0)
    (recorded,) = transitions(context)
    assert (recorded.kind, recorded.cause, recorded.data["known"]) == (EventKind.FENCED_BY, KNOWN, True)
    tasks.takeovers.explain(C0)
    assert transitions(context) == []


def test_a_task_that_ended_fenced_is_explained_later_but_not_by_the_moves_of_another_day() -> None:
    context, tasks = running()
    tasks.stop(C0, Because(""))
    tasks.on_failed(TaskFailed(C0, 1, "fenced", fenced=True, newer_epoch=4))
    assert tasks.running() == ()
    both(context)
    later = copy.deepcopy(tasks)
    later.context.now_ms += 60_001
    for known in (tasks, later):
        reports(known.context, State.RUNNING)
        known.takeovers.explain(C0)
        assert known.takeovers.unexplained == {}
    assert [t.cause for t in transitions(context)] == [KNOWN]
    assert transitions(later.context) == []


def test_newer_task_configs_explain_a_fencing_too() -> None:
    context, tasks = running()
    tasks.on_failed(TaskFailed(C0, 1, "fenced", fenced=True))
    both(context)
    commit(context)
    tasks.on_new_task_configs("c")
    assert "the leader fenced it: c has newer task configs, for 2 tasks" in [t.cause for t in transitions(context)]


def test_a_zombie_that_was_cancelled_is_explained_in_the_history_only() -> None:
    context, tasks = running()
    tasks.restart(C0, Because(""))
    tasks.on_stop_timer(TaskStopLimit(C0, 1))
    both(context)
    tasks.on_failed(TaskFailed(C0, 1, "fenced", fenced=True, newer_epoch=4))
    recorded, ordered = both(context)
    assert [t.cause for t in recorded] == ["this worker started it again, as instance 2 (epoch 4)"]
    assert ordered == []


def test_a_deleted_connector_explains_nothing() -> None:
    context = a_context()
    read(context, ConnectorConfigRecord("c", None))
    assert isinstance(find_takeover(context, fenced()), TakeoverUnknown)
