"""A `Timeline` as inline SVG: no script, nothing from outside, readable offline and without colour vision. Pure.

Colour is the connector, form is the state. Every element has a `<title>` and data attributes (`data-worker`,
`data-task`, `data-event`: the sequence number of the event that began it). Text, background and signs follow
Jupyter's theme variables, and `prefers-color-scheme` elsewhere; hatches are in currentColor, or the dark hides them.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from zlib import crc32

from connectx.history.folds.runs import RunState
from connectx.history.folds.worker_states import WorkerState
from connectx.history.render import shapes
from connectx.history.render.palette import colour, text_on
from connectx.history.render.shapes import num, tag
from connectx.history.render.timeline import Bar, BarPart, Mark, MarkKind, Row, Timeline
from connectx.history.wording import shorten

_HEADER, _BAND_LABELS, _AXIS = 26, 16, 22
_LANE, _BAR, _THIN_LANE, _THIN = 18, 14, 7, 5
_ROW_PAD, _ROW_LEAST = 6, 40
_CHAR = 6.2  # average width of a character in the labels' font, for deciding where text fits
_RIGHT = 14
_GUTTER_LEAST, _GUTTER_MOST = 92, 190
_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)

SIGNS = {
    WorkerState.STARTING: "◌",
    WorkerState.UP: "●",
    WorkerState.PAUSED: "‖",
    WorkerState.STALLED: "‖",
    WorkerState.CUT_OFF: "╳",
    WorkerState.STOPPING: "○",
    WorkerState.STOPPED: "○",
    WorkerState.KILLED: "✕",
    WorkerState.FAILED: "✕",
}


@dataclass(frozen=True, slots=True)
class _Scale:
    start_ms: int
    end_ms: int
    left: float
    right: float

    def x(self, time_ms: int) -> float:
        span = max(self.end_ms - self.start_ms, 1)
        return self.left + (time_ms - self.start_ms) / span * (self.right - self.left)


def timeline_svg(timeline: Timeline, *, width: int = 960, relative_to: str = "start") -> str:
    """Draw `timeline` as one `<svg>` element.

    Args:
        timeline: what to draw.
        width: of the drawing in its own units; it scales to the width of the page.
        relative_to: `start` counts the axis up from the beginning, `end` counts back from now.
    """
    names = [row.worker for row in timeline.rows]
    gutter = min(max([_GUTTER_LEAST, *(34 + 7 * len(name) for name in names)]), _GUTTER_MOST)
    scale = _Scale(timeline.start_ms, timeline.end_ms, gutter, width - _RIGHT)
    key = f"cx{crc32(repr(timeline).encode()):08x}"
    top = _HEADER + _BAND_LABELS
    places = {connector: place for place, connector in enumerate(timeline.connectors)}
    backgrounds: list[str] = []
    drawn: list[str] = []
    signs: list[str] = []
    y = float(top)
    for number, row in enumerate(timeline.rows):
        height = _row_height(row)
        if number % 2:
            backgrounds.append(tag("rect", "", x=0, y=y, width=width, height=height, class_="alt"))
        drawn.append(_gutter(row, y, height, gutter))
        drawn.extend(_bars(row, y, scale, places, key))
        signs.extend(_marks(row, y, height, scale))
        y += height
    bottom = y
    parts = [
        shapes.style(),
        shapes.patterns(key),
        tag("rect", "", width=width, height=num(bottom + _AXIS), rx=4, class_="bg"),
        *shapes.legend(width, key),
        *backgrounds,
        *_bands(timeline, top, bottom, scale),
        *_axis(timeline, top, bottom, scale, relative_to),
        *drawn,
        *signs,
        *_cluster_marks(timeline, top, bottom, scale),
    ]
    view = f"0 0 {width} {num(bottom + _AXIS)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="cxt" viewBox="{view}" width="100%" role="group"'
        f' aria-label="{_name(timeline)}" style="max-width:{width * 1.4:.0f}px">{"".join(parts)}</svg>'
    )


def timeline_image(timeline: Timeline, *, width: int = 960) -> str:
    """`timeline` as one `<img>` that holds its drawing.

    For notebooks: GitHub, and JupyterLab until a notebook is trusted, take away the tags of inline SVG but leave all
    its texts, one behind the other. An image stays, or leaves its `alt`; it has no sentences to point at.
    """
    drawing = timeline_svg(timeline, width=width).replace('width="100%"', f'width="{width}"', 1)
    data = b64encode(drawing.encode()).decode("ascii")
    return f'<img alt="{_name(timeline)}" style="max-width:100%" src="data:image/svg+xml;base64,{data}">'


def _name(timeline: Timeline) -> str:
    return escape(f"timeline of {len(timeline.rows)} workers, {len(timeline.connectors)} connectors")


def _row_height(row: Row) -> float:
    lanes = row.task_lanes * _LANE + row.connector_lanes * _THIN_LANE
    return max(lanes + 2 * _ROW_PAD, _ROW_LEAST)


def _gutter(row: Row, y: float, height: float, gutter: float) -> str:
    state = row.state.value + (", leader" if row.is_leader else "")
    words = row.standing.words + (", leader" if row.is_leader else "")
    limit = int((gutter - 30) / 7)
    middle = y + min(height, 44) / 2
    return tag(
        "g",
        tag("title", escape(f"{row.worker}: {words}"))
        + tag("text", SIGNS[row.state], x=10, y=num(middle - 2))
        + tag("text", escape(shorten(row.worker, limit)), x=24, y=num(middle - 2), class_="b")
        + tag("text", escape(state), x=24, y=num(middle + 12), class_="dim"),
        data_worker=row.worker,
        data_state=row.state.value,
    )


# ------------------------------------------------------------------------------------------------------- bars


def _bars(row: Row, y: float, scale: _Scale, places: dict[str, int], key: str) -> Iterator[str]:
    for lane in range(row.task_lanes):
        bars = sorted((bar for bar in row.bars if bar.lane == lane), key=lambda bar: bar.start_ms)
        for number, bar in enumerate(bars):
            before = scale.x(bars[number - 1].end_ms) if number else scale.left
            after = scale.x(bars[number + 1].start_ms) if number + 1 < len(bars) else scale.right
            top = y + _ROW_PAD + lane * _LANE + (_LANE - _BAR) / 2
            yield from _bar(row.worker, bar, top, scale, places[bar.connector], key)
            yield _label(bar, top, scale, (before, after), places[bar.connector])
    thin_top = y + _ROW_PAD + row.task_lanes * _LANE
    for bar in row.connector_bars:
        top = thin_top + bar.lane * _THIN_LANE + 1
        yield from _bar(row.worker, bar, top, scale, places[bar.connector], key, height=_THIN)


def _bar(worker: str, bar: Bar, top: float, scale: _Scale, place: int, key: str, height: float = _BAR) -> Iterator[str]:
    for part in bar.parts:
        x, width = scale.x(part.start_ms), scale.x(part.end_ms) - scale.x(part.start_ms)
        body = shapes.state_bar(part.state, x, top, max(width, 1.5), height, colour(place), key)
        yield tag(
            "g",
            tag("title", escape(part.title)) + body,
            data_worker=worker,
            data_task=bar.label,
            data_event=part.seq,
            data_state=part.state.value,
        )


def _label(bar: Bar, top: float, scale: _Scale, free: tuple[float, float], place: int) -> str:
    """The name of the task: in its widest part, else right of the bar, else left of it, else shortened."""
    y = num(top + _BAR - 3.5)
    needed = len(bar.label) * _CHAR + 8
    start, end = scale.x(bar.start_ms), scale.x(bar.end_ms)
    texts = []
    for part in _labelled_parts(bar, scale, needed):
        x = scale.x(part.start_ms)
        limit = int((scale.x(part.end_ms) - x - 8) / _CHAR)
        if part.state is RunState.RUNNING:
            fill = text_on(colour(place))
            texts.append(tag("text", escape(shorten(bar.label, limit)), x=num(x + 4), y=y, fill=fill))
        else:
            bold = "h b" if part.state is RunState.ZOMBIE else "h"
            texts.append(tag("text", escape(shorten(bar.label, limit)), x=num(x + 4), y=y, class_=bold))
    if texts:
        return "".join(texts)
    if free[1] - end >= needed:
        return tag("text", escape(bar.label), x=num(end + 4), y=y, class_="h")
    if start - free[0] >= needed:
        return tag("text", escape(bar.label), x=num(start - 4), y=y, class_="h", text_anchor="end")
    return ""


def _labelled_parts(bar: Bar, scale: _Scale, needed: float) -> list[BarPart]:
    """Parts that carry the name: the first with room for it (else the widest with room for some), and a zombie's."""

    def width(part: BarPart) -> float:
        return scale.x(part.end_ms) - scale.x(part.start_ms)

    roomy = [part for part in bar.parts if width(part) >= needed]
    if roomy:
        least = min(needed, 10 * _CHAR)
        rest = [part for part in bar.parts if part is not roomy[0] and part.state is RunState.ZOMBIE]
        return [roomy[0], *(part for part in rest if width(part) >= least)]
    widest = max(bar.parts, key=width)
    return [widest] if width(widest) >= 5 * _CHAR + 8 else []


