"""Geometry of the timeline: rows per worker, bars in lanes, rebalance bands, marks. Pure.

Across, it is in milliseconds. Down, it is in lanes, and in the units of the SVG for the height of a whole row. The SVG,
the plotly figure and the panel draw the same `Timeline`, with the same sentences on hover or focus.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from math import inf

from connectx.history.folds.rebalances import Rebalance, RebalanceFold
from connectx.history.folds.runs import Run, RunFold, RunState, Segment, epoch_of
from connectx.history.folds.tracks import Samples, Track, tracks
from connectx.history.folds.worker_states import Standing, WorkerState, WorkerStateFold
from connectx.history.render.palette import colour, text_on
from connectx.history.render.shapes import BAR, LANE, ROW_LEAST, ROW_PAD, THIN, THIN_LANE
from connectx.history.sentences.stories import Story
from connectx.history.sentences.titles import mark_title, rebalance_title, rejection, run_title
from connectx.history.wording import duration
from connectx.model.events import Event, EventKind
from connectx.values import Value
from connectx.views import masked_text


class MarkKind(StrEnum):
    """Moments that get a separate sign."""

    FAULT = "fault"
    FENCED = "fenced"
    ABORTED = "aborted"


_STEPS = 150
TOGETHER_MS = 1_000
"""Marks of one task within this time are one mark: a fence and the abort that follows it, or several aborts."""


class BarPart(Value):
    """A span of one state within a bar; `end_ms` None: it still lasts.

    `what` and `why` are the sentence around the duration, so that a live view can let that grow.
    """

    state: RunState
    start_ms: int
    end_ms: int | None
    seq: int
    what: str
    why: str

    def title(self, now_ms: int) -> str:
        lasted_ms = max((now_ms if self.end_ms is None else self.end_ms) - self.start_ms, 0)
        return f"{self.what}, {'for' if self.end_ms is None else 'lasted'} {duration(lasted_ms)}{self.why}"


class Bar(Value):
    """One run of a task, or of a connector (`task` None), in a lane of its worker's row.

    `place` is the connector's in the order of first appearance, which decides its colour.
    """

    connector: str
    task: int | None
    label: str
    lane: int
    place: int
    parts: tuple[BarPart, ...]

    @property
    def start_ms(self) -> int:
        return self.parts[0].start_ms

    @property
    def end_ms(self) -> int | None:
        """When it ends, None while it lasts."""
        return self.parts[-1].end_ms

    @property
    def colour(self) -> str:
        return colour(self.place)

    @property
    def text_colour(self) -> str:
        """Black or white, whichever can be read on `colour`."""
        return text_on(self.colour)

    @property
    def height(self) -> int:
        return THIN if self.task is None else BAR


class Mark(Value):
    """A moment; `lane` None: it belongs to the whole row, otherwise to the task lane."""

    kind: MarkKind
    time_ms: int
    lane: int | None
    seq: int
    title: str
    task: str | None = None


class Row(Value):
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
        return self.standing.state

    @property
    def height(self) -> int:
        return max(self.task_lanes * LANE + self.connector_lanes * THIN_LANE + 2 * ROW_PAD, ROW_LEAST)

    def top(self, bar: Bar) -> int:
        """Upper edge of one of its bars, from the upper edge of the row."""
        if bar.task is None:
            return ROW_PAD + self.task_lanes * LANE + bar.lane * THIN_LANE + (THIN_LANE - THIN) // 2
        return ROW_PAD + bar.lane * LANE + (LANE - BAR) // 2

    def middle(self, mark: Mark) -> float:
        """Centre of one of its marks, from the upper edge of the row."""
        return self.height / 2 if mark.lane is None else ROW_PAD + mark.lane * LANE + LANE / 2


class Band(Value):
    """A rebalance across all rows; without generation and `end_ms` while it is under way."""

    generation: int | None
    start_ms: int
    end_ms: int | None
    seq: int
    title: str


class Timeline(Value):
    """What lies between `start_ms` and `end_ms`, not clipped. `connectors` is the order of first appearance.

    `marks` are those of no worker: what happened to the broker. `tracks` are charts on the same time axis.
    """

    start_ms: int
    end_ms: int
    rows: tuple[Row, ...]
    bands: tuple[Band, ...]
    connectors: tuple[str, ...]
    marks: tuple[Mark, ...] = ()
    tracks: tuple[Track, ...] = ()

    def all_marks(self) -> list[Mark]:
        """Marks of the broker, then those of each worker."""
        return [*self.marks, *(mark for row in self.rows for mark in row.marks)]

    def guides(self) -> list[Mark]:
        """Marks that are drawn across the tracks, too: faults and fences."""
        return [mark for mark in self.all_marks() if mark.kind is not MarkKind.ABORTED]

    def colour(self, connector: str | None) -> str | None:
        """Colour of a connector; None if the history does not have it."""
        return colour(self.connectors.index(connector)) if connector in self.connectors else None

    def clip(self, time_ms: int | None) -> int:
        """A moment within the window; None is its end."""
        return self.end_ms if time_ms is None else min(max(time_ms, self.start_ms), self.end_ms)

    def placed(self, top: int = 0) -> Iterator[tuple[Row, int]]:
        """Rows with their upper edges, the first one at `top`."""
        for row in self.rows:
            yield row, top
            top += row.height


def timeline(
    events: Iterable[Event],
    *,
    now_ms: int | None = None,
    window_ms: int | None = None,
    stories: Iterable[Story] = (),
    samples: Samples | None = None,
) -> Timeline:
    """Lay out a history.

    Args:
        events: in order.
        now_ms: end of the window; open bars reach to it. Default: the last event.
        window_ms: length of the window; default: from the first event on.
        stories: sentences for the marks of their faults.
        samples: throughput and lag for the tracks.
    """
    fold = TimelineFold()
    for event in events:
        fold.take(event)
    drawn = fold.timeline(now_ms=now_ms, window_ms=window_ms, steps=_STEPS, stories=stories)
    return drawn if samples is None else replace(drawn, tracks=tracks(samples, drawn.start_ms, drawn.end_ms))


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
        self._connectors: dict[str, int] = {}
        self._first_ms = 0
        self._last_ms = 0
        self._taken = 0

    def take(self, event: Event) -> None:
        for fold in (self._runs, self._rebalances, self._states):
            fold.take(event)
        if _mark_kind(event) is not None:
            self._marks.append(event)
        if event.connector is not None:
            self._connectors.setdefault(event.connector, len(self._connectors))
        if not self._taken:
            self._first_ms = event.time_ms
        self._last_ms = event.time_ms
        self._taken += 1

    def timeline(
        self,
        *,
        now_ms: int | None = None,
        window_ms: int | None = None,
        steps: int | None = None,
        stories: Iterable[Story] = (),
    ) -> Timeline:
        """Lay out what was taken.

        Args:
            now_ms, window_ms, stories: as those of `timeline`.
            steps: marks of one task that lie within this part of the window are one mark; never within less than
                `TOGETHER_MS`. None: just that, so that marks do not change as time passes.
        """
        end_ms = self._last_ms if now_ms is None else now_ms
        start_ms = self._first_ms if window_ms is None else end_ms - window_ms
        window = _Window(min(start_ms, end_ms), end_ms)
        together_ms = TOGETHER_MS if steps is None else max(TOGETHER_MS, (window.end_ms - window.start_ms) // steps)
        all_runs = self._runs.runs()
        rounds = self._rebalances.rebalances()
        leader = next((round_.leader for round_ in reversed(rounds) if round_.generation is not None), None)
        marks = [event for event in self._marks if window.holds(event.time_ms)]
        outcomes = {story.seq: story.sentence for story in stories}
        rows = [
            _row(
                worker,
                standing,
                worker == leader and not standing.life.is_gone,
                [run for run in all_runs if run.worker == worker],
                [event for event in marks if event.worker == worker],
                window,
                self._connectors,
                together_ms,
                outcomes,
            )
            for worker, standing in self._states.standings().items()
        ]
        bands = [_band(round_) for round_ in rounds if window.meets(round_.start_ms, round_.end_ms)]
        return Timeline(
            window.start_ms,
            window.end_ms,
            tuple(rows),
            tuple(bands),
            tuple(self._connectors),
            tuple(_with_outcome(_mark(event, (), {}), outcomes) for event in marks if event.worker is None),
        )


class _Window(Value):
    start_ms: int
    end_ms: int

    def holds(self, time_ms: int) -> bool:
        return self.start_ms <= time_ms <= self.end_ms

    def meets(self, start_ms: int, end_ms: int | None) -> bool:
        return start_ms <= self.end_ms and (end_ms is None or end_ms >= self.start_ms)


def _row(
    worker: str,
    standing: Standing,
    is_leader: bool,
    own: Sequence[Run],
    marks: Sequence[Event],
    window: _Window,
    places: Mapping[str, int],
    together_ms: int,
    outcomes: Mapping[int, str],
) -> Row:
    seen = [run for run in own if window.meets(run.start_ms, run.end_ms)]
    fences = [event for event in marks if _mark_kind(event) is MarkKind.FENCED]
    lanes, task_lanes = _packed([run for run in seen if run.task is not None])
    thin_lanes, connector_lanes = _packed([run for run in seen if run.task is None])
    return Row(
        worker=worker,
        standing=standing,
        is_leader=is_leader,
        task_lanes=task_lanes,
        connector_lanes=connector_lanes,
        bars=tuple(_bar(run, lane, fences, window, places) for run, lane in lanes.items()),
        connector_bars=tuple(_bar(run, lane, (), window, places) for run, lane in thin_lanes.items()),
        marks=tuple(_merged((_with_outcome(_mark(event, own, lanes), outcomes) for event in marks), together_ms)),
    )


def _packed(of: Sequence[Run]) -> tuple[dict[Run, int], int]:
    """The lane of each run, and how many there are. A task keeps its lane while that is free, else takes the lowest."""
    free_from: list[float] = []
    home: dict[str, int] = {}
    lanes: dict[Run, int] = {}
    for run in sorted(of, key=lambda run: (run.start_ms, run.name, run.instance or 0)):
        lane = home.get(run.name)
        if lane is None or free_from[lane] > run.start_ms:
            lane = next((number for number, free in enumerate(free_from) if free < run.start_ms), len(free_from))
        if lane == len(free_from):
            free_from.append(0)
        free_from[lane] = inf if run.end_ms is None else max(run.end_ms, run.start_ms + 1)
        home[run.name] = lane
        lanes[run] = lane
    return lanes, len(free_from)


def _bar(run: Run, lane: int, fences: Sequence[Event], window: _Window, places: Mapping[str, int]) -> Bar:
    parts = tuple(
        BarPart(
            segment.state,
            segment.start_ms,
            segment.end_ms,
            segment.seq,
            run_title(run, segment),
            _why(run, segment, fences),
        )
        for segment in run.segments
        if window.meets(segment.start_ms, segment.end_ms)
    )
    return Bar(run.connector, run.task, run.name, lane, places[run.connector], parts)


def _why(run: Run, segment: Segment, fences: Sequence[Event]) -> str:
    reasons = [segment.cause] if segment.cause else []
    rejected = [event for event in fences if _is_about(event, run)] if segment is run.segments[-1] else []
    if rejected:
        reasons.append(rejection(rejected[-1], epoch_of(rejected[-1], run)))
    return "".join(f"; {masked_text(reason)}" for reason in reasons)


def _is_about(event: Event, run: Run) -> bool:
    return (event.connector, event.task) == (run.connector, run.task) and run.covers(event.time_ms)


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
    return Mark(kind, event.time_ms, lane, event.seq, masked_text(mark_title(event, epoch_of(event, run))), name)


def _with_outcome(mark: Mark, outcomes: Mapping[int, str]) -> Mark:
    """The mark of a fault with what followed from it."""
    is_known = mark.kind is MarkKind.FAULT and mark.seq in outcomes
    return replace(mark, title=f"{mark.title}; {outcomes[mark.seq]}") if is_known else mark


def _merged(marks: Iterable[Mark], together_ms: int) -> Iterator[Mark]:
    """Marks of one task in quick succession as one, with each sentence once; faults are always separate marks."""
    groups: list[list[Mark]] = []
    latest: dict[str | None, list[Mark]] = {}
    for mark in marks:
        group = latest.get(mark.task, [])
        if group and mark.kind is not MarkKind.FAULT and mark.time_ms - group[0].time_ms < together_ms:
            group.append(mark)
            continue
        groups.append([mark])
        if mark.kind is not MarkKind.FAULT:
            latest[mark.task] = groups[-1]
    for group in groups:
        counts = Counter(mark.title for mark in group)
        title = "; ".join(
            sentence if count == 1 else f"{sentence} ({count} times)" for sentence, count in counts.items()
        )
        fenced = any(mark.kind is MarkKind.FENCED for mark in group)
        yield replace(group[0], title=title, kind=MarkKind.FENCED if fenced else group[0].kind)


def _band(round_: Rebalance) -> Band:
    is_open = round_.generation is None or round_.end_ms is None
    ended = (None, round_.start_ms, None) if is_open else (round_.generation, round_.start_ms, round_.end_ms)
    return Band(*ended, round_.seq, masked_text(rebalance_title(round_)))
