"""Facts: how things stand at the end of a history."""

from __future__ import annotations

from connectx.history.folds.snapshot import snapshot
from connectx.history.folds.worker_states import WorkerState
from connectx.model.events import EventKind
from tests.support.histories import START_MS, History, kill_of_source, pause_with_fence, small_cluster


def test_a_running_cluster() -> None:
    now = snapshot(small_cluster().events)
    assert (now.generation, now.leader, now.rebalances, now.faults, now.fenced) == (2, "worker-1", 2, 0, 0)
    leader = now.workers[0]
    assert (leader.name, leader.state, leader.is_leader) == ("worker-1", WorkerState.UP, True)
    assert (leader.connectors, leader.tasks) == (("flights-in",), ("flights-out-1",))
    assert [(work.connector, work.task, work.state, work.worker) for work in now.tasks] == [
        ("flights-in", 0, "RUNNING", "worker-2"),
        ("flights-out", 0, "RUNNING", "worker-3"),
        ("flights-out", 1, "RUNNING", "worker-1"),
    ]


def work(history: History) -> dict[str, tuple[str, str | None]]:
    """Name to state and worker, connectors and tasks alike."""
    now = snapshot(history.events)
    named = {(w.connector if w.task is None else f"{w.connector}-{w.task}"): w for w in (*now.connectors, *now.tasks)}
    return {name: (one.state, one.worker) for name, one in named.items()}


def test_work_of_a_killed_worker_is_lost_until_it_moved() -> None:
    history = small_cluster().at(10).fault("kill", "worker-2")
    now = snapshot(history.events)
    assert now.workers[1].state is WorkerState.KILLED
    assert now.workers[1].zombies == ("flights-in-0",)
    assert (now.tasks[0].state, now.tasks[0].worker, now.tasks[0].since_ms) == ("LOST", "worker-2", START_MS + 10_000)
    later = snapshot(kill_of_source().events)
    assert (later.tasks[0].state, later.tasks[0].worker, later.tasks[0].producer_epoch) == ("RUNNING", "worker-3", 1)
    assert later.workers[1].zombies == ()


def test_work_of_a_worker_that_the_group_has_left_out_is_lost_until_it_is_back() -> None:
    history = small_cluster().at(10).fault("pause", "worker-2")
    rest = {"worker-1": ["flights-in", "flights-out-1"], "worker-3": ["flights-out-0"]}
    history.at(13).rebalance(3, leader="worker-1", work=rest, delay_ms=3000, lost=["flights-out", "flights-in-0"])
    assert (work(history)["flights-in-0"], work(history)["flights-out"]) == (("LOST", "worker-2"), ("LOST", "worker-2"))
    back = {**rest, "worker-2": ["flights-out", "flights-in-0"]}
    history.at(14).fault("resume", "worker-2").rebalance(4, leader="worker-1", work=back)
    assert work(history)["flights-in-0"] == ("RUNNING", "worker-2")


def test_work_of_a_failed_worker_is_lost_and_of_one_that_left_unassigned() -> None:
    history = small_cluster().at(5).add(EventKind.WORKER_FAILED, "worker-2", error="no")
    history.state("worker-3", "flights-out-0", "UNASSIGNED").add(EventKind.WORKER_STOPPED, "worker-3")
    shown = work(history)
    assert (shown["flights-in-0"], shown["flights-out"]) == (("LOST", "worker-2"), ("LOST", "worker-2"))
    assert shown["flights-out-0"] == ("UNASSIGNED", None)


def test_tasks_beyond_a_reduced_count_are_not_shown_and_configured_ones_that_never_ran_are() -> None:
    history = small_cluster().at(5).add(EventKind.TASKS_CONFIGURED, "worker-1", "flights-out", tasks=1, config_offset=9)
    history.state("worker-1", "flights-out-1", "UNASSIGNED")
    assert "flights-out-1" not in work(history)
    late = history.at(6).add(EventKind.TASKS_CONFIGURED, "worker-3", "flights-out", tasks=2, config_offset=7)
    assert "flights-out-1" not in work(late), "a worker that reads late tells old news"
    more = late.at(7).add(EventKind.TASKS_CONFIGURED, "worker-3", "flights-out", tasks=3, config_offset=12)
    assert (work(more)["flights-out-1"], work(more)["flights-out-2"]) == (("UNASSIGNED", None), ("UNASSIGNED", None))


def test_a_connector_that_was_deleted_and_made_anew_starts_without_its_past() -> None:
    history = small_cluster().at(5)
    for kind, config_offset in ((EventKind.CONNECTOR_DELETED, 9), (EventKind.CONNECTOR_CONFIGURED, 11)):
        history.add(kind, "worker-1", "flights-out", config_offset=config_offset)
    history.add(EventKind.CONNECTOR_DELETED, "worker-3", "flights-out", config_offset=9)  # it reads late
    shown = {name: state for name, state in work(history).items() if name.startswith("flights-out")}
    assert shown == {"flights-out": ("UNASSIGNED", None)}


