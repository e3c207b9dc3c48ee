"""Workers are killed, stopped, paused and stalled while data flows; whoever reads the topic never notices."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest
from confluent_kafka import KafkaException, Producer

import connectx as cx
from connectx.errors.clusters import NoGateError, NotEmbeddedError, WorkerStoppedError
from connectx.model.events import EventKind
from tests.support.clusters import MakeCluster, events, of_task, owner_of, restore
from tests.support.flows import Lines
from tests.support.options import GATE
from tests.support.profiles import QUICK
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.rule("618.7.1", "always.9")

if TYPE_CHECKING:
    from connectx.kafka.broker.gate import Direction
    from connectx.spark.sessions import SparkProvider

MakeLines = Callable[..., Lines]

SLOW_COMMITS = {"transaction_boundary": "interval", "transaction_boundary_interval_ms": "3600000"}
"""Records are sent at once, and their transaction stays open until the task stops."""


@pytest.fixture(scope="module")
def group(make_cluster: MakeCluster) -> Iterator[cx.Cluster]:
    """Three workers to break."""
    with make_cluster(workers=3, config=QUICK) as made:
        yield made


@pytest.fixture(autouse=True)
def three_workers(group: cx.Cluster) -> None:
    """Before each test, three workers that run and agree, and nothing left to do."""
    restore(group)


def ended_with_fence(cluster: cx.Cluster, worker: str, task: str, since: int) -> bool:
    """True when a task's instance on a worker was fenced, and its thread has ended."""
    wanted = {"worker": worker, **of_task(task)}
    fenced = events(cluster, EventKind.PRODUCER_FENCED, since, **wanted)
    return bool(fenced and events(cluster, EventKind.TASK_ENDED, since, **wanted))


def test_a_newcomer_takes_its_share(group: cx.Cluster, make_lines: MakeLines) -> None:
    flows = [make_lines(group) for _ in range(4)]
    for lines in flows:
        lines.start()
        lines.append(20)
    newcomer = group.add_worker(WAIT_S)
    assert newcomer.state == "running"
    until(lambda: newcomer.tasks or newcomer.connectors, "work of the newcomer")
    group.wait_stable(WAIT_S)
    for lines in flows:
        lines.append(20)
    for lines in flows:
        lines.check_exactly_once()
    loads = [len(w.tasks) + len(w.connectors) for w in group.workers if w.state == "running"]
    until(lambda: max(loads) - min(loads) <= 2, "an even load", 1.0)
    assert newcomer.stop()


def test_a_stopped_worker_hands_over_without_a_duplicate(
    group: cx.Cluster, make_lines: MakeLines, tmp_path: Path
) -> None:
    lines, out = make_lines(group, partitions=2), tmp_path / "out.txt"
    lines.start()
    sink = {"connector.class": "FileStreamSink", "file": str(out), "topics": lines.topic}
    group.create(f"{lines.name}-out", sink).wait("RUNNING", WAIT_S)
    lines.append(100)
    until(lambda: out.exists() and len(out.read_text().splitlines()) == 100, "100 lines")
    since = group.events.last_seq
    for task in (lines.task, f"{lines.name}-out-0"):
        owner = owner_of(group, task)
        assert group.stop(owner.name), "nothing is left behind"
        assert owner.state == "stopped"
        assert owner.tasks == owner.connectors == []
        recorded = group.workers.lost_on(urlsplit(owner.url).netloc)
        assert recorded == f"{owner.name} has ended; its work is being handed over"
        lines.append(100)
        lines.wait_committed()
    until(lambda: len(out.read_text().splitlines()) >= 300, "300 lines")
    lines.check_exactly_once()
    assert sorted(out.read_text().splitlines(), key=lambda line: int(line.split()[1])) == lines.expected
    assert not events(group, EventKind.PRODUCER_FENCED, since)
    assert not events(group, EventKind.MEMBER_LOST, since)


