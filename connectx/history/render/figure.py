"""Figures of plotly, to zoom and explore: the timeline, and throughput, lag and latency over time.

They draw a `Timeline`, as the SVG does for reports and panels. This module imports plotly: import it when a figure is
asked for, after `require`, so that importing connectx stays fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

import plotly.graph_objects as go

from connectx.history.folds.latency import LatencySamples, latencies
from connectx.history.folds.rates import Counts, LagSample, Series, lags, throughput
from connectx.history.folds.runs import RunState
from connectx.history.folds.tracks import Samples
from connectx.history.render.palette import colour
from connectx.history.render.svg import timeline_svg
from connectx.history.render.timeline import Bar, BarPart, Mark, MarkKind, Timeline, timeline
from connectx.history.sentences.stories import stories
from connectx.model.events import Event

_TEXT = "#7b7b7b"
"""Of text and lines: it has about the same contrast, 4.2, to a white page and to JupyterLab's dark one."""
_LAYOUT: dict[str, Any] = {
    "template": "none",
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"color": _TEXT},
    "hoverlabel": {"bgcolor": "#222", "font": {"color": "#fff"}},
}
"""Layout of a figure without a background, so that it takes the page's."""
_AXIS: dict[str, Any] = {
    "gridcolor": "rgba(127,127,127,0.25)",
    "linecolor": _TEXT,
    "tickcolor": _TEXT,
    "ticks": "outside",
}
_PATTERNS = {
    RunState.STARTING: ".",
    RunState.RUNNING: "",
    RunState.PAUSED: "|",
    RunState.FAILED: "x",
    RunState.ZOMBIE: "/",
}
_OPACITY = {RunState.RUNNING: 1.0, RunState.ZOMBIE: 0.55}
_LABELLED = (RunState.RUNNING, RunState.ZOMBIE)
_MARK_COLOURS: dict[MarkKind, dict[str, Any]] = {
    MarkKind.FAULT: {"color": "#111", "line": {"width": 2, "color": "#fff"}},
    MarkKind.FENCED: {"color": "#d8324a", "line": {"width": 3, "color": "#d8324a"}},
    MarkKind.ABORTED: {"color": _TEXT, "line": {"width": 3, "color": _TEXT}},
}
_LABELS: Final = 14
"""Generations that fit beside each other."""
_TRACK = 110
"""Pixels for a chart below the rows."""
_SCALE = 1.6
"""Pixels for one unit of the SVG's height: plotly's texts and markers are larger."""
_SYMBOLS = {MarkKind.FAULT: "diamond", MarkKind.FENCED: "y-down-open", MarkKind.ABORTED: "x-thin-open"}


class TimelineFigure(go.Figure):  # type: ignore[misc]  # plotly has no types
    """The figure where plotly can be shown, and the same timeline as a picture elsewhere (GitHub, nbconvert)."""

    _ipython_display_ = None  # plotly's own leaves the picture out,
    _repr_html_ = None  # and its HTML is a script from the network, which pages prefer to the picture
    _picture = ""

    def _repr_mimebundle_(self, *given: Any, **more: Any) -> dict[str, Any]:
        shown = super()._repr_mimebundle_(*given, **more)
        shown.pop("text/html", None)
        return {**shown, "image/svg+xml": self._picture, "text/plain": f"Timeline of {len(self.data)} bars and marks"}


def timeline_figure(
    events: Iterable[Event], *, since: int = 0, now_ms: int | None = None, samples: Samples | None = None
) -> TimelineFigure:
    """Tasks over workers: x is time (UTC), one row per worker, hover shows the titles of the SVG.

    The legend switches connectors on and off. Pattern is the state, as in the SVG. Time begins after event `since` and
    ends at `now_ms`, by default at the last event. Throughput and lag out of `samples` are below, on the same axis.
    """
    listed = list(events)
    end_ms = now_ms or (listed[-1].time_ms if listed else 0)
    start_ms = next((event.time_ms for event in listed if event.seq > since), end_ms)
    drawn = timeline(listed, now_ms=end_ms, window_ms=end_ms - start_ms, stories=stories(listed), samples=samples)
    figure = TimelineFigure()
    figure._picture = timeline_svg(drawn)
    for place, connector in enumerate(drawn.connectors):
        swatch = {"color": colour(place)}
        figure.add_trace(go.Bar(x=[None], y=[None], name=escape(connector), legendgroup=connector, marker=swatch))
    height = sum(row.height for row in drawn.rows)
    for row, top in drawn.placed():
        for bar in (*row.bars, *row.connector_bars):
            figure.add_traces([_bar(bar, part, top + row.top(bar), drawn) for part in bar.parts])
        figure.add_traces([_mark(mark, top + row.middle(mark)) for mark in row.marks])
    for mark in drawn.marks:  # what happened to the broker: a line across all workers
        _add_rule(figure, mark, "dash")
        figure.add_trace(_mark(mark, 0))
    _add_tracks(figure, drawn)
    _add_bands(figure, drawn)
    figure.update_layout(
        _LAYOUT,
        barmode="overlay",
        bargap=0,
        height=int(140 + _SCALE * height + _TRACK * len(drawn.tracks)),
        legend={"title": {"text": "connector"}},
        margin={"l": 80, "r": 10, "t": 40, "b": 50},
        uniformtext={"minsize": 9, "mode": "hide"},
    )
    figure.update_yaxes(
        selector=0,
        range=[height, 0],
        domain=[1 - _share(drawn, height), 1],
        tickvals=[top + row.height / 2 for row, top in drawn.placed()],
        ticktext=[escape(row.worker) for row in drawn.rows],
        showgrid=False,
        zeroline=False,
        automargin=True,
    )
    figure.update_xaxes(_AXIS, type="date", range=[_time(drawn.start_ms), _time(drawn.end_ms)], title_text="time (UTC)")
    figure.update_xaxes(anchor=f"y{len(drawn.tracks) + 1}" if drawn.tracks else "y")
    return figure


