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


def progress(answers: Iterator[SparkTasks | None], planned: int = 0) -> JobProgress:
    return JobProgress(cast(Any, SimpleNamespace(tasks_of=lambda name: next(answers))), "job", 7, planned)


def test_spark_is_asked_at_most_every_two_seconds(now_s: list[float]) -> None:
    job = progress(iter((None, SparkTasks(8, 3), SparkTasks(8, 4))))
    shown = []
    for now_s[0] in (100.0, 100.5, 101.9, 102.0, 103.9, 104.0):
        shown.append(job.read()["parts_done"])
    assert shown == [None, None, None, 3, 3, 4]


def test_parts_are_those_planned_until_spark_knows_more(now_s: list[float]) -> None:
    job = progress(iter((None, SparkTasks(4, 4), SparkTasks(9, 5))), planned=6)
    assert job.read() == {"job": 7, "parts": 6, "parts_done": None}
    now_s[0] = 102.0
    assert job.read() == {"job": 7, "parts": 6, "parts_done": 4}
    now_s[0] = 104.0
    assert job.read() == {"job": 7, "parts": 9, "parts_done": 5}


def test_spark_that_ends_leaves_the_last_progress(now_s: list[float]) -> None:
    def answers() -> Iterator[SparkTasks]:
        yield SparkTasks(4, 2)
        raise ConnectionError("the driver has ended")

    job = progress(answers())
    before = job.read()
    now_s[0] = 102.0
    assert job.read() == before == {"job": 7, "parts": 4, "parts_done": 2}
