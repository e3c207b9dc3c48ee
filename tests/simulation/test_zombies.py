"""Zombies of every kind: what a worker still does that the others take for gone must not be seen in the data."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from connectx.core import verbs
from connectx.core.group_messages import GroupEffect, SendSyncGroup
from connectx.model.events import EventKind
from tests.simulation.mutants import late_endtxn
from tests.simulation.sim_worker import SimWorker
from tests.simulation.world import World

CONFIG = {"connector.class": "Source", "name": "a", "tasks.max": "3"}


def running_cluster() -> World:
    world = World(3, scheduled_rebalance_max_delay_ms=0)
    world.settle()
    assert world.ask(verbs.Create, "a", config=CONFIG).status == 201
    world.settle()
    world.produce()
    world.run_until(lambda: world.checks.data.lag("a") is None)
    return world


def others_have_its_work(world: World, zombie: SimWorker, tasks: int) -> None:
    """Run until the other workers have all tasks and have moved all records."""
    others = [worker for worker in world.living if worker is not zombie]
    world.run_until(lambda: sum(len(worker.running) for worker in others) == tasks, look_ms=50)
    world.produce()
    world.run_until(lambda: world.checks.data.lag("a") is None, look_ms=50)


def back_again(world: World, zombie: SimWorker) -> None:
    """The zombie goes on, with its links and its core, and all comes to rest."""
    zombie.sends = zombie.receives = True
    zombie.wake()
    world.produce()
    world.settle()


def a_follower(world: World) -> SimWorker:
    return next(worker for worker in world.living if worker.running and not worker.core.context.group.is_leader)


def freeze(worker: SimWorker) -> None:
    worker.freeze()


def stall(worker: SimWorker) -> None:
    worker.frozen = True


def mute(worker: SimWorker) -> None:
    worker.sends = False


def deafen(worker: SimWorker) -> None:
    worker.receives = False


@pytest.mark.rule("618.7.1")
@pytest.mark.parametrize("fault", [freeze, stall])
def test_an_old_task_is_fenced_after_the_rebalance(fault: Callable[[SimWorker], None]) -> None:
    world = running_cluster()
    zombie = a_follower(world)
    fault(zombie)
    others_have_its_work(world, zombie, 3)
    back_again(world, zombie)
    assert EventKind.PRODUCER_FENCED in [t.kind for t in zombie.history]


@pytest.mark.rule("618.7.1")
def test_a_zombie_that_misses_the_revocation_of_its_fenced_task_starts_the_task_again() -> None:
    """Both owners must give the task up; the successor does so and joins again before the zombie has its assignment."""
    world = running_cluster()
    zombie = a_follower(world)
    stall(zombie)
    others_have_its_work(world, zombie, 3)
    world.run_until(lambda: EventKind.PRODUCER_FENCED in [t.kind for t in zombie.history], look_ms=50)
    ask = zombie.ask_group

    def ask_late(effect: GroupEffect) -> None:
        if isinstance(effect, SendSyncGroup):
            world.at(100, lambda: ask(effect))
        else:
            ask(effect)

    zombie.ask_group = ask_late  # type: ignore[method-assign]
    before = len(zombie.history)
    back_again(world, zombie)
    rebalances = [t for t in zombie.history[before:] if t.kind is EventKind.REBALANCE_COMPLETED]
    assert [t.data.get("revoked") for t in rebalances] == [None], "it never read that its task was revoked"


@pytest.mark.rule("618.7.1")
@pytest.mark.parametrize("fault", [mute, deafen])
def test_a_worker_cut_off_one_way_gives_its_tasks_up(fault: Callable[[SimWorker], None]) -> None:
    world = running_cluster()
    zombie = a_follower(world)
    fault(zombie)
    world.produce()
    others_have_its_work(world, zombie, 3)
    back_again(world, zombie)
    assert EventKind.MEMBER_LOST in [t.kind for t in zombie.history]


@pytest.mark.parametrize("protocol", [1, 2])
def test_an_endtxn_that_arrives_in_the_next_transaction_changes_nothing(protocol: int) -> None:
    late_endtxn(protocol)


@pytest.mark.rule("618.7.2")
def test_an_old_task_is_fenced_after_the_task_count_was_reduced() -> None:
    world = running_cluster()
    zombie = a_follower(world)
    stall(zombie)
    assert world.ask(verbs.PutConfig, "a", config={**CONFIG, "tasks.max": "1"}).status == 200
    others_have_its_work(world, zombie, 1)
    assert world.fenced == [("g-a-0", "g-a-1", "g-a-2")]
    back_again(world, zombie)


@pytest.mark.rule("618.7.3")
def test_an_old_leader_that_wakes_writes_nothing_without_a_new_claim() -> None:
    world = running_cluster()
    old = world.leader
    old.freeze()
    world.run_until(lambda: any(w is not old and w.core.context.group.is_leader for w in world.living), look_ms=50)
    others_have_its_work(world, old, 3)
    before = [record for _, record in world.broker.config_log]
    replies: list[int] = []
    config = {**CONFIG, "tasks.max": "2"}
    world.send(old, verbs.PutConfig("a", config), lambda reply: replies.append(reply.status))
    world.run_for(10)
    old.wake()
    world.run_until(lambda: bool(replies))
    assert replies[0] >= 400
    assert [record for _, record in world.broker.config_log][: len(before) + 1] == before
    back_again(world, old)
