"""The demo's own look at the flow: counts, who holds what, failures."""

from __future__ import annotations

from connectx.demo.watch import Watch
from connectx.model.events import EventKind
from tests.support.histories import History, kill_of_source, small_cluster


def watch(history: History) -> Watch:
    watched = Watch()
    watched.take(history.events)
    return watched


def test_slices_records_and_the_position_in_the_file_are_counted() -> None:
    history = small_cluster()
    for number in (1, 2):
        offsets = [{"partition": {"filename": "f"}, "offset": {"position": 1000 * number}}]
        history.add(EventKind.TRANSACTION_COMMITTED, "worker-2", "flights-in-0", records=10, offsets=offsets)
    history.add(EventKind.OFFSETS_COMMITTED, "worker-3", "flights-out-0", records=7, offsets={})
    watched = watch(history)
    assert (watched.slices, watched.records, watched.position, watched.stored) == (2, 20, 2000, 7)


def test_a_task_is_held_by_who_runs_it_now() -> None:
    assert watch(small_cluster()).holder("flights-in", 0) == ("worker-2", "flights-in-0")
    killed = small_cluster().at(10).fault("kill", "worker-2")
    assert watch(killed).holder("flights-in", 0) is None
    assert watch(kill_of_source()).holder("flights-in", 0) == ("worker-3", "flights-in-0")


def test_a_worker_that_runs_the_avoided_task_is_the_last_choice() -> None:
    assert watch(kill_of_source()).holder("flights-out", avoid="flights-in-0") == ("worker-1", "flights-out-1")
    both = small_cluster().at(9).start("worker-3", "flights-in-0", instance=5)
    assert watch(both).holder("flights-out", avoid="flights-in-0") == ("worker-1", "flights-out-1")


def test_it_is_settled_when_three_tasks_run_and_nobody_joins() -> None:
    assert watch(small_cluster()).is_settled()
    joining = small_cluster().at(9).add(EventKind.REBALANCE_STARTED, "worker-1", reason="a member left")
    assert not watch(joining).is_settled()
    assert not watch(small_cluster().at(9).fault("kill", "worker-2")).is_settled()
    assert not watch(History()).is_settled()


def test_a_failure_is_kept_unless_its_worker_was_killed() -> None:
    failed = small_cluster().at(5).state("worker-3", "flights-out-0", "FAILED", trace="no such table")
    assert watch(failed).failure == "flights-out-0 failed on worker-3: no such table"
    killed = small_cluster().at(5).fault("kill", "worker-3").state("worker-3", "flights-out-0", "FAILED", trace="gone")
    assert watch(killed).failure is None
    worker = small_cluster().at(5).add(EventKind.WORKER_FAILED, "worker-3", error="broken")
    assert watch(worker).failure == "worker-3 failed: broken"
