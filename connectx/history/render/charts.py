"""Throughput and lag as plotly figures, to zoom and explore; the data behind them is in `rates`.

plotly is imported when a figure is asked for, so that importing connectx stays fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from connectx.extras import require
from connectx.history.folds.rates import LagSample, Series, lags, throughput
from connectx.history.render.palette import colour
from connectx.model.events import Event

if TYPE_CHECKING:
    import plotly.graph_objects as go


def throughput_figure(events: Iterable[Event]) -> go.Figure:
    """Records a second over time (UTC): a line for each connector; its tasks are shown by a click in the legend."""
    listed = list(events)
    empty = "Nothing has been committed so far"
    return _figure(throughput(listed), _order(listed), "records/s", "linear", empty)


def lag_figure(samples: Sequence[LagSample], events: Iterable[Event], now_ms: int) -> go.Figure:
    """Records that sinks are behind over time (UTC): a line for each connector; tasks by a click in the legend."""
    empty = "No lag is known so far: no sink has run, or it has just begun"
    return _figure(lags(samples, now_ms), _order(events), "lag in records", "hv", empty)


def _order(events: Iterable[Event]) -> list[str]:
    """Connectors by first appearance, which decides their colours, as in the timeline."""
    return list(dict.fromkeys(event.connector for event in events if event.connector is not None))


def _figure(lines: Sequence[Series], order: Sequence[str], unit: str, shape: str, empty: str) -> go.Figure:
    require("A plotly figure", "notebook", "plotly")
    import plotly.graph_objects as go

    figure = go.Figure()
    for series in lines:
        is_task = series.task is not None
        name = f"{series.connector}-{series.task}" if is_task else series.connector
        place = order.index(series.connector) if series.connector in order else len(order)
        figure.add_trace(
            go.Scatter(
                x=[datetime.fromtimestamp(time_ms / 1000, UTC) for time_ms, _ in series.points],
                y=[number for _, number in series.points],
                mode="lines",
                name=escape(name),
                legendgroup=series.connector,
                visible="legendonly" if is_task else True,
                line={"color": colour(place), "shape": shape, "dash": "dot" if is_task else "solid"},
                hovertemplate=f"{escape(name)}: %{{y:,.0f}} {unit}<extra></extra>",
            )
        )
    if not lines:
        figure.add_annotation(text=empty, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper")
    figure.update_layout(template="plotly_white", height=360, margin={"l": 10, "r": 10, "t": 30, "b": 10})
    figure.update_xaxes(type="date", title_text="time (UTC)")
    figure.update_yaxes(title_text=unit, rangemode="tozero")
    return figure
