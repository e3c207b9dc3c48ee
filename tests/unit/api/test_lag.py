"""The lag of sinks, looked at and kept where it changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from connectx.api.lag import LagRecorder
from connectx.history.folds.rates import LagSample
from connectx.model.ids import TaskId

OUT = TaskId("out", 0)


def worker(generation: int | None, metrics: dict[str, Any]) -> Any:
    return SimpleNamespace(generation=generation, task_metrics=metrics)


def test_what_changes_is_kept_and_a_task_that_nobody_runs_has_no_known_lag() -> None:
    one, times = worker(3, {"out-0": {"lag": 5}, "in-0": {"source_offset": {"position": 1}}}), iter(range(1, 9))
    recorder = LagRecorder([one], lambda: next(times))  # type: ignore[arg-type]
    for metrics in (one.task_metrics, one.task_metrics, {"out-0": {"lag": 9}}, {}):
        one.task_metrics = metrics
        recorder.sample()
    assert recorder.samples() == [LagSample(1, OUT, 5), LagSample(3, OUT, 9), LagSample(4, OUT, None)]


def test_of_a_zombie_and_its_successor_the_one_of_the_newer_generation_counts() -> None:
    workers = [worker(4, {"out-0": {"lag": 1}}), worker(3, {"out-0": {"lag": 500}}), worker(None, {})]
    recorder = LagRecorder(workers, lambda: 7)  # type: ignore[arg-type]
    recorder.sample()
    assert recorder.samples() == [LagSample(7, OUT, 1)]
