"""Faults that come by themselves: later, and at random from a seed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import takewhile

import pytest

import connectx as cx
from connectx.api.faults.plan import plan
from connectx.errors.clusters import UnknownWorkerError, WorkerStoppedError
from connectx.model.events import EventKind
from tests.support.clusters import MakeCluster, events
from tests.support.flows import Lines
from tests.support.options import BROKER, GATE
from tests.support.profiles import QUICK
from tests.support.waiting import WAIT_S, until

MakeLines = Callable[..., Lines]


@pytest.fixture(scope="module")
def group(make_cluster: MakeCluster) -> Iterator[cx.Cluster]:
    """Three workers to break."""
    with make_cluster(workers=3, config=QUICK) as made:
        yield made


def healthy(cluster: cx.Cluster) -> int:
    return len([worker for worker in cluster.workers if worker.is_healthy])


@GATE
def test_a_fault_comes_later_by_itself_and_its_handle_tells(group: cx.Cluster) -> None:
    since = group.events.last_seq
    newcomer = group.after(0.05).add_worker(WAIT_S).result(WAIT_S)
    assert newcomer in list(group.workers)
    killing = group.after(0.05).kill(newcomer.name)
    killing.result(WAIT_S)
    assert (killing.state, newcomer.state) == ("done", "killed")
    cutting = group.after(0.05).partition(newcomer.name, "in")
    with pytest.raises(WorkerStoppedError):
        cutting.result(WAIT_S)
    assert cutting.state == "failed"
    (refused,) = events(group, EventKind.FAULT_FAILED, since)
    assert (refused.worker, refused.data["fault"]) == (newcomer.name, "partition")
    recorded = [
        (event.data["fault"], event.data["after_s"]) for event in events(group, EventKind.FAULT_INJECTED, since)
    ]
    assert recorded == [("add_worker", 0.05), ("kill", 0.05)]
    with pytest.raises(UnknownWorkerError):
        group.after(3600).kill("worker-99")
    waiting = group.after(3600).kill("worker-1")
    assert waiting.cancel()
    assert "cancelled" in repr(waiting)
    group.wait_stable(WAIT_S)


@GATE
def test_chaos_carries_out_its_plan_and_leaves_a_healthy_group(group: cx.Cluster, make_lines: MakeLines) -> None:
    flows = [make_lines(group, partitions=2) for _ in range(2)]
    for lines in flows:
        lines.start()
        lines.append(100)
    since, size = group.events.last_seq, healthy(group)
    kinds = ["kill", "pause", "stall", "partition", "delay", "stop", "add_worker"]
    with group.chaos(seed=5, kinds=kinds, every_s=1.0, for_s=7.0, hold_s=(0.5, 4.0)) as chaos:
        for lines in flows:
            lines.append(100)
        assert "seed 5" in repr(chaos)
    planned = list(takewhile(lambda fault: fault.at_s < 7.0, plan(5, kinds, every_s=1.0, hold_s=(0.5, 4.0))))
    assert [(fault.number, fault.kind) for fault in chaos.faults] == [(fault.number, fault.kind) for fault in planned]
    done = [fault for fault in chaos.faults if not fault.skipped]
    assert len(done) >= 6
    recorded = events(group, EventKind.FAULT_INJECTED, since, chaos_seed=5)
    faults = [event.data["fault"] for event in recorded]
    assert faults.count("deliver") == faults.count("delay") > 0
    assert {event.data["chaos_fault"] for event in recorded if "chaos_fault" in event.data} == {f.number for f in done}
    assert [w.name for w in group.workers if w.state in ("paused", "stalled") or w.cut is not None] == []
    assert healthy(group) >= size
    for lines in flows:
        lines.append(100)
        lines.check_exactly_once()
    assert not events(group, EventKind.WORKER_FAILED, since)
    assert "Chaos" in chaos._repr_html_()
    with pytest.raises(RuntimeError, match="started before"):
        chaos.start()


@GATE
def test_chaos_keeps_a_healthy_worker_and_ends_at_once_when_its_block_fails(group: cx.Cluster) -> None:
    fewest, ended = [healthy(group)], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            fewest.append(healthy(group))

    def interrupted() -> None:
        with chaos:
            until(lambda: len(chaos.faults) >= 10, "ten faults")
            raise KeyboardInterrupt

    chaos = group.chaos(seed=3, kinds=["pause", "partition"], every_s=0.2, for_s=3600.0, hold_s=(60, 60), keep=2)
    watcher = threading.Thread(target=watch)
    watcher.start()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    ended.set()
    watcher.join()
    assert min(fewest) == 2
    assert healthy(group) == max(fewest)
    assert all(fault.until_s is not None for fault in chaos.faults if not fault.skipped)
    group.wait_stable(WAIT_S)


@BROKER
def test_a_broker_that_is_killed_in_the_middle_of_transactions_loses_and_repeats_nothing(
    group: cx.Cluster, make_lines: MakeLines
) -> None:
    quick, slow = make_lines(group, partitions=2), make_lines(group)
    quick.start()
    connector = slow.start(transaction_boundary="interval", transaction_boundary_interval_ms="3600000")
    slow.append(50)
    slow.wait_written(50)
    quick.append(100)
    assert group.kafka is not None
    since, pid, address, folder = group.events.last_seq, group.kafka.pid, group.bootstrap_servers, group.kafka.data_dir
    group.kill_broker()
    assert not group.kafka.alive
    quick.append(100)
    restarting = group.after(0.5).restart_broker()
    restarting.result(WAIT_S)
    assert (group.bootstrap_servers, group.kafka.data_dir) == (address, folder)
    assert group.kafka.pid != pid
    quick.append(100)
    quick.check_exactly_once()
    slow.append(50)
    assert slow.committed.values() == []
    connector.config.update({"transaction.boundary": "poll"})
    slow.check_exactly_once()
    recorded = [event.data["fault"] for event in events(group, EventKind.FAULT_INJECTED, since)]
    assert recorded == ["broker_kill", "broker_restart"]
    assert not events(group, EventKind.WORKER_FAILED, since)
    group.wait_stable(WAIT_S)


@pytest.mark.usefixtures("spark")  # its threads are there before, and stay
def test_a_cluster_that_is_closed_calls_off_what_was_to_come(make_cluster: MakeCluster) -> None:
    before = set(threading.enumerate())
    with make_cluster(workers=2, config=QUICK) as cluster:
        waiting = cluster.after(3600).kill("worker-1")
        chaos = cluster.chaos(seed=1, kinds=["pause"], every_s=0.2, for_s=None, hold_s=(60, 60)).start()
        until(lambda: chaos.faults, "a fault")
    assert waiting.state == "cancelled"
    chaos.stop()
    assert [worker.state for worker in cluster.workers] == ["stopped", "stopped"]
    assert cluster.events[-1].kind is EventKind.CLUSTER_STOPPED
    until(lambda: set(threading.enumerate()) <= before, "the end of its threads")
