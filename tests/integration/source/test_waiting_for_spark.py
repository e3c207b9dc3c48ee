"""A source task that waits for Spark's start when it must stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import connectx as cx
from connectx.core.messages import StopTask, TaskFailed, TaskStopped
from connectx.spark.sessions import SparkProvider
from tests.support.task_harness import Place
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NeverUp(SparkProvider):
    """A provider whose driver does not come."""

    def start(self) -> None:
        """Begin nothing."""


class NeedsSpark(cx.SourceConnector):
    """Its task asks Spark for its rows."""

    config = cx.ConfigDef()
    polls: ClassVar[list[int]] = []

    def task_configs(self, max_tasks: int) -> list[dict[str, Any]]:
        return [{}]

    class Task(cx.SourceTask):
        """Polls through Spark only."""

        def start(self, config: Mapping[str, Any], context: cx.SourceTaskContext) -> None:
            """Nothing to open."""

        def poll(self, spark: SparkSession, offset: Mapping[str, Any] | None) -> cx.Slice | None:
            NeedsSpark.polls.append(1)
            spark.range(1).collect()
            return None


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_task_that_must_stop_while_it_waits_for_spark_stops_and_has_not_failed(
    place: Place, exactly_once: bool
) -> None:
    place.spark = NeverUp()
    NeedsSpark.polls.clear()
    config = {"connector.class": f"{__name__}.NeedsSpark", "topic": "none"}
    task = place.task(config, exactly_once=exactly_once).begin()
    until(lambda: NeedsSpark.polls, "the poll")
    task.runner.execute(StopTask(task.order.task, task.order.instance))
    until(lambda: any(isinstance(one, TaskStopped) for one in task.stimuli), "the end of the task")
    assert task.runner.join(WAIT_S)
    assert not [one for one in task.stimuli if isinstance(one, TaskFailed)]
