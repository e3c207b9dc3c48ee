"""A seeded schedule of faults and requests, and what must be true when it is over.

One seed picks the cluster, which faults are possible at all, and then one of them after the other. After that nothing
fails any more, and the cluster has to become what its config topic says, within a bound (invariant 9).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from connectx.core.messages import ConnectorFailed, Reply, TaskReconfigurationRequested
from connectx.core.requests import Verb
from connectx.model.group import ProtocolVersion
from connectx.model.states import ExactlyOnceSupport, TargetState
from tests.simulation.sim_worker import SimWorker
from tests.simulation.world import World

NAMES = ("a", "b-1", "c")
ALL = (ProtocolVersion.SESSIONED, ProtocolVersion.COMPATIBLE, ProtocolVersion.EAGER)
WISHES = (
    *[Verb.CREATE] * 4,
    *[Verb.PUT_CONFIG] * 3,
    *(Verb.DELETE, Verb.PAUSE, Verb.RESUME, Verb.STOP),
    *(Verb.RESTART_CONNECTOR, Verb.RESTART_TASK, Verb.MODIFY_OFFSETS, Verb.CONNECTOR_STATUS),
)
CALM_MS = 240_000  # task configs are sent again after up to a minute


class Chaos:
    """One run. `run` raises AssertionError for what is wrong; `world.story()` tells what happened."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        mode = random.choice((*[ExactlyOnceSupport.ENABLED] * 4, ExactlyOnceSupport.PREPARING, "disabled"))
        self.world = World(
            random.randint(1, 4),
            random,
            exactly_once=ExactlyOnceSupport(mode),
            offered=random.choice((ALL, ALL, ALL, ALL[1:], ALL[2:])),
            scheduled_rebalance_max_delay_ms=random.choice((0, 3_000)),
            worker_unsync_backoff_ms=5_000,
        )
        faults = (self.add, self.kill, self.stall, self.cut_off, self.stop, self.unread, self.outage, self.fail_work)
        self.faults = random.sample(faults, random.randint(0, 4))
        self.world.slow_stops = random.choice((0.0, 0.3, 0.8))
        self.world.slow = random.choice((0.0, 0.03, 0.2))
        self.world.lossy = random.choice((0.0, 0.005, 0.05))
        self.replies: list[Reply] = []
        self.asked = 0

    def run(self, actions: int = 40) -> None:
        """Do so many things, then wait for peace."""
        for _ in range(actions):
            self.world.run_for(self.random.choice((1, 3, 5, 30, 200, 600, 3_000)))
            is_fault = self.faults and self.random.random() < 0.3
            action = self.random.choice(self.faults) if is_fault else self.request
            action()
        self.heal()
        self.world.settle(CALM_MS)
        self.world.run_until(lambda: len(self.replies) == self.asked)

    def heal(self) -> None:
        """End all faults; what has failed is restarted by its user."""
        world = self.world
        world.run_for(10_000)
        world.calm = True
        world.broker_down = False
        for worker in world.living:
            worker.cut_off = worker.unreadable = False
            worker.wake()
        for _ in range(3):  # a restart may come in the middle of a rebalance
            world.run_for(8_000)
            if not world.living:
                world.add_worker()
            for connector in world.broker.config.connectors():
                args = {"include_tasks": True, "only_failed": True}
                self.ask(world.living[0], Verb.RESTART_CONNECTOR, connector, args)

    # -------------------------------------------------------------------------------------------------- requests

    def ask(self, worker: SimWorker, verb: Verb, connector: str, args: dict[str, Any]) -> None:
        self.asked += 1
        self.world.send(worker, verb, connector, args, self.replies.append)

    def request(self) -> None:
        """Something that a user may want, from any worker."""
        if not self.world.living:
            return
        connector, worker = self.random.choice(NAMES), self.random.choice(self.world.living)
        kind = self.random.choice(("Source", "Source", "Sink", "Source"))
        config = {"connector.class": kind, "name": connector, "tasks.max": str(self.random.randint(1, 4))}
        verb = self.random.choice(WISHES)
        args: dict[str, Any] = {}
        if verb is Verb.CREATE:
            args = {"config": config, "initial_state": self.random.choice((None, None, *TargetState))}
        elif verb is Verb.PUT_CONFIG:
            args = {"config": config}
        elif verb is Verb.RESTART_TASK:
            args = {"task": self.random.randint(0, 2)}
        elif verb is Verb.RESTART_CONNECTOR:
            args = {"include_tasks": self.random.random() < 0.5, "only_failed": self.random.random() < 0.5}
        self.ask(worker, verb, connector, args)

    # ---------------------------------------------------------------------------------------------------- faults

    def for_a_while(self, end: Callable[[], None]) -> None:
        self.world.at(self.random.choice((300, 1_000, 2_500, 5_000, 9_000)), end)

    def some_worker(self) -> SimWorker | None:
        return self.random.choice(self.world.living) if self.world.living else None

    def add(self) -> None:
        if len(self.world.living) < 4:
            self.world.add_worker()

    def kill(self) -> None:
        if (worker := self.some_worker()) is not None:
            self.world.kill(worker.name)

    def stop(self) -> None:
        if (worker := self.some_worker()) is not None:
            self.world.stop(worker.name)

    def stall(self) -> None:
        """The core stands still, and so do heartbeats; tasks go on."""
        if (worker := self.some_worker()) is not None:
            worker.frozen = True
            self.for_a_while(worker.wake)

    def cut_off(self) -> None:
        """The group coordinator cannot be reached."""
        if (worker := self.some_worker()) is not None:
            worker.cut_off = True
            self.for_a_while(lambda: setattr(worker, "cut_off", False))

    def unread(self) -> None:
        """The config topic cannot be read."""
        if (worker := self.some_worker()) is not None:
            worker.unreadable = True
            self.for_a_while(lambda: self.read_again(worker))

    def read_again(self, worker: SimWorker) -> None:
        worker.unreadable = False
        worker.catch_up()

    def outage(self) -> None:
        """All of Kafka is away."""
        self.world.broker_down = True
        self.for_a_while(lambda: setattr(self.world, "broker_down", False))

    def fail_work(self) -> None:
        """A task or a connector fails by itself, or a connector wants other tasks."""
        if (worker := self.some_worker()) is None:
            return
        running = sorted(key for key, task in worker.tasks.items() if task.running and not task.stopping)
        if running and self.random.random() < 0.6:
            worker.end_task(self.random.choice(running), "fails in this test")
        elif worker.connectors:
            key = self.random.choice(sorted(worker.connectors))
            fails = self.random.random() < 0.5
            worker.deliver(
                ConnectorFailed(*key, "fails in this test") if fails else TaskReconfigurationRequested(*key), key
            )
