"""Numbers over time: records a second out of commits, lag out of samples, and the figures of both."""

from __future__ import annotations

from typing import Any

import pytest

from connectx.history.folds.rates import LagSample, lags, throughput
from connectx.history.render.charts import lag_figure, throughput_figure
from connectx.model.events import EventKind
from connectx.model.ids import TaskId
from tests.support.histories import START_MS, History, small_cluster

OUT_0, OUT_1 = TaskId("flights-out", 0), TaskId("flights-out", 1)


def committed(history: History, second: float, task: str, records: int) -> History:
    kind = EventKind.TRANSACTION_COMMITTED if task.startswith("flights-in") else EventKind.OFFSETS_COMMITTED
    return history.at(second).add(kind, "worker-1", task, records=records)


def rates(history: History) -> dict[str, list[float]]:
    return {
        series.connector if series.task is None else f"{series.connector}-{series.task}": [
            rate for _, rate in series.points if rate is not None
        ]
        for series in throughput(history.events)
    }


def test_records_of_a_commit_came_since_the_commit_before() -> None:
    history = small_cluster().at(10).state("worker-3", "flights-out-0", "RUNNING")
    for second, records in ((15.0, 500), (20.0, 1000)):
        committed(history, second, "flights-out-0", records)
    assert rates(history)["flights-out-0"] == [100, 100, 100, 100, 100, 200, 200, 200, 200, 200, 0]


def test_after_an_idle_time_records_came_in_the_last_ten_seconds_at_most() -> None:
    history = committed(committed(small_cluster(), 20, "flights-in-0", 10), 600, "flights-in-0", 1000)
    last = [rate for rate in rates(history)["flights-in-0"] if rate][-1]
    assert last >= 40, "ten seconds fall into six bins of two seconds"


@pytest.mark.parametrize("seconds", [3.0, 250.0, 5000.0])
def test_the_area_below_a_line_is_the_number_of_records(seconds: float) -> None:
    history = small_cluster().at(5).state("worker-2", "flights-in-0", "RUNNING")
    for part in range(1, 8):
        committed(history, 5 + part * seconds / 7, "flights-in-0", part * 7)
    points = next(series.points for series in throughput(history.events) if series.task == 0)
    bin_s = (points[1][0] - points[0][0]) / 1000
    assert sum(rate or 0 for _, rate in points) * bin_s == pytest.approx(7 * 28)
    assert len(points) <= 302


def test_tasks_add_up_to_their_connector_which_comes_first() -> None:
    history = committed(committed(small_cluster(), 5, "flights-out-0", 100), 5.5, "flights-out-1", 300)
    committed(history, 6, "flights-in-0", 7)
    shown = rates(history)
    assert list(shown) == ["flights-out", "flights-out-0", "flights-out-1", "flights-in", "flights-in-0"]
    both = [first + second for first, second in zip(shown["flights-out-0"], shown["flights-out-1"], strict=True)]
    assert shown["flights-out"] == pytest.approx(both)


def test_commits_without_records_are_no_throughput() -> None:
    assert throughput(committed(small_cluster(), 5, "flights-out-0", 0).events) == []
    assert throughput([]) == []


def test_lag_holds_until_it_changes_and_a_connectors_is_the_sum_of_what_is_known() -> None:
    samples = [LagSample(1, OUT_0, 5), LagSample(2, OUT_1, 7), LagSample(3, OUT_0, None), LagSample(4, OUT_1, None)]
    both, first, second = lags(samples, 9)
    assert both.points == ((1, 5), (2, 12), (3, 7), (4, None), (9, None))
    assert first.points == ((1, 5), (3, None), (9, None))
    assert (second.task, second.points) == (1, ((2, 7), (4, None), (9, None)))


def test_a_long_lag_keeps_its_peaks_and_its_end_in_few_points() -> None:
    samples = [LagSample(1_000 * second, OUT_0, second % 7) for second in range(50_000)]
    samples[31_234] = LagSample(31_234_000, OUT_0, 9_999)
    for line in lags(samples, 50_000_000):
        assert len(line.points) <= 602
        assert max(line.points, key=lambda point: point[1] or 0) == (31_234_000, 9_999)
        assert line.points[-1] == (50_000_000, 49_999 % 7)
        assert list(line.points) == sorted(line.points)


def test_figures_draw_connectors_in_the_timelines_colours_and_tasks_on_demand() -> None:
    history = committed(small_cluster(), 5, "flights-out-0", 100)
    figures: list[Any] = [
        throughput_figure(history.events),
        lag_figure([LagSample(START_MS, OUT_0, 5)], history.events, START_MS + 1),
    ]
    for figure in figures:
        drawn = [(trace.name, trace.visible, trace.line.color) for trace in figure.data]
        assert drawn == [("flights-out", True, "#56b4e9"), ("flights-out-0", "legendonly", "#56b4e9")]
    assert figures[0].layout.yaxis.title.text == "records/s"


def test_figures_without_data_say_so() -> None:
    assert throughput_figure([]).layout.annotations[0].text.startswith("Nothing has been committed")
    assert lag_figure([], [], 0).layout.annotations[0].text.startswith("No lag is known")
