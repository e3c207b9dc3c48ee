"""Which status records count, and which may be written."""

from __future__ import annotations

from connectx.core.status_log import StatusLog
from connectx.model.ids import TaskId
from connectx.model.states import State
from connectx.model.status_records import (
    ConnectorStatusRecord,
    Status,
    StatusRecord,
    TaskStatusRecord,
    TopicStatusRecord,
)

C0, C1, D0 = TaskId("c", 0), TaskId("c", 1), TaskId("d", 0)


def status(state: State, worker: str = "w1", generation: int = 5) -> Status:
    return Status(state, worker, generation)


def replay(*records: StatusRecord) -> tuple[StatusLog, list[bool]]:
    log = StatusLog()
    return log, [log.apply(record) for record in records]


def test_the_last_status_counts() -> None:
    log, changed = replay(
        ConnectorStatusRecord("c", status(State.RUNNING)),
        ConnectorStatusRecord("c", status(State.RUNNING)),
        ConnectorStatusRecord("c", status(State.UNASSIGNED, "w2", 1)),
        TaskStatusRecord(C1, status(State.RUNNING)),
        TaskStatusRecord(C0, status(State.PAUSED)),
    )
    assert changed == [True, False, True, True, True]
    assert log.connector_status("c") == status(State.UNASSIGNED, "w2", 1)
    assert list(log.task_statuses("c").items()) == [(C0, status(State.PAUSED)), (C1, status(State.RUNNING))]


def test_a_late_farewell_of_a_former_owner_is_ignored() -> None:
    for generation in (4, 5):
        log, changed = replay(
            TaskStatusRecord(C0, status(State.RUNNING)),
            TaskStatusRecord(C0, status(State.UNASSIGNED, "w2", generation)),
        )
        assert changed == [True, False]
        assert log.task_status(C0) == status(State.RUNNING)


def test_a_farewell_counts_under_a_newer_generation_or_after_another_state() -> None:
    farewell = TaskStatusRecord(C0, status(State.UNASSIGNED, "w2", 6))
    assert replay(TaskStatusRecord(C0, status(State.RUNNING)), farewell)[1] == [True, True]
    old_farewell = TaskStatusRecord(C0, status(State.UNASSIGNED, "w2", 4))
    assert replay(TaskStatusRecord(C0, status(State.FAILED)), old_farewell)[1] == [True, True]


def test_a_log_whose_statuses_are_all_gone_equals_a_new_one() -> None:
    log, _ = replay(
        TaskStatusRecord(C0, status(State.RUNNING)),
        TaskStatusRecord(D0, status(State.RUNNING)),
        TaskStatusRecord(C0, None),
        ConnectorStatusRecord("d", None),
    )
    assert log == StatusLog()


def test_tombstones_remove() -> None:
    log, changed = replay(
        TaskStatusRecord(C0, status(State.RUNNING)), TaskStatusRecord(C0, None), TaskStatusRecord(C0, None)
    )
    assert changed == [True, True, False]
    assert log == StatusLog()


def test_a_connectors_tombstone_takes_its_tasks_along() -> None:
    log, changed = replay(
        ConnectorStatusRecord("c", status(State.RUNNING)),
        TaskStatusRecord(C0, status(State.RUNNING)),
        TaskStatusRecord(D0, status(State.RUNNING)),
        ConnectorStatusRecord("c", None),
        ConnectorStatusRecord("c", None),
    )
    assert changed[3:] == [True, False]
    assert (log.connectors(), log.task_status(C0)) == (("d",), None)


def test_topics_are_tracked_per_connector() -> None:
    seen = TopicStatusRecord("t2", "c", 0, 7)
    log, changed = replay(
        seen,
        TopicStatusRecord("t1", "c", 1, 8),
        seen,
        TopicStatusRecord("t1", "d", 1, 8),
        TopicStatusRecord("t1", "c", None),
    )
    assert changed == [True, True, False, True, True]
    assert (log.topics("c"), log.topics("d"), log.topics("e")) == (("t2",), ("t1",), ())
    assert log.topic_connectors() == ("c", "d")
    assert log.apply(TopicStatusRecord("t2", "c", None))
    assert not log.apply(TopicStatusRecord("t2", "c", None))
    assert log.topic_connectors() == ("d",)


def test_a_safe_status_does_not_hide_a_newer_one_of_another_worker() -> None:
    log, _ = replay(
        ConnectorStatusRecord("c", status(State.RUNNING, "w2", 5)), TaskStatusRecord(C0, status(State.RUNNING, "w2", 5))
    )
    for subject in ("c", C0):
        assert not log.may_write_safely(subject, status(State.UNASSIGNED, "w1", 4))
        assert log.may_write_safely(subject, status(State.UNASSIGNED, "w1", 5))
        assert log.may_write_safely(subject, status(State.UNASSIGNED, "w2", 4))
    assert log.may_write_safely("unknown", status(State.FAILED, "w1", 0))
