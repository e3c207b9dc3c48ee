"""What can go wrong with workers and with Kafka: each strikes at once, and ends by itself or when all is healed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from connectx.core.messages import ConnectorFailed, TaskReconfigurationRequested
from connectx.model.config_records import (
    ConfigRecord,
    ConnectorConfigRecord,
    LoggerLevelRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCommitRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from tests.simulation.broker import CONFIG_TOPIC
from tests.simulation.chooser import Chooser, one_of
from tests.simulation.sim_source import OFFSETS_TOPIC
from tests.simulation.sim_worker import SimWorker
from tests.simulation.world import World

DURATIONS_MS = (300, 1_000, 2_500, 5_000, 9_000)
MOST_WORKERS = 4


class Faults:
    """The faults of one world, by name; `strike` does one of them to a worker picked by chance."""

    def __init__(self, world: World, chooser: Chooser) -> None:
        self.world = world
        self.chooser = chooser

    def strike(self, kind: str) -> None:
        """Let something go wrong."""
        if kind in OF_KAFKA:
            self.world.note_fault(kind)
            OF_KAFKA[kind](self)
        elif self.world.living:
            worker = one_of(self.chooser, self.world.living)
            self.world.note_fault(kind, worker)
            OF_WORKERS[kind](self, worker)

    def for_a_while(self, end: Callable[[], None]) -> None:
        self.world.at(one_of(self.chooser, DURATIONS_MS), end)

    def end_all(self) -> None:
        """From now on nothing is wrong."""
        self.world.broker_down = False
        for worker in self.world.living:
            self.connect(worker)
            worker.unreadable = False
            worker.wake()

    def add(self) -> None:
        if len(self.world.living) < MOST_WORKERS:
            self.world.add_worker()

    def kill(self, worker: SimWorker) -> None:
        self.world.kill(worker.name)

    def stop(self, worker: SimWorker) -> None:
        self.world.stop(worker.name)

    def pause(self, worker: SimWorker) -> None:
        """The whole process stands still, heartbeats and tasks, and goes on."""
        worker.freeze()
        self.for_a_while(worker.wake)

    def stall(self, worker: SimWorker) -> None:
        """Heartbeats stop, tasks go on: the zombie of KIP-618."""
        worker.frozen = True
        self.for_a_while(worker.wake)

    def cut_off(self, worker: SimWorker) -> None:
        """Kafka cannot be reached from there."""
        worker.sends = worker.receives = False
        self.for_a_while(lambda: self.connect(worker))

    def mute(self, worker: SimWorker) -> None:
        """Cut off one way: what it sends does not arrive."""
        worker.sends = False
        self.for_a_while(lambda: self.connect(worker))

    def deafen(self, worker: SimWorker) -> None:
        """Cut off the other way: what it sends is done, and it hears nothing of it."""
        worker.receives = False
        self.for_a_while(lambda: self.connect(worker))

    def connect(self, worker: SimWorker) -> None:
        worker.sends = worker.receives = True
        worker.catch_up()

    def reset(self, worker: SimWorker) -> None:
        """Its connections are cut: what was on its way may arrive later."""
        worker.cut_all()

    def lag(self, worker: SimWorker) -> None:
        """It reads nothing of the config topic, and so knows only old task configs."""
        worker.unreadable = True
        self.for_a_while(lambda: self.read_again(worker))

    def read_again(self, worker: SimWorker) -> None:
        worker.unreadable = False
        worker.catch_up()

    def fail_work(self, worker: SimWorker) -> None:
        """A task or a connector fails by itself, or a connector wants other tasks."""
        running = sorted(key for key, task in worker.tasks.items() if task.running and not task.stopping)
        if running and self.chooser.pick(10) < 6:
            worker.tasks[one_of(self.chooser, running)].fail("fails in this test")
        elif worker.connectors:
            key = one_of(self.chooser, sorted(worker.connectors))
            fails = self.chooser.pick(2) == 0
            worker.deliver(
                ConnectorFailed(*key, "fails in this test") if fails else TaskReconfigurationRequested(*key), key
            )

    def outage(self) -> None:
        """All of Kafka is away."""
        self.world.broker_down = True
        self.for_a_while(lambda: setattr(self.world, "broker_down", False))

    def move(self) -> None:
        """Group coordinators move to another node: of the workers, or of all sinks' consumers."""
        groups = sorted(self.world.broker.groups) or ["g"]
        self.world.broker.set_time(self.world.now_ms)
        self.world.hand_out(self.world.broker.move_coordinator(one_of(self.chooser, groups)))

    def move_transactions(self) -> None:
        """Transactional ids move to another node."""
        self.world.broker.transactions.move_coordinator()

    def compact(self) -> None:
        """Superseded records go, of the config topic and of source offsets: who reads late does not see them."""
        assert self.world.broker.config is not None  # the truth is what was written, so it is read before
        self.world.broker.compact(CONFIG_TOPIC, config_key)
        self.world.broker.compact(OFFSETS_TOPIC, lambda value: value[0])


def config_key(record: ConfigRecord) -> str:
    """The key of a record in the config topic."""
    match record:
        case ConnectorConfigRecord(connector):
            return f"connector-{connector}"
        case TargetStateRecord(connector):
            return f"target-state-{connector}"
        case TaskConfigRecord(task):
            return f"task-{task}"
        case TaskCommitRecord(connector):
            return f"commit-{connector}"
        case TaskCountRecord(connector):
            return f"tasks-fencing-{connector}"
        case RestartRecord(connector):
            return f"restart-connector-{connector}"
        case LoggerLevelRecord(namespace):
            return f"logger-cluster-{namespace}"
        case SessionKeyRecord():
            return "session-key"
    raise AssertionError(f"{record} has no key")


OF_WORKERS: dict[str, Callable[[Faults, SimWorker], Any]] = {
    "kill": Faults.kill,
    "stop": Faults.stop,
    "pause": Faults.pause,
    "stall": Faults.stall,
    "cut_off": Faults.cut_off,
    "mute": Faults.mute,
    "deafen": Faults.deafen,
    "reset": Faults.reset,
    "lag": Faults.lag,
    "fail_work": Faults.fail_work,
}
OF_KAFKA: dict[str, Callable[[Faults], Any]] = {
    "add_worker": Faults.add,
    "outage": Faults.outage,
    "move_coordinator": Faults.move,
    "move_transactions": Faults.move_transactions,
    "compact": Faults.compact,
}
FAULTS = (*OF_WORKERS, *OF_KAFKA)
