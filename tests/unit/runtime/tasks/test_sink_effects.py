"""What the effects of a sink's loop call, without Kafka."""

from __future__ import annotations

from typing import Any

import pytest

import connectx as cx
from connectx.core.loops.messages import Done
from connectx.core.messages import PrepareTask
from connectx.core.sink.messages import PutNothing
from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.registry import Plugins
from connectx.plugins.slices import SinkBatch
from connectx.runtime.tasks.runners import SinkRunner
from tests.support.task_harness import NoOffsets, Task


class Keeper(cx.SinkConnector):
    """Its task writes by time."""

    class Task(cx.SinkTask):
        puts_nothing = True
        failure: Exception | None = None

        def put(self, batch: SinkBatch) -> None:
            assert batch.rows.column_names == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
            assert (batch.rows.num_rows, batch.ranges) == (0, {})
            if self.failure is not None:
                raise self.failure

    task_class = Task


def test_a_put_without_records_is_one_that_may_fail_for_now() -> None:
    sessions: Any = None
    given = {"name": "c", "connector.class": f"{__name__}.Keeper", "topics": "t"}
    order = PrepareTask(
        TaskId("c", 0), 1, given, given, TargetState.STARTED, generation=1, exactly_once=True, task_count=1
    )
    config = WorkerConfig.parse(embedded_config({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}))
    world: Any = Task(SinkRunner, order, Plugins(), sessions, NoOffsets(), config).runner.set_up()[1]
    assert world._setup.loop.puts_nothing
    assert world.execute(PutNothing()) == Done()
    world._plugin.failure = cx.RetriableError("later")
    assert world.execute(PutNothing()) == Done()
    world._plugin.failure = ValueError("never")
    with pytest.raises(ValueError, match="never"):
        world.execute(PutNothing())
