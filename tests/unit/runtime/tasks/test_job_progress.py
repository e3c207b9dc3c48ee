"""How often Spark is asked for the progress of a job, and what is shown in between."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connectx.runtime.tasks.job_progress import JobProgress
from connectx.spark.slices import SparkTasks


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [100.0]
    monkeypatch.setattr("connectx.runtime.tasks.job_progress.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    return now_s


def progress(answers: Iterator[SparkTasks | None], readers: int = 0, senders: int = 0) -> JobProgress:
    return JobProgress(cast(Any, SimpleNamespace(tasks_of=lambda name: next(answers))), "job", 7, readers, senders)


def test_spark_is_asked_at_most_every_two_seconds(now_s: list[float]) -> None:
    job = progress(iter((None, SparkTasks(8, 3), SparkTasks(8, 4))))
    shown = []
    for now_s[0] in (100.0, 100.5, 101.9, 102.0, 103.9, 104.0):
        shown.append(job.read()["parts_done"])
    assert shown == [None, None, None, 3, 3, 4]


@pytest.mark.parametrize(("readers", "parts"), [(0, [2, 6, 7]), (3, [5, 5, 7])])
def test_parts_are_those_of_both_stages_as_far_as_they_are_known(
    now_s: list[float], readers: int, parts: list[int]
) -> None:
    job = progress(iter((None, SparkTasks(4, 3), SparkTasks(4, 7))), readers, senders=2)
    shown = []
    for now_s[0] in (100.0, 102.0, 104.0):
        shown.append(job.read())
    assert shown == [
        {"job": 7, "parts": all_, "parts_done": done} for all_, done in zip(parts, (None, 3, 7), strict=True)
    ]


def test_spark_that_ends_leaves_the_last_progress(now_s: list[float]) -> None:
    def answers() -> Iterator[SparkTasks]:
        yield SparkTasks(4, 2)
        raise ConnectionError("the driver has ended")

    job = progress(answers())
    before = job.read()
    now_s[0] = 102.0
    assert job.read() == before == {"job": 7, "parts": 4, "parts_done": 2}
