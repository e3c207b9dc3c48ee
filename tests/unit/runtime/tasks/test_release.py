"""What a task releases when its worker was killed."""

from __future__ import annotations

from typing import Any

import pytest

import connectx as cx
from connectx.core.loops.messages import StartPlugin
from connectx.core.messages import PrepareTask
from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.registry import Plugins
from connectx.runtime.tasks.runners import SinkRunner, SourceRunner
from connectx.runtime.tasks.services import WorkerGone
from tests.support.task_harness import NoOffsets, Task


class Sessions:
    """Keeps the sessions that were released."""

    def __init__(self) -> None:
        self.released: list[Any] = []

    def release(self, session: Any) -> None:
        self.released.append(session)


class GoneSource(cx.SourceConnector):
    """Its task asks its worker for something when it is abandoned."""

    class Task(cx.SourceTask):
        def abandon(self) -> None:
            raise WorkerGone

    task_class = Task


class GoneSink(cx.SinkConnector):
    """The same for a sink."""

    class Task(cx.SinkTask):
        def abandon(self) -> None:
            raise WorkerGone

    task_class = Task


@pytest.mark.parametrize(
    ("runner", "cls"),
    [(SourceRunner, GoneSource), (SinkRunner, GoneSink)],
)
def test_the_session_of_a_task_is_released_when_its_plugin_finds_the_worker_gone(runner: Any, cls: type) -> None:
    sessions: Any = Sessions()
    given = {"name": "c", "connector.class": f"{__name__}.{cls.__name__}", "topics": "t"}
    order = PrepareTask(
        TaskId("c", 0), 1, given, given, TargetState.STARTED, generation=1, exactly_once=True, task_count=1
    )
    config = WorkerConfig.parse(embedded_config({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}))
    task = Task(runner, order, Plugins(), sessions, NoOffsets(), config)
    world: Any = task.runner.set_up()[1]
    world.carry_out(StartPlugin())
    session = world._spark._session = object()
    world.release()
    assert sessions.released == [session]
