"""What a worker keeps of its tasks: the latest steps of their loops, also when they have failed."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import connectx as cx
from connectx.core.messages import BeginTask, PrepareTask, Stimulus, TaskFailed, TaskPrepared
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.registry import Plugins
from connectx.recording.codec import Mask, shown
from connectx.recording.file import Recording
from connectx.recording.recorder import Recorder
from connectx.recording.replay import first_difference
from connectx.runtime.tasks.host import TaskHost
from connectx.runtime.tasks.services import TaskServices
from tests.support.task_harness import NoOffsets
from tests.support.waiting import until

TASK = TaskId("c", 0)
SECRET = "hunter2-is-not-in-the-file"


class FailingSource(cx.SourceConnector):
    """Its task does not start."""

    class Task(cx.SourceTask):
        def start(self, config: Any, context: Any) -> None:
            raise ValueError(SECRET)

    task_class = Task


class FailingSink(cx.SinkConnector):
    """The same for a sink."""

    class Task(cx.SinkTask):
        def start(self, config: Any, context: Any) -> None:
            raise ValueError(SECRET)

    task_class = Task


class NoSpark:
    """Has no session."""

    def release(self, session: Any) -> None:
        raise AssertionError(session)


@pytest.mark.parametrize(("cls", "kind"), [(FailingSource, "source task"), (FailingSink, "sink task")])
def test_the_steps_of_a_failed_task_are_kept_until_it_is_prepared_again(cls: type, kind: str) -> None:
    config = WorkerConfig.parse(embedded_config({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}))
    recorder = Recorder(1 << 20, Mask(b"salt"))
    spark: Any = NoSpark()
    said: list[Stimulus] = []
    services = TaskServices(
        worker="w",
        config=config,
        clients=ClientConfigs(config, "w", recorder=recorder),
        spark=spark,
        offsets=NoOffsets(),
        post=said.append,
        record=lambda transition: None,
        clock=lambda: 1_000,
        pulse=lambda: None,
        place=lambda: {},
        ended=lambda task, instance: None,
    )
    host = TaskHost(services, Plugins(), is_gone=lambda: False)

    def prepare(instance: int, tasks: int = 1) -> None:
        given = {"name": "c", "connector.class": f"{__name__}.{cls.__name__}", "topics": "t"}
        order = PrepareTask(TASK, instance, given, given, TargetState.STARTED, 1, exactly_once=False, task_count=tasks)
        host.prepare_task(order)
        if tasks > 1:  # than tasks.max
            until(
                lambda: bool(said) and isinstance(said[-1], TaskFailed) and "2 tasks" in said[-1].trace, "the failure"
            )
            return
        until(lambda: bool(said) and isinstance(said[-1], TaskPrepared), "the plugin")

    def loops() -> list[Recording]:
        return [one for one in recorder.recordings("a test") if one.kind.endswith("task")]

    prepare(0, tasks=2)
    prepare(1)
    host.send_to_task(BeginTask(TASK, 1))
    until(lambda: isinstance(said[-1], TaskFailed), "the failure")
    assert host.join(5)
    (recording,) = loops()
    assert (recording.kind, recording.name) == (kind, "w/c-0")
    steps = [shown(entry.stimulus).partition("(")[0] for entry in recording.entries]
    assert steps == ["BeginTask", "Answered"]
    assert "ReportFailed(" in shown(recording.entries[-1].effects)
    assert SECRET not in "\n".join(recording.lines())
    assert first_difference(recording) is None
    prepare(2)
    gc.collect()  # a runner and its world know each other
    assert loops() == []
    host.end("the test is over")
    assert host.join(5)
