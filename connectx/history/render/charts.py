"""Throughput and lag as plotly figures, to zoom and explore; the data behind them is in `rates`.

plotly is imported when a figure is asked for, so that importing connectx stays fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from connectx.extras import require
from connectx.history.folds.rates import Counts, LagSample, Series, lags, throughput
from connectx.history.render.palette import colour
from connectx.history.render.timeline import MarkKind, Timeline, timeline
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


def _figure(
    lines: Sequence[Series], events: Iterable[Event], now_ms: int, unit: str, shape: str, empty: str
) -> go.Figure:
    require("A plotly figure", "notebook", "plotly")
    import plotly.graph_objects as go

    from connectx.history.render.figure import AXIS, LAYOUT, add_bands

    listed = list(events)
    first_ms = min((series.points[0][0] for series in lines if series.points), default=now_ms)
    drawn = timeline(listed, now_ms=now_ms, window_ms=now_ms - first_ms)
    figure = go.Figure()
    for series in lines:
        is_task = series.task is not None
        name = f"{series.connector}-{series.task}" if is_task else series.connector
        known = series.connector in drawn.connectors
        place = drawn.connectors.index(series.connector) if known else len(drawn.connectors)
        figure.add_trace(
            go.Scatter(
                x=[_time(time_ms) for time_ms, _ in series.points],
                y=[number for _, number in series.points],
                mode="lines",
                name=escape(name),
                legendgroup=series.connector,
                visible="legendonly" if is_task else True,
                line={"color": colour(place), "shape": shape, "dash": "dot" if is_task else "solid"},
                hovertemplate=f"{escape(name)}: %{{y:,.0f}} {unit}<extra></extra>",
            )
        )
    if lines:
        add_bands(figure, drawn)
        _add_faults(figure, drawn)
        figure.update_xaxes(range=[_time(first_ms), _time(now_ms)])
    else:
        figure.add_annotation(text=empty, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper")
    figure.update_layout(LAYOUT, height=360, margin={"l": 70, "r": 10, "t": 40, "b": 50})
    figure.update_xaxes(AXIS, type="date", title_text="time (UTC)")
    figure.update_yaxes(AXIS, title_text=unit, rangemode="tozero", zeroline=False)
    return figure


def _add_faults(figure: go.Figure, drawn: Timeline) -> None:
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
            y=[0] * len(faults),
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
