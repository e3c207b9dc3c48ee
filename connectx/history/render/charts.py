"""Throughput, lag and latency as plotly figures, to zoom and explore; the data is in `rates` and `latency`.

plotly is imported when a figure is asked for, so that importing connectx stays fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from connectx.extras import require
from connectx.history.folds.latency import LatencySamples, latencies
from connectx.history.folds.rates import Counts, LagSample, Series, lags, throughput
from connectx.history.render.palette import colour
from connectx.history.render.timeline import MarkKind, Timeline, timeline
from connectx.history.sentences.stories import stories
from connectx.model.events import Event

if TYPE_CHECKING:
    import plotly.graph_objects as go


def throughput_figure(counts: Counts, events: Iterable[Event], now_ms: int) -> go.Figure:
    """Records a second over time (UTC): a line for each connector; its tasks are shown by a click in the legend."""
    return _figure(throughput(counts, now_ms), events, now_ms, "records/s", "linear", "No record has moved so far")


def lag_figure(samples: Sequence[LagSample], events: Iterable[Event], now_ms: int) -> go.Figure:
    """Lag of sinks over time (UTC): a line for each connector; its tasks are shown by a click in the legend."""
    empty = "No lag is known so far: no sink has run, or it has just begun"
    return _figure(lags(samples, now_ms), events, now_ms, "lag in records", "hv", empty)


def latency_figure(samples: LatencySamples, events: Iterable[Event], now_ms: int) -> go.Figure:
    """Milliseconds from record to commit over time (UTC): for each sink the median, and p99 as a dashed line."""
    require("A plotly figure", "notebook", "plotly")
    import plotly.graph_objects as go

    known = latencies(samples, now_ms)
    drawn = _drawn(events, [series.points[0][0] for series in known], now_ms)
    figure = go.Figure()
    for series in known:
        for column, (share, dash) in enumerate((("p50", "solid"), ("p99", "dash")), 1):
            figure.add_trace(
                go.Scatter(
                    x=[_time(point[0]) for point in series.points],
                    y=[point[column] for point in series.points],
                    mode="lines+markers",
                    marker={"size": 4},
                    name=f"{escape(series.connector)} {share}",
                    legendgroup=series.connector,
                    line={"color": _colour(series.connector, drawn), "dash": dash},
                    hovertemplate=f"{escape(series.connector)} {share}: %{{y:,.0f}} ms<extra></extra>",
                )
            )
    empty = "No latency is known so far: no sink has committed a record"
    floor = min((point[1] for series in known for point in series.points if point[1] is not None), default=1.0)
    _dress(figure, drawn, "ms from record to commit", empty, floor)
    figure.update_yaxes(type="log", rangemode="normal")
    return figure


def _figure(
    lines: Sequence[Series], events: Iterable[Event], now_ms: int, unit: str, shape: str, empty: str
) -> go.Figure:
    require("A plotly figure", "notebook", "plotly")
    import plotly.graph_objects as go

    drawn = _drawn(events, [series.points[0][0] for series in lines if series.points], now_ms)
    figure = go.Figure()
    for series in lines:
        is_task = series.task is not None
        name = f"{series.connector}-{series.task}" if is_task else series.connector
        figure.add_trace(
            go.Scatter(
                x=[_time(time_ms) for time_ms, _ in series.points],
                y=[number for _, number in series.points],
                mode="lines",
                name=escape(name),
                legendgroup=series.connector,
                visible="legendonly" if is_task else True,
                line={"color": _colour(series.connector, drawn), "shape": shape, "dash": "dot" if is_task else "solid"},
                hovertemplate=f"{escape(name)}: %{{y:,.0f}} {unit}<extra></extra>",
            )
        )
    _dress(figure, drawn, unit, empty)
    return figure


def _drawn(events: Iterable[Event], starts_ms: Sequence[int], now_ms: int) -> Timeline:
    """What happened from the earliest start to now."""
    listed, first_ms = list(events), min(starts_ms, default=now_ms)
    return timeline(listed, now_ms=now_ms, window_ms=now_ms - first_ms, stories=stories(listed))


def _colour(connector: str, drawn: Timeline) -> str:
    known = connector in drawn.connectors
    return colour(drawn.connectors.index(connector) if known else len(drawn.connectors))


def _dress(figure: go.Figure, drawn: Timeline, unit: str, empty: str, floor: float = 0.0) -> None:
    """Add rebalances, faults at the height `floor`, and axes; the sentence `empty` to a figure without lines."""
    from connectx.history.render.figure import AXIS, LAYOUT, add_bands

    figure.update_layout(LAYOUT, height=360, margin={"l": 70, "r": 10, "t": 40, "b": 50})
    figure.update_xaxes(AXIS, type="date", title_text="time (UTC)")
    figure.update_yaxes(AXIS, title_text=unit, rangemode="tozero", zeroline=False)
    if not figure.data:
        figure.add_annotation(text=empty, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper")
        return
    add_bands(figure, drawn)
    _add_faults(figure, drawn, floor)
    figure.update_xaxes(range=[_time(drawn.start_ms), _time(drawn.end_ms)])


def _add_faults(figure: go.Figure, drawn: Timeline, floor: float) -> None:
    """A dashed line for each fault, and a diamond on the time axis that names it."""
    import plotly.graph_objects as go

    marks = [*drawn.marks, *(mark for row in drawn.rows for mark in row.marks)]
    faults = sorted((mark for mark in marks if mark.kind is MarkKind.FAULT), key=lambda mark: mark.time_ms)
    if not faults:
        return
    for fault in faults:
        figure.add_vline(x=_time(fault.time_ms), line={"dash": "dot", "width": 1, "color": "#7b7b7b"})
    figure.add_trace(
        go.Scatter(
            x=[_time(fault.time_ms) for fault in faults],
            y=[floor] * len(faults),
            mode="markers",
            cliponaxis=False,
            marker={"symbol": "diamond", "size": 11, "color": "#111", "line": {"width": 2, "color": "#fff"}},
            text=[escape(fault.title) for fault in faults],
            hovertemplate="%{text}<extra></extra>",
            name="fault",
            showlegend=False,
        )
    )


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
