"""The eager assignor: one circular cursor over members, connectors first."""

from __future__ import annotations

from connectx.core.group.assignor import assign_eagerly
from connectx.model.group import WorkSet
from connectx.model.ids import TaskId


def test_tasks_go_on_where_connectors_ended() -> None:
    configured = WorkSet(("b", "a", "c"), (TaskId("b", 0), TaskId("a", 1), TaskId("a", 0), TaskId("a", 10)))
    assert assign_eagerly(configured, ["m2", "m1"]) == {
        "m1": WorkSet(("a", "c"), (TaskId("a", 1), TaskId("b", 0))),
        "m2": WorkSet(("b",), (TaskId("a", 0), TaskId("a", 10))),
    }


def test_members_without_work_are_told_so() -> None:
    assert assign_eagerly(WorkSet(("a",)), ["m1", "m2"]) == {"m1": WorkSet(("a",)), "m2": WorkSet()}
    assert assign_eagerly(WorkSet(), ["m1"]) == {"m1": WorkSet()}
