"""Runs of tasks and connectors on workers, with times and states: the base of all other views. Pure.

A *run* is one instance of a task (or of a connector) on one worker. It begins with its first start-up step or state and
ends when its worker reports it. It is a *zombie* while it may still act although its work is no longer its own: its
worker was killed, was left out of a newer generation or lost its membership, it was cancelled, or another worker began
the same work. A zombie's run ends when its thread ends (TASK_ENDED), when its producer is fenced, or when its worker
takes the task back; without any of these it stays open, because nothing shows that it ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from connectx.history.wording import task_of
from connectx.model import payloads
from connectx.model.events import Event
from connectx.model.ids import TaskId
from connectx.model.states import State
from connectx.values import Value


class RunState(StrEnum):
    """State of a run in a span of time."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    FAILED = "failed"
    ZOMBIE = "zombie"


class Segment(Value):
    """A span of one state; `end_ms` None: it still lasts. `cause` is its cause, if the history shows one."""

    state: RunState
    start_ms: int
    end_ms: int | None
    seq: int
    cause: str = ""


class Run(Value):
    """One instance of a task (`task` None: of a connector) on one worker. Times are milliseconds since 1970.

    `lost` is True when its worker has died, or the group has gone on without it, and it has not come back. Its producer
    began with `first_epoch`; `producer_epoch` is that of its last known transaction.
    """

    worker: str
    connector: str
    task: int | None
    instance: int | None
    generation: int | None
    first_epoch: int | None
    producer_epoch: int | None
    segments: tuple[Segment, ...]
    fenced_ms: int | None
    lost: bool = False

    @property
    def name(self) -> str:
        """`orders-1` for a task, `orders` for a connector."""
        return self.connector if self.task is None else f"{self.connector}-{self.task}"

    @property
    def task_id(self) -> TaskId | None:
        """The task, None for a connector."""
        return None if self.task is None else TaskId(self.connector, self.task)

    @property
    def start_ms(self) -> int:
        return self.segments[0].start_ms

    @property
    def end_ms(self) -> int | None:
        """When it ended, None while it lasts."""
        return self.segments[-1].end_ms

    @property
    def state(self) -> RunState:
        return self.segments[-1].state

    def covers(self, time_ms: int) -> bool:
        """True from its start up to its end, both included."""
        return self.start_ms <= time_ms and (self.end_ms is None or time_ms <= self.end_ms)

    def reached(self, state: RunState) -> int | None:
        """When it was first in `state`."""
        return next((segment.start_ms for segment in self.segments if segment.state is state), None)


def epoch_of(event: Event, run: Run | None) -> int | None:
    """Producer epoch of an event, or else that of the run that it is about."""
    if event.producer_epoch is not None:
        return event.producer_epoch
    return None if run is None else run.producer_epoch


_LIVE_STATES = {State.RUNNING: RunState.RUNNING, State.PAUSED: RunState.PAUSED, State.FAILED: RunState.FAILED}
_Work = tuple[str | None, int | None]
_CONCERNED = 16
"""Of the same work on a worker, so many runs may still get an event after they have ended: they come late at times."""
_GONE_STATES = (State.UNASSIGNED, State.RESTARTING, State.DESTROYED, State.STOPPED)


def runs(events: Iterable[Event]) -> tuple[Run, ...]:
    """All runs that the events show, in the order of their first event."""
    fold = RunFold()
    for event in events:
        fold.take(event)
    return fold.runs()


@dataclass(slots=True)
class _Draft:
    worker: str
    connector: str
    task: int | None
    instance: int | None
    generation: int | None
    first_epoch: int | None = None
    producer_epoch: int | None = None
    fenced_ms: int | None = None
    lost: bool = False
    segments: list[Segment] = field(default_factory=list)

    @property
    def work(self) -> _Work:
        return self.connector, self.task

    @property
    def open(self) -> bool:
        return self.segments[-1].end_ms is None

    @property
    def state(self) -> RunState:
        return self.segments[-1].state

    def enter(self, state: RunState, event: Event, cause: str = "") -> None:
        if self.segments and self.open:
            if self.state is state:
                return
            self.end(event.time_ms)
        self.lost = self.lost and state is RunState.ZOMBIE
        self.segments.append(Segment(state, event.time_ms, None, event.seq, cause or event.cause))

    def end(self, time_ms: int) -> None:
        last = self.segments[-1]
        if last.end_ms is None:
            self.segments[-1] = Segment(last.state, last.start_ms, max(time_ms, last.start_ms), last.seq, last.cause)

    def linger(self, event: Event) -> None:
        """Its thread ended after its run was over: what lies between was a zombie."""
        last = self.segments[-1]
        if last.end_ms is not None and event.time_ms > last.end_ms:
            cause = "its thread went on after it was stopped"
            self.segments.append(Segment(RunState.ZOMBIE, last.end_ms, event.time_ms, event.seq, cause))

    def learn_epoch(self, event: Event) -> None:
        if event.producer_epoch is not None:
            self.producer_epoch = event.producer_epoch
            self.first_epoch = event.producer_epoch if self.first_epoch is None else self.first_epoch

    def freeze(self) -> Run:
        return Run(
            self.worker,
            self.connector,
            self.task,
            self.instance,
            self.generation,
            self.first_epoch,
            self.producer_epoch,
            tuple(self.segments),
            self.fenced_ms,
            self.lost,
        )


