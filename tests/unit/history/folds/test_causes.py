"""Why a rebalance happened, in words: each cause that there is."""

from __future__ import annotations

from typing import Any

import pytest

from connectx.history.folds.rebalances import rebalances
from connectx.model.events import EventKind
from tests.support.histories import History, small_cluster

ALL = {"worker-1": ["flights-in", "flights-out-1"], "worker-2": ["flights-out", "flights-in-0"]}
FOLLOWS = "the group is rebalancing"


def last(history: History) -> str:
    return rebalances(history.events)[-1].why


def without_worker_2(history: History) -> str:
    rest = {"worker-1": ["flights-in", "flights-out-1"], "worker-3": ["flights-out-0"]}
    return last(history.at(13).rebalance(3, leader="worker-1", work=rest, reason=FOLLOWS))


def test_workers_that_join() -> None:
    first, second = rebalances(small_cluster().events)[:2]
    assert first.why == "worker-1, worker-2 and worker-3 joined; a member joined"
    assert second.why == "connector flights-in was configured"
    more = small_cluster().at(9).started("worker-4")
    more.add(EventKind.REBALANCE_STARTED, "worker-4", cause="the worker starts")
    work: dict[str, list[str]] = {"worker-1": [], "worker-2": [], "worker-3": [], "worker-4": []}
    assert last(more.rebalance(3, leader="worker-1", work=work, reason=FOLLOWS)) == "worker-4 joined"


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("kill", "worker-2 was lost (killed)"),
        ("pause", "worker-2 was lost (paused)"),
        ("stall", "worker-2 was lost (stalled)"),
        ("partition", "worker-2 was lost (cut off)"),
        ("stop", "worker-2 left"),
    ],
)
def test_a_worker_that_is_gone_and_how(fault: str, cause: str) -> None:
    assert without_worker_2(small_cluster().at(10).fault(fault, "worker-2")) == cause


def test_a_worker_that_failed_and_one_for_which_others_said_goodbye() -> None:
    failed = small_cluster().at(10).add(EventKind.WORKER_FAILED, "worker-2", error="no")
    assert without_worker_2(failed) == "worker-2 was lost (failed)"
    removed = small_cluster().at(10).fault("kill", "worker-2")
    removed.add(EventKind.MEMBER_REMOVED, "worker-2", group="connectx", members=["m"])
    assert without_worker_2(removed) == "worker-2 was removed (killed; its process has ended)"


def test_a_worker_that_comes_back() -> None:
    history = small_cluster().at(10).fault("pause", "worker-2")
    without_worker_2(history)
    history.at(15).fault("resume", "worker-2")
    reason = "Heartbeat was refused: UNKNOWN_MEMBER_ID"
    history.add(EventKind.REBALANCE_STARTED, "worker-2", cause=reason)
    work: dict[str, list[str]] = {"worker-1": [], "worker-2": [], "worker-3": []}
    assert last(history.rebalance(4, leader="worker-1", work=work, reason=FOLLOWS)) == "worker-2 came back"


@pytest.mark.parametrize(
    ("reasons", "cause"),
    [
        ((FOLLOWS, "the scheduled rebalance delay has passed"), "the scheduled rebalance delay has passed"),
        (("connector a was created", FOLLOWS), "connector a was created"),
        (
            ("connector a has new task configs", "connector a has new task configs"),
            "connector a has new task configs",
        ),
        (
            ("connector a was deleted", "connector b was created"),
            "connector a was deleted; connector b was created",
        ),
        ((FOLLOWS, "revoked work has stopped and can be assigned again"),
         "revoked work has stopped and can be assigned again"),
        (("SyncGroup was refused: ILLEGAL_GENERATION", FOLLOWS),
         "worker-1: SyncGroup was refused: ILLEGAL_GENERATION"),
        ((FOLLOWS, FOLLOWS), FOLLOWS),
    ],
)  # fmt: skip
def test_what_the_members_gave_as_reasons(reasons: tuple[str, str], cause: str) -> None:
    history = small_cluster().at(9)
    for number, reason in enumerate(reasons, start=1):
        history.add(EventKind.REBALANCE_STARTED, f"worker-{number}", cause=reason)
    work = {**ALL, "worker-3": ["flights-out-0"]}
    assert last(history.rebalance(3, leader="worker-1", work=work, reason=FOLLOWS)) == cause


def test_a_round_that_a_member_missed_is_no_loss_of_it() -> None:
    """It was in the group, as the leader saw it, though another round began before it got its work."""
    history = small_cluster().at(9)
    history.generation = 3
    everybody: dict[str, Any] = {f"http://worker-{number}/": {} for number in (1, 2, 3)}
    history.add(EventKind.ASSIGNMENT_COMPUTED, "worker-1", members=everybody, lost=[], delay_ms=0)
    history.add(EventKind.REBALANCE_COMPLETED, "worker-1", leader_url="http://worker-1/", tasks=[], connectors=[])
    assert last(history) == ""
    work: dict[str, list[str]] = {"worker-1": [], "worker-2": [], "worker-3": []}
    reason = "the config topic has moved on since the assignment"
    assert last(history.rebalance(4, leader="worker-1", work=work, reason=reason)) == reason


def test_a_round_under_way_says_what_began_it_and_else_who_is_gone() -> None:
    history = small_cluster().at(9).add(EventKind.REBALANCE_STARTED, "worker-3", cause="connector a was created")
    assert last(history) == "connector a was created"
    history = (
        small_cluster().at(9).fault("kill", "worker-2").add(EventKind.REBALANCE_STARTED, "worker-3", cause=FOLLOWS)
    )
    assert last(history) == "worker-2 was lost (killed)"
