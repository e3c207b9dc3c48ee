"""Runs: who ran what, when it became a zombie, when it ended."""

from __future__ import annotations

import sys

from connectx.history.folds.runs import Run, RunFold, RunState, runs
from connectx.model.events import EventKind
from tests.support.histories import START_MS, History, kill_of_source, pause_with_fence, small_cluster


def spans(run: Run) -> list[tuple[str, float, float | None]]:
    """State, start and end in seconds of the history."""
    return [
        (
            part.state.value,
            (part.start_ms - START_MS) / 1000,
            None if part.end_ms is None else (part.end_ms - START_MS) / 1000,
        )
        for part in run.segments
    ]


def of(history: History, name: str, worker: str | None = None) -> list[Run]:
    return [run for run in runs(history.events) if run.name == name and worker in (None, run.worker)]


def test_a_task_starts_and_runs_on() -> None:
    [run] = of(small_cluster(), "flights-in-0")
    assert spans(run) == [("starting", 1.2, 1.3), ("running", 1.3, None)]
    assert (run.worker, run.instance, run.generation, run.producer_epoch) == ("worker-2", 1, 2, 0)


def test_a_run_knows_the_epoch_it_began_with_and_that_of_its_last_transaction() -> None:
    history = (
        small_cluster()
        .at(3)
        .add(EventKind.TRANSACTION_COMMITTED, "worker-2", "flights-in-0", instance=1, producer_epoch=7)
    )
    [run] = of(history, "flights-in-0")
    assert (run.first_epoch, run.producer_epoch) == (0, 7)


def test_a_graceful_stop_ends_the_run_without_a_zombie() -> None:
    history = small_cluster().at(5).step("worker-3", "flights-out-0", "stop", cause="the leader revoked it")
    history.at(5.2).ended("worker-3", "flights-out-0", reason="stopped").state(
        "worker-3", "flights-out-0", "UNASSIGNED"
    )
    [run] = of(history, "flights-out-0")
    assert spans(run)[1:] == [("running", 1.5, 5.2)]


def test_a_thread_that_ends_after_its_task_was_unassigned_was_a_zombie_in_between() -> None:
    history = small_cluster().at(5).state("worker-3", "flights-out-0", "UNASSIGNED")
    history.at(6).ended("worker-3", "flights-out-0")
    [run] = of(history, "flights-out-0")
    assert spans(run)[1:] == [("running", 1.5, 5.0), ("zombie", 5.0, 6.0)]


def test_a_killed_workers_task_is_a_zombie_until_its_thread_ends_and_its_connector_is_over() -> None:
    history = kill_of_source()
    old, new = of(history, "flights-in-0")
    assert spans(old)[1:] == [("running", 1.3, 10.0), ("zombie", 10.0, 10.4)]
    assert old.segments[-1].cause == "its worker was killed"
    assert spans(new) == [("starting", 16.4, 16.6), ("running", 16.6, None)]
    assert spans(of(history, "flights-out", "worker-2")[0]) == [("running", 1.1, 10.0)]


def test_a_worker_that_is_stopped_after_a_kill_does_not_end_its_zombies() -> None:
    history = small_cluster().at(10).fault("kill", "worker-2").add(EventKind.WORKER_STOPPED, "worker-2")
    [run] = of(history, "flights-in-0")
    assert spans(run)[-1] == ("zombie", 10.0, None)


def test_a_paused_worker_is_a_zombie_from_the_round_without_it_until_it_is_fenced() -> None:
    old, new = of(pause_with_fence(), "flights-in-0")
    assert spans(old)[1:] == [("running", 1.3, 13.2), ("zombie", 13.2, 22.2)]
    assert old.segments[-1].cause == "the group removed its worker"
    assert old.fenced_ms == START_MS + 22_200
    assert new.fenced_ms is None


def test_a_worker_that_comes_back_in_time_keeps_its_task() -> None:
    history = small_cluster().at(5).add(EventKind.MEMBER_LOST, "worker-2", cause="unknown member id")
    work = {"worker-1": ["flights-in", "flights-out-1"], "worker-2": ["flights-out", "flights-in-0"], "worker-3": []}
    history.at(6).rebalance(3, 0.5, leader="worker-1", work=work)
    [run] = of(history, "flights-in-0")
    assert spans(run)[1:] == [("running", 1.3, 5.0), ("zombie", 5.0, 6.5), ("running", 6.5, None)]
    assert spans(of(history, "flights-out", "worker-2")[0])[-1] == ("running", 6.5, None)


def test_a_zombie_does_not_come_back_when_its_task_runs_elsewhere() -> None:
    history = small_cluster().at(5).add(EventKind.MEMBER_LOST, "worker-2", cause="unknown member id")
    history.at(6).start("worker-3", "flights-in-0", instance=9, epoch=1)
    work = {"worker-2": ["flights-in-0"]}
    history.at(7).rebalance(3, leader="worker-1", work=work)
    assert of(history, "flights-in-0", "worker-2")[0].state is RunState.ZOMBIE


def test_a_cancelled_task_is_a_zombie_beside_its_successor_on_the_same_worker() -> None:
    history = small_cluster().at(5).step("worker-3", "flights-out-0", "stop")
    history.at(10).step("worker-3", "flights-out-0", "cancel", cause="it did not stop in time")
    history.at(11).start("worker-3", "flights-out-0", instance=2)
    history.at(15).ended("worker-3", "flights-out-0", instance=1)
    old, new = of(history, "flights-out-0")
    assert spans(old)[1:] == [("running", 1.5, 10.0), ("zombie", 10.0, 15.0)]
    assert old.segments[-1].cause == "it did not stop in time"
    assert spans(new)[-1] == ("running", 11.1, None)


