"""Which topics connect sources and sinks, and how far behind a sink is in time."""

from __future__ import annotations

from connectx.history.folds.flow import Flow, LagClock, flows


def test_each_topic_has_its_writers_and_readers() -> None:
    found = flows({"in": ["flights"], "orders": ["orders"]}, {"out": ["flights"], "audit": ["flights", "log"]})
    assert found == [
        Flow("flights", ("in",), ("audit", "out")),
        Flow("log", (), ("audit",)),
        Flow("orders", ("orders",), ()),
    ]


def test_a_lag_in_time_is_how_long_ago_the_end_was_where_the_task_is() -> None:
    clock = LagClock()
    for second in range(10):
        assert clock.take(1_000 * second, {"flights-0": 100 * second}, 0) == 0
    assert clock.take(20_000, {"flights-0": 900}, 1_100) == 11_000
    assert clock.take(21_000, {"flights-0": 1_450}, 550) == 6_500


def test_a_lag_from_before_the_first_sample_is_at_least_as_old_as_that() -> None:
    clock = LagClock()
    assert clock.take(1_000, {"flights-0": 0}, 500) == 0
    assert clock.take(4_000, {"flights-0": 100}, 400) == 3_000


def test_other_partitions_begin_again() -> None:
    clock = LagClock()
    clock.take(1_000, {"flights-0": 0}, 500)
    assert clock.take(9_000, {"flights-0": 0, "flights-1": 0}, 900) == 0
    assert clock.take(9_500, {"flights-0": 0, "flights-1": 0}, 900) == 500
