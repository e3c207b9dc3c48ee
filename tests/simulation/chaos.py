"""A schedule of faults and requests by chance, and what must be true when it is over.

The chooser picks the cluster, which faults are possible at all and how strong they are (swarm), and then one action
after the other. After that nothing fails any more, and the cluster has to become what its config topic says, with all
data moved, within a bound of virtual time (invariant 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from connectx.core import verbs
from connectx.core.lanes import BulkMode
from connectx.core.messages import Done, Refused
from connectx.core.verbs import Verb
from connectx.model.states import ExactlyOnceSupport, TargetState
from tests.simulation.chooser import Chooser, Seeded, one_of
from tests.simulation.faults import FAULTS, Faults
from tests.simulation.sim_worker import SimWorker
from tests.simulation.world import NAMES, World

MODES = (*[ExactlyOnceSupport.ENABLED] * 5, ExactlyOnceSupport.PREPARING, ExactlyOnceSupport.DISABLED)
WISHES = (
    *[verbs.PutConfig] * 5,
    *[verbs.Create] * 2,
    *(verbs.Delete, verbs.Pause, verbs.Resume, verbs.Stop),
    *(verbs.RestartConnector, verbs.RestartTask, verbs.ModifyOffsets, verbs.ConnectorStatus),
)
ACTIONS = 32
CALM_MS = 240_000  # task configs are sent again after up to a minute


class Chaos:
    """One run. `run` raises Broken for what is wrong; `world.story()` tells what happened."""

    def __init__(self, seed: int | None = None, chooser: Chooser | None = None) -> None:
        self.chooser: Chooser = chooser or Seeded(0 if seed is None else seed)
        self.world = World(
            1 + self.one_of((1, 2, 0, 3)),
            self.chooser,
            protocol=self.one_of((2, 2, 2, 1)),
            exactly_once_source_support=self.one_of(MODES),
            connect_protocol=self.one_of(("sessioned", "sessioned", "sessioned", "compatible", "eager")),
            scheduled_rebalance_max_delay_ms=self.one_of((0, 3_000)),
            worker_unsync_backoff_ms=5_000,
        )
        self.set_up_world()
        kinds = list(FAULTS)
        self.kinds = [kinds.pop(self.chooser.pick(len(kinds))) for _ in range(self.chooser.pick(6))]
        self.world.source_bulk = tuple(BulkMode)[len(self.kinds) % 3]
        self.world.executors_reach_kafka = len(self.kinds) % 2 == 0
        self.faults = Faults(self.world, self.chooser)
        self.replies: list[Done | Refused] = []
        self.asked = 0

    def one_of(self, things: Sequence[Any]) -> Any:
        return one_of(self.chooser, things)

    def set_up_world(self) -> None:
        """How strong each of the small faults is, 0 most often."""
        world, one_of = self.world, self.one_of
        world.slow_stops = one_of((0, 300, 800))
        world.slow = one_of((0, 0, 30, 200))
        world.lossy = one_of((0, 0, 5, 50))
        world.stuck = one_of((0, 5, 20, 60))
        world.slow_data = one_of((0, 0, 20, 100))
        world.wild_timers = one_of((0, 0, 20, 200))
        world.repeats = one_of((0, 20))
        world.torn_writes = one_of((0, 500))
        world.failing_puts = one_of((0, 0, 100))
        world.boundary_ms = one_of((0, 1_000, 4_000))
        world.transaction_timeout_ms = one_of((60_000, 60_000, 10_000, world.boundary_ms + 2_000))
        world.bulk_mode = one_of((BulkMode.NEVER, BulkMode.AUTO))
        world.at_least_once_sinks = one_of((False, True))

    def run(self, actions: int = ACTIONS) -> None:
        """Begin with two sources and a sink, do so many things, then wait for peace."""
        self.world.run_for(500)
        for name, kind in zip(NAMES, ("Source", "Source", "Sink"), strict=True):
            self.ask(self.world.living[0], verbs.Create(name, self.config(name, kind)))
        self.world.run_for(self.one_of((2_000, 0, 300)))
        for _ in range(actions):
            self.act()
        self.heal()
        self.world.settle(CALM_MS)
        self.world.run_until(lambda: len(self.replies) == self.asked)

    def act(self) -> None:
        """Some time goes by, and one thing happens: records, a fault or a request."""
        self.world.run_for(self.one_of((300, 1, 5, 30, 100, 600, 1_000, 2_500)))
        what = self.chooser.pick(10)
        if what >= 6 and self.kinds:
            self.faults.strike(self.one_of(self.kinds))
        elif what < 4:
            self.world.produce()
        else:
            self.request()

    def heal(self) -> None:
        """End all faults; what has failed is restarted by its user."""
        world = self.world
        world.run_for(10_000)
        world.calm = True
        world.note_fault("heal")
        self.faults.end_all()
        world.run_for(10_000)  # who was asked to stop is gone then
        if not world.living:
            world.add_worker()
        world.produce()
        # An answer to JoinGroup that went to a connection that was cut is missed after the rebalance time-out.
        world.run_until(lambda: all(worker.core.context.group.settled for worker in world.living), CALM_MS, 100)
        for _ in range(3):  # a restart may come in the middle of a rebalance
            world.run_for(8_000)
            for connector in world.broker.config.connectors():
                self.ask(world.living[0], verbs.RestartConnector(connector, include_tasks=True, only_failed=True))

    def ask(self, worker: SimWorker, verb: Verb) -> None:
        self.asked += 1
        self.world.send(worker, verb, self.replies.append)

    def config(self, name: str, kind: str) -> dict[str, str]:
        return {"connector.class": kind, "name": name, "tasks.max": str(1 + self.chooser.pick(4))}

    def request(self) -> None:
        """Something that a user may want, from any worker."""
        if not self.world.living:
            return
        connector, worker = self.one_of(NAMES), self.one_of(self.world.living)
        config = self.config(connector, self.one_of(("Sink" if connector == NAMES[-1] else "Source", "Source")))
        verb = self.one_of(WISHES)
        args: dict[str, Any] = {}
        if verb is verbs.Create:
            args = {"config": config, "initial_state": self.one_of((None, None, *TargetState))}
        elif verb is verbs.PutConfig:
            args = {"config": config}
        elif verb is verbs.RestartTask:
            args = {"task": self.chooser.pick(3)}
        elif verb is verbs.RestartConnector:
            args = {"include_tasks": self.chooser.pick(2) == 1, "only_failed": self.chooser.pick(2) == 1}
        self.ask(worker, verb(connector, **args))
