"""Workers of a cluster that runs elsewhere, as far as they can be seen."""

from __future__ import annotations

import pytest

from connectx.api.attached.observation import ObservedWorker, Picture
from connectx.api.attached.workers import AttachedWorkers
from connectx.errors.clusters import UnknownWorkerError
from connectx.kafka.admin.group_view import GroupView, Member
from connectx.model.group import WorkSet

A = "a:8083"
MEMBER = Member("m", A, f"http://{A}/", 9, 9, WorkSet(), 3000, 0)
GROUP = GroupView("g", "sessioned", f"http://{A}/", (MEMBER,))
SEEN = ObservedWorker(A, f"http://{A}/", ("lines",), ("lines-0",), is_leader=True)


def workers(group: GroupView | None = GROUP) -> AttachedWorkers:
    return AttachedWorkers(lambda: Picture((SEEN,), group, 7))


def test_work_on_a_worker_that_is_no_member_is_lost_and_on_a_member_it_is_not() -> None:
    recorded = workers().lost_on("b:8083") or ""
    assert "b:8083 is no member of the group g" in recorded
    assert "3.0 s at the most" in recorded
    assert workers().lost_on(A) is None


def test_without_a_group_nobody_knows_what_is_lost() -> None:
    assert workers(group=None).lost_on("b:8083") is None


def test_workers_are_found_by_address_and_show_what_they_run() -> None:
    (one,) = workers()
    assert (one.name, one.is_leader, one.tasks, one.task_metrics, one.generation) == (A, True, ["lines-0"], {}, 7)
    assert A in workers()
    assert "lines-0" in repr(workers())
    assert "lines-0" in workers()._repr_html_()
    with pytest.raises(UnknownWorkerError, match="worker-9"):
        workers()["worker-9"]
