"""The rounds of the worker group: one `Rebalance` per generation, from the first join to the last assignment. Pure.

Each worker reports its own join and assignment (KIP-415: JoinGroup, SyncGroup). Here they become one round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from connectx.history.folds.worker_states import Standing, WorkerState, WorkerStateFold
from connectx.history.wording import listing
from connectx.model import causes
from connectx.model.events import Event
from connectx.model.payloads import (
    AssignmentComputed,
    FaultInjected,
    MemberRemoved,
    RebalanceCompleted,
    RebalanceStarted,
    WorkerFailed,
    WorkerStarted,
    WorkerStopped,
)
from connectx.values import Value
from connectx.views import Shown

Reason = tuple[str, causes.Cause | None]
"""Worker, and the cause of its join."""

_FOLLOWING = causes.GroupRebalances | causes.RebalanceSuperseded
_OWN_LOSS = causes.GroupRequestRefused | causes.SessionExpired | causes.CoordinatorUnreachable


def why(
    members: Sequence[str],
    before: Sequence[str],
    ever: Sequence[str],
    standings: Mapping[str, Standing],
    reasons: Sequence[Reason],
    removed: Sequence[str] = (),
) -> str:
    """The cause of a round as sentence parts.

    Args:
        members: who is in the group now.
        before: who was in it in the round before.
        ever: who was in it in any round before.
        standings: how each worker stood when the round ended.
        reasons: causes of the joins, first to last.
        removed: workers that were removed from the group after their process had ended.
    """
    come = [name for name in members if name not in before]
    parts = _joined([name for name in come if name not in ever], "joined")
    parts += _joined([name for name in come if name in ever], "came back")
    gone = [(name, _way(standings.get(name), name in removed)) for name in before if name not in members]
    for way in dict.fromkeys(way for _, way in gone):
        parts += _joined([name for name, its in gone if its == way], way)
    parts += [text for text in reason_texts(reasons, come) if text not in parts]
    return "; ".join(parts) or next((str(cause) for _, cause in reasons if cause is not None), "")


def reason_texts(reasons: Sequence[Reason], come: Sequence[str] = ()) -> list[str]:
    """Causes that members do not merely follow, each once; without those of workers that came, which explain that."""
    own = [(worker, cause) for worker, cause in reasons if cause is not None and not isinstance(cause, _FOLLOWING)]
    shown = [(worker, cause) for worker, cause in own if worker not in come or not _explains_coming(cause)]
    return list(dict.fromkeys(_reason_text(worker, cause) for worker, cause in shown))


def _explains_coming(cause: causes.Cause) -> bool:
    return isinstance(cause, causes.WorkerStarts | _OWN_LOSS)


def _reason_text(worker: str, cause: causes.Cause) -> str:
    if isinstance(cause, causes.WorkerStarts):
        return f"{worker} starts"
    text = str(cause)
    return f"{worker}: {text}" if isinstance(cause, _OWN_LOSS) else text


def _joined(names: Sequence[str], what: str) -> list[str]:
    return [f"{listing(names)} {what}"] if names else []


def _way(standing: Standing | None, removed: bool) -> str:
    if standing is None:
        return "left or was lost"
    state = standing.state
    if state in (WorkerState.STOPPED, WorkerState.STOPPING):
        return "left"
    if removed:
        return f"was removed ({state}; its process has ended)"
    return "was lost" if state in (WorkerState.UP, WorkerState.STARTING) else f"was lost ({state})"


class Rebalance(Shown, Value):
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
        why: the cause in words: who joined, left or was lost and how, and what the members gave as reasons.
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
    why: str = ""


@dataclass(slots=True)
class _Draft:
    start_ms: int
    end_ms: int
    seq: int
    cause: str
    leader_url: str | None = None
    members: set[str] = field(default_factory=set)
    delay_ms: int = 0
    reasons: list[tuple[int, Reason]] = field(default_factory=list)
    standings: dict[str, Standing] = field(default_factory=dict)
    removed: tuple[str, ...] = ()


def rebalances(events: Iterable[Event]) -> tuple[Rebalance, ...]:
    """All rounds in order of generation; at the end one without generation when workers are joining right now."""
    fold = RebalanceFold()
    for event in events:
        fold.take(event)
    return fold.rebalances()


class RebalanceFold:
    """Consumes events one by one, in order, and keeps the rounds that they show.

    Args:
        kept: about so many rounds are kept, the newest; None: all.
    """

    def __init__(self, kept: int | None = None) -> None:
        self._kept = kept
        self.forgotten = 0
        """How many rounds were there that are not kept."""
        self._before: list[str] = []  # members of the newest of those
        self._ever: dict[str, None] = {}  # and of all of them
        self._names: dict[str, str] = {}
        self._joining: dict[str, Event] = {}
        self._drafts: dict[int, _Draft] = {}
        self._lost: dict[int, tuple[str, ...]] = {}
        self._assigned: dict[int, tuple[str, ...]] = {}
        self._states = WorkerStateFold()
        self._removed: dict[str, None] = {}

    def take(self, event: Event) -> None:
        worker = event.worker or ""
        self._states.take(event)
        match event.payload:
            case WorkerStarted(url) if url:
                self._names[url] = worker
                self._removed.pop(worker, None)
            case MemberRemoved():
                self._removed.setdefault(worker)
            case RebalanceStarted():
                self._joining.setdefault(worker, event)
            case WorkerStopped() | WorkerFailed() | FaultInjected("kill"):
                self._joining.pop(worker, None)
            case AssignmentComputed(members, lost) if event.generation is not None:
                self._lost[event.generation] = lost
                self._assigned[event.generation] = tuple(self._names.get(url, url) for url in members)
            case RebalanceCompleted() as completed if event.generation is not None:
                draft = _complete(self._drafts, event, completed, self._joining.pop(worker, None))
                draft.standings = draft.standings or self._states.standings()
                draft.removed = draft.removed or tuple(self._removed)
                if self._kept is not None and len(self._drafts) > 2 * self._kept:
                    self._forget(self._kept)

    def rebalances(self) -> tuple[Rebalance, ...]:
        done = []
        before, ever = self._before, dict(self._ever)
        for generation in sorted(self._drafts):
            members = self._members(generation)
            done.append(self._freeze(generation, members, before, list(ever)))
            before = members
            ever |= dict.fromkeys(members)
        return (*done, *self._under_way(before))

    def _members(self, generation: int) -> list[str]:
        return sorted({*self._drafts[generation].members, *self._assigned.get(generation, ())})

    def _forget(self, kept: int) -> None:
        for generation in sorted(self._drafts)[:-kept]:
            self._before = self._members(generation)
            self._ever |= dict.fromkeys(self._before)
            del self._drafts[generation]
            self.forgotten += 1
        oldest = min(self._drafts)
        self._lost = {generation: lost for generation, lost in self._lost.items() if generation >= oldest}
        self._assigned = {generation: names for generation, names in self._assigned.items() if generation >= oldest}

    def _under_way(self, before: list[str]) -> Iterator[Rebalance]:
        """The round that has not ended, if workers are joining."""
        if not self._joining:
            return
        started = sorted(self._joining.values(), key=lambda event: event.seq)
        members = tuple(sorted(self._joining))
        reasons = [_reason(event) for event in started]
        standings = self._states.standings()
        ended = [name for name in before if name in standings and standings[name].life.is_gone]
        known = [name for name in before if name not in ended]
        text = "; ".join(reason_texts(reasons)) or why(known, before, before, standings, reasons, tuple(self._removed))
        first = started[0]
        yield Rebalance(None, first.time_ms, None, first.seq, first.cause, None, members, (), 0, text)

    def _freeze(self, generation: int, members: list[str], before: list[str], ever: list[str]) -> Rebalance:
        draft = self._drafts[generation]
        reasons = [reason for _, reason in sorted(draft.reasons)]
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
            why(members, before, ever, draft.standings, reasons, draft.removed),
        )


def _complete(drafts: dict[int, _Draft], event: Event, completed: RebalanceCompleted, started: Event | None) -> _Draft:
    assert event.generation is not None
    began = started or event
    cause = began.cause
    draft = drafts.get(event.generation)
    if draft is None:
        draft = drafts[event.generation] = _Draft(began.time_ms, event.time_ms, event.seq, cause)
    elif began.time_ms < draft.start_ms:
        draft.start_ms, draft.cause = began.time_ms, cause
    draft.end_ms = max(draft.end_ms, event.time_ms)
    draft.members.add(event.worker or "")
    if started is not None:
        draft.reasons.append((started.seq, _reason(started)))
    draft.leader_url = completed.leader_url or draft.leader_url
    draft.delay_ms = max(draft.delay_ms, completed.delay_ms)
    return draft


def _reason(event: Event) -> Reason:
    return event.worker or "", event.why
