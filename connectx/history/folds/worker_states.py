"""States of workers, in words: its life cycle, its faults, and its membership of the group. Pure.

The three are independent of each other: a worker that is frozen and cut off is still cut off when it resumes, and a
running one may have been removed from its group. `runs` decides about work.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from enum import StrEnum

from connectx.model import payloads
from connectx.model.events import Event
from connectx.values import Value


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


class Place(StrEnum):
    """Where a worker is with its group."""

    NONE = "not in the group"
    JOINING = "joining the group"
    MEMBER = "member"
    OUT = "out of the group"


class Standing(Value):
    """One worker.

    Attributes:
        life: STARTING, UP, STOPPING, or how it ended.
        frozen: PAUSED or STALLED while it is, None otherwise.
        cut: the direction in which its connections are cut: both, in or out; None when they are not.
        place: whether the group counts it in, as far as the events show.
        generation: the last one that it took part in.
    """

    life: WorkerState = WorkerState.STARTING
    frozen: WorkerState | None = None
    cut: str | None = None
    place: Place = Place.NONE
    generation: int | None = None

    @property
    def state(self) -> WorkerState:
        """What counts most of it, in one word."""
        if self.life.is_gone or self.life is WorkerState.STOPPING:
            return self.life
        if self.frozen is not None:
            return self.frozen
        return self.life if self.cut is None else WorkerState.CUT_OFF

    @property
    def description(self) -> str:
        """All of it: `up`, `paused, cut off (in), out of the group`."""
        parts = [str(self.state)]
        if self.life.is_gone:
            return parts[0]
        if self.cut is not None and self.state is not WorkerState.CUT_OFF:
            parts.append("cut off")
        if self.cut not in (None, "both"):
            parts[-1] += f" ({self.cut})"
        if self.place in (Place.OUT, Place.JOINING) and self.life is not WorkerState.STARTING:
            parts.append(str(self.place))
        return ", ".join(parts)


class WorkerStateFold:
    """Consumes events one by one, in order, and keeps the state of every worker."""

    def __init__(self) -> None:
        self._standings: dict[str, Standing] = {}
        self._urls: dict[str, str] = {}

    def take(self, event: Event) -> None:
        if event.worker is None:
            return
        if isinstance(event.payload, payloads.WorkerStarted) and event.payload.url:
            self._urls[event.worker] = event.payload.url
        before = self._standings.get(event.worker, Standing())
        self._standings[event.worker] = _next(before, event)
        if isinstance(event.payload, payloads.AssignmentComputed):
            self._leave_out(event.worker, event.payload.members)

    def standings(self) -> dict[str, Standing]:
        """Worker name to how it stands up to now, worker-2 before worker-10."""
        return {name: self._standings[name] for name in sorted(self._standings, key=natural)}

    def _leave_out(self, leader: str, members: Collection[str]) -> None:
        """A leader divided work among members (by URL): a worker that is not named is no member any more."""
        for worker, url in self._urls.items():
            standing = self._standings[worker]
            if url not in members and worker != leader and standing.place is Place.MEMBER:
                self._standings[worker] = replace(standing, place=Place.OUT)


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A key to sort by in which numbers within a name count as numbers."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))


_FROZEN = {"pause": WorkerState.PAUSED, "stall": WorkerState.STALLED, "resume": None}
_LIVES = {"kill": WorkerState.KILLED, "stop": WorkerState.STOPPING}


def _next(before: Standing, event: Event) -> Standing:
    if isinstance(event.payload, payloads.WorkerStarted):  # one that is seen from outside runs already
        return Standing() if event.seen is None else Standing(life=WorkerState.UP)
    if before.life.is_gone:
        return before
    match event.payload:
        case payloads.WorkerStopped():
            return replace(before, life=WorkerState.STOPPED)
        case payloads.WorkerFailed():
            return replace(before, life=WorkerState.FAILED)
        case payloads.FaultInjected() as injected:
            return _after_fault(before, injected)
        case payloads.RebalanceStarted():
            return replace(before, place=Place.JOINING)
        case payloads.MemberLost():
            return replace(before, place=Place.OUT)
        case payloads.RebalanceCompleted():
            life = WorkerState.UP if before.life is WorkerState.STARTING else before.life
            return replace(before, life=life, place=Place.MEMBER, generation=event.generation)
        case _:
            return before


def _after_fault(before: Standing, injected: payloads.FaultInjected) -> Standing:
    fault = injected.fault
    if fault in _FROZEN:
        return replace(before, frozen=_FROZEN[fault])
    if fault in _LIVES:
        return replace(before, life=_LIVES[fault])
    if fault == "partition":
        return replace(before, cut=injected.direction or "both")
    return replace(before, cut=None) if fault == "heal" else before
