"""Fencing rounds on a real cluster (KIP-618, rules 2, 3, 5): what is recorded when, who waits, what is given up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import connectx as cx
from connectx.api.workers import Worker
from connectx.model.events import EventKind
from tests.support.clusters import MakeCluster, config_records, events, explained_fence, owner_of, steps_of
from tests.support.flows import Rows
from tests.support.links import Valve
from tests.support.profiles import EOS
from tests.support.waiting import WAIT_S, until

MakeRows = Callable[[cx.Cluster], Rows]
START = ["prepare", "request_fencing", "init_producer", "read_config_to_end", "begin", "read_offsets", "poll"]


@pytest.mark.rule("618.3.2")
def test_a_source_task_starts_in_the_order_of_kip_618_and_behind_its_task_count_record(
    workers: cx.Cluster, make_rows: MakeRows
) -> None:
    rows, since = make_rows(workers), workers.events.last_seq
    rows.start()
    rows.wait_for_more()
    for task in (f"{rows.name}-0", f"{rows.name}-1"):
        owner = owner_of(workers, task)
        assert steps_of(workers, owner.name, task, since) == START
        recorded = events(workers, EventKind.TASK_COUNT_RECORDED, since, worker=owner.name, connector=rows.name)
        number = int(task[-1])
        steps = events(workers, EventKind.TASK_STEP, since, connector=rows.name, task=number)
        checked = next(event for event in steps if event.data["step"] == "begin")
        mine = {"connector": rows.name, "task": number}
        committed = until(lambda: events(workers, EventKind.TRANSACTION_COMMITTED, since, **mine), "a commit")  # noqa: B023
        assert recorded[0].seq < checked.seq < committed[0].seq
    keys = [key for key, _ in config_records(workers, "") if rows.name in key]
    assert keys.index(f"commit-{rows.name}") < keys.index(f"tasks-fencing-{rows.name}")
    rows.check_exactly_once()


@pytest.mark.rule("618.2.3")
def test_newer_task_configs_end_the_round_and_no_record_of_it_is_written(
    workers: cx.Cluster, make_rows: MakeRows, valve: Valve
) -> None:
    rows = make_rows(workers)
    connector = rows.start(admin_override_bootstrap_servers=valve.address)
    rows.wait_for_more()
    since = workers.events.last_seq
    valve.shut()
    connector.config.update({"rate": "30"})
    until(lambda: events(workers, EventKind.FENCING_STARTED, since, connector=rows.name), "a round")
    connector.config.update({"tasks.max": "1"})
    failed = until(lambda: events(workers, EventKind.FENCING_FAILED, since, connector=rows.name), "its end")
    assert "new task configs" in failed[0].data["error"]
    until(lambda: len(events(workers, EventKind.FENCING_STARTED, since, connector=rows.name)) == 2, "another round")
    assert [value for _, value in config_records(workers, f"tasks-fencing-{rows.name}")] == [{"task-count": 2}]
    valve.open()
    owner_of(workers, f"{rows.name}-0")
    started = events(workers, EventKind.FENCING_STARTED, since, connector=rows.name)
    assert [len(event.data["transactional_ids"]) for event in started] == [2, 2], "those of the last record"
    assert [value["task-count"] for _, value in config_records(workers, f"tasks-fencing-{rows.name}")] == [2, 1]
    refused = events(workers, EventKind.TASK_REFUSED, since, connector=rows.name)
    assert {event.data["reason"] for event in refused} == {"newer task configs are in the config topic"}


@pytest.mark.rule("618.2.5")
def test_a_leader_that_dies_in_a_round_is_replaced_and_the_round_is_asked_for_again(
    workers: cx.Cluster, make_rows: MakeRows, valve: Valve
) -> None:
    rows = make_rows(workers)
    connector = rows.start(admin_override_bootstrap_servers=valve.address)
    rows.wait_for_more()
    leader = workers.leader
    assert leader is not None
    since = workers.events.last_seq
    valve.shut()
    connector.config.update({"rate": "30"})
    until(lambda: events(workers, EventKind.FENCING_STARTED, since, worker=leader.name), "the round of the leader")
    asking = {"step": "request_fencing", "connector": rows.name}
    followers = until(
        lambda: [e for e in events(workers, EventKind.TASK_STEP, since, **asking) if e.worker != leader.name],
        "a follower that asks",
    )
    workers.kill(leader.name)
    valve.open()
    follower, task = str(followers[0].worker), f"{rows.name}-{followers[0].task}"
    rows.wait_for_more(int(followers[0].task or 0))
    steps = steps_of(workers, follower, task, since)
    assert steps[:4] == ["stop", "prepare", "request_fencing", "retry_fencing"]
    completed = events(workers, EventKind.FENCING_COMPLETED, since, connector=rows.name)
    assert [event.worker != leader.name for event in completed] == [True]
    for number in (0, 1):
        owner_of(workers, f"{rows.name}-{number}")
        rows.wait_for_more(number)
    rows.check_exactly_once()


@pytest.mark.rule("618.5.1")
def test_a_lagging_worker_never_brings_a_task_of_older_task_configs_to_life(
    workers: cx.Cluster, make_rows: MakeRows, valve: Valve
) -> None:
    """The eight steps of KIP-618, with the workers L (leader), F (follower) and O (other), and task T."""
    rows = make_rows(workers)
    connector = rows.start(admin_override_bootstrap_servers=valve.address)
    rows.wait_for_more()
    leader = workers.leader
    assert leader is not None
    since = workers.events.last_seq
    # 1 and 2: the connector is reconfigured, L fences; the round is held up so that F can be caught in it
    valve.shut()
    connector.config.update({"rate": "30"})
    asking = {"step": "request_fencing", "connector": rows.name}
    asked = until(
        lambda: [e for e in events(workers, EventKind.TASK_STEP, since, **asking) if e.worker != leader.name],
        "a follower that asks for the round",
    )
    follower, number = workers.workers[str(asked[0].worker)], int(asked[0].task or 0)
    task = f"{rows.name}-{number}"
    # 3 and 4: F blocks, the answer to its request comes, and T has no producer yet
    follower.stall()
    valve.open()
    until(lambda: events(workers, EventKind.FENCING_COMPLETED, since, connector=rows.name), "the end of the round")
    assert "init_producer" not in steps_of(workers, follower.name, task, since)
    # 5, 6 and 7: the connector is reconfigured again, F has fallen out of the group, O runs T
    other = owner_of(workers, task)
    assert other.name != follower.name
    connector.config.update({"rate": "40"})
    until(lambda: len(events(workers, EventKind.FENCING_COMPLETED, since, connector=rows.name)) == 2, "another round")
    other = owner_of(workers, task)
    rows.wait_for_more(number)
    # 8: F goes on, makes its producer, finds the newer task configs and gives T up
    woken = workers.events.last_seq
    follower.resume()
    refused = until(
        lambda: events(workers, EventKind.TASK_REFUSED, woken, worker=follower.name, connector=rows.name, task=number),
        "F's refusal",
    )
    assert refused[0].data["reason"] == "newer task configs are in the config topic"
    taken = steps_of(workers, follower.name, task, since)
    assert taken[:4] == ["stop", "prepare", "request_fencing", "init_producer"]
    workers.wait_stable(WAIT_S)
    first_end = events(workers, EventKind.TASK_ENDED, since, worker=follower.name, connector=rows.name, task=number)[0]
    mine = {"worker": follower.name, "connector": rows.name, "task": number}
    own = [e for e in events(workers, EventKind.TRANSACTION_COMMITTED, first_end.seq, **mine) if e.seq < refused[0].seq]
    assert own == [], "nothing of the older task configs is committed"
    # The harm that is left: F's late producer may have fenced the healthy one of O, whose task then has failed.
    connector.restart(include_tasks=True, only_failed=True)
    connector.wait("RUNNING", WAIT_S)
    rows.wait_for_more(number)
    rows.check_exactly_once()


def stalled_owner(cluster: cx.Cluster, task: str) -> tuple[Worker, int]:
    """A stalled worker whose instance of the task goes on, and the last event before it did so.

    One that was about to hand the task over ends it in peace: then another one is looked for.
    """
    connector, _, number = task.rpartition("-")
    worker = owner_of(cluster, task)
    worker.stall()
    since = cluster.events.last_seq
    about = {"worker": worker.name, "connector": connector, "task": int(number)}

    def is_zombie() -> bool:
        fenced = events(cluster, EventKind.PRODUCER_FENCED, since, **about)
        return bool(fenced) or len(events(cluster, EventKind.TRANSACTION_COMMITTED, since, **about)) >= 3

    until(lambda: is_zombie() or events(cluster, EventKind.TASK_ENDED, since, **about), "a zombie, or its task's end")
    if is_zombie():
        return worker, since
    worker.resume()
    cluster.wait_stable(WAIT_S)
    return stalled_owner(cluster, task)


@pytest.mark.rule("618.7.2")
def test_a_zombie_of_a_task_that_is_gone_says_that_the_round_of_the_leader_fenced_it(
    make_cluster: MakeCluster, make_rows: MakeRows
) -> None:
    with make_cluster(workers=3, config={**EOS, "scheduled.rebalance.max.delay.ms": "60000"}) as workers:
        _check_a_fence_by_the_round(workers, make_rows(workers))


def _check_a_fence_by_the_round(workers: cx.Cluster, rows: Rows) -> None:
    """The delay keeps the zombie's task from moving to another worker, which would fence it, too.

    The zombie must not have been the leader: a new leader does not know what was lost, and gives it out at once.
    """
    connector = rows.start(tasks=3)
    for task in (1, 2):
        rows.wait_for_more(task, of=3)
    workers.wait_stable(WAIT_S)
    number = next(n for n in (1, 2) if owner_of(workers, f"{rows.name}-{n}") != workers.leader)
    zombie, since = stalled_owner(workers, f"{rows.name}-{number}")
    wanted = {"worker": zombie.name, "connector": rows.name, "task": number}
    connector.config.update({"tasks.max": "1"})
    until(lambda: events(workers, EventKind.PRODUCER_FENCED, since, **wanted), "the zombie's fence")
    zombie.resume()
    reported = explained_fence(workers, zombie.name, f"{rows.name}-{number}", since)
    assert reported.cause.startswith("the leader fenced it")
    assert reported.cause.endswith(f"{rows.name} has newer task configs, for 1 task")
