"""Geometry of the timeline: rows per worker, bars in lanes, rebalance bands, marks. Pure, in milliseconds and lanes.

The SVG, the plotly figure and panels draw the same `Timeline`; what an element says on hover or focus is decided here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from connectx.history.folds.rebalances import Rebalance, RebalanceFold
from connectx.history.folds.runs import Run, RunFold, RunState, Segment, epoch_of
from connectx.history.folds.worker_states import Standing, WorkerState, WorkerStateFold
from connectx.history.wording import duration, listing
from connectx.model.events import Event, EventKind
from connectx.views import masked_text


class MarkKind(StrEnum):
    """Moments that get a sign of their own."""

    FAULT = "fault"
    FENCED = "fenced"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class BarPart:
    """A span of one state within a bar, clipped to the window.

    `began_ms` and `lasted_ms` are not clipped. `what` and `why` are the sentence around the duration, so that a live
    view can let that grow.
    """

    state: RunState
    start_ms: int
    end_ms: int
    seq: int
    began_ms: int
    lasted_ms: int
    is_open: bool
    what: str
    why: str

    @property
    def title(self) -> str:
        """The sentence that is said on hover or focus."""
        return f"{self.what}, {'for' if self.is_open else 'lasted'} {duration(self.lasted_ms)}{self.why}"


@dataclass(frozen=True, slots=True)
class Bar:
    """One run of a task, or of a connector (`task` None), in a lane of its worker's row."""

    connector: str
    task: int | None
    label: str
    lane: int
    start_ms: int
    end_ms: int
    is_open: bool
    parts: tuple[BarPart, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment; `lane` None: it belongs to the whole row, otherwise to the task lane."""

    kind: MarkKind
    time_ms: int
    lane: int | None
    seq: int
    title: str
    task: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One worker. `bars` lie in `task_lanes` lanes, `connector_bars` in `connector_lanes` thinner ones below."""

    worker: str
    standing: Standing
    is_leader: bool
    task_lanes: int
    connector_lanes: int
    bars: tuple[Bar, ...]
    connector_bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]

    @property
    def state(self) -> WorkerState:
        """Its state in one word."""
        return self.standing.state


