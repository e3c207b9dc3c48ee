"""The choice between the worker and Spark's executors."""

from __future__ import annotations

import pytest

from connectx.core.lanes import BulkMode, Lane, LaneChoice, LaneSettings, choose_lane, needs_cores

AUTO = LaneSettings(BulkMode.AUTO, 100_000_000)
ALWAYS = LaneSettings(BulkMode.ALWAYS, 100_000_000)
NEVER = LaneSettings(BulkMode.NEVER, 100_000_000)


def said(choice: LaneChoice) -> tuple[Lane, str]:
    return choice.lane, str(choice.reason)


def test_auto_begins_at_the_limit_and_names_bytes_and_cores() -> None:
    assert said(choose_lane(AUTO, Lane.TAIL, 100_000_000, 8)) == (Lane.BULK, "100.0 MB wait, and Spark has 8 cores")
    below = choose_lane(AUTO, Lane.TAIL, 99_999_999, 8)
    assert said(below) == (Lane.TAIL, "100.0 MB wait, less than 100.0 MB")


def test_auto_stays_in_bulk_down_to_a_quarter_of_the_limit() -> None:
    assert choose_lane(AUTO, Lane.BULK, 25_000_000, 8).lane is Lane.BULK
    assert choose_lane(AUTO, Lane.BULK, 24_999_999, 8).lane is Lane.TAIL
    assert choose_lane(AUTO, Lane.TAIL, 25_000_000, 8).lane is Lane.TAIL


@pytest.mark.parametrize(("cores", "lane"), [(None, Lane.TAIL), (3, Lane.TAIL), (4, Lane.BULK)])
def test_auto_needs_four_cores(cores: int | None, lane: Lane) -> None:
    choice = choose_lane(AUTO, Lane.TAIL, 10**9, cores)
    assert choice.lane is lane
    assert ("not known" in str(choice.reason)) == (cores is None)


def test_always_needs_neither_bytes_nor_cores() -> None:
    assert said(choose_lane(ALWAYS, Lane.TAIL, 0, None)) == (Lane.BULK, "bulk.mode is always")


@pytest.mark.parametrize("settings", [AUTO, ALWAYS])
def test_an_obstacle_keeps_records_in_the_tail_and_is_the_reason(settings: LaneSettings) -> None:
    assert said(choose_lane(settings, Lane.BULK, 10**9, 8, "it cannot")) == (Lane.TAIL, "it cannot")


def test_never_is_the_tail() -> None:
    assert said(choose_lane(NEVER, Lane.TAIL, 10**12, 64)) == (Lane.TAIL, "bulk.mode is never")


def test_cores_are_asked_for_only_if_they_decide() -> None:
    assert needs_cores(AUTO, 100_000_000)
    assert not needs_cores(AUTO, 99_999_999)
    assert not needs_cores(AUTO, 10**9, "it cannot")
    assert not needs_cores(ALWAYS, 10**9)
    assert not needs_cores(NEVER, 10**9)
