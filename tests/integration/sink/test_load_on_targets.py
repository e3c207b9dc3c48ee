"""Sink tasks and a target that fails or is slow: retries, limits a second, and alarms about lag."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import connectx as cx
from connectx.model.events import EventKind
from connectx.model.ids import TopicPartition
from connectx.plugins.errors import RetriableError
from connectx.plugins.slices import SinkBatch
from tests.support.task_harness import Task
from tests.support.waiting import until

Make = Callable[..., Any]


@dataclass(frozen=True)
class Put:
    """One that succeeded."""

    at_s: float
    rows: int
    size_bytes: int


class Target(cx.SinkConnector):
    """Takes values while a file of the setting `switch` does not exist."""

    config = cx.ConfigDef().define("switch", str)
    puts: ClassVar[dict[str, list[Put]]] = {}
    failures: ClassVar[dict[str, int]] = {}

    class Task(cx.SinkTask):
        def open(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
            if self.settings.get("opens", "true") == "false" and Path(self.settings["switch"]).exists():
                raise RetriableError("The target cannot be opened.")
            return {}

        def put(self, batch: SinkBatch) -> None:
            name = self.context.group_id
            if Path(self.settings["switch"]).exists():
                Target.failures[name] = Target.failures.get(name, 0) + 1
                raise RetriableError(f"The target is away, {Target.failures[name]}.")
            put = Put(time.monotonic(), batch.rows.num_rows, batch.rows.nbytes)
            Target.puts.setdefault(name, []).append(put)

        def flush(self) -> None:
            if self.settings.get("flushes") == "never":
                raise ValueError("No such format.")
            if self.settings.get("flushes") == "later" and Path(self.settings["flush.switch"]).exists():
                raise ConnectionResetError("The target is gone.")


@pytest.fixture
def switch(tmp_path: Path) -> Path:
    return tmp_path / "off"


@pytest.fixture
def begin(sink_task: Make, topic: Make, produce: Make, switch: Path) -> Make:
    """`begin(name, records, **settings)` starts a task for a topic with so many records."""

    def start(name: str, records: int, settings: dict[str, str]) -> tuple[Task, str]:
        source = topic(name)
        produce(source, [b"x"] * records)
        config = {"connector.class": Target, "switch": str(switch), "topics": source, **settings}
        task: Task = sink_task(name, config).begin()
        return task, source

    return start


def rows_put(name: str) -> int:
    return sum(put.rows for put in Target.puts.get(f"connect-{name}", []))


def test_a_put_is_tried_again_with_pauses_until_it_succeeds_and_commits_nothing_before(
    begin: Make, committed: Make, switch: Path
) -> None:
    switch.touch()
    task, source = begin("retried", 5, {"errors.retry.delay.max.ms": "150"})
    until(lambda: Target.failures.get("connect-retried", 0) >= 4, "four tries")
    assert (committed("connect-retried", source), rows_put("retried")) == ({}, 0)
    switch.unlink()
    until(lambda: committed("connect-retried", source) == {f"{source}-0": 5}, "the commit")
    assert rows_put("retried") == 5
    assert task.runner.metrics()["retries"] >= 4
    task.stop()


def test_a_target_that_cannot_be_opened_is_the_reason_that_the_task_shows_until_it_can(
    begin: Make, switch: Path
) -> None:
    switch.touch()
    task, _ = begin("opened", 5, {"opens": "false"})
    until(lambda: task.runner.metrics()["retrying"] == "The target cannot be opened.", "the reason")
    switch.unlink()
    until(lambda: rows_put("opened") == 5, "the rows")
    assert task.runner.metrics()["retrying"] is None
    task.stop()


def test_a_flush_that_fails_is_the_reason_that_the_task_shows_until_one_succeeds(
    begin: Make, committed: Make, tmp_path: Path
) -> None:
    no_flush = tmp_path / "no-flush"
    no_flush.touch()
    task, source = begin("unflushed", 5, {"flushes": "later", "flush.switch": str(no_flush)})
    until(lambda: rows_put("unflushed") >= 10, "rows that are put again after a flush that failed")
    assert task.runner.metrics()["retrying"] == "The target is gone."
    assert committed("connect-unflushed", source) == {}
    no_flush.unlink()
    until(lambda: committed("connect-unflushed", source) == {f"{source}-0": 5}, "the commit")
    until(lambda: task.runner.metrics()["retrying"] is None, "no reason any more")
    task.stop()


def test_a_flush_whose_error_does_not_pass_fails_the_task_and_commits_nothing(begin: Make, committed: Make) -> None:
    task, source = begin("lasting", 5, {"flushes": "never"})
    assert "ValueError: No such format." in task.failure()
    assert committed("connect-lasting", source) == {}


def test_a_put_that_fails_for_longer_than_the_timeout_fails_the_task_with_its_last_error(
    begin: Make, committed: Make, switch: Path
) -> None:
    switch.touch()
    task, source = begin("tired", 5, {"errors.retry.timeout": "400", "errors.retry.delay.max.ms": "100"})
    trace = task.failure()
    assert "The target is away" in trace
    assert "errors.retry.timeout is 400 ms" in trace
    assert committed("connect-tired", source) == {}


@pytest.mark.parametrize(("limit", "rate"), [("max.rows.per.second", 50), ("max.bytes.per.second", 3_000)])
def test_puts_stay_below_the_rows_and_bytes_a_second_that_the_target_may_get(
    begin: Make, limit: str, rate: int
) -> None:
    name = limit.replace(".", "-")
    task, _ = begin(name, 60, {limit: str(rate), "consumer.override.max.poll.records": "20"})
    until(lambda: rows_put(name) == 60, "all rows")
    puts = Target.puts[f"connect-{name}"]
    amounts = [put.rows if "rows" in limit else put.size_bytes for put in puts]
    elapsed_s = puts[-1].at_s - puts[0].at_s
    assert len(puts) >= 2
    assert sum(amounts[:-1]) <= rate * elapsed_s * 1.01
    task.stop()


def test_lag_that_stays_too_high_is_an_event_and_its_end_another(begin: Make, switch: Path) -> None:
    switch.touch()
    task, _ = begin("lagging", 50, {"lag.alarm.records": "10", "lag.alarm.ms": "0"})
    (alarm,) = until(lambda: task.recorded(EventKind.LAG_ALARM), "the alarm")
    assert alarm.data["lag"] == 50
    assert not task.recorded(EventKind.LAG_ALARM_OVER)
    switch.unlink()
    (over,) = until(lambda: task.recorded(EventKind.LAG_ALARM_OVER), "the end of the alarm")
    assert over.data["lag"] == 0
    task.stop()