@pytest.mark.parametrize("role", ["source", "leader"])
def test_a_killed_worker_loses_and_repeats_nothing(group: cx.Cluster, make_lines: MakeLines, role: str) -> None:
    flows = [make_lines(group, partitions=2) for _ in range(3)]
    for lines in flows:
        lines.start()
        lines.append(500)
    flows[0].wait_committed()
    leader = group.leader
    assert leader is not None
    victim = leader if role == "leader" else flows[0].owner()
    since = group.events.last_seq
    group.kill(victim.name)
    for lines in flows:
        lines.append(500)
    for lines in flows:
        lines.check_exactly_once()
    assert victim.state == "killed"
    assert victim.tasks == []
    assert flows[0].owner().name != victim.name
    until(lambda: group.leader is not None and group.leader.name != victim.name, "another leader")
    for lines in flows:
        lines.append(1)
        lines.check_exactly_once()
    until(lambda: not victim.task_metrics, "the ends of its tasks")
    for event in events(group, EventKind.FAULT_INJECTED, since, worker=victim.name):
        for task in event.data["tasks"]:
            assert events(group, EventKind.TASK_ENDED, since, worker=victim.name, connector=task.rpartition("-")[0])


def test_a_killed_sink_worker_loses_nothing(group: cx.Cluster, make_lines: MakeLines, tmp_path: Path) -> None:
    lines, out = make_lines(group, partitions=4), tmp_path / "out.txt"
    lines.start()
    sink = {"connector.class": "FileStreamSink", "file": str(out), "topics": lines.topic, "tasks.max": "2"}
    group.create(f"{lines.name}-out", sink).wait("RUNNING", WAIT_S)
    lines.append(1000)
    until(lambda: out.exists() and len(set(out.read_text().splitlines())) == 1000, "1000 lines")
    group.kill(owner_of(group, f"{lines.name}-out-1").name)
    lines.append(1000)
    until(lambda: set(out.read_text().splitlines()) == set(lines.expected), "2000 lines")
    lines.check_exactly_once()


def test_a_worker_killed_in_the_middle_of_a_transaction_leaves_nothing_of_it(
    group: cx.Cluster, make_lines: MakeLines
) -> None:
    lines = make_lines(group, partitions=2)
    connector = lines.start(**SLOW_COMMITS)
    lines.append(50)
    lines.wait_written(50)
    assert lines.committed.values() == []
    victim = lines.owner()
    group.kill(victim.name)
    lines.append(50)
    lines.wait_written(150)  # 50 of them belong to the transaction that was aborted
    assert lines.owner().name != victim.name
    assert lines.committed.values() == []
    connector.config.update({"transaction.boundary": "poll"})
    lines.check_exactly_once()
    assert len(lines.written.values()) == 150, "the first transaction was really written, and aborted"


def test_a_paused_worker_wakes_up_as_a_zombie_that_is_fenced(group: cx.Cluster, make_lines: MakeLines) -> None:
    lines = make_lines(group, partitions=2)
    lines.start(**SLOW_COMMITS)
    lines.append(50)
    lines.wait_written(50)
    zombie = lines.owner()
    since = group.events.last_seq
    zombie.pause()
    assert zombie.state == "paused"
    successor = lines.owner()
    assert successor.name != zombie.name
    lines.append(50)
    lines.wait_written(150)
    zombie.resume()
    assert zombie.state == "running"
    until(lambda: ended_with_fence(group, zombie.name, lines.task, since), "the zombie's fencing and end")
    group.wait_stable(WAIT_S)
    group[lines.name].config.update({"transaction.boundary": "poll"})
    lines.append(50)
    lines.check_exactly_once()
    epochs = {
        worker: {e.producer_epoch for e in events(group, EventKind.TRANSACTION_COMMITTED, since, worker=worker)}
        for worker in (zombie.name, lines.owner().name)
    }
    assert None not in epochs[lines.owner().name]


def test_a_stalled_worker_goes_on_producing_until_it_is_fenced(group: cx.Cluster, make_lines: MakeLines) -> None:
    lines = make_lines(group, partitions=2)
    lines.start()
    lines.append(50)
    lines.wait_committed()
    zombie = lines.owner()
    since = group.events.last_seq
    zombie.stall()
    assert zombie.state == "stalled"
    lines.append(50)
    until(
        lambda: events(group, EventKind.TRANSACTION_COMMITTED, since, worker=zombie.name, connector=lines.name),
        "a commit of the stalled worker",
    )
    successor = lines.owner()
    assert successor.name != zombie.name
    lines.append(50)
    until(lambda: ended_with_fence(group, zombie.name, lines.task, since), "the zombie's fencing and end")
    lines.append(50)
    lines.check_exactly_once()
    zombie.resume()
    group.wait_stable(WAIT_S)
    lines.append(50)
    lines.check_exactly_once()
    epochs = [e.producer_epoch for e in events(group, EventKind.TRANSACTION_COMMITTED, since, connector=lines.name)]
    assert epochs == sorted(epochs, key=lambda epoch: epoch or 0), "no older epoch commits after a newer one"


