"""Throughput and lag under the bars of the panel, on a plain page: what a fault cost is seen at a glance."""

from __future__ import annotations

import pytest

from connectx.history.folds.rates import LagSample
from connectx.history.folds.tracks import Samples
from connectx.model.events import Event, EventKind
from connectx.model.ids import TaskId
from tests.support.histories import kill_of_source, small_cluster
from tests.support.stage import Show, shoot


def sampled(events: list[Event]) -> Samples:
    """400 records/s into the topic and out of it, none for 6 s after the fault; then the sink is behind."""
    fault_ms = next(event.time_ms for event in events if event.kind is EventKind.FAULT_INJECTED)
    begin_ms = events[0].time_ms
    counts, moved = [(begin_ms, 0)], 0
    for time_ms in range(begin_ms + 500, events[-1].time_ms, 500):
        moved += 0 if fault_ms < time_ms < fault_ms + 6_000 else 200
        counts.append((time_ms, moved))
    out = [(time_ms + 1_000, count) for time_ms, count in counts]
    known = ((begin_ms, 400), (fault_ms + 500, 0), (fault_ms + 6_000, 700))
    lags = [LagSample(time_ms, TaskId("flights-out", 0), lag) for time_ms, lag in known]
    return Samples({TaskId("flights-in", 0): counts, TaskId("flights-out", 0): out}, lags)


@pytest.mark.parametrize(("width", "theme"), [(1300, "light"), (620, "dark")])
def test_a_kill_is_a_dip_below_its_bars_with_a_guide_on_it(show: Show, width: int, theme: str) -> None:
    stage = show(kill_of_source(), width=width, theme=theme, samples=sampled)
    stage.until('.cxp-track:has-text("records/s")')
    stage.until('.cxp-track:has-text("lag"):has-text("peak 700")')
    lines = stage.page.locator('.cxp-svg [data-track="records/s"]')
    assert lines.evaluate_all("nodes => nodes.map(node => node.dataset.line)") == ["flights-in", "flights-out"]
    assert stage.page.locator('.cxp-svg [data-guide="fault"]').count() == 1
    heights = lines.first.evaluate(
        "node => [...new Set([...node.getAttribute('d').matchAll(/V([\\d.]+)/g)].map(([, y]) => Number(y)))]"
    )
    assert max(heights) - min(heights) > 30, "it falls to the ground"
    # One call, because a node that the panel replaces between finding and measuring it has no height.
    gutter_px, plot_px = stage.page.evaluate(
        "() => ['.cxp-gutter', '.cxp-svg svg'].map(at => document.querySelector(at).getBoundingClientRect().height)"
    )
    assert 0 < gutter_px <= plot_px
    shoot(stage.page, f"panel-tracks-{width}")


def test_records_that_move_while_the_panel_is_open_become_a_line(show: Show) -> None:
    stage = show(small_cluster())
    for records in (0, 300):
        stage.cluster.runs("worker-2", {"flights-in-0": {"records": records}})
        stage.cluster.commit("flights-in-0", 7)
        stage.until(f'tr[data-connector="flights-in"]:has-text("{14 if records else 7}")')
    stage.until('.cxp-svg [data-track="records/s"][data-line="flights-in"]')
