"""A sink whose target is away while partitions are opened: the loop waits a minute for it, in virtual time."""

from __future__ import annotations

import pytest

from connectx.core import verbs
from connectx.core.sink.loop import SinkTaskCore
from tests.simulation.invariants import Broken
from tests.simulation.sim_sink import Target
from tests.simulation.world import World


def sink_of_a_target_that_is_away(for_ms: int) -> World:
    world = World(1, scheduled_rebalance_max_delay_ms=0)
    world.settle()
    world.targets["s"] = Target(away_until_ms=world.now_ms + for_ms)
    world.ask(verbs.Create, "s", config={"connector.class": "Sink", "name": "s", "tasks.max": "1"})
    world.produce()
    return world


def test_a_task_outlives_half_a_minute_without_its_target() -> None:
    world = sink_of_a_target_that_is_away(30_000)
    world.run_until(lambda: world.checks.sinks.lag("s") is None)


def test_a_task_fails_after_a_minute_without_its_target() -> None:
    world = sink_of_a_target_that_is_away(600_000)
    began_ms = world.now_ms
    with pytest.raises(Broken, match="failed for good: the target is away"):
        world.run_for(120_000)
    assert world.now_ms - began_ms >= 60_000


def test_a_loop_that_opens_only_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: SinkTaskCore, effect: object, error: object) -> None:
        self.fail("it was tried once")

    monkeypatch.setattr(SinkTaskCore, "_on_open_retriable", fail)
    world = sink_of_a_target_that_is_away(30_000)
    with pytest.raises(Broken, match="it was tried once"):
        world.run_for(30_000)
