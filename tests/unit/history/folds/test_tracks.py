"""Throughput and lag as few lines as can be told apart, on the time axis of the timeline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from connectx.history.folds.rates import LagSample
from connectx.history.folds.tracks import MOST, Samples, busiest, tracks
from connectx.history.render.figure import timeline_figure
from connectx.history.render.report import write_report
from connectx.history.render.svg import timeline_svg
from connectx.history.render.timeline import timeline
from connectx.model.ids import TaskId
from tests.support.histories import START_MS, kill_of_source, pause_with_fence

IN_0, OUT_0 = TaskId("flights-in", 0), TaskId("flights-out", 0)
SAMPLES = Samples(
    {IN_0: [(START_MS + 1_000 * second, 100 * (second if second < 10 else 10)) for second in range(21)]},
    [LagSample(START_MS + 2_000, OUT_0, 40), LagSample(START_MS + 12_000, OUT_0, 900)],
)


def test_an_outage_is_a_dip_and_a_lag_holds_from_before_the_window() -> None:
    rates, lag = tracks(SAMPLES, START_MS + 8_000, START_MS + 15_000)
    assert [round(number or 0) for _, number in rates.lines[0].points] == [100, 100, 100, 0, 0, 0, 0, 0]
    assert lag.lines[0].points[0] == (START_MS + 8_000, 40)
    assert (rates.peak, lag.peak) == (100, 900)


def test_of_many_connectors_the_busiest_have_lines_and_the_others_are_one() -> None:
    counts = {TaskId(f"c{n}", 0): [(0, 0), (1_000, 10 * (n + 1))] for n in range(MOST + 3)}
    [rates] = tracks(Samples(counts, []), 0, 1_000)
    assert [line.connector for line in rates.lines] == [*(f"c{n}" for n in range(3, MOST + 3)), None]
    assert rates.lines[-1].points == ((1_000, 60.0),)


def test_a_page_gets_the_past_of_the_busiest_connectors() -> None:
    past = busiest(SAMPLES, START_MS + 15_000, 1)
    lags = [(START_MS + 2_000, 40), (START_MS + 12_000, 900), (START_MS + 15_000, 900)]
    assert past == {"flights-out": {"rate": [], "lag": lags}}
    assert busiest(SAMPLES, START_MS + 15_000, 9)["flights-in"]["rate"][-1] == (START_MS + 15_000, 0)


def test_nothing_sampled_is_no_track() -> None:
    assert tracks(Samples({}, []), 0, 1_000) == ()


def test_the_drawing_has_a_line_for_each_connector_and_guides_for_faults_and_fences() -> None:
    drawing = timeline_svg(timeline(pause_with_fence().events, samples=SAMPLES))
    assert re.findall(r'data-line="([^"]+)"', drawing) == ["flights-in", "flights-out"]
    assert re.findall(r'data-guide="([^"]+)"', drawing) == ["fault", "fault", "fenced"]
    assert "peak 900" in drawing
    assert "data-track" not in timeline_svg(timeline(pause_with_fence().events))


def test_the_figure_has_its_lines_on_the_same_time_axis() -> None:
    figure: Any = timeline_figure(kill_of_source().events, samples=SAMPLES)
    scatters = [trace for trace in figure.data if trace.type == "scatter" and trace.mode == "lines"]
    lines = [(trace.name, trace.yaxis, trace.xaxis, trace.line.shape) for trace in scatters]
    assert lines == [("flights-in", "y2", None, "vh"), ("flights-out", "y3", None, "hv")]
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis2.domain[1] > figure.layout.yaxis3.domain[1]


@pytest.mark.parametrize("samples", [None, SAMPLES])
def test_a_report_shows_them_too(tmp_path: Path, samples: Samples | None) -> None:
    page = write_report(kill_of_source().events, tmp_path / "page.html", samples=samples).read_text(encoding="utf-8")
    assert ("data-track" in page) is (samples is not None)
