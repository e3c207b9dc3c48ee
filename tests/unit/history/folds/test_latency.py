"""Latencies over time: of the records committed since the point before, over all instances of a sink's tasks."""

from __future__ import annotations

from typing import Any

from connectx.history.folds.latency import LatencyCounter, halved, latencies
from connectx.history.render.figure import latency_figure
from connectx.model.ids import TaskId
from tests.support.histories import START_MS, kill_of_source

OUT_0, OUT_1 = TaskId("flights-out", 0), TaskId("flights-out", 1)


def test_instances_add_up_and_one_of_another_process_has_text_for_buckets() -> None:
    counter = LatencyCounter()
    assert counter.take([("worker-1", "out-0", {40: 3}), ("worker-1", "in-0", None)]) == {"out-0": {40: 3}}
    assert counter.take([("worker-1", "out-0", {40: 1}), ("worker-2", "out-0", {"41": 2})]) == {"out-0": {40: 1, 41: 2}}
    assert counter.take([("worker-1", "out-0", {40: 1})]) == {}
    assert counter.of == {"out-0": {40: 4, 41: 2}}


def test_a_point_is_of_what_was_committed_since_the_one_before_and_gaps_are_none() -> None:
    samples = {OUT_0: [(0, {40: 1}), (3_000, {80: 1})], OUT_1: [(2_900, {40: 99})]}
    [line] = latencies(samples, 3_000)
    shown = {time_ms: (p50 and round(p50), p99 and round(p99)) for time_ms, p50, p99 in line.points}
    assert shown == {0: (35, 35), 1_000: (None, None), 2_000: (None, None), 3_000: (35, 35)}
    assert round(latencies({OUT_0: [(0, {40: 1, 80: 1})]}, 0)[0].points[0][2] or 0) == 1117


def test_a_long_history_keeps_all_records_in_few_samples() -> None:
    samples: list[Any] = []
    for second in range(9_001):
        samples = halved([*samples, (second, {second % 3: 1})])
    assert len(samples) <= 4_000
    assert sum(sum(counts.values()) for _, counts in samples) == 9_001
    assert [time_ms for time_ms, _ in samples] == sorted(time_ms for time_ms, _ in samples)


def test_the_figure_has_two_lines_for_a_sink_and_the_faults() -> None:
    samples = {OUT_0: [(START_MS + 1_000 * second, {40: 9, 80: 1}) for second in range(18)]}
    figure: Any = latency_figure(samples, kill_of_source().events, START_MS + 18_000)
    lines = [(trace.name, trace.line.dash) for trace in figure.data if trace.mode != "markers"]
    assert lines == [("flights-out p50", "solid"), ("flights-out p99", "dash")]
    [fault] = [trace for trace in figure.data if trace.name == "fault"]
    assert fault.y[0] > 0, "an axis with logarithms has no 0"
    assert latency_figure({}, [], 0).layout.annotations[0].text.startswith("No latency is known")