# ------------------------------------------------------------------------------------------------------ marks


def _marks(row: Row, y: float, height: float, scale: _Scale) -> Iterator[str]:
    for group in _near(row.marks, scale):
        first = group[0]
        x = scale.x(first.time_ms)
        middle = y + height / 2
        if first.lane is not None:
            middle = y + _ROW_PAD + first.lane * _LANE + _LANE / 2
        shown = next((mark for mark in group if mark.kind is MarkKind.FENCED), first)
        yield tag(
            "g",
            tag("title", escape(_together(group))) + shapes.mark(shown.kind, x, middle),
            data_worker=row.worker,
            data_task=first.task,
            data_event=first.seq,
            data_mark=shown.kind.value,
        )


def _cluster_marks(timeline: Timeline, top: float, bottom: float, scale: _Scale) -> Iterator[str]:
    """What happened to the broker: a line across all workers, with the sign on top of it."""
    for mark in timeline.marks:
        x = scale.x(mark.time_ms)
        path = f"M{num(x)} {num(top)}V{num(bottom)}"
        line = tag("path", "", d=path, class_="m", stroke_dasharray="4 3", opacity="0.6")
        body = tag("title", escape(mark.title)) + line + shapes.mark(mark.kind, x, top)
        yield tag("g", body, data_event=mark.seq, data_mark=mark.kind.value)


