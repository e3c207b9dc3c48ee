"""Records and lag of tasks, sampled and kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from connectx.api.recorder import Recorder
from connectx.history.folds.rates import LagSample
from connectx.model.ids import TaskId

OUT = TaskId("out", 0)


def worker(generation: int | None, metrics: dict[str, Any]) -> Any:
    return SimpleNamespace(name=f"worker-{generation}", generation=generation, task_metrics=metrics)


def test_what_changes_is_kept_and_a_task_that_nobody_runs_has_no_known_lag() -> None:
    one, times = worker(3, {"out-0": {"lag": 5}, "in-0": {"source_offset": {"position": 1}}}), iter(range(1, 9))
    recorder = Recorder([one], lambda: next(times))
    for metrics in (one.task_metrics, one.task_metrics, {"out-0": {"lag": 9}}, {}):
        one.task_metrics = metrics
        recorder.sample()
    assert recorder.lags() == [LagSample(2, OUT, 5), LagSample(4, OUT, 9), LagSample(5, OUT, None)]


def test_of_a_zombie_and_its_successor_the_one_of_the_newer_generation_counts() -> None:
    workers = [worker(4, {"out-0": {"lag": 1}}), worker(3, {"out-0": {"lag": 500}}), worker(None, {})]
    recorder = Recorder(workers, lambda: 7)
    recorder.sample()
    assert recorder.lags() == [LagSample(7, OUT, 1)]


def test_records_are_counted_over_all_instances_from_the_sample_before_the_first() -> None:
    one, two, times = worker(3, {}), worker(4, {}), iter(range(0, 9_000, 1_000))
    recorder = Recorder([one, two], lambda: next(times))
    for first, second in ((7, None), (9, None), (9, 4), (9, 4), (9, 4), (9, 6)):
        one.task_metrics = {"out-0": {"records": first}}
        two.task_metrics = {} if second is None else {"out-0": {"records": second}}
        recorder.sample()
    points = recorder.counts()[OUT]
    assert points == [(0, 0), (1_000, 7), (2_000, 9), (3_000, 13), (5_000, 13), (6_000, 15)]


def test_a_long_run_keeps_newer_samples_closer_together_than_older_ones() -> None:
    one, times = worker(1, {}), iter(range(10_000_000))
    recorder = Recorder([one], lambda: next(times))
    for count in range(9_000):
        one.task_metrics = {"out-0": {"records": count}}
        recorder.sample()
    points = recorder.counts()[OUT]
    assert len(points) <= 2_001
    assert (points[0], points[-1]) == ((0, 0), (9_000, 8_999))
    assert points[1][0] - points[0][0] > points[-1][0] - points[-2][0]


def test_a_latency_is_kept_when_it_is_new_over_all_instances() -> None:
    one, times = worker(3, {}), iter(range(1, 9))
    recorder = Recorder([one], lambda: next(times))
    for counts in ({40: 2}, {40: 2}, {40: 3, 80: 1}, {40: 1}):
        one.task_metrics = {"out-0": {"latency": counts}}
        recorder.sample()
    assert recorder.latencies() == {OUT: [(2, {40: 2}), (4, {40: 1, 80: 1}), (5, {40: 1})]}
