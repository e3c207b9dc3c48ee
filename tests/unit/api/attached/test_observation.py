"""What is news of a cluster that is looked at from outside, and where it comes from."""

from __future__ import annotations

from typing import Any

from connectx.api.attached.observation import CONFIG_TOPIC, GROUP, POLLING, STATUS_TOPIC, Observation, WorkerTransition
from connectx.history.folds.runs import runs
from connectx.history.folds.snapshot import snapshot
from connectx.history.sentences.stories import stories
from connectx.kafka.admin.group_view import GroupView, Member
from connectx.model.config_records import ConnectorConfigRecord, TargetStateRecord, TaskCommitRecord, TaskConfigRecord
from connectx.model.events import Event, EventKind
from connectx.model.group import WorkSet
from connectx.model.ids import TaskId
from connectx.model.states import State, TargetState
from connectx.model.status_records import ConnectorStatusRecord, Status, TaskStatusRecord

A, B = "a:8083", "b:8083"
LINES = TaskId("lines", 0)


def shown(worker: str, state: str = "RUNNING", tasks: int = 1) -> dict[str, Any]:
    one = {"state": state, "worker_id": worker}
    listed = [{"id": number, **one} for number in range(tasks)]
    info = {"config": {"topic": "t"}, "tasks": [{}] * tasks}
    return {"lines": {"info": info, "status": {"connector": one, "tasks": listed}}}


def kinds(recorded: list[WorkerTransition]) -> list[tuple[str, str | None]]:
    return [(transition.kind.value, worker) for transition, worker in recorded]


def history(*looks: list[WorkerTransition]) -> list[Event]:
    recorded = [one for look in looks for one in look]
    return [
        Event(number + 1, 1000 * number, worker, t.payload, t.connector, t.task, t.generation, None, t.why, t.seen)
        for number, (t, worker) in enumerate(recorded)
    ]


def view(*worker_ids: str, leader: str = A, tasks: tuple[TaskId, ...] = (), delay_ms: int = 0) -> GroupView:
    members = [
        Member(f"m-{w}", w, f"http://{w}/", 9, 9, WorkSet((), tasks if w == leader else ()), delay_ms, 0)
        for w in worker_ids
    ]
    return GroupView("g", "sessioned", f"http://{leader}/", tuple(members))


def status(worker: str, state: State = State.RUNNING, generation: int = 3) -> Status:
    return Status(state, worker, generation)


def test_the_first_poll_tells_how_things_stand_and_the_same_again_tells_nothing() -> None:
    observation = Observation()
    first = list(observation.observe_rest(shown(A), None))
    assert kinds(first) == [
        ("connector_configured", None), ("tasks_configured", None), ("worker_started", A),
        ("connector_state", A), ("task_state", A),
    ]  # fmt: skip
    assert {transition.data["origin"] for transition, _ in first} == {POLLING}
    assert list(observation.observe_rest(shown(A), 1000)) == []


def test_what_changed_between_two_polls_says_when_it_was_looked_at_before() -> None:
    observation = Observation()
    list(observation.observe_rest(shown(A), None))
    (connector, task) = [transition for transition, _ in observation.observe_rest(shown(A, "PAUSED"), 4321)]
    assert (connector.data["state"], task.data["state"], task.data["after_ms"]) == ("PAUSED", "PAUSED", 4321)


def test_a_worker_whose_work_has_moved_is_not_shown_as_running_when_only_statuses_are_seen() -> None:
    observation = Observation()
    list(observation.observe_rest(shown(A), None))
    assert [worker.worker_id for worker in observation.picture().workers] == [A]
    list(observation.observe_rest(shown(B), 1000))
    assert [worker.worker_id for worker in observation.picture().workers] == [B]


def test_work_that_has_moved_ends_where_it_was() -> None:
    observation = Observation()
    look = list(observation.observe_rest(shown(A), None))
    look += observation.observe_rest(shown(B), 1000)
    seen = {(run.name, run.worker): run.end_ms is None for run in runs(history(look))}
    assert seen == {("lines", A): False, ("lines-0", A): False, ("lines", B): True, ("lines-0", B): True}


def test_a_task_and_a_connector_that_are_gone_end() -> None:
    observation = Observation()
    list(observation.observe_rest(shown(A, tasks=2), None))
    fewer = kinds(list(observation.observe_rest(shown(A, tasks=1), 1000)))
    assert fewer == [("tasks_configured", None), ("task_state", A)]
    assert kinds(list(observation.observe_rest({}, 2000))) == [
        ("task_state", A), ("connector_state", A), ("connector_deleted", None)
    ]  # fmt: skip


def test_a_worker_that_was_seen_is_up_without_a_group() -> None:
    assert [
        (w.name, w.state.value) for w in snapshot(history(list(Observation().observe_rest(shown(A), None)))).workers
    ] == [(A, "up")]