@GATE
@pytest.mark.parametrize("direction", ["both", "in", "out"])
def test_a_worker_that_is_cut_off_gives_up_its_work_and_rejoins_after_heal(
    group: cx.Cluster, make_lines: MakeLines, direction: Direction
) -> None:
    lines = make_lines(group, partitions=2)
    lines.start()
    lines.append(50)
    lines.wait_committed()
    cut_off = lines.owner()
    since = group.events.last_seq
    group.partition(cut_off.name, direction)
    lines.append(50)
    assert (cut_off.state, cut_off.cut) == ("running", direction)
    assert "partitioned" in repr(cut_off)
    assert httpx.get(cut_off.url).status_code == 200
    lines.wait_committed()
    assert lines.owner().name != cut_off.name
    losses = [event.cause for event in events(group, EventKind.MEMBER_LOST, since, worker=cut_off.name)]
    assert "the group coordinator cannot be reached" in losses
    ended = {"worker": cut_off.name, "connector": lines.name}
    until(lambda: events(group, EventKind.TASK_ENDED, since, **ended), "the end of its task (KAFKA-9184)")
    assert not cut_off.task_metrics
    group.wait_stable(WAIT_S)
    group.heal(cut_off.name)
    assert cut_off.cut is None
    until(lambda: cut_off.view.get("state") == "stable" and cut_off.generation == group.generation, "its return")
    group.wait_stable(WAIT_S)
    lines.append(50)
    lines.check_exactly_once()
    faults = events(group, EventKind.FAULT_INJECTED, since, worker=cut_off.name)
    assert [(event.data["fault"], event.data["direction"]) for event in faults] == [
        ("partition", direction),
        ("heal", direction),
    ]
    assert faults[0].data["tasks"] == [lines.task]
    assert not events(group, EventKind.WORKER_FAILED, since)


@GATE
@pytest.mark.parametrize("direction", ["both", "in", "out"])
def test_a_worker_that_is_cut_off_in_the_middle_of_a_transaction_commits_nothing_of_it(
    group: cx.Cluster, make_lines: MakeLines, direction: Direction
) -> None:
    lines = make_lines(group, partitions=2)
    connector = lines.start(**SLOW_COMMITS)
    lines.append(50)
    lines.wait_written(50)
    cut_off = lines.owner()
    cut_off.partition(direction)
    assert lines.owner().name != cut_off.name
    lines.append(50)
    lines.wait_written(150)
    cut_off.heal()
    group.wait_stable(WAIT_S)
    assert lines.committed.values() == []
    connector.config.update({"transaction.boundary": "poll"})
    lines.append(50)
    lines.check_exactly_once()


@GATE
def test_a_sink_whose_worker_is_cut_off_loses_nothing(group: cx.Cluster, make_lines: MakeLines, tmp_path: Path) -> None:
    lines, out = make_lines(group, partitions=4), tmp_path / "out.txt"
    lines.start()
    sink = {"connector.class": "FileStreamSink", "file": str(out), "topics": lines.topic, "tasks.max": "2"}
    group.create(f"{lines.name}-out", sink).wait("RUNNING", WAIT_S)
    lines.append(500)
    until(lambda: out.exists() and len(set(out.read_text().splitlines())) == 500, "500 lines")
    directions: tuple[Direction, ...] = ("both", "in", "out")
    for number, direction in enumerate(directions):
        cut_off = owner_of(group, f"{lines.name}-out-{number % 2}")
        cut_off.partition(direction)
        lines.append(500)
        until(lambda: set(out.read_text().splitlines()) == set(lines.expected), f"all lines while {direction} is cut")
        cut_off.heal()
        group.wait_stable(WAIT_S)
    lines.append(500)
    until(lambda: set(out.read_text().splitlines()) == set(lines.expected), "2500 lines")
    lines.check_exactly_once()


@GATE
def test_a_cut_that_is_healed_before_anybody_misses_the_worker_moves_nothing(
    group: cx.Cluster, make_lines: MakeLines
) -> None:
    lines = make_lines(group)
    lines.start()
    lines.append(20)
    lines.wait_committed()
    owner, generation, since = lines.owner(), group.generation, group.events.last_seq
    for direction in ("both", "in", "out"):
        owner.partition(direction)
    owner.heal()
    lines.append(20)
    lines.check_exactly_once()
    assert lines.owner().name == owner.name
    assert group.generation == generation
    assert not events(group, EventKind.MEMBER_LOST, since)


