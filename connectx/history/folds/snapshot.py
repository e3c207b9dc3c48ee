"""State at the end of a history: workers, connectors, tasks, generation, leader. Pure.

The text and HTML forms are made of it. It has what the events show, not the state of live objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from connectx.history.folds.configured import ConfiguredFold
from connectx.history.folds.failovers import REJECTIONS
from connectx.history.folds.rebalances import RebalanceFold
from connectx.history.folds.runs import Run, RunFold, RunState
from connectx.history.folds.worker_states import Standing, WorkerState, WorkerStateFold
from connectx.model.events import Event, EventKind
from connectx.model.payloads import ConnectorState, TaskState
from connectx.model.states import LOST, State
from connectx.values import Value


class WorkerSnapshot(Value):
    """One worker; `connectors`, `tasks` and `zombies` are names of what it runs, sorted."""

    name: str
    standing: Standing
    is_leader: bool
    connectors: tuple[str, ...]
    tasks: tuple[str, ...]
    zombies: tuple[str, ...]

    @property
    def state(self) -> WorkerState:
        return self.standing.state


class WorkSnapshot(Value):
    """A connector (`task` None) or a task: where it is and in which state.

    The states are Kafka Connect's, and LOST: it was on `worker`, which has died or left the group, and it is not
    assigned to another worker yet. `trace` is that of a FAILED one. `read_seq` is the last event in which a worker
    read the connector's configuration; of tasks it is 0.
    """

    connector: str
    task: int | None
    state: str
    worker: str | None
    producer_epoch: int | None
    since_ms: int
    trace: str = ""
    read_seq: int = 0


class Snapshot(Value):
    """State at the end of a history; counts are over all events that it holds."""

    generation: int | None
    leader: str | None
    workers: tuple[WorkerSnapshot, ...]
    connectors: tuple[WorkSnapshot, ...]
    tasks: tuple[WorkSnapshot, ...]
    rebalances: int
    faults: int
    fenced: int


_WITHOUT_RUN = (State.STOPPED, State.RESTARTING)
"""States in which nothing runs: no run shows them."""


def snapshot(events: Iterable[Event]) -> Snapshot:
    fold = SnapshotFold()
    for event in events:
        fold.take(event)
    return fold.snapshot()


class SnapshotFold:
    """Consumes events one by one, in order, and keeps the latest state.

    What is not configured any more is left out: deleted connectors, and tasks beyond a reduced number.

    Args:
        kept: about so many runs and rounds are looked at, the newest, and the last run of each work; None: all.
    """

    def __init__(self, kept: int | None = None) -> None:
        self._runs = RunFold(kept)
        self._rebalances = RebalanceFold(kept)
        self._states = WorkerStateFold()
        self._configured = ConfiguredFold()
        self._idle: dict[_Work, tuple[State, str | None, int]] = {}
        self._traces: dict[tuple[_Work, str | None], str] = {}
        self._read_seqs: dict[str, int] = {}
        self._faults = 0
        self._fenced = 0

    def take(self, event: Event) -> None:
        for fold in (self._runs, self._rebalances, self._states, self._configured):
            fold.take(event)
        reported = event.payload
        if isinstance(reported, ConnectorState | TaskState) and event.connector is not None:
            state, work = reported.state, (event.connector, event.task)
            if state in _WITHOUT_RUN:
                self._idle[work] = (state, event.worker, event.time_ms)
            else:
                self._idle.pop(work, None)
            self._traces.pop((work, event.worker), None)
            if state is State.FAILED:
                self._traces[work, event.worker] = reported.trace or ""
        if event.kind is EventKind.CONNECTOR_CONFIGURED and event.connector is not None:
            self._read_seqs[event.connector] = event.seq
        self._faults += event.kind is EventKind.FAULT_INJECTED
        self._fenced += event.kind in REJECTIONS

    def snapshot(self) -> Snapshot:
        all_runs = self._runs.runs()
        rounds = [round_ for round_ in self._rebalances.rebalances() if round_.generation is not None]
        standings = self._states.standings()
        leader = rounds[-1].leader if rounds else None
        if leader is not None and leader in standings and standings[leader].life.is_gone:
            leader = None
        work = self._work(all_runs, standings)
        return Snapshot(
            generation=rounds[-1].generation if rounds else None,
            leader=leader,
            workers=tuple(_worker(name, standings[name], leader, all_runs) for name in standings),
            connectors=tuple(each for each in work if each.task is None),
            tasks=tuple(each for each in work if each.task is not None),
            rebalances=len(rounds) + self._rebalances.forgotten,
            faults=self._faults,
            fenced=self._fenced,
        )

    def _work(self, all_runs: Iterable[Run], standings: dict[str, Standing]) -> list[WorkSnapshot]:
        """The newest run of each piece of work that is configured; what never ran is UNASSIGNED."""
        found = {
            work: WorkSnapshot(*work, State.UNASSIGNED.value, None, None, since_ms)
            for work, since_ms in self._configured.work().items()
        }
        for run in all_runs:
            if self._configured.has(run.connector, run.task, run.segments[0].seq):
                found[(run.connector, run.task)] = _work_snapshot(run)
        for work, (state, worker, time_ms) in self._idle.items():
            if work in found and found[work].state == State.UNASSIGNED and found[work].since_ms <= time_ms:
                gone = worker in standings and standings[worker].state in (WorkerState.KILLED, WorkerState.FAILED)
                shown = LOST if gone and state is State.RESTARTING else state.value
                found[work] = WorkSnapshot(*work, shown, worker, None, time_ms)
        ordered = sorted(found, key=lambda work: (work[0], -1 if work[1] is None else work[1]))
        return [self._explained(found[work]) for work in ordered]

    def _explained(self, work: WorkSnapshot) -> WorkSnapshot:
        """With its trace if it has failed, and when its configuration was last read."""
        failed = work.state == State.FAILED
        trace = self._traces.get(((work.connector, work.task), work.worker), "") if failed else ""
        read_seq = self._read_seqs.get(work.connector, 0) if work.task is None else 0
        return replace(work, trace=trace, read_seq=read_seq)


_Work = tuple[str, int | None]


def _worker(name: str, standing: Standing, leader: str | None, all_runs: Iterable[Run]) -> WorkerSnapshot:
    mine = [run for run in all_runs if run.worker == name and run.end_ms is None]
    held = [run for run in mine if run.state is not RunState.ZOMBIE]
    return WorkerSnapshot(
        name=name,
        standing=standing,
        is_leader=name == leader,
        connectors=tuple(sorted(run.name for run in held if run.task is None)),
        tasks=tuple(sorted(run.name for run in held if run.task is not None)),
        zombies=tuple(sorted(run.name for run in mine if run.state is RunState.ZOMBIE)),
    )


_STATE_NAMES = {
    RunState.STARTING: State.UNASSIGNED,
    RunState.RUNNING: State.RUNNING,
    RunState.PAUSED: State.PAUSED,
    RunState.FAILED: State.FAILED,
}


def _work_snapshot(run: Run) -> WorkSnapshot:
    """One that ended or is a zombie leaves its work LOST, or UNASSIGNED when it was given up in order."""
    if run.end_ms is None and run.state is not RunState.ZOMBIE:
        since_ms = run.segments[-1].start_ms
        return WorkSnapshot(
            run.connector, run.task, _STATE_NAMES[run.state].value, run.worker, run.producer_epoch, since_ms
        )
    held = [segment for segment in run.segments if segment.state is not RunState.ZOMBIE]
    since_ms = (held[-1].end_ms if held else None) or run.start_ms
    state, worker = (LOST, run.worker) if run.lost else (State.UNASSIGNED.value, None)
    return WorkSnapshot(run.connector, run.task, state, worker, run.producer_epoch, since_ms)
