"""How the leader's work grows: calls, counted, for twice the workers with twice the tasks (see `bench/scale.py`)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from bench.scale import SHAPES, Group, config_topic, status_topic
from connectx.core.messages import StatusRecordRead


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called, in Python and below."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def rebalances(workers: int, tasks: int, connectors: int) -> int:
    """Calls for a leader that takes everything over, and for all others that join."""
    group = Group(config_topic(connectors, tasks))
    for record in status_topic(connectors, tasks):
        group.deliver(StatusRecordRead(record))

    def work() -> None:
        group.settle()
        for _ in range(workers - 1):
            group.add()
        group.settle()

    return calls_of(work)


@pytest.mark.unchecked  # the check of a step goes through all tasks
@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_tasks_are_about_twice_the_work(shape: str) -> None:
    connectors_of = SHAPES[shape]
    small, large = rebalances(10, 400, connectors_of(400)), rebalances(20, 800, connectors_of(800))
    assert large < 2.5 * small