@GATE
def test_the_end_of_a_pause_does_not_end_a_cut(group: cx.Cluster) -> None:
    worker = group.workers[-1] if group.workers[-1].state == "running" else group.add_worker(WAIT_S)
    since = group.events.last_seq
    worker.partition()
    worker.pause()
    worker.resume()
    assert (worker.state, worker.cut) == ("running", "both")
    until(lambda: events(group, EventKind.MEMBER_LOST, since, worker=worker.name), "the loss of its membership")
    worker.heal()
    until(lambda: worker.view.get("state") == "stable" and worker.generation == group.generation, "its return")


@GATE
def test_a_killed_worker_stays_cut_off(group: cx.Cluster, make_lines: MakeLines) -> None:
    lines = make_lines(group)
    lines.start()
    lines.append(20)
    victim = lines.owner()
    victim.partition("in")
    victim.kill()
    for verb in (victim.heal, victim.partition):
        with pytest.raises(WorkerStoppedError, match=victim.name):
            verb()
    lines.append(20)
    lines.check_exactly_once()
    assert group.kafka is not None
    assert group.kafka.gate is not None
    late = Producer({"bootstrap.servers": group.kafka.worker_bootstrap_servers, "client.id": f"{victim.name}/late"})
    with pytest.raises(KafkaException):
        late.list_topics(timeout=2)
    assert victim.name not in group.kafka.gate.connections()


def test_without_a_gate_a_worker_cannot_be_cut_off(spark_provider: SparkProvider, group: cx.Cluster) -> None:
    one = {f"{topic}.storage.replication.factor": "1" for topic in ("config", "offset", "status")}
    settings = {**QUICK, **one, "group.id": "elsewhere", "heartbeat.interval.ms": "500"}
    with cx.Cluster(workers=1, config=settings, bootstrap_servers=group.bootstrap_servers) as own:
        with pytest.raises(NoGateError, match=r"worker-1 .*no gate"):
            own.partition("worker-1")
        own.heal("worker-1")
        with pytest.raises(NotEmbeddedError, match="your own"):
            own.kill_broker()
        with pytest.raises(NotEmbeddedError):
            own.restart_broker()
        with pytest.raises(NoGateError):
            own.chaos(seed=1, kinds=["partition"])
        with pytest.raises(NotEmbeddedError):
            own.chaos(seed=1, kinds=["broker_kill"])
        assert not events(own, EventKind.FAULT_INJECTED)


def test_a_worker_that_comes_back_before_it_is_missed_keeps_its_work(group: cx.Cluster, make_lines: MakeLines) -> None:
    lines = make_lines(group)
    lines.start()
    lines.append(20)
    lines.wait_committed()
    owner, generation, since = lines.owner(), group.generation, group.events.last_seq
    owner.pause()
    owner.resume()
    lines.append(20)
    lines.check_exactly_once()
    assert lines.owner().name == owner.name
    assert group.generation == generation
    assert not events(group, EventKind.PRODUCER_FENCED, since)


def test_faults_of_a_worker_that_has_ended_are_refused_and_ends_are_final(group: cx.Cluster) -> None:
    worker = group.workers[-1] if group.workers[-1].state == "running" else group.add_worker(WAIT_S)
    worker.kill()
    worker.kill()
    assert worker.stop()
    for verb in (worker.pause, worker.stall, worker.resume):
        with pytest.raises(WorkerStoppedError, match=worker.name):
            verb()
    assert worker.state == "killed"
    assert worker.view == {}
    faults = events(group, EventKind.FAULT_INJECTED, worker=worker.name)
    assert [event.data["fault"] for event in faults][-1] == "kill"


def test_what_was_asked_of_a_worker_that_is_killed_meanwhile_is_answered_by_another(
    group: cx.Cluster, make_lines: MakeLines
) -> None:
    lines = make_lines(group)
    lines.start()
    first = next(worker for worker in group.workers if worker.state == "running")
    first.kill()
    assert json.loads(json.dumps(group.status(lines.name)))["name"] == lines.name
    group[lines.name].restart(include_tasks=True)
    lines.append(10)
    lines.check_exactly_once()