def _share(drawn: Timeline, height: int) -> float:
    """The part of the figure's height that the rows take."""
    return _SCALE * height / max(_SCALE * height + _TRACK * len(drawn.tracks), 1)


def _add_tracks(figure: go.Figure, drawn: Timeline) -> None:
    """Lines of throughput and lag below the rows, on the same time axis, with lines for faults and fences."""
    below = 1 - _share(drawn, sum(row.height for row in drawn.rows))
    each = below / max(len(drawn.tracks), 1)
    for number, track in enumerate(drawn.tracks):
        axis, top = number + 2, below - number * each
        for line in track.lines:
            name, group = line.connector or "others", line.connector
            look = {"color": drawn.colour(group) or _TEXT, "shape": "hv" if track.holds else "vh"}
            trace = _line(line.points, name, group, track.name, line=look, yaxis=f"y{axis}", showlegend=False)
            figure.add_trace(trace)
        spread = {"domain": [max(top - each, 0.0), top - 0.2 * each], "title": {"text": track.name}, "anchor": "x"}
        figure.update_layout({f"yaxis{axis}": {**_AXIS, **spread, "rangemode": "tozero", "zeroline": False}})
    for mark in drawn.guides() if drawn.tracks else ():
        _add_rule(figure, mark, "dot", yref="paper", y1=below)


def throughput_figure(counts: Counts, events: Iterable[Event], now_ms: int) -> go.Figure:
    """Records a second over time (UTC): a line for each connector; its tasks are shown by a click in the legend."""
    return _chart(throughput(counts, now_ms), events, now_ms, "records/s", "linear", "No record has moved so far")


def lag_figure(samples: Sequence[LagSample], events: Iterable[Event], now_ms: int) -> go.Figure:
    """Lag of sinks over time (UTC): a line for each connector; its tasks are shown by a click in the legend."""
    empty = "No lag is known so far: no sink has run, or it has just begun"
    return _chart(lags(samples, now_ms), events, now_ms, "lag in records", "hv", empty)


def latency_figure(samples: LatencySamples, events: Iterable[Event], now_ms: int) -> go.Figure:
    """Milliseconds from record to commit over time (UTC): for each sink the median, and p99 as a dashed line."""
    known = latencies(samples, now_ms)
    drawn = _drawn(events, [series.points[0][0] for series in known], now_ms)
    figure = go.Figure()
    for series in known:
        for column, (share, dash) in enumerate((("p50", "solid"), ("p99", "dash")), 1):
            points = [(point[0], point[column]) for point in series.points]
            look = {"color": _colour(series.connector, drawn), "dash": dash}
            name = f"{series.connector} {share}"
            trace = _line(points, name, series.connector, "ms", line=look, mode="lines+markers", marker={"size": 4})
            figure.add_trace(trace)
    empty = "No latency is known so far: no sink has committed a record"
    floor = min((point[1] for series in known for point in series.points if point[1] is not None), default=1.0)
    _dress(figure, drawn, "ms from record to commit", empty, floor)
    figure.update_yaxes(type="log", rangemode="normal")
    return figure


def _chart(
    lines: Sequence[Series], events: Iterable[Event], now_ms: int, unit: str, shape: str, empty: str
) -> go.Figure:
    drawn = _drawn(events, [series.points[0][0] for series in lines if series.points], now_ms)
    figure = go.Figure()
    for series in lines:
        is_task = series.task is not None
        name = f"{series.connector}-{series.task}" if is_task else series.connector
        look = {"color": _colour(series.connector, drawn), "shape": shape, "dash": "dot" if is_task else "solid"}
        visible = "legendonly" if is_task else True
        figure.add_trace(_line(series.points, name, series.connector, unit, line=look, visible=visible))
    _dress(figure, drawn, unit, empty)
    return figure


def _drawn(events: Iterable[Event], starts_ms: Sequence[int], now_ms: int) -> Timeline:
    """What happened from the earliest start to now."""
    listed, first_ms = list(events), min(starts_ms, default=now_ms)
    return timeline(listed, now_ms=now_ms, window_ms=now_ms - first_ms, stories=stories(listed))