class RunFold:
    """Consumes events one by one, in order, and keeps the runs that they show.

    Args:
        kept: about so many runs are kept, the newest, besides those that continue and the last of each work; None: all.
    """

    def __init__(self, kept: int | None = None) -> None:
        self._kept = kept
        self._full = 2 * (kept or 0)
        self._drafts: list[_Draft] = []
        self._current: dict[str, dict[_Work, list[_Draft]]] = {}  # per worker, those that an event may still concern
        self._urls: dict[str, str] = {}

    def take(self, event: Event) -> None:
        match event.payload:
            case payloads.TaskStep(step):
                self._step(event, step)
            case payloads.TaskState(state) | payloads.ConnectorState(state):
                self._state(event, state)
            case payloads.TaskEnded():
                self._ended(event)
            case payloads.ProducerFenced():
                self._fenced(event)
            case payloads.TransactionCommitted():
                self._committed(event)
            case payloads.WorkerStarted(url):
                self._worker_started(event, url)
            case payloads.WorkerStopped():
                self._worker_stopped(event)
            case payloads.WorkerFailed():
                self._worker_failed(event)
            case payloads.ClusterStopped():
                self._cluster_stopped(event)
            case payloads.FaultInjected("kill"):
                self._killed(event)
            case payloads.MemberLost():
                self._member_lost(event)
            case payloads.AssignmentComputed(members):
                self._assigned(event, members)
            case payloads.RebalanceCompleted() as payload:
                self._rebalanced(event, payload)
            case payloads.ConnectorDeleted():
                self._deleted(event)
            case _:
                pass  # events that neither begin, change nor end a run

    def runs(self) -> tuple[Run, ...]:
        """All runs up to now, in the order of their first event."""
        return tuple(draft.freeze() for draft in self._drafts)

    def _open(self, worker: str | None) -> list[_Draft]:
        return [draft for of_work in self._current.get(worker or "", {}).values() for draft in of_work if draft.open]

    def _others(self, one: _Draft) -> list[_Draft]:
        """Open runs of the same work, on whatever worker."""
        of_work = [draft for worker in sorted(self._current) for draft in self._current[worker].get(one.work, ())]
        return [draft for draft in of_work if draft is not one and draft.open]

    def _find(self, event: Event) -> _Draft | None:
        """The run that an event is about: by instance where the event names one, else the newest that is open."""
        instance = _instance(event)
        candidates = self._current.get(event.worker or "", {}).get((event.connector, event.task), [])[::-1]
        if instance is not None:
            return next((draft for draft in candidates if draft.instance == instance), None)
        if event.producer_epoch is not None:
            by_epoch = [draft for draft in candidates if draft.producer_epoch == event.producer_epoch]
            candidates = by_epoch or candidates
        return next((draft for draft in candidates if draft.open), None)

    def _create(self, event: Event, state: RunState) -> _Draft:
        assert event.connector is not None
        draft = _Draft(event.worker or "", event.connector, event.task, _instance(event), event.generation)
        draft.enter(state, event)
        self._drafts.append(draft)
        before = self._current.setdefault(draft.worker, {}).get(draft.work, [])
        older = [run for run in before[:-_CONCERNED] if run.open]
        self._current[draft.worker][draft.work] = [*older, *before[-_CONCERNED:], draft]
        self._supersede(draft, event)
        if self._kept is not None and len(self._drafts) > self._full:
            last = {id(of_work[-1]) for works in self._current.values() for of_work in works.values()}
            old = [draft for draft in self._drafts[: -self._kept] if draft.open or id(draft) in last]
            self._drafts = [*old, *self._drafts[-self._kept :]]
            self._full = len(self._drafts) + self._kept
        return draft

    def _supersede(self, new: _Draft, event: Event) -> None:
        """Another instance of the same work begins: a failed one is over, any other becomes a zombie."""
        for draft in self._others(new):
            if draft.state is RunState.FAILED:
                draft.end(event.time_ms)
            else:
                draft.enter(RunState.ZOMBIE, event, f"{new.worker} began the same work")

    def _step(self, event: Event, step: payloads.StepName) -> None:
        if event.connector is None or event.task is None:
            return
        draft = self._find(event)
        if step in (payloads.StepName.STOP, payloads.StepName.CANCEL):
            if draft is not None and draft.open and step is payloads.StepName.CANCEL:
                draft.enter(RunState.ZOMBIE, event)
            return
        draft = draft or self._create(event, RunState.STARTING)
        if draft.open:
            draft.learn_epoch(event)

    def _state(self, event: Event, state: State) -> None:
        if event.connector is None:
            return
        draft = self._find(event)
        if state in _GONE_STATES:
            if draft is not None and draft.open:
                draft.end(event.time_ms)
            return
        run_state = _LIVE_STATES[state]
        if draft is None:
            draft = self._create(event, run_state)
        elif draft.open and draft.state is not RunState.ZOMBIE:
            draft.enter(run_state, event)
        elif draft.open and run_state is RunState.FAILED:
            draft.end(event.time_ms)  # a zombie that failed
        elif run_state is RunState.FAILED and draft.state is not RunState.ZOMBIE:
            draft.enter(run_state, event)  # its thread ended first, then its worker reports why
        draft.learn_epoch(event)

    def _ended(self, event: Event) -> None:
        draft = self._find(event)
        if draft is None:
            return
        if not draft.open:
            if draft.fenced_ms is None and draft.state is not RunState.FAILED:
                draft.linger(event)
        elif draft.state is not RunState.FAILED:
            draft.end(event.time_ms)

    def _fenced(self, event: Event) -> None:
        draft = self._find(event)
        if draft is None:
            return
        draft.fenced_ms = event.time_ms
        if draft.open and draft.state is RunState.ZOMBIE:
            draft.end(event.time_ms)

    def _committed(self, event: Event) -> None:
        draft = self._find(event)
        if draft is not None:
            draft.learn_epoch(event)

    def _worker_started(self, event: Event, url: str) -> None:
        self._end_all(event, zombies=True)
        self._current.pop(event.worker or "", None)
        if event.worker is not None and url:
            self._urls[event.worker] = url

    def _worker_stopped(self, event: Event) -> None:
        self._end_all(event, zombies=False)

    def _worker_failed(self, event: Event) -> None:
        for draft in self._open(event.worker):
            draft.lost = True
        self._end_all(event, zombies=False)

    def _cluster_stopped(self, event: Event) -> None:
        for draft in self._drafts:
            draft.end(event.time_ms)

    def _end_all(self, event: Event, *, zombies: bool) -> None:
        for draft in self._open(event.worker):
            if zombies or draft.state is not RunState.ZOMBIE:
                draft.end(event.time_ms)

    def _killed(self, event: Event) -> None:
        for draft in self._open(event.worker):
            if draft.task is None:
                draft.lost = True
                draft.end(event.time_ms)
        self._bereave(event.worker, event, "its worker was killed")

    def _member_lost(self, event: Event) -> None:
        self._bereave(event.worker, event, event.cause or "its worker lost its membership")

    def _bereave(self, worker: str | None, event: Event, cause: str) -> None:
        """The group has taken the work of a worker: what runs is a zombie, what failed is over."""
        for draft in self._open(worker):
            draft.lost = True
            if draft.state is RunState.FAILED:
                draft.end(event.time_ms)
            else:
                draft.enter(RunState.ZOMBIE, event, cause)

    def _assigned(self, event: Event, members: Collection[str]) -> None:
        """A leader divided work among members (by URL): other workers have lost theirs."""
        for worker in sorted(self._urls):
            if self._urls[worker] not in members and worker != event.worker:
                self._bereave(worker, event, "the group removed its worker")

    def _rebalanced(self, event: Event, payload: payloads.RebalanceCompleted) -> None:
        """A worker knows its work: what is not on the list and failed is gone, a zombie on the list is back."""
        if payload.tasks is None or payload.connectors is None:
            return
        mine = {task_of(task) for task in payload.tasks} | set(payload.connectors)
        for draft in self._open(event.worker):
            work = draft.connector if draft.task is None else TaskId(draft.connector, draft.task)
            if work not in mine and draft.state is RunState.FAILED:
                draft.end(event.time_ms)
            elif work in mine and draft.state is RunState.ZOMBIE and not self._others(draft):
                before = next((s.state for s in reversed(draft.segments) if s.state is not RunState.ZOMBIE), None)
                draft.enter(before or RunState.RUNNING, event, "its worker came back in time")

    def _deleted(self, event: Event) -> None:
        for worker in sorted(self._current):
            for draft in self._open(worker):
                if draft.connector == event.connector and draft.state is RunState.FAILED:
                    draft.end(event.time_ms)


def _instance(event: Event) -> int | None:
    match event.payload:
        case (
            payloads.TaskStep(instance=instance)
            | payloads.TaskState(instance=instance)
            | payloads.TaskEnded(instance=instance)
            | payloads.ProducerFenced(instance=instance)
            | payloads.TransactionCommitted(instance=instance)
        ):
            return instance
        case _:
            return None
