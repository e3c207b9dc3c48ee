"""Rebalances: one round per generation, out of what each worker tells."""

from __future__ import annotations

from connectx.history.folds.rebalances import rebalances
from connectx.model.events import EventKind
from tests.support.histories import START_MS, History, kill_of_source, small_cluster


def test_a_round_lasts_from_the_first_join_to_the_last_assignment() -> None:
    first, second = rebalances(small_cluster().events)
    assert (first.generation, first.start_ms, first.end_ms) == (1, START_MS + 200, START_MS + 400)
    assert first.members == ("worker-1", "worker-2", "worker-3")
    assert (second.generation, second.leader, second.cause) == (2, "worker-1", "connector flights-in was configured")


def test_lost_work_and_its_delay_belong_to_the_round() -> None:
    third = rebalances(kill_of_source().events)[2]
    assert (third.generation, third.lost, third.delay_ms) == (3, ("flights-out", "flights-in-0"), 3000)
    assert third.members == ("worker-1", "worker-3")


def test_the_leader_divides_work_under_the_generation_that_it_enters_next() -> None:
    history = small_cluster().at(9)
    history.add(EventKind.ASSIGNMENT_COMPUTED, "worker-1", generation=3, members={}, lost=["x-0"], delay_ms=5)
    history.generation = 3
    history.add(EventKind.REBALANCE_COMPLETED, "worker-1", leader_url="http://worker-1/", delay_ms=5)
    assert rebalances(history.events)[-1].lost == ("x-0",)


def test_workers_that_join_now_are_a_round_without_generation() -> None:
    history = small_cluster().at(9).add(EventKind.REBALANCE_STARTED, "worker-3", reason="a member left")
    last = rebalances(history.events)[-1]
    assert (last.generation, last.end_ms, last.members, last.cause) == (None, None, ("worker-3",), "a member left")


def test_a_killed_worker_is_not_waited_for() -> None:
    history = small_cluster().at(9).add(EventKind.REBALANCE_STARTED, "worker-3", reason="a member left")
    history.fault("kill", "worker-3")
    assert [round_.generation for round_ in rebalances(history.events)] == [1, 2]


def test_an_unknown_leader_url_is_shown_as_it_is() -> None:
    history = History().add(EventKind.REBALANCE_COMPLETED, "worker-1", generation=4, leader_url="http://elsewhere:1/")
    assert rebalances(history.events)[0].leader == "http://elsewhere:1/"
