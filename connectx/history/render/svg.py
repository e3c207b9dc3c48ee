"""A `Timeline` as inline SVG: no script, nothing from outside, readable offline and without colour vision. Pure.

Every element has a `<title>` and data attributes (`data-worker`, `data-task`, `data-event`: the sequence number of the
event that began it). Text, background and signs follow Jupyter's theme variables, and `prefers-color-scheme` elsewhere.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from html import escape
from zlib import crc32

from connectx.history.folds.runs import RunState
from connectx.history.folds.tracks import Line, Track
from connectx.history.render.shapes import (
    AXIS,
    BAND_LABELS,
    BAR,
    CHAR,
    PATTERNS,
    SIGNS,
    STEPS_S,
    STYLE,
    TRACK,
    TRACK_PAD,
    draw,
    legend,
    num,
)
from connectx.history.render.timeline import Bar, BarPart, Mark, MarkKind, Row, Timeline
from connectx.history.wording import shorten
from connectx.values import Value

_HEADER = 24
_RIGHT = 14
_GUTTER_LEAST, _GUTTER_MOST = 92, 190
_LIGHT = ("#fff", "#1b1b1b", "#666", "#8b8b99", "#c4001a")
_DARK = ("#1e1e1e", "#ececec", "#a5a5a5", "#9a9aae", "#ff7a85")


class _Scale(Value):
    timeline: Timeline
    left: float
    right: float

    def x(self, time_ms: int | None) -> float:
        """Of a moment, clipped to the window; None is its end."""
        span = max(self.timeline.end_ms - self.timeline.start_ms, 1)
        return self.left + (self.timeline.clip(time_ms) - self.timeline.start_ms) / span * (self.right - self.left)

    def width(self, part: BarPart) -> float:
        return self.x(part.end_ms) - self.x(part.start_ms)


def timeline_svg(timeline: Timeline, *, width: int = 960) -> str:
    """Draw `timeline` as one `<svg>` element.

    Args:
        timeline: what to draw.
        width: of the drawing in its own units; it scales to the width of the page.
    """
    gutter = min(max([_GUTTER_LEAST, *(34 + 7 * len(row.worker) for row in timeline.rows)]), _GUTTER_MOST)
    scale = _Scale(timeline, gutter, width - _RIGHT)
    key = f"cx{crc32(repr(timeline).encode()):08x}"
    top = _HEADER + BAND_LABELS
    rows = list(timeline.placed(top))
    middle = top + sum(row.height for row in timeline.rows)
    bottom = middle + TRACK * len(timeline.tracks)
    parts = [
        f"<style>{_variables()}{STYLE}.cxt .bg{{fill:var(--cb)}}</style>",
        PATTERNS.format(key=key),
        _tag("rect", "", width=width, height=bottom + AXIS, rx=4, class_="bg"),
        *_legend(width, key),
        *(_tag("rect", "", y=y, width=width, height=row.height, class_="alt") for row, y in rows[1::2]),
        *_bands(timeline, top, bottom, scale),
        *_axis(timeline, top, bottom, scale),
        *(_gutter(row, y, gutter) for row, y in rows),
        *(text for row, y in rows for text in _bars(row, y, scale, key)),
        *(text for row, y in rows for text in _marks(row, y, scale)),
        *_cluster_marks(timeline, top, bottom, scale),
        *(
            text
            for number, track in enumerate(timeline.tracks)
            for text in _track(track, middle + number * TRACK, scale)
        ),
        *(_guide(mark, middle, bottom, scale) for mark in timeline.guides() if timeline.tracks),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="cxt" viewBox="0 0 {width} {bottom + AXIS}" width="100%"'
        f' role="group" aria-label="{_name(timeline)}" style="max-width:{width * 1.4:.0f}px">{"".join(parts)}</svg>'
    )


def timeline_image(timeline: Timeline, *, width: int = 960) -> str:
    """`timeline` as one `<img>` that holds its drawing.

    For notebooks: GitHub, and JupyterLab until a notebook is trusted, remove the tags of inline SVG and keep its texts
    in one run. An image stays, or leaves its `alt`; it has no sentences to point at.
    """
    drawing = timeline_svg(timeline, width=width).replace('width="100%"', f'width="{width}"', 1)
    data = b64encode(drawing.encode()).decode("ascii")
    return f'<img alt="{_name(timeline)}" style="max-width:100%" src="data:image/svg+xml;base64,{data}">'


def _name(timeline: Timeline) -> str:
    return escape(f"timeline of {len(timeline.rows)} workers, {len(timeline.connectors)} connectors")


def _variables() -> str:
    """The colours: Jupyter's variables where they are, the reader's colour scheme elsewhere."""
    light, dark = (
        f"--cb:var(--jp-layout-color1,{background});--cf:var(--jp-content-font-color1,{text});"
        f"--cd:var(--jp-content-font-color2,{dim});--cr:{band};--cx:{red}"
        for background, text, dim, band, red in (_LIGHT, _DARK)
    )
    return f".cxt{{{light}}}@media(prefers-color-scheme:dark){{.cxt{{{dark}}}}}"


def _tag(name: str, body: str, **attributes: object) -> str:
    """An element; `class_` is class, other underscores are hyphens, attributes that are None are left out."""
    text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(num(value) if isinstance(value, float) else str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{text}>{body}</{name}>" if body else f"<{name}{text}/>"


def _group(title: str, body: str, **data: object) -> str:
    """Shapes with the sentence that they show on hover."""
    return _tag("g", _tag("title", escape(title)) + body, **data)


def _legend(width: float, key: str) -> Iterator[str]:
    """One line of the real shapes with their names, right-aligned."""
    items = legend(key)
    widths = [36 + CHAR * len(item["name"]) for item in items]
    x = width - sum(widths) - 4
    for item, item_width in zip(items, widths, strict=True):
        body = item["sample"] + _tag("text", item["name"], x=24, y=12, class_="dim")
        yield _tag("g", _tag("title", item["meaning"]) + body, transform=f"translate({num(x)} 5)")
        x += item_width


def _gutter(row: Row, y: float, gutter: float) -> str:
    leads = ", leader" if row.is_leader else ""
    middle = y + min(row.height, 44) / 2
    return _group(
        f"{row.worker}: {row.standing.description}{leads}",
        _tag("text", SIGNS[row.state], x=10, y=middle - 2)
        + _tag("text", escape(shorten(row.worker, int((gutter - 30) / 7))), x=24, y=middle - 2, class_="b")
        + _tag("text", escape(row.state.value + leads), x=24, y=middle + 12, class_="dim"),
        data_worker=row.worker,
        data_state=row.state.value,
    )


def _bars(row: Row, y: float, scale: _Scale, key: str) -> Iterator[str]:
    for bar in (*row.bars, *row.connector_bars):
        yield from (_part(row, bar, part, y, scale, key) for part in bar.parts)
    by_lane = sorted(row.bars, key=lambda bar: (bar.lane, bar.start_ms))
    around = [None, *by_lane, None]
    for before, bar, after in zip(around, by_lane, around[2:], strict=False):
        left = scale.x(before.end_ms) if before and before.lane == bar.lane else scale.left
        right = scale.x(after.start_ms) if after and after.lane == bar.lane else scale.right
        yield _label(bar, y + row.top(bar) + BAR - 3.5, scale, left, right)


def _part(row: Row, bar: Bar, part: BarPart, y: float, scale: _Scale, key: str) -> str:
    size = {"width": max(scale.width(part), 1.5), "height": bar.height}
    body = draw(part.state, key, bar.colour, x=scale.x(part.start_ms), y=y + row.top(bar), **size)
    data = {"data_worker": row.worker, "data_task": bar.label, "data_event": part.seq, "data_state": part.state.value}
    return _group(part.title(scale.timeline.end_ms), body, **data)


def _label(bar: Bar, y: float, scale: _Scale, before: float, after: float) -> str:
    """The name of the task: in its widest part, else right of the bar, else left of it, else shortened."""
    needed = len(bar.label) * CHAR + 8
    texts = []
    for part in _labelled_parts(bar, scale, needed):
        text = escape(shorten(bar.label, int((scale.width(part) - 8) / CHAR)))
        fill = {"fill": bar.text_colour} if part.state is RunState.RUNNING else {"class_": "h"}
        if part.state is RunState.ZOMBIE:
            fill = {"class_": "h b"}
        texts.append(_tag("text", text, x=scale.x(part.start_ms) + 4, y=y, **fill))
    if texts:
        return "".join(texts)
    start, end = scale.x(bar.start_ms), scale.x(bar.end_ms)
    if after - end >= needed:
        return _tag("text", escape(bar.label), x=end + 4, y=y, class_="h")
    if start - before >= needed:
        return _tag("text", escape(bar.label), x=start - 4, y=y, class_="h", text_anchor="end")
    return ""


def _labelled_parts(bar: Bar, scale: _Scale, needed: float) -> list[BarPart]:
    """Parts that carry the name: the first with room for it (else the widest with room for some), and a zombie's."""
    roomy = [part for part in bar.parts if scale.width(part) >= needed]
    if roomy:
        least = min(needed, 10 * CHAR)
        rest = [part for part in bar.parts if part is not roomy[0] and part.state is RunState.ZOMBIE]
        return [roomy[0], *(part for part in rest if scale.width(part) >= least)]
    widest = max(bar.parts, key=scale.width)
    return [widest] if scale.width(widest) >= 5 * CHAR + 8 else []


