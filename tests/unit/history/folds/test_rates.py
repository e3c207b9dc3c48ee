"""Numbers over time: records a second and lag out of samples, and the figures of both."""

from __future__ import annotations

from typing import Any

import pytest

from connectx.history.folds.rates import LagSample, RecordCounter, lags, throughput
from connectx.history.render.figure import lag_figure, throughput_figure
from connectx.model.ids import TaskId
from tests.support.histories import START_MS, kill_of_source, small_cluster

IN_0, OUT_0, OUT_1 = TaskId("flights-in", 0), TaskId("flights-out", 0), TaskId("flights-out", 1)


def every_second(*counts: int) -> list[tuple[int, int]]:
    return [(START_MS + 1_000 * second, count) for second, count in enumerate(counts)]


def rates(counts: dict[TaskId, list[tuple[int, int]]], seconds: float) -> dict[str, list[float]]:
    return {
        series.connector if series.task is None else f"{series.connector}-{series.task}": [
            rate for _, rate in series.points if rate is not None
        ]
        for series in throughput(counts, START_MS + round(seconds * 1_000))
    }


def test_a_rate_is_what_moved_within_a_second_and_an_outage_is_a_dip() -> None:
    counts = {OUT_0: every_second(0, 300, 600, 600, 600, 600, 900, 1200)}
    assert rates(counts, 7)["flights-out-0"] == [300, 300, 0, 0, 0, 300, 300]


def test_a_sinks_line_is_never_before_its_sources() -> None:
    counts = {IN_0: every_second(0, 0, 200, 400), OUT_0: every_second(0, 0, 0, 200)}
    shown = rates(counts, 3)
    assert (shown["flights-in"], shown["flights-out"]) == ([0, 200, 200], [0, 0, 200])


def test_lines_reach_to_now_and_stay_at_zero_only_while_nothing_moves() -> None:
    busy = throughput({IN_0: every_second(0, 100, 200)}, START_MS + 2_000)[0]
    assert busy.points[-1] == (START_MS + 2_000, 100)
    idle = throughput({IN_0: every_second(0, 100, 200)}, START_MS + 60_000)[0]
    assert idle.points[-1] == (START_MS + 60_000, 0)


@pytest.mark.parametrize("seconds", [3.0, 250.0, 5000.0])
def test_the_area_below_a_line_is_the_number_of_records(seconds: float) -> None:
    counts = [(START_MS + round(part * seconds * 1000 / 7), part * 49) for part in range(8)]
    points = next(series.points for series in throughput({IN_0: counts}, counts[-1][0]) if series.task == 0)
    bin_s = (points[1][0] - points[0][0]) / 1000
    assert sum(rate or 0 for _, rate in points) * bin_s == pytest.approx(7 * 49)
    assert len(points) <= 302


def test_tasks_add_up_to_their_connector_which_comes_first() -> None:
    shown = rates({OUT_0: every_second(0, 100), OUT_1: every_second(0, 300), IN_0: every_second(0, 7)}, 1)
    assert list(shown) == ["flights-out", "flights-out-0", "flights-out-1", "flights-in", "flights-in-0"]
    assert shown["flights-out"] == [400]


def test_tasks_that_moved_nothing_are_no_throughput() -> None:
    assert throughput({IN_0: every_second(0, 0)}, START_MS) == []
    assert throughput({}, START_MS) == []


def test_a_counter_adds_up_instances_and_knows_what_zombies_moved() -> None:
    counter = RecordCounter()
    counter.take([("worker-1", "in-0", 10)])
    counter.take([("worker-1", "in-0", 4)])  # restarted
    counter.take([("worker-1", "in-0", 9), ("worker-2", "in-0", 3)])
    assert (counter.moved, counter.of_zombies) == ({"in-0": 10 + 4 + 5 + 3}, {"in-0": 5})
    counter.take([])
    counter.take([("worker-1", "in-0", 9), ("worker-2", "in-0", 5)])
    assert counter.moved == {"in-0": 24}


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
    now_ms = START_MS + 5_000
    figures: list[Any] = [
        throughput_figure({OUT_0: every_second(0, 100)}, small_cluster().events, now_ms),
        lag_figure([LagSample(START_MS, OUT_0, 5)], small_cluster().events, now_ms),
    ]
    for figure in figures:
        drawn = [(trace.name, trace.visible, trace.line.color) for trace in figure.data]
        assert drawn == [("flights-out", True, "#56b4e9"), ("flights-out-0", "legendonly", "#56b4e9")]
        assert figure.layout.xaxis.range[1].timestamp() * 1000 == now_ms
        assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert figures[0].layout.yaxis.title.text == "records/s"


def test_faults_and_rebalances_are_marked_on_the_figures() -> None:
    figure: Any = throughput_figure({OUT_0: every_second(0, *range(20))}, kill_of_source().events, START_MS + 20_000)
    [fault] = [trace.hovertemplate for trace in figure.data if trace.name == "fault"]
    assert fault.startswith("fault: kill worker-2; worker-2 was killed while it ran flights-in-0; ")
    assert [annotation.text for annotation in figure.layout.annotations] == ["gen 2", "gen 3", "gen 4"]


def test_figures_without_data_say_so() -> None:
    assert throughput_figure({}, [], 0).layout.annotations[0].text.startswith("No record has moved")
    assert lag_figure([], [], 0).layout.annotations[0].text.startswith("No lag is known")
