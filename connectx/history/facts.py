"""How things stand at the end of a history: workers, connectors, tasks, generation, leader. Pure.

The text and HTML forms are made of these. They say what the events show, not what a live object thinks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from connectx.history.rebalances import RebalanceFold
from connectx.history.runs import Run, RunFold, RunState
from connectx.model.events import Event, EventKind


class WorkerState(StrEnum):
    """State of a worker in words that a person reads."""

    STARTING = "starting"
    UP = "up"
    PAUSED = "paused"
    STALLED = "stalled"
    CUT_OFF = "cut off"
    STOPPING = "stopping"
    STOPPED = "stopped"
    KILLED = "killed"
    FAILED = "failed"

    @property
    def is_gone(self) -> bool:
        """True when the worker does not come back by itself."""
        return self in (WorkerState.STOPPED, WorkerState.KILLED, WorkerState.FAILED)


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One worker; `connectors`, `tasks` and `zombies` are names of what it runs, sorted."""

    name: str
    state: WorkerState
    is_leader: bool
    connectors: tuple[str, ...]
    tasks: tuple[str, ...]
    zombies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkFacts:
    """A connector (`task` None) or a task: where it is and in which of Kafka Connect's states."""

    connector: str
    task: int | None
    state: str
    worker: str | None
    producer_epoch: int | None
    since_ms: int


@dataclass(frozen=True, slots=True)
class Facts:
    """State at the end of a history; counts are over all events that it holds."""

    generation: int | None
    leader: str | None
    workers: tuple[WorkerFacts, ...]
    connectors: tuple[WorkFacts, ...]
    tasks: tuple[WorkFacts, ...]
    rebalances: int
    faults: int
    fenced: int


_BY_FAULT = {
    "kill": WorkerState.KILLED,
    "stop": WorkerState.STOPPING,
    "pause": WorkerState.PAUSED,
    "resume": WorkerState.UP,
    "stall": WorkerState.STALLED,
    "partition": WorkerState.CUT_OFF,
    "heal": WorkerState.UP,
}
_REJECTIONS = (EventKind.PRODUCER_FENCED, EventKind.COMMIT_REFUSED)
_EXISTENCE = (EventKind.CONNECTOR_CONFIGURED, EventKind.CONNECTOR_DELETED)


def facts(events: Iterable[Event]) -> Facts:
    """How things stand after the last event."""
    fold = FactsFold()
    for event in events:
        fold.take(event)
    return fold.facts()


class FactsFold:
    """Takes events one by one, in order, and knows how things stand. Deleted connectors are left out."""

    def __init__(self) -> None:
        self._runs = RunFold()
        self._rebalances = RebalanceFold()
        self._states = WorkerStateFold()
        self._deleted: dict[str, bool] = {}
        self._faults = 0
        self._fenced = 0

    def take(self, event: Event) -> None:
        """Add the next event."""
        for fold in (self._runs, self._rebalances, self._states):
            fold.take(event)
        if event.connector is not None and event.kind in _EXISTENCE:
            self._deleted[event.connector] = event.kind is EventKind.CONNECTOR_DELETED
        self._faults += event.kind is EventKind.FAULT_INJECTED
        self._fenced += event.kind in _REJECTIONS

    def facts(self) -> Facts:
        """How things stand now."""
        all_runs = self._runs.runs()
        rounds = [round_ for round_ in self._rebalances.rebalances() if round_.generation is not None]
        states = self._states.states()
        leader = rounds[-1].leader if rounds else None
        if leader is not None and states.get(leader, WorkerState.UP).is_gone:
            leader = None
        existing = [run for run in all_runs if not self._deleted.get(run.connector, False)]
        return Facts(
            generation=rounds[-1].generation if rounds else None,
            leader=leader,
            workers=tuple(_worker(name, states[name], leader, all_runs) for name in states),
            connectors=_work([run for run in existing if run.task is None]),
            tasks=_work([run for run in existing if run.task is not None]),
            rebalances=len(rounds),
            faults=self._faults,
            fenced=self._fenced,
        )


def worker_states(events: Iterable[Event]) -> dict[str, WorkerState]:
    """Worker name to its state after the last event, sorted by name, worker-2 before worker-10."""
    fold = WorkerStateFold()
    for event in events:
        fold.take(event)
    return fold.states()


class WorkerStateFold:
    """Takes events one by one, in order, and knows the state of every worker."""

    def __init__(self) -> None:
        self._states: dict[str, WorkerState] = {}

    def take(self, event: Event) -> None:
        """Add the next event."""
        if event.worker is not None:
            before = self._states.get(event.worker, WorkerState.STARTING)
            self._states[event.worker] = _next_state(before, event)

    def states(self) -> dict[str, WorkerState]:
        """Worker name to its state up to now, worker-2 before worker-10."""
        return {name: self._states[name] for name in sorted(self._states, key=_natural)}


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Numbers within a name count as numbers."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))


def _next_state(before: WorkerState, event: Event) -> WorkerState:
    if event.kind is EventKind.WORKER_STARTED:
        return WorkerState.STARTING
    if before.is_gone:
        return before
    if event.kind is EventKind.WORKER_STOPPED:
        return WorkerState.STOPPED
    if event.kind is EventKind.WORKER_FAILED:
        return WorkerState.FAILED
    if event.kind is EventKind.FAULT_INJECTED:
        return _BY_FAULT.get(str(event.data.get("fault")), before)
    if event.kind is EventKind.REBALANCE_COMPLETED and before is WorkerState.STARTING:
        return WorkerState.UP
    return before


def _worker(name: str, state: WorkerState, leader: str | None, all_runs: Iterable[Run]) -> WorkerFacts:
    mine = [run for run in all_runs if run.worker == name and run.end_ms is None]
    held = [run for run in mine if run.state is not RunState.ZOMBIE]
    return WorkerFacts(
        name=name,
        state=state,
        is_leader=name == leader,
        connectors=tuple(sorted(run.name for run in held if run.task is None)),
        tasks=tuple(sorted(run.name for run in held if run.task is not None)),
        zombies=tuple(sorted(run.name for run in mine if run.state is RunState.ZOMBIE)),
    )


_STATE_NAMES = {
    RunState.STARTING: "UNASSIGNED",
    RunState.RUNNING: "RUNNING",
    RunState.PAUSED: "PAUSED",
    RunState.FAILED: "FAILED",
}


def _work(of: list[Run]) -> tuple[WorkFacts, ...]:
    """The newest run of each piece of work; one that ended or is a zombie leaves it UNASSIGNED."""
    newest: dict[tuple[str, int], Run] = {}
    for run in of:
        newest[(run.connector, -1 if run.task is None else run.task)] = run
    return tuple(_work_facts(newest[key]) for key in sorted(newest))


def _work_facts(run: Run) -> WorkFacts:
    if run.end_ms is None and run.state is not RunState.ZOMBIE:
        state, worker = _STATE_NAMES[run.state], run.worker
        since_ms = run.segments[-1].start_ms
    else:
        held = [segment for segment in run.segments if segment.state is not RunState.ZOMBIE]
        state, worker = "UNASSIGNED", None
        since_ms = (held[-1].end_ms if held else None) or run.start_ms
    return WorkFacts(run.connector, run.task, state, worker, run.producer_epoch, since_ms)