def test_a_stopped_connector_is_stopped_and_a_task_that_restarts_is_restarting() -> None:
    history = small_cluster().at(5).state("worker-2", "flights-out", "STOPPED")
    history.state("worker-3", "flights-out-0", "RESTARTING")
    assert work(history)["flights-out"] == ("STOPPED", "worker-2")
    assert work(history)["flights-out-0"] == ("RESTARTING", "worker-3")
    again = history.at(6).start("worker-3", "flights-out-0", instance=5).state("worker-2", "flights-out", "RUNNING")
    assert {work(again)[name][0] for name in ("flights-out", "flights-out-0")} == {"RUNNING"}


def test_a_fence_is_counted_and_a_resumed_worker_is_up() -> None:
    now = snapshot(pause_with_fence().events)
    assert (now.fenced, now.faults, now.generation) == (1, 2, 5)
    assert now.workers[1].state is WorkerState.UP


def test_nobody_leads_after_the_leader_was_killed() -> None:
    now = snapshot(small_cluster().at(3).fault("kill", "worker-1").events)
    assert now.leader is None
    assert not any(worker.is_leader for worker in now.workers)


def test_each_fault_has_a_state_in_words() -> None:
    for fault, state in [
        ("stop", "stopping"),
        ("pause", "paused"),
        ("stall", "stalled"),
        ("partition", "cut off"),
        ("kill", "killed"),
    ]:
        assert snapshot(small_cluster().fault(fault, "worker-3").events).workers[2].state == state
    assert (
        snapshot(small_cluster().fault("partition", "worker-3").fault("heal", "worker-3").events).workers[2].state
        == "up"
    )


def words(history: History, worker: str = "worker-3") -> str:
    return next(one.standing.description for one in snapshot(history.events).workers if one.name == worker)


def test_a_worker_that_was_resumed_while_it_is_cut_off_is_cut_off() -> None:
    history = small_cluster().fault("partition", "worker-3", direction="in").fault("pause", "worker-3")
    assert words(history) == "paused, cut off (in)"
    history.fault("resume", "worker-3")
    assert (words(history), snapshot(history.events).workers[2].state) == ("cut off (in)", WorkerState.CUT_OFF)
    assert words(history.fault("heal", "worker-3")) == "up"


def test_a_worker_that_runs_and_is_out_of_its_group_says_so() -> None:
    history = small_cluster().fault("stall", "worker-3")
    history.at(9).rebalance(3, leader="worker-1", work={"worker-1": [], "worker-2": []})
    assert words(history) == "stalled, out of the group"
    history.fault("resume", "worker-3").add(EventKind.MEMBER_LOST, "worker-3", cause="unknown member")
    assert words(history) == "up, out of the group"
    assert words(history.add(EventKind.REBALANCE_STARTED, "worker-3")) == "up, joining the group"
    history.rebalance(4, leader="worker-1", work={"worker-1": [], "worker-2": [], "worker-3": []})
    assert (words(history), snapshot(history.events).workers[2].standing.generation) == ("up", 4)


def test_a_worker_that_starts_is_not_up_because_it_was_resumed() -> None:
    history = History().started("worker-1").fault("pause", "worker-1").fault("resume", "worker-1")
    assert words(history, "worker-1") == "starting"


def test_a_stopped_a_failed_and_a_new_worker() -> None:
    history = small_cluster().fault("stop", "worker-3").add(EventKind.WORKER_STOPPED, "worker-3")
    history.add(EventKind.WORKER_FAILED, "worker-2", error="no").started("worker-4")
    assert [worker.state.value for worker in snapshot(history.events).workers] == [
        "up",
        "failed",
        "stopped",
        "starting",
    ]


def test_workers_are_sorted_by_name_and_number() -> None:
    names = ["worker-10", "worker-2", "b", "worker-1", "10.0.0.1:8083", "a"]
    shown = [worker.name for worker in snapshot(History().started(*names).events).workers]
    assert shown == ["10.0.0.1:8083", "a", "b", "worker-1", "worker-2", "worker-10"]


def test_no_events_no_facts() -> None:
    now = snapshot([])
    assert (now.generation, now.leader, now.workers, now.tasks) == (None, None, (), ())
    assert snapshot(History().add(EventKind.CLUSTER_STARTED).events).workers == ()


def test_a_failed_task_has_the_trace_of_its_newest_failure_and_one_that_runs_has_none() -> None:
    history = small_cluster().state("worker-2", "flights-in-0", "FAILED", trace="FileNotFoundError: old")
    assert snapshot(history.events).tasks[0].trace == "FileNotFoundError: old"
    history.state("worker-2", "flights-in-0", "RESTARTING").start("worker-2", "flights-in-0", instance=2)
    assert snapshot(history.events).tasks[0].trace == ""
    history.state("worker-2", "flights-in-0", "FAILED", instance=2, trace="ValueError: new")
    assert snapshot(history.events).tasks[0].trace == "ValueError: new"


def test_a_zombies_failure_is_not_that_of_its_successor() -> None:
    assert [task.trace for task in snapshot(pause_with_fence().events).tasks] == ["", "", ""]