def _track(track: Track, y: float, scale: _Scale) -> Iterator[str]:
    """The name of the track and its highest number, and its lines."""
    base, room = y + TRACK - 1, TRACK - TRACK_PAD - 1
    yield _tag("path", "", d=f"M{num(scale.left)} {num(base)}H{num(scale.right)}", class_="edge")
    yield _tag("text", track.name, x=24, y=y + TRACK / 2 - 2, class_="b")
    yield _tag("text", f"peak {track.peak:,.0f}", x=24, y=y + TRACK / 2 + 12, class_="dim")
    for line in track.lines:
        path = _steps(track, line, base, room, scale)
        name = line.connector or "others"
        stroke = scale.timeline.colour(line.connector)
        look = {"class_": "line others"} if stroke is None else {"class_": "line", "stroke": stroke}
        yield _group(f"{name}: {track.name}", _tag("path", "", d=path, **look), data_track=track.name, data_line=name)


def _steps(track: Track, line: Line, base: float, room: float, scale: _Scale) -> str:
    """A path of steps, with gaps where nothing is known."""
    parts: list[str] = []
    before: tuple[float, float] | None = None
    for time_ms, number in line.points:
        x = scale.x(time_ms)
        y = None if number is None else base - number / max(track.peak, 1) * room
        if before is not None and track.holds:
            parts.append(f"H{num(x)}")
        if y is None:
            before = None
            continue
        if before is None:
            parts.append(f"M{num(x)} {num(y)}")
        elif track.holds:
            parts.append(f"V{num(y)}")
        else:
            parts.append(f"V{num(y)}H{num(x)}")
        before = (x, y)
    return "".join(parts)


