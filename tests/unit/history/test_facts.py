"""Facts: how things stand at the end of a history."""

from __future__ import annotations

from histories import START_MS, History, kill_of_source, pause_with_fence, small_cluster

from connectx.history.facts import WorkerState, facts
from connectx.model.events import EventKind


def test_a_running_cluster() -> None:
    now = facts(small_cluster().events)
    assert (now.generation, now.leader, now.rebalances, now.faults, now.fenced) == (2, "worker-1", 2, 0, 0)
    leader = now.workers[0]
    assert (leader.name, leader.state, leader.is_leader) == ("worker-1", WorkerState.UP, True)
    assert (leader.connectors, leader.tasks) == (("flights-in",), ("flights-out-1",))
    assert [(work.connector, work.task, work.state, work.worker) for work in now.tasks] == [
        ("flights-in", 0, "RUNNING", "worker-2"),
        ("flights-out", 0, "RUNNING", "worker-3"),
        ("flights-out", 1, "RUNNING", "worker-1"),
    ]


def test_work_of_a_killed_worker_is_unassigned_until_it_moved() -> None:
    history = small_cluster().at(10).fault("kill", "worker-2")
    now = facts(history.events)
    assert now.workers[1].state is WorkerState.KILLED
    assert now.workers[1].zombies == ("flights-in-0",)
    assert (now.tasks[0].state, now.tasks[0].worker, now.tasks[0].since_ms) == ("UNASSIGNED", None, START_MS + 10_000)
    later = facts(kill_of_source().events)
    assert (later.tasks[0].state, later.tasks[0].worker, later.tasks[0].producer_epoch) == ("RUNNING", "worker-3", 1)
    assert later.workers[1].zombies == ()


def test_a_fence_is_counted_and_a_resumed_worker_is_up() -> None:
    now = facts(pause_with_fence().events)
    assert (now.fenced, now.faults, now.generation) == (1, 2, 5)
    assert now.workers[1].state is WorkerState.UP


def test_nobody_leads_after_the_leader_was_killed() -> None:
    now = facts(small_cluster().at(3).fault("kill", "worker-1").events)
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
        assert facts(small_cluster().fault(fault, "worker-3").events).workers[2].state == state
    assert (
        facts(small_cluster().fault("partition", "worker-3").fault("heal", "worker-3").events).workers[2].state == "up"
    )


def test_a_stopped_a_failed_and_a_new_worker() -> None:
    history = small_cluster().fault("stop", "worker-3").add(EventKind.WORKER_STOPPED, "worker-3")
    history.add(EventKind.WORKER_FAILED, "worker-2", error="no").started("worker-4")
    assert [worker.state.value for worker in facts(history.events).workers] == ["up", "failed", "stopped", "starting"]


def test_workers_are_sorted_by_name_and_number() -> None:
    names = ["worker-10", "worker-2", "b", "worker-1", "10.0.0.1:8083", "a"]
    shown = [worker.name for worker in facts(History().started(*names).events).workers]
    assert shown == ["10.0.0.1:8083", "a", "b", "worker-1", "worker-2", "worker-10"]


def test_no_events_no_facts() -> None:
    now = facts([])
    assert (now.generation, now.leader, now.workers, now.tasks) == (None, None, (), ())
    assert facts(History().add(EventKind.CLUSTER_STARTED).events).workers == ()
