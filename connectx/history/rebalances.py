"""The rounds of the worker group: one `Rebalance` per generation, from the first join to the last assignment. Pure.

Each worker tells of its own join and its own assignment (KIP-415: JoinGroup, SyncGroup); here they become one band.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def worker_urls(events: Iterable[Event]) -> dict[str, str]:
    """URL to worker name, as the workers told when they started."""
    return {
        str(event.data["url"]): event.worker
        for event in events
        if event.kind is EventKind.WORKER_STARTED and event.worker and event.data.get("url")
    }


@dataclass(slots=True)
class _Draft:
    start_ms: int
    end_ms: int
    seq: int
    cause: str
    leader: str | None = None
    members: set[str] = field(default_factory=set)
    delay_ms: int = 0


def rebalances(events: Iterable[Event]) -> tuple[Rebalance, ...]:
    """All rounds in order of generation; at the end one without generation when workers are joining right now."""
    listed = list(events)
    names = worker_urls(listed)
    joining: dict[str, Event] = {}
    drafts: dict[int, _Draft] = {}
    lost: dict[int, tuple[str, ...]] = {}
    for event in listed:
        worker = event.worker or ""
        if event.kind is EventKind.REBALANCE_STARTED:
            joining.setdefault(worker, event)
        elif event.kind in (EventKind.WORKER_STOPPED, EventKind.WORKER_FAILED) or _is_kill(event):
            joining.pop(worker, None)
        elif event.kind is EventKind.ASSIGNMENT_COMPUTED and (generation := generation_of(event)) is not None:
            lost[generation] = _names(event.data.get("lost"))
        elif event.kind is EventKind.REBALANCE_COMPLETED and event.generation is not None:
            _complete(drafts, event, joining.pop(worker, None), names)
    done = tuple(_freeze(generation, drafts[generation], lost) for generation in sorted(drafts))
    if not joining:
        return done
    first = min(joining.values(), key=lambda event: event.seq)
    cause = first.cause or str(first.data.get("reason", ""))
    return (*done, Rebalance(None, first.time_ms, None, first.seq, cause, None, tuple(sorted(joining)), (), 0))


def generation_of(event: Event) -> int | None:
    """Generation that an event is about: the leader divides work before it has itself entered the generation."""
    told = event.data.get("generation", event.generation)
    return told if isinstance(told, int) else None


def _complete(drafts: dict[int, _Draft], event: Event, started: Event | None, names: Mapping[str, str]) -> None:
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
    url = event.data.get("leader_url")
    if url:
        draft.leader = names.get(str(url), str(url))
    delay_ms = event.data.get("delay_ms")
    if isinstance(delay_ms, int):
        draft.delay_ms = max(draft.delay_ms, delay_ms)


def _freeze(generation: int, draft: _Draft, lost: Mapping[int, tuple[str, ...]]) -> Rebalance:
    return Rebalance(
        generation,
        draft.start_ms,
        draft.end_ms,
        draft.seq,
        draft.cause,
        draft.leader,
        tuple(sorted(draft.members)),
        lost.get(generation, ()),
        draft.delay_ms,
    )


def _is_kill(event: Event) -> bool:
    return event.kind is EventKind.FAULT_INJECTED and event.data.get("fault") == "kill"


def _names(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()