@dataclass(frozen=True, slots=True)
class Band:
    """A rebalance across all rows."""

    generation: int | None
    start_ms: int
    end_ms: int
    seq: int
    title: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is drawn between `start_ms` and `end_ms`. `connectors` is the order of first appearance: their colours.

    `marks` are those of no worker: what happened to the broker.
    """

    start_ms: int
    end_ms: int
    rows: tuple[Row, ...]
    bands: tuple[Band, ...]
    connectors: tuple[str, ...]
    marks: tuple[Mark, ...] = ()


def timeline(events: Iterable[Event], *, now_ms: int | None = None, window_ms: int | None = None) -> Timeline:
    """Lay out a history.

    Args:
        events: in order.
        now_ms: end of the window; open bars reach to it. Default: the last event.
        window_ms: length of the window; default: from the first event on.
    """
    fold = TimelineFold()
    for event in events:
        fold.take(event)
    return fold.timeline(now_ms=now_ms, window_ms=window_ms)


class TimelineFold:
    """Takes events one by one, in order, and lays out at any time what they show: for views that follow a cluster.

    Args:
        kept: about so many bars and bands are kept of each, the newest, and twice as many marks; None: all.
    """

    def __init__(self, kept: int | None = None) -> None:
        self._runs = RunFold(kept)
        self._rebalances = RebalanceFold(kept)
        self._states = WorkerStateFold()
        self._marks: deque[Event] = deque(maxlen=None if kept is None else 2 * kept)
        self._connectors: dict[str, None] = {}
        self._first_ms = 0
        self._last_ms = 0
        self._taken = 0

    def take(self, event: Event) -> None:
        """Add the next event."""
        for fold in (self._runs, self._rebalances, self._states):
            fold.take(event)
        if _mark_kind(event) is not None:
            self._marks.append(event)
        if event.connector is not None:
            self._connectors.setdefault(event.connector)
        if not self._taken:
            self._first_ms = event.time_ms
        self._last_ms = event.time_ms
        self._taken += 1

    def timeline(self, *, now_ms: int | None = None, window_ms: int | None = None) -> Timeline:
        """Lay out what was taken; arguments as those of `timeline`."""
        end_ms = self._last_ms if now_ms is None else now_ms
        start_ms = self._first_ms if window_ms is None else end_ms - window_ms
        window = _Window(min(start_ms, end_ms), end_ms)
        all_runs = self._runs.runs()
        rounds = self._rebalances.rebalances()
        leader = next((round_.leader for round_ in reversed(rounds) if round_.generation is not None), None)
        marks = [event for event in self._marks if window.holds(event.time_ms)]
        rows = [
            _row(
                worker,
                standing,
                worker == leader and not standing.life.is_gone,
                [run for run in all_runs if run.worker == worker],
                [event for event in marks if event.worker == worker],
                window,
            )
            for worker, standing in self._states.standings().items()
        ]
        bands = [_band(round_, window) for round_ in rounds if window.meets(round_.start_ms, round_.end_ms)]
        return Timeline(
            window.start_ms,
            window.end_ms,
            tuple(rows),
            tuple(bands),
            tuple(self._connectors),
            tuple(_mark(event, (), {}) for event in marks if event.worker is None),
        )


@dataclass(frozen=True, slots=True)
class _Window:
    start_ms: int
    end_ms: int

    def holds(self, time_ms: int) -> bool:
        return self.start_ms <= time_ms <= self.end_ms

    def meets(self, start_ms: int, end_ms: int | None) -> bool:
        return start_ms <= self.end_ms and (end_ms is None or end_ms >= self.start_ms)

    def clip(self, time_ms: int | None) -> int:
        return self.end_ms if time_ms is None else min(max(time_ms, self.start_ms), self.end_ms)


def _row(
    worker: str, standing: Standing, is_leader: bool, own: Sequence[Run], marks: Sequence[Event], window: _Window
) -> Row:
    seen = [run for run in own if window.meets(run.start_ms, run.end_ms)]
    fences = [event for event in marks if _mark_kind(event) is MarkKind.FENCED]
    bars, task_lanes, lane_of = _packed([run for run in seen if run.task is not None], fences, window)
    connector_bars, connector_lanes, _ = _packed([run for run in seen if run.task is None], (), window)
    return Row(
        worker=worker,
        standing=standing,
        is_leader=is_leader,
        task_lanes=task_lanes,
        connector_lanes=connector_lanes,
        bars=bars,
        connector_bars=connector_bars,
        marks=tuple(_mark(event, own, lane_of) for event in marks),
    )


def _packed(of: Sequence[Run], fences: Sequence[Event], window: _Window) -> tuple[tuple[Bar, ...], int, dict[Run, int]]:
    """Give each run the lane its task had before when that is free, else the lowest free one."""
    free_from: list[int] = []
    home: dict[str, int] = {}
    lanes: dict[Run, int] = {}
    for run in sorted(of, key=lambda run: (run.start_ms, run.name, run.instance or 0)):
        start, end = window.clip(run.start_ms), window.clip(run.end_ms)
        lane = home.get(run.name)
        if lane is None or free_from[lane] > start:
            lane = next((number for number, free in enumerate(free_from) if free < start), len(free_from))
        if lane == len(free_from):
            free_from.append(start)
        free_from[lane] = max(end, start + 1)
        home[run.name] = lane
        lanes[run] = lane
    return tuple(_bar(run, lane, fences, window) for run, lane in lanes.items()), len(free_from), lanes


def _bar(run: Run, lane: int, fences: Sequence[Event], window: _Window) -> Bar:
    parts = tuple(
        BarPart(
            segment.state,
            window.clip(segment.start_ms),
            window.clip(segment.end_ms),
            segment.seq,
            segment.start_ms,
            max((window.end_ms if segment.end_ms is None else segment.end_ms) - segment.start_ms, 0),
            segment.end_ms is None,
            _what(run, segment),
            _why(run, segment, fences),
        )
        for segment in run.segments
        if window.meets(segment.start_ms, segment.end_ms)
    )
    start_ms, end_ms = window.clip(run.start_ms), window.clip(run.end_ms)
    return Bar(run.connector, run.task, run.name, lane, start_ms, end_ms, run.end_ms is None, parts)


def _what(run: Run, segment: Segment) -> str:
    facts = [f"{run.name} on {run.worker}: {segment.state.value}"]
    if run.generation is not None:
        facts.append(f"generation {run.generation}")
    if run.producer_epoch is not None:
        facts.append(f"epoch {run.producer_epoch}")
    return ", ".join(facts)


def _why(run: Run, segment: Segment, fences: Sequence[Event]) -> str:
    reasons = [segment.cause] if segment.cause else []
    rejected = [event for event in fences if _is_about(event, run)] if segment is run.segments[-1] else []
    if rejected:
        reasons.append(_rejection(rejected[-1], run))
    return "".join(f"; {masked_text(reason)}" for reason in reasons)


def _is_about(event: Event, run: Run) -> bool:
    return (event.connector, event.task) == (run.connector, run.task) and run.covers(event.time_ms)


# ------------------------------------------------------------------------------------------------ marks and bands

_BROKER_FAULTS = {"broker_kill": "fault: the broker was killed", "broker_restart": "the broker was started again"}


def _mark_kind(event: Event) -> MarkKind | None:
    match event.kind:
        case EventKind.FAULT_INJECTED:
            return MarkKind.FAULT
        case EventKind.PRODUCER_FENCED | EventKind.COMMIT_REFUSED:
            return MarkKind.FENCED
        case EventKind.TRANSACTION_ABORTED:
            return MarkKind.ABORTED
        case _:
            return None


def _mark(event: Event, own: Sequence[Run], lane_of: dict[Run, int]) -> Mark:
    kind = _mark_kind(event)
    assert kind is not None
    begun = [run for run in own if run.task is not None and (run.connector, run.task) == (event.connector, event.task)]
    begun = [run for run in begun if run.start_ms <= event.time_ms]
    run = next((run for run in begun if run.covers(event.time_ms)), begun[-1] if begun else None)
    name = None if event.connector is None else f"{event.connector}-{event.task}"
    lane = lane_of.get(run) if run is not None else None
    return Mark(kind, event.time_ms, lane, event.seq, masked_text(_mark_title(event, kind, run)), name)


def _mark_title(event: Event, kind: MarkKind, run: Run | None) -> str:
    about = f"{event.connector}-{event.task} on {event.worker}"
    match kind:
        case MarkKind.FAULT:
            fault = event.data.get("fault", "unknown")
            if fault in _BROKER_FAULTS:
                return _BROKER_FAULTS[fault]
            if fault == "add_worker":
                return f"{event.worker} was added"
            direction = event.data.get("direction")
            return f"fault: {fault} {event.worker}" + (f" ({direction})" if direction not in (None, "both") else "")
        case MarkKind.FENCED:
            return f"{about}: {_rejection(event, run)}"
        case MarkKind.ABORTED:
            reason = event.data.get("reason") or event.cause
            return f"{about}: a transaction was aborted" + (f" ({reason})" if reason else "")


def _rejection(event: Event, run: Run | None) -> str:
    """What was refused: a producer by the broker, or a sink's commit by its group or target."""
    if event.kind is EventKind.COMMIT_REFUSED:
        reason = event.data.get("reason") or event.cause
        return "its commit was refused" + (f": {reason}" if reason else "")
    epoch = epoch_of(event, run)
    return "its write was rejected" if epoch is None else f"its write at epoch {epoch} was rejected"


def _band(round_: Rebalance, window: _Window) -> Band:
    end_ms = window.clip(round_.end_ms)
    took = duration(max((window.end_ms if round_.end_ms is None else round_.end_ms) - round_.start_ms, 0))
    if round_.generation is None:
        title = f"rebalance under way for {took}: {round_.why}"
    else:
        members = listing(round_.members)
        title = f"generation {round_.generation}, {took}, {members}"
        title += f"; leader {round_.leader}" if round_.leader else ""
        title += f"; {round_.why}" if round_.why else ""
        title += f"; lost work waits {duration(round_.delay_ms)}" if round_.delay_ms and round_.lost else ""
    return Band(round_.generation, window.clip(round_.start_ms), end_ms, round_.seq, masked_text(title))
