"""`errors.*` of source connectors on real parts: tried again, given up, told in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from connectx.data.transforms.api import Transform
from connectx.errors.plugins import NotASliceError
from connectx.model.configdef import ConfigDef
from connectx.model.events import EventKind
from connectx.model.source_offsets import SourceOffset
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.errors import RetriableError
from connectx.plugins.tasks import SourceTask
from tests.support.profiles import dotted
from tests.support.task_harness import Place, Task
from tests.support.waiting import until

HERE = "tests.integration.source.test_error_handling"
INTEGERS = "org.apache.kafka.connect.converters.IntegerConverter"


class Unsteady(Transform):
    """Its outside world is away for the first calls."""

    calls: ClassVar[list[int]] = []

    def apply(self, table: Any) -> Any:
        if table.num_rows:
            self.calls.append(table.num_rows)
            if len(self.calls) <= 2:
                raise RetriableError("the registry is away")
        return table


class Away(Transform):
    """Its outside world never comes back, for lines that say so."""

    def apply(self, table: Any) -> Any:
        if "away" in table["value"].to_pylist():
            raise RetriableError("the registry is away")
        return table


class Tables(SourceConnector):
    """Its task returns rows where the runtime needs a slice."""

    config = ConfigDef()

    class Task(SourceTask):
        def poll(self, spark: Any, offset: SourceOffset | None) -> Any:
            return pa.table({"value": ["one"]})

    task_class = Task


@pytest.fixture
def lines(place: Place, tmp_path: Path) -> Callable[..., Task]:
    """A task over a file of three lines: one, away, two."""
    path = tmp_path / "in.txt"
    path.write_text("one\naway\ntwo\n")

    def make(**more: str) -> Task:
        config = {"connector.class": "FileStreamSource", "file": str(path), "topic": f"{place.group}-t"}
        return place.task({**config, **dotted(more)})

    return make


def test_a_transformation_that_may_succeed_later_is_tried_again(place: Place, lines: Callable[..., Task]) -> None:
    again = {"errors.retry.timeout": "-1", "errors.retry.delay.max.ms": "20"}
    task = lines(transforms="u", transforms_u_type=f"{HERE}.Unsteady", **again).begin()
    assert place.wait_for_values(f"{place.group}-t", 3) == ["one", "away", "two"]
    assert not task.recorded(EventKind.RECORDS_SKIPPED)
    task.stop()
    counted = task.runner.errors
    assert (counted.retries, counted.record_failures, counted.record_errors) == (1, 1, 0)
    assert (task.runner.metrics()["active"], task.runner.metrics()["active_max"]) == (0, 3)


def test_without_a_retry_timeout_it_fails_the_task(lines: Callable[..., Task]) -> None:
    task = lines(transforms="a", transforms_a_type=f"{HERE}.Away")
    assert "the registry is away" in task.begin_and_fail().trace
    assert (task.runner.errors.record_failures, task.runner.errors.record_errors) == (1, 1)


def test_a_task_that_returns_no_slice_is_told_what_to_return(place: Place) -> None:
    task = place.task({"connector.class": place.plugins.register(Tables)})
    assert NotASliceError.__name__ in task.begin_and_fail().trace


def test_with_tolerance_only_the_rows_that_still_fail_are_skipped_when_time_is_over(
    place: Place, lines: Callable[..., Task]
) -> None:
    settings = {"errors.retry.timeout": "50", "errors.tolerance": "all"}
    task = lines(transforms="a", transforms_a_type=f"{HERE}.Away", **settings).begin()
    assert place.wait_for_values(f"{place.group}-t", 2) == ["one", "two"]
    (skipped,) = task.recorded(EventKind.RECORDS_SKIPPED)
    assert skipped.data["records"] == 1
    assert "the registry is away" in skipped.data["reason"]
    task.stop()


@pytest.mark.parametrize("with_record", [True, False])
def test_errors_are_told_in_the_log_with_the_record_only_where_it_may_be_shown(
    lines: Callable[..., Task], caplog: pytest.LogCaptureFixture, with_record: bool
) -> None:
    include = str(with_record).lower()
    settings = {"errors.log.enable": "true", "errors.log.include.messages": include, "errors.tolerance": "all"}
    with caplog.at_level(logging.ERROR, "connectx.runtime.tasks.source.polling"):
        task = lines(value_converter=INTEGERS, **settings).begin()
        until(lambda: task.recorded(EventKind.RECORDS_SKIPPED), "skipped records")
        task.stop()
    reported = [message for message in caplog.messages if message.startswith("Error encountered in task c-0: ")]
    assert len(reported) == 3
    assert (task.runner.errors.record_failures, task.runner.errors.errors_logged) == (3, 3)
    assert reported[1].endswith("where source record is {'value': 'away'}") is with_record