def _guide(mark: Mark, top: float, bottom: float, scale: _Scale) -> str:
    red = " x" if mark.kind is MarkKind.FENCED else ""
    line = _tag("path", "", d=f"M{num(scale.x(mark.time_ms))} {num(top)}V{num(bottom)}", class_=f"guide{red}")
    return _group(mark.title, line, data_guide=mark.kind.value)


def _marks(row: Row, y: float, scale: _Scale) -> Iterator[str]:
    for mark in row.marks:
        body = draw(mark.kind, x=scale.x(mark.time_ms), y=y + row.middle(mark))
        yield _group(mark.title, body, data_worker=row.worker, data_task=mark.task, **_mark_data(mark))


def _cluster_marks(timeline: Timeline, top: float, bottom: float, scale: _Scale) -> Iterator[str]:
    """What happened to the broker: a line across all workers, with the sign on top of it."""
    for mark in timeline.marks:
        x = scale.x(mark.time_ms)
        body = draw("everywhere", x=x, y=top, height=bottom - top) + draw(mark.kind, x=x, y=top)
        yield _group(mark.title, body, **_mark_data(mark))


def _mark_data(mark: Mark) -> dict[str, object]:
    return {"data_event": mark.seq, "data_mark": mark.kind.value}


def _bands(timeline: Timeline, top: float, bottom: float, scale: _Scale) -> Iterator[str]:
    label_end = 0.0
    for band in timeline.bands:
        x = scale.x(band.start_ms)
        body = draw("rebalance", x=x, y=top, width=max(scale.x(band.end_ms) - x, 2), height=bottom - top)
        text = "gen ?" if band.generation is None else f"gen {band.generation}"
        if x < label_end:
            text = text.removeprefix("gen ")
        at = min(max(x, label_end), scale.right + _RIGHT - len(text) * CHAR)
        if label_end <= at <= x + 4 * CHAR:  # a little to the right of its band is better than no number
            body += _tag("text", text, x=at, y=top - 5, class_="dim")
            label_end = at + len(text) * CHAR + 5
        yield _group(band.title, body, data_event=band.seq, data_generation=band.generation)


def _axis(timeline: Timeline, top: float, bottom: float, scale: _Scale) -> Iterator[str]:
    span_s = max(timeline.end_ms - timeline.start_ms, 1) / 1000
    step_s = next((step for step in STEPS_S if span_s / step <= 10), STEPS_S[-1])
    for number in range(int(span_s / step_s + 1e-9) + 1):
        seconds = number * step_s
        x = scale.x(timeline.start_ms + round(seconds * 1000))
        text = f"{seconds / 60:g} min" if step_s >= 60 else f"{seconds:g} s"
        anchor = "end" if x > scale.right - 16 else "middle"
        yield _tag("path", "", d=f"M{num(x)} {num(top)}V{num(bottom)}", class_="grid")
        yield _tag("text", text, x=x, y=bottom + 15, text_anchor=anchor, class_="dim")