def test_another_instance_makes_the_older_one_a_zombie_when_nothing_else_told() -> None:
    history = small_cluster().at(5).start("worker-3", "flights-in-0", instance=2, epoch=1)
    old, _ = of(history, "flights-in-0")
    assert spans(old)[-1] == ("zombie", 5.0, None)
    assert old.segments[-1].cause == "worker-3 began the same work"


def test_a_failed_task_stays_failed_until_it_is_restarted() -> None:
    history = small_cluster().at(5).state("worker-3", "flights-out-0", "FAILED", trace="boom")
    history.at(5.1).ended("worker-3", "flights-out-0", reason="failed")
    history.at(9).state("worker-3", "flights-out-0", "RESTARTING").start("worker-3", "flights-out-0", instance=2)
    old, new = of(history, "flights-out-0")
    assert spans(old)[1:] == [("running", 1.5, 5.0), ("failed", 5.0, 9.0)]
    assert spans(new) == [("starting", 9.0, 9.1), ("running", 9.1, None)]


def test_a_failed_task_that_is_not_assigned_any_more_is_over() -> None:
    history = small_cluster().at(5).state("worker-3", "flights-out-0", "FAILED", trace="boom")
    history.at(8).rebalance(3, 0, leader="worker-1", work={"worker-1": [], "worker-3": []})
    assert spans(of(history, "flights-out-0")[0])[-1] == ("failed", 5.0, 8.0)


def test_a_failed_task_ends_with_its_connector() -> None:
    history = small_cluster().at(5).state("worker-3", "flights-out-0", "FAILED", trace="boom")
    history.at(7).add(EventKind.CONNECTOR_DELETED, "worker-1", "flights-out")
    assert spans(of(history, "flights-out-0")[0])[-1] == ("failed", 5.0, 7.0)


def test_pause_and_resume_are_segments_of_one_run() -> None:
    history = small_cluster().at(5).state("worker-3", "flights-out-0", "PAUSED")
    history.at(6).state("worker-3", "flights-out-0", "RUNNING")
    [run] = of(history, "flights-out-0")
    assert spans(run)[1:] == [("running", 1.5, 5.0), ("paused", 5.0, 6.0), ("running", 6.0, None)]


def test_a_healthy_task_that_is_fenced_by_a_late_zombie_fails() -> None:
    history = small_cluster().at(5).fenced("worker-2", "flights-in-0", epoch=0)
    history.at(5.1).state("worker-2", "flights-in-0", "FAILED", trace="fenced")
    [run] = of(history, "flights-in-0")
    assert spans(run)[1:] == [("running", 1.3, 5.1), ("failed", 5.1, None)]
    assert run.fenced_ms == START_MS + 5_000


def test_a_worker_that_starts_again_has_forgotten_its_instances() -> None:
    history = kill_of_source().at(30).started("worker-2")
    history.at(31).start("worker-2", "flights-out-1", instance=1)
    run = of(history, "flights-out-1", "worker-2")[0]
    assert spans(run) == [("starting", 31.0, 31.1), ("running", 31.1, None)]


def test_the_end_of_the_cluster_ends_everything() -> None:
    history = kill_of_source().at(40).add(EventKind.CLUSTER_STOPPED)
    assert all(run.end_ms is not None for run in runs(history.events))


def test_a_history_that_begins_in_the_middle_still_has_runs() -> None:
    history = History().at(3).state("worker-9", "orders-0", "RUNNING", instance=4)
    assert [spans(run) for run in runs(history.events)] == [[("running", 3.0, None)]]


def test_a_failure_that_is_told_after_the_end_of_the_thread_is_a_failure_all_the_same() -> None:
    history = small_cluster().at(5).ended("worker-3", "flights-out-0", reason="failed")
    history.at(5.01).state("worker-3", "flights-out-0", "FAILED", trace="boom")
    [run] = of(history, "flights-out-0")
    assert spans(run)[1:] == [("running", 1.5, 5.0), ("failed", 5.01, None)]


def test_a_failure_of_a_zombie_that_has_ended_does_not_bring_it_back() -> None:
    history = kill_of_source().at(20).state("worker-2", "flights-in-0", "FAILED", trace="late")
    assert of(history, "flights-in-0", "worker-2")[0].end_ms == START_MS + 10_400


def test_an_event_of_a_long_history_costs_no_more_than_one_of_a_short_one() -> None:
    """Counted in calls: a fold that looked through all that ever ran took minutes for a history that is full."""
    fold, calls = RunFold(), [0]

    def count(frame: object, event: str, argument: object) -> None:
        calls[0] += event == "call"

    def calls_of_a_restart(instance: int) -> int:
        history = History().at(instance).start("worker-1", "orders-0", instance)
        history.state("worker-1", "orders-0", "UNASSIGNED", instance).ended("worker-1", "orders-0", instance)
        calls[0] = 0
        sys.setprofile(count)
        for event in history.events:
            fold.take(event)
        sys.setprofile(None)
        return calls[0]

    costs = [calls_of_a_restart(instance) for instance in range(1, 101)]
    assert costs[99] == costs[49]
    assert len(fold.runs()) == 100


def test_a_zombie_that_nothing_ends_is_known_however_many_came_after_it() -> None:
    history = History().started("worker-1", "worker-2").at(1).start("worker-1", "orders-0", 1)
    history.at(2).step("worker-1", "orders-0", "cancel", 1)
    for instance in range(2, 60):
        history.at(instance).start("worker-1", "orders-0", instance).ended("worker-1", "orders-0", instance)
    history.at(100).ended("worker-1", "orders-0", 1)
    assert spans(of(history, "orders-0")[0])[-1] == ("zombie", 2.0, 100.0)