def _near(marks: Sequence[Mark], scale: _Scale) -> Iterable[list[Mark]]:
    """Marks in one lane that would cover each other, together: a fence and the abort that follows it are one sign.

    Faults are always shown one by one.
    """
    groups: list[list[Mark]] = []
    for mark in marks:
        group = next((group for group in reversed(groups) if _belongs(mark, group[0], scale)), None)
        if group is None:
            groups.append([mark])
        else:
            group.append(mark)
    return groups


def _belongs(mark: Mark, first: Mark, scale: _Scale) -> bool:
    if MarkKind.FAULT in (mark.kind, first.kind) or (first.lane, first.task) != (mark.lane, mark.task):
        return False
    return scale.x(mark.time_ms) - scale.x(first.time_ms) < 6


def _together(group: Sequence[Mark]) -> str:
    """One sentence for each different one, with how often."""
    counts = Counter(mark.title for mark in group)
    return "; ".join(title if count == 1 else f"{title} ({count} times)" for title, count in counts.items())


# ---------------------------------------------------------------------------------------------- bands and axis


def _bands(timeline: Timeline, top: float, bottom: float, scale: _Scale) -> Iterator[str]:
    label_end = 0.0
    for band in timeline.bands:
        x = scale.x(band.start_ms)
        width = max(scale.x(band.end_ms) - x, 2)
        text = "gen ?" if band.generation is None else f"gen {band.generation}"
        if x < label_end:
            text = text.removeprefix("gen ")
        label = ""
        if x >= label_end - 4 * _CHAR:  # a little to the right of its band is better than no number
            at = min(max(x, label_end), scale.right + _RIGHT - len(text) * _CHAR)
            label = tag("text", text, x=num(at), y=num(top - 5), class_="dim")
            label_end = at + len(text) * _CHAR + 5
        yield tag(
            "g",
            tag("title", escape(band.title))
            + tag("rect", "", x=num(x), y=num(top), width=num(width), height=num(bottom - top), class_="band")
            + label,
            data_event=band.seq,
            data_generation=band.generation,
        )


def _axis(timeline: Timeline, top: float, bottom: float, scale: _Scale, relative_to: str) -> Iterator[str]:
    span_s = max(timeline.end_ms - timeline.start_ms, 1) / 1000
    step_s = next((step for step in _STEPS_S if span_s / step <= 10), _STEPS_S[-1])
    count = int(span_s / step_s + 1e-9)
    backwards = relative_to == "end"
    for number in range(count + 1):
        offset_ms = round(number * step_s * 1000)
        x = scale.x(timeline.end_ms - offset_ms if backwards else timeline.start_ms + offset_ms)
        text = "now" if backwards and number == 0 else _offset(number * step_s, step_s, "−" if backwards else "")
        anchor = "end" if x > scale.right - 16 else "middle"
        yield tag("path", "", d=f"M{num(x)} {num(top)}V{num(bottom)}", class_="grid")
        yield tag("text", text, x=num(x), y=num(bottom + 15), text_anchor=anchor, class_="dim")


def _offset(seconds: float, step_s: float, sign: str) -> str:
    """In the unit of the step, so that one axis has one unit."""
    if step_s >= 60:
        return f"{sign}{seconds / 60:g} min"
    return f"{sign}{seconds:g} s"
