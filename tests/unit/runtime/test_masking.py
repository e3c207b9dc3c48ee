"""Nothing that a plugin raises brings a value of a placeholder into a status, an event, a metric or the log."""

from __future__ import annotations

import dataclasses
import logging
import typing
from collections.abc import Callable, Iterator, Mapping, Set
from queue import SimpleQueue
from types import NoneType
from typing import Any, ClassVar, cast

import pytest

from connectx.core import messages
from connectx.core.messages import (
    BeginTask,
    ConnectorFailed,
    ConnectorStopped,
    GenerateTaskConfigs,
    PrepareTask,
    StartConnector,
    StopConnector,
    TaskConfigsGenerated,
    TaskFailed,
)
from connectx.model.events import EventKind, Transition
from connectx.model.ids import TaskId
from connectx.model.states import TargetState
from connectx.plugins.connectors import SinkConnector, SourceConnector
from connectx.plugins.registry import Plugins
from connectx.plugins.tasks import SinkTask, SourceTask
from connectx.runtime.masking import masked_errors, masked_transition
from connectx.runtime.worker import Worker, WorkerEnvironment
from tests.support.histories import transition
from tests.support.worker_script import worker_of

SECRET = "s3cret-of-the-database"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
ERRORS = {"error", "reason", "trace"}
NAMES = {"connector", "leader_id", "member_id", "protocol", "topic", "version"}
"""Texts of stimuli that are no errors: the core works with them."""


class Failing:
    """Fails with the secret in the methods `fails`."""

    fails: ClassVar[Set[str]]

    def __getattribute__(self, name: str) -> Any:
        return fail if name in type(self).fails else object.__getattribute__(self, name)


def fail(*args: object) -> None:
    raise ValueError(f"cannot log in with {SECRET}")


def without(text: str) -> str:
    return text.replace(SECRET, "[hidden]")


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[Any]:
    """What reaches the worker's core."""
    monkeypatch.setenv("OF_THE_TEST", SECRET)
    return SimpleQueue()


@pytest.fixture
def history() -> list[Transition]:
    return []


@pytest.fixture
def worker(
    posted: SimpleQueue[Any], history: list[Transition], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[type], Worker]]:
    made: list[Worker] = []

    def with_plugin(cls: type) -> Worker:
        config = worker_of(config_providers="env")
        provided = {"config.providers.env.class": "EnvVarConfigProvider"}
        config = type(config).parse({**config.given, **provided})
        plugins = Plugins()
        plugins.register(cls)
        place = WorkerEnvironment(
            config, "127.0.0.1:9", plugins, cast("Any", None), lambda event, name: history.append(event), lambda: 1_000
        )
        one = Worker("worker-1", place)
        monkeypatch.setattr(one._mailbox, "post", posted.put)
        made.append(one)
        return one

    yield with_plugin
    for one in made:
        one.kill()


def given(cls: type) -> dict[str, str | None]:
    texts = {"name": "c", "login": "${env:OF_THE_TEST}", "key.converter": STRINGS, "value.converter": STRINGS}
    topics = {"topics": "t"} if issubclass(cls, SinkConnector) else {}
    return {"connector.class": f"{cls.__module__}.{cls.__qualname__}", **texts, **topics}


@pytest.mark.parametrize("method", ["start", "task_configs", "monitor", "stop"])
def test_what_a_connector_raises_is_hidden(
    method: str, worker: Callable[[type], Worker], posted: SimpleQueue[Any], caplog: pytest.LogCaptureFixture
) -> None:
    class Connector(Failing, SourceConnector):
        fails = frozenset({method})

        class Task(SourceTask):
            pass

        def task_configs(self, max_tasks: int) -> list[Mapping[str, str]]:
            return [{}]

        def monitor_interval_ms(self) -> int:
            return 0

    made = worker(Connector)
    config = given(Connector)
    found: list[Any] = []

    def until(kind: type) -> None:
        while not any(isinstance(one, kind) for one in found):
            found.append(posted.get(timeout=30))

    with caplog.at_level(logging.INFO):
        made._task_host.start_connector(StartConnector("c", 1, config, TargetState.STARTED))
        made._task_host.send_to_connector(GenerateTaskConfigs("c", 1, config))
        until(TaskConfigsGenerated)
        if method == "monitor":
            until(ConnectorFailed)
        made._task_host.send_to_connector(StopConnector("c", 1))
        until(ConnectorStopped)
    shown = f"{found}{caplog.text}"
    assert "cannot log in with [hidden]" in shown
    assert SECRET not in shown


@pytest.mark.parametrize(
    ("connector", "base", "methods"),
    [
        (SourceConnector, SourceTask, {"start", "stop"}),
        (SourceConnector, SourceTask, {"poll", "stop"}),
        (SinkConnector, SinkTask, {"start", "stop"}),
    ],
)
def test_what_a_task_raises_is_hidden(
    connector: Any,
    base: Any,
    methods: Set[str],
    worker: Callable[[type], Worker],
    posted: SimpleQueue[Any],
    history: list[Transition],
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Connector(connector):
        class Task(Failing, base):
            fails = methods

    made = worker(Connector)
    config = given(Connector)
    task = TaskId("c", 0)
    found: list[Any] = []
    with caplog.at_level(logging.INFO):
        made._task_host.prepare_task(
            PrepareTask(task, 1, config, config, TargetState.STARTED, 1, exactly_once=False, task_count=1)
        )
        made._task_host.send_to_task(BeginTask(task, 1))
        while not found or not isinstance(found[-1], TaskFailed):
            found.append(posted.get(timeout=30))
    assert "cannot log in with [hidden]" in found[-1].trace
    assert "cannot log in with [hidden]" in caplog.text, "its stop has failed, too"
    assert SECRET not in f"{found}{history}{caplog.text}"


def test_no_text_of_a_stimulus_can_be_forgotten() -> None:
    """A new field of text is an error, which is masked, or one of the names that are kept."""
    for kind in typing.get_args(messages.Posted):
        hints = typing.get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
        texts = {name for name, of in hints.items() if of is str or set(typing.get_args(of)) == {str, NoneType}}
        assert texts - ERRORS <= NAMES, kind


def test_the_errors_of_a_stimulus_are_masked_and_nothing_else_is() -> None:
    failed = TaskConfigsGenerated(SECRET, 1, ({"login": SECRET},), f"{SECRET} is wrong")
    assert masked_errors(failed, without) == TaskConfigsGenerated(SECRET, 1, ({"login": SECRET},), "[hidden] is wrong")
    assert masked_errors(failed, str) is failed


def test_a_text_that_quotes_a_whole_record_is_cut_and_its_secrets_are_hidden() -> None:
    skipped = transition(EventKind.RECORDS_SKIPPED, data={"records": 1, "reason": SECRET + "x" * 1_000_000})
    recorded = masked_transition(skipped, without)
    assert recorded.data == {"records": 1, "reason": f"[hidden]{'x' * 3992} … (996,008 more characters)"}
    short = transition(EventKind.RECORDS_SKIPPED, data={"records": 1, "reason": "x" * 4000})
    assert masked_transition(short, str) == short
