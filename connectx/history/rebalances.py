"""The rounds of the worker group: one `Rebalance` per generation, from the first join to the last assignment. Pure.

Each worker tells of its own join and its own assignment (KIP-415: JoinGroup, SyncGroup); here they become one band.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from connectx.model.events import Event, EventKind


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One generation of the worker group.

    Attributes:
        generation: number of the generation; None for a round that has not ended.
        start_ms: when the first worker prepared to join.
        end_ms: when the last worker got its assignment; None while none has.
        cause: the reason that the first worker gave.
        leader: name of the worker that led, None when the history does not show it.
        members: names of the workers that got an assignment, sorted.
        lost: work that the leader missed, as it named it.
        delay_ms: how long the leader lets lost work wait (scheduled.rebalance.max.delay.ms), 0 for not at all.
    """

    generation: int | None
    start_ms: int
    end_ms: int | None
    seq: int
    cause: str
    leader: str | None
    members: tuple[str, ...]
    lost: tuple[str, ...]
    delay_ms: int


@dataclass(slots=True)
class _Draft:
    start_ms: int
    end_ms: int
    seq: int
    cause: str
    leader_url: str | None = None
    members: set[str] = field(default_factory=set)
    delay_ms: int = 0


def rebalances(events: Iterable[Event]) -> tuple[Rebalance, ...]:
    """All rounds in order of generation; at the end one without generation when workers are joining right now."""
    fold = RebalanceFold()
    for event in events:
        fold.take(event)
    return fold.rebalances()


class RebalanceFold:
    """Takes events one by one, in order, and knows the rounds that they show."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._joining: dict[str, Event] = {}
        self._drafts: dict[int, _Draft] = {}
        self._lost: dict[int, tuple[str, ...]] = {}

    def take(self, event: Event) -> None:
        """Add the next event."""
        worker = event.worker or ""
        if event.kind is EventKind.WORKER_STARTED and event.data.get("url"):
            self._names[str(event.data["url"])] = worker
        elif event.kind is EventKind.REBALANCE_STARTED:
            self._joining.setdefault(worker, event)
        elif event.kind in (EventKind.WORKER_STOPPED, EventKind.WORKER_FAILED) or _is_kill(event):
            self._joining.pop(worker, None)
        elif event.kind is EventKind.ASSIGNMENT_COMPUTED and (generation := generation_of(event)) is not None:
            self._lost[generation] = _names(event.data.get("lost"))
        elif event.kind is EventKind.REBALANCE_COMPLETED and event.generation is not None:
            _complete(self._drafts, event, self._joining.pop(worker, None))

    def rebalances(self) -> tuple[Rebalance, ...]:
        """All rounds up to now."""
        done = tuple(self._freeze(generation) for generation in sorted(self._drafts))
        if not self._joining:
            return done
        first = min(self._joining.values(), key=lambda event: event.seq)
        cause = first.cause or str(first.data.get("reason", ""))
        members = tuple(sorted(self._joining))
        return (*done, Rebalance(None, first.time_ms, None, first.seq, cause, None, members, (), 0))

    def _freeze(self, generation: int) -> Rebalance:
        draft = self._drafts[generation]
        return Rebalance(
            generation,
            draft.start_ms,
            draft.end_ms,
            draft.seq,
            draft.cause,
            None if draft.leader_url is None else self._names.get(draft.leader_url, draft.leader_url),
            tuple(sorted(draft.members)),
            self._lost.get(generation, ()),
            draft.delay_ms,
        )


def generation_of(event: Event) -> int | None:
    """Generation that an event is about: the leader divides work before it has itself entered the generation."""
    told = event.data.get("generation", event.generation)
    return told if isinstance(told, int) else None


def _complete(drafts: dict[int, _Draft], event: Event, started: Event | None) -> None:
    assert event.generation is not None
    began = started or event
    cause = began.cause or str(began.data.get("reason", ""))
    draft = drafts.get(event.generation)
    if draft is None:
        draft = drafts[event.generation] = _Draft(began.time_ms, event.time_ms, event.seq, cause)
    elif began.time_ms < draft.start_ms:
        draft.start_ms, draft.cause = began.time_ms, cause
    draft.end_ms = max(draft.end_ms, event.time_ms)
    draft.members.add(event.worker or "")
    if event.data.get("leader_url"):
        draft.leader_url = str(event.data["leader_url"])
    delay_ms = event.data.get("delay_ms")
    if isinstance(delay_ms, int):
        draft.delay_ms = max(draft.delay_ms, delay_ms)


def _is_kill(event: Event) -> bool:
    return event.kind is EventKind.FAULT_INJECTED and event.data.get("fault") == "kill"


def _names(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()
