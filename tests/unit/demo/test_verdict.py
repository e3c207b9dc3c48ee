"""The verdict: what counts as lost, duplicated, changed or missed, and the last line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectx.demo.measures import SUMMED, Measures
from connectx.demo.verdict import Kill, Outcome, judge
from tests.support.histories import History, kill_of_source

ALL = Measures(100, 100, dict.fromkeys(SUMMED, 5), 1234)
KILLS = (Kill("worker-2", "flights-in-0", 0.2), Kill("worker-1", "flights-out-1", 0.6))


def outcome(topic: Measures = ALL, table: Measures = ALL, kills: tuple[Kill, ...] = KILLS) -> Outcome:
    return Outcome(ALL, topic, table, kills, (), (6.6, 6.1), 7, 1, 42.0)


def two_kills() -> History:
    history = kill_of_source().at(30).fault("kill", "worker-1")
    work = {"worker-3": ["flights-in", "flights-out", "flights-out-0", "flights-in-0", "flights-out-1"]}
    history.at(36).rebalance(5, leader="worker-3", work=work).start("worker-3", "flights-out-1", instance=3)
    return history


def test_all_is_well() -> None:
    good = outcome()
    assert good.is_good
    assert good.verdict().sentence == (
        "Nothing lost, nothing duplicated: all 100 flights are in the table once, although worker-2 and worker-1 were "
        "killed while they ran flights-in-0 and flights-out-1."
    )
    assert {row[-1] for row in good.verdict().table.rows} == {"yes"}


def test_the_last_line_has_exactly_the_promised_keys() -> None:
    assert outcome().line() == {
        "rows_in": 100,
        "records": 100,
        "rows_out": 100,
        "lost": 0,
        "duplicated": 0,
        "kills": 2,
        "rebalances": 7,
        "fenced": 1,
        "failover_s": [6.6, 6.1],
        "seconds": 42.0,
    }


@pytest.mark.parametrize(
    ("topic", "table", "lost", "duplicated", "sentence"),
    [
        (ALL, replace(ALL, rows=97, keys=97), 3, 0, "3 flights lost"),
        (replace(ALL, rows=99, keys=99), replace(ALL, rows=97, keys=97), 3, 0, "3 flights lost"),
        (replace(ALL, rows=110), replace(ALL, rows=110), 0, 10, "10 flights duplicated"),
        (ALL, replace(ALL, rows=101), 0, 1, "1 flight duplicated"),
        (replace(ALL, rows=105), replace(ALL, rows=99, keys=98), 2, 5, "2 flights lost; 5 flights duplicated"),
        (ALL, replace(ALL, checksum=1), 0, 0, "values changed: checksum"),
        (ALL, replace(ALL, sums={**ALL.sums, "distance": 6}), 0, 0, "values changed: distance"),
    ],
)
def test_what_is_wrong_is_counted_and_said(
    topic: Measures, table: Measures, lost: int, duplicated: int, sentence: str
) -> None:
    bad = outcome(topic, table)
    assert (bad.lost, bad.duplicated, bad.is_good) == (lost, duplicated, False)
    assert bad.verdict().sentence == f"Problems: {sentence}."
    assert "NO" in {row[-1] for row in bad.verdict().table.rows}


def test_two_kills_are_needed() -> None:
    bad = outcome(kills=KILLS[:1])
    assert not bad.is_good
    assert "only 1 kill of 2 could be made while data flowed" in bad.verdict().sentence


def test_judging_takes_failovers_from_the_history() -> None:
    events = two_kills().events
    judged = judge(events, ALL, ALL, ALL, KILLS, 61.237)
    assert judged.is_good
    assert judged.failover_s == (6.6, 6.3)
    assert (judged.rebalances, judged.fenced, judged.seconds) == (5, 1, 61.2)


def test_a_kill_that_hit_nothing_is_no_good() -> None:
    events = two_kills().events
    judged = judge(events, ALL, ALL, ALL, (KILLS[0], Kill("worker-1", "flights-out-0", 0.6)), 60)
    assert judged.missed == ("the kill of worker-1 did not hit flights-out-0 while it ran",)
    assert not judged.is_good
    late = judge(events, ALL, ALL, ALL, (KILLS[0], Kill("worker-1", "flights-out-1", 1.0)), 60)
    assert late.missed == ("worker-1 was killed when all rows had arrived",)


def test_a_kill_whose_work_never_ran_again_has_no_failover_time() -> None:
    events = kill_of_source().at(30).fault("kill", "worker-1").events
    judged = judge(events, ALL, ALL, ALL, KILLS, 60)
    assert judged.failover_s == (6.6, None)
    assert judged.is_good
