"""KIP-618, "Worker lag after being assigned source task but before instantiating producer": its eight steps.

L leads, F gets task T and stands still before it has a producer, O is the other follower.
"""

from __future__ import annotations

import pytest

from connectx.core import verbs
from connectx.core.messages import InitTaskProducer
from connectx.model.config_records import TaskCommitRecord, TaskCountRecord
from connectx.model.events import EventKind
from connectx.model.ids import TaskId
from tests.simulation.invariants import Broken
from tests.simulation.mutants import lag_check_left_out
from tests.simulation.sim_worker import SimWorker
from tests.simulation.world import World

CONFIG = {"connector.class": "Source", "name": "c", "tasks.max": "3"}


def records_of(world: World, kind: type) -> int:
    return sum(isinstance(record, kind) for _, record in world.broker.config_log)


def holding_back_producers(worker: SimWorker) -> list[InitTaskProducer]:
    """From now on this worker stands still when it is about to instantiate a producer; returns what it held back."""
    held: list[InitTaskProducer] = []
    execute = worker.execute

    def stand_still(effect: object) -> None:
        if isinstance(effect, InitTaskProducer):
            held.append(effect)
            worker.freeze()
        else:
            execute(effect)

    worker.execute = stand_still  # type: ignore[method-assign]
    return held


def lagging_worker() -> tuple[World, SimWorker, list[InitTaskProducer]]:
    """The steps up to 7, each of them seen to happen. T is the one of three tasks that F gets."""
    world = World(3, scheduled_rebalance_max_delay_ms=0)
    world.settle()
    leader = world.leader
    lagging = next(worker for worker in world.workers.values() if worker is not leader)
    held = holding_back_producers(lagging)

    # 1 and 2: task configs are written; L fences, writes the record, and T goes to F
    assert world.ask(verbs.Create, "c", config=CONFIG).status == 201
    world.run_until(lambda: bool(held))
    assert records_of(world, TaskCommitRecord) == records_of(world, TaskCountRecord) == 1

    # 3: F has its assignment and has read the task count record
    task = held[0].task
    assert task in lagging.core.context.group.work.tasks
    assert lagging.core.context.config.task_count_record("c") == 3
    assert not lagging.core.context.config.pending_fencing("c")

    # 4: F stands still, without a producer
    assert lagging.frozen
    assert f"g-{task}" not in world.broker.transactions.epochs

    world.run_until(lambda: len(world.owners()) == 2)

    # 5: C is reconfigured
    world.produce()
    assert world.ask(verbs.PutConfig, "c", config={**CONFIG, "tasks.max": "2"}).status == 200
    world.run_until(lambda: records_of(world, TaskCommitRecord) == 2)

    # 6: F has fallen out of the group; L fences, writes the record, and others have the tasks
    world.run_until(lambda: lagging.name not in {member.client for member in world.broker.coordinator.members.values()})
    world.run_until(lambda: records_of(world, TaskCountRecord) == 2)
    assert world.fenced == [("g-c-0", "g-c-1", "g-c-2")]

    # 7: O and L instantiate producers and process data
    world.run_until(lambda: world.owners().keys() == {TaskId("c", 0), TaskId("c", 1)})
    world.run_until(lambda: world.checks.data.lag("c") is None)
    assert all(lagging.name not in names for names in world.owners().values())
    return world, lagging, held


def unblock(world: World, lagging: SimWorker, held: list[InitTaskProducer]) -> None:
    """8: F goes on where it stood: it instantiates its producer."""
    del lagging.execute
    lagging.execute(held[0])
    lagging.wake()
    world.produce()
    world.run_for(3_000)


@pytest.mark.rule("618.5.1")
def test_a_worker_that_lags_before_its_producer_aborts_the_start_and_data_stays_single() -> None:
    world, lagging, held = lagging_worker()
    unblock(world, lagging, held)
    of_this_start = [t for t in lagging.history if t.data.get("instance") == held[0].instance]
    assert "begin" not in [t.data.get("step") for t in of_this_start]
    assert [t.kind for t in of_this_start].count(EventKind.TASK_REFUSED) == 1
    world.ask(verbs.RestartConnector, "c", include_tasks=True, only_failed=True)  # F may have fenced its successor
    world.settle()
    assert world.checks.data.lag("c") is None


def test_without_the_last_look_at_the_config_topic_the_same_steps_break(monkeypatch: pytest.MonkeyPatch) -> None:
    hits: list[str] = []
    lag_check_left_out(monkeypatch, hits)
    world, lagging, held = lagging_worker()
    with pytest.raises(Broken) as broken:
        unblock(world, lagging, held)
    assert broken.value.number in (1, 4)
    assert hits