def test_records_of_the_topics_are_events_with_the_time_that_they_were_written() -> None:
    observation = Observation()
    recorded = list(observation.observe_config(0, ConnectorConfigRecord("lines", {"topic": "t"}), 77))
    recorded += observation.observe_config(1, TaskConfigRecord(LINES, {}), 77)
    recorded += observation.observe_config(2, TaskCommitRecord("lines", 1), 78)
    recorded += observation.observe_config(3, TargetStateRecord("lines", TargetState.PAUSED), 79)
    recorded += observation.observe_status(TaskStatusRecord(LINES, status(A, State.PAUSED)), 80)
    assert [transition.kind for transition, _ in recorded] == [
        EventKind.CONNECTOR_CONFIGURED, EventKind.TASKS_CONFIGURED, EventKind.TARGET_STATE_CHANGED,
        EventKind.WORKER_STARTED, EventKind.TASK_STATE,
    ]  # fmt: skip
    assert [transition.data.get("written_ms") for transition, _ in recorded] == [77, 78, 79, None, 80]
    assert recorded[2][0].data["origin"] == CONFIG_TOPIC
    assert (recorded[4][0].data["origin"], recorded[4][0].generation) == (STATUS_TOPIC, 3)


def test_a_connectors_tombstone_ends_its_tasks_too() -> None:
    observation = Observation()
    list(observation.observe_status(ConnectorStatusRecord("lines", status(A)), 1))
    list(observation.observe_status(TaskStatusRecord(LINES, status(A)), 1))
    assert kinds(list(observation.observe_status(ConnectorStatusRecord("lines", None), 2))) == [
        ("task_state", A), ("connector_state", A)
    ]  # fmt: skip
    assert list(observation.observe_status(TaskStatusRecord(LINES, None), 3)) == []


def test_a_late_farewell_of_the_former_owner_is_no_news() -> None:
    observation = Observation()
    list(observation.observe_status(TaskStatusRecord(LINES, status(B, generation=4)), 1))
    assert list(observation.observe_status(TaskStatusRecord(LINES, status(A, State.UNASSIGNED, 3)), 2)) == []


def test_a_stable_group_tells_who_is_there_and_who_leads() -> None:
    observation = Observation()
    look = list(observation.observe_status(TaskStatusRecord(LINES, status(A)), 1))
    look += observation.observe_group(view(A, B, leader=B))
    seen = snapshot(history(look))
    assert (seen.generation, seen.leader) == (3, B)
    assert list(observation.observe_group(view(A, B, leader=B))) == []
    assert [worker.is_leader for worker in observation.picture().workers] == [False, True]


def test_a_round_that_no_status_has_named_is_counted_up_once() -> None:
    observation = Observation()
    list(observation.observe_status(TaskStatusRecord(LINES, status(A, generation=3)), 1))
    list(observation.observe_group(view(A)))
    list(observation.observe_group(view(A, B)))
    assert observation.generation == 4
    list(observation.observe_status(TaskStatusRecord(LINES, status(B, generation=5)), 2))
    list(observation.observe_group(view(A, B, tasks=(LINES,))))
    assert observation.generation == 5, "a status has named it already"


def test_who_left_and_does_not_answer_has_stopped_and_who_answers_is_out_of_the_group() -> None:
    observation = Observation()
    list(observation.observe_group(view(A, B)))
    out = list(observation.observe_group(view(A), answering=[B]))
    assert kinds(out)[0] == ("member_lost", B)
    assert list(observation.observe_group(view(A), answering=[B])) == [], "said once"
    gone = list(observation.observe_group(view(A)))
    assert kinds(gone) == [("worker_stopped", B)]
    assert gone[0][0].data["origin"] == GROUP
    assert [worker.worker_id for worker in observation.picture().workers] == [A]


def test_a_group_that_is_not_stable_is_a_rebalance_under_way_until_it_is() -> None:
    observation = Observation()
    list(observation.observe_group(view(A, B)))
    assert kinds(list(observation.observe_rebalance())) == [("rebalance_started", A), ("rebalance_started", B)]
    assert list(observation.observe_rebalance()) == []
    assert kinds(list(observation.observe_group(view(A, B)))) == [
        ("rebalance_completed", A),
        ("rebalance_completed", B),
    ]


def test_lost_work_that_waits_is_told_with_its_delay() -> None:
    observation = Observation()
    list(observation.observe_config(0, ConnectorConfigRecord("lines", {}), 1))
    list(observation.observe_config(1, TaskConfigRecord(LINES, {}), 1))
    list(observation.observe_config(2, TaskCommitRecord("lines", 1), 1))
    delayed = [t for t, _ in observation.observe_group(view(A, delay_ms=3000)) if t.kind is EventKind.REBALANCE_DELAYED]
    assert [(t.data["delay_ms"], t.data["lost"]) for t in delayed] == [(3000, ["lines-0"])]


def departures(*looks: list[WorkerTransition]) -> list[str]:
    return [story.sentence for story in stories(history(*looks)) if story.kind == "departed"]


def test_a_killed_worker_is_told_by_polling_alone_with_what_moved_where() -> None:
    observation = Observation()
    first = list(observation.observe_rest(shown(A, tasks=2), None))
    moved = list(observation.observe_rest(shown(B, tasks=2), 0))
    told = f"{A} is gone (it was stopped, killed or cut off); lines-0 and lines-1 moved to {B}"
    assert departures(first, moved) == [told]
    assert departures(first) == []


def test_a_killed_worker_is_told_by_the_group_with_what_has_not_moved() -> None:
    observation = Observation()
    looks = [list(observation.observe_rest(shown(B), None)), list(observation.observe_group(view(A, B)))]
    looks.append(list(observation.observe_group(view(A))))
    assert departures(*looks) == [f"{B} is gone (it was stopped, killed or cut off); lines-0 has not moved so far"]
    looks.append(list(observation.observe_rest(shown(A), 0)))
    assert departures(*looks) == [f"{B} is gone (it was stopped, killed or cut off); lines-0 moved to {A}"]