def _colour(connector: str, drawn: Timeline) -> str:
    return drawn.colour(connector) or colour(len(drawn.connectors))


def _dress(figure: go.Figure, drawn: Timeline, unit: str, empty: str, floor: float = 0.0) -> None:
    """Add rebalances, faults at the height `floor`, and axes; the sentence `empty` to a figure without lines."""
    figure.update_layout(_LAYOUT, height=360, margin={"l": 70, "r": 10, "t": 40, "b": 50})
    figure.update_xaxes(_AXIS, type="date", title_text="time (UTC)")
    figure.update_yaxes(_AXIS, title_text=unit, rangemode="tozero", zeroline=False)
    if not figure.data:
        figure.add_annotation(text=empty, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper")
        return
    _add_bands(figure, drawn)
    for fault in (mark for mark in drawn.all_marks() if mark.kind is MarkKind.FAULT):
        _add_rule(figure, fault, "dot")
        figure.add_trace(_mark(fault, floor))
    figure.update_xaxes(range=[_time(drawn.start_ms), _time(drawn.end_ms)])


def _add_bands(figure: go.Figure, drawn: Timeline) -> None:
    """Add the rebalances. Generations are above the plot, as many as fit beside each other."""
    room_ms = (drawn.end_ms - drawn.start_ms) // _LABELS
    labelled_ms: int | None = None
    for band in drawn.bands:
        name = ""
        if band.generation is not None and (labelled_ms is None or band.start_ms - labelled_ms >= room_ms):
            name, labelled_ms = f"gen {band.generation}", band.start_ms
        figure.add_shape(
            type="rect",
            x0=_time(drawn.clip(band.start_ms)),
            x1=_time(drawn.clip(band.end_ms)),
            y0=0,
            y1=1,
            yref="paper",
            fillcolor="#8b8b99",
            opacity=0.3,
            line_width=0,
            layer="below",
        )
        if name:
            at_end = drawn.end_ms - drawn.clip(band.start_ms) < room_ms
            figure.add_annotation(
                text=name,
                x=_time(drawn.clip(band.start_ms)),
                y=1,
                yref="paper",
                yanchor="bottom",
                xanchor="right" if at_end else "left",
                showarrow=False,
            )


def _bar(bar: Bar, part: BarPart, top: int, drawn: Timeline) -> go.Bar:
    start_ms, end_ms = drawn.clip(part.start_ms), drawn.clip(part.end_ms)
    return go.Bar(
        orientation="h",
        base=[_time(start_ms)],
        x=[max(end_ms - start_ms, 1)],
        y=[top + bar.height / 2],
        width=[bar.height],
        marker={
            "color": bar.colour,
            "pattern": {"shape": _PATTERNS[part.state], "fgcolor": "#444", "bgcolor": bar.colour},
            "line": {"width": 0 if part.state is RunState.RUNNING else 1, "color": "#444"},
        },
        opacity=_OPACITY.get(part.state, 0.6),
        text=[escape(bar.label) if bar.task is not None and part.state in _LABELLED else ""],
        textposition="inside",
        insidetextanchor="start",
        hovertemplate=f"{escape(part.title(drawn.end_ms))}<extra></extra>",
        name=escape(bar.connector),
        legendgroup=bar.connector,
        showlegend=False,
    )


def _mark(mark: Mark, middle: float) -> go.Scatter:
    return go.Scatter(
        x=[_time(mark.time_ms)],
        y=[middle],
        mode="markers",
        cliponaxis=False,
        marker={"symbol": _SYMBOLS[mark.kind], "size": 13, **_MARK_COLOURS[mark.kind]},
        hovertemplate=f"{escape(mark.title)}<extra></extra>",
        name=mark.kind.value,
        showlegend=False,
    )


def _add_rule(figure: go.Figure, mark: Mark, dash: str, yref: str = "y domain", y1: float = 1.0) -> None:
    """A vertical line at a mark, red for a fence."""
    at, red = _time(mark.time_ms), mark.kind is MarkKind.FENCED
    line = {"dash": dash, "width": 1, "color": _MARK_COLOURS[mark.kind]["color"] if red else _TEXT}
    figure.add_shape(type="line", x0=at, x1=at, y0=0, y1=y1, yref=yref, line=line)


def _line(
    points: Iterable[tuple[int, float | None]], name: str, group: str | None, unit: str, **look: Any
) -> go.Scatter:
    """A number over time. `group` is its connector, `look` what plotly draws it with."""
    drawn = list(points)
    return go.Scatter(
        **{"mode": "lines", **look},
        x=[_time(time_ms) for time_ms, _ in drawn],
        y=[number for _, number in drawn],
        name=escape(name),
        legendgroup=group,
        hovertemplate=f"{escape(name)}: %{{y:,.0f}} {unit}<extra></extra>",
    )


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
