"""Who may write to the config topic (KIP-618, rules 1 and 4), on a real cluster: fenced leaders, manual restarts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

import connectx as cx
from connectx.model.events import EventKind
from tests.support.clusters import ask_settled, events, owner_of
from tests.support.flows import Rows
from tests.support.options import GATE
from tests.support.transactions import OpenTransaction
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.rule("618.7.3")

MakeRows = Callable[[cx.Cluster], Rows]
Asked = Callable[..., Future[httpx.Response]]


@pytest.mark.rule("618.1.5")
@GATE
def test_a_new_leader_fences_the_old_one_whose_pending_write_fails_and_which_joins_again(
    workers: cx.Cluster, make_rows: MakeRows, asked: Asked
) -> None:
    rows = make_rows(workers)
    rows.start()
    leader, since = workers.leader, workers.events.last_seq
    assert leader is not None
    leader.partition("out")  # it is alive, and nothing that it sends gets through
    pending = asked(leader, "DELETE", f"/connectors/{rows.name}")
    until(
        lambda: [w for w in workers.workers if w.name != leader.name and w.is_leader and w.state == "running"],
        "another leader",
    )
    until(lambda: len(events(workers, EventKind.LEADERSHIP_CLAIMED, since)) == 1, "its claim")
    assert not pending.done()
    leader.heal()
    answer = pending.result(WAIT_S)
    assert answer.status_code == 500
    assert "this may be due to a transient error and the request can be safely retried" in answer.json()["message"]
    workers.wait_stable(WAIT_S)
    assert leader.state == "running"
    assert leader.generation == workers.generation
    assert workers[rows.name].status()["name"] == rows.name, "nothing of the write is there"
    claims = events(workers, EventKind.LEADERSHIP_CLAIMED, since)
    assert len(claims) <= 2, "it does not fence its successor again and again"
    assert ask_settled(leader, "DELETE", f"/connectors/{rows.name}").status_code == 204


@pytest.mark.rule("618.1.6")
def test_a_leader_that_was_fenced_by_mistake_says_so_and_claims_again_at_once(
    workers: cx.Cluster, make_rows: MakeRows
) -> None:
    rows = make_rows(workers)
    connector = rows.start()
    leader, generation, since = workers.leader, workers.generation, workers.events.last_seq
    assert leader is not None
    zombie = Producer(
        {
            "bootstrap.servers": workers.bootstrap_servers,
            "transactional.id": workers.config.config_transactional_id,
        }
    )
    zombie.init_transactions(30)
    answer = ask_settled(leader, "DELETE", f"/connectors/{rows.name}")
    assert answer.status_code == 500
    assert "another worker took over as leader and fenced this one" in answer.json()["message"]
    assert "can be safely retried" in answer.json()["message"]
    fenced = events(workers, EventKind.LEADERSHIP_FENCED, since)
    assert [event.worker for event in fenced] == [leader.name]
    connector.config.update({"rate": "30"})  # waits for the rights, and gets them
    connector.wait("RUNNING", WAIT_S)
    claims = events(workers, EventKind.LEADERSHIP_CLAIMED, since)
    assert [(event.worker, event.data["transactional_id"]) for event in claims] == [
        (leader.name, workers.config.config_transactional_id)
    ], "once, without a rebalance for it"
    assert claims[0].generation == generation
    rows.wait_for_more()
    rows.check_exactly_once()


@pytest.mark.rule("618.1.6")
def test_a_stalled_leader_that_wakes_writes_nothing_and_leads_no_more(
    workers: cx.Cluster, make_rows: MakeRows, asked: Asked
) -> None:
    rows = make_rows(workers)
    rows.start()
    leader, since = workers.leader, workers.events.last_seq
    assert leader is not None
    leader.stall()
    pending = asked(leader, "PUT", f"/connectors/{rows.name}/stop")
    until(
        lambda: [w for w in workers.workers if w.name != leader.name and w.is_leader and w.state == "running"],
        "another leader",
    )
    leader.resume()
    assert pending.result(WAIT_S).status_code in (204, 409, 500), "passed on to the new leader, or to be tried again"
    workers.wait_stable(WAIT_S)
    until(lambda: events(workers, EventKind.LEADERSHIP_CLAIMED, since), "the first write of the new leader")
    claims = [event.worker for event in events(workers, EventKind.LEADERSHIP_CLAIMED, since)]
    assert leader.name not in claims, "it has seen by its own clock that it is no member any more"
    workers[rows.name].resume()
    for number in (0, 1):
        owner_of(workers, f"{rows.name}-{number}")
        rows.wait_for_more(number)
    rows.check_exactly_once()


@pytest.mark.rule("618.4.1")
def test_a_restart_reads_the_config_topic_first_and_is_a_500_when_its_end_cannot_be_reached(
    workers: cx.Cluster, make_rows: MakeRows
) -> None:
    rows = make_rows(workers)
    rows.start()
    owner, since = owner_of(workers, f"{rows.name}-0"), workers.events.last_seq
    blocker = OpenTransaction(workers.bootstrap_servers, workers.config.config_topic.name)
    try:
        answer = ask_settled(owner, "POST", f"/connectors/{rows.name}/tasks/0/restart")
    finally:
        blocker.end()
    assert answer.status_code == 500
    assert "Failed to read to the end of the config topic" in answer.json()["message"]
    assert not events(workers, EventKind.TASK_STEP, since, connector=rows.name, task=0), "nothing was restarted"
    assert ask_settled(owner, "POST", f"/connectors/{rows.name}/tasks/0/restart").status_code == 204
    assert ask_settled(owner, "POST", f"/connectors/{rows.name}/tasks/7/restart").status_code == 404
    assert ask_settled(owner, "POST", "/connectors/nobody/restart").status_code == 404
    owner_of(workers, f"{rows.name}-0")
    rows.wait_for_more()
    rows.check_exactly_once()


@pytest.mark.rule("618.4.3")
@pytest.mark.parametrize("only_failed", [False, True])
def test_a_restart_with_tasks_touches_what_was_asked_for(
    workers: cx.Cluster, make_rows: MakeRows, only_failed: bool
) -> None:
    rows = make_rows(workers)
    connector = rows.start()
    rows.wait_for_more(1)
    broken = owner_of(workers, f"{rows.name}-0")
    fence = Producer(
        {"bootstrap.servers": workers.bootstrap_servers, "transactional.id": f"{workers.config.group_id}-{rows.name}-0"}
    )
    fence.init_transactions(30)  # somebody else takes its transactional id
    failed: dict[str, Any] = {"connector": rows.name, "task": 0, "state": "FAILED"}
    until(lambda: events(workers, EventKind.TASK_STATE, worker=broken.name, **failed), "the fenced task's failure")
    trace = until(lambda: connector.status()["tasks"][0].get("trace"), "its trace in the status topic")
    assert f"{rows.name}-0 was fenced: who took over {rows.name}-0 (epoch " in trace
    assert "is not known yet: no other worker reports it in the status topic" in trace
    since = workers.events.last_seq
    connector.restart(include_tasks=True, only_failed=only_failed)
    until(lambda: connector.status()["tasks"][0]["state"] == "RUNNING", "the restarted task")
    rows.wait_for_more(0)
    rows.wait_for_more(1)
    restarted = {event.task for event in events(workers, EventKind.TASK_STEP, since, connector=rows.name, step="begin")}
    assert restarted == ({0} if only_failed else {0, 1})
    rows.check_exactly_once()
