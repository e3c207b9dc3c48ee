"""What a panel can do: exactly the calls of its tables, said as a reader would type them, secrets kept and hidden."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from connectx_widgets.actions import CONNECTOR_VERBS, WORKER_VERBS, UnknownActionError, describe_action, parse
from connectx_widgets.questions import answer, difference, with_secrets


class Recorder:
    """Stands where a cluster is, and writes down what is called on it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, verb: str) -> Any:
        return lambda *args, **named: self.calls.append((verb, *args, *named.items()))

    def __getitem__(self, name: str) -> Recorder:
        part = Recorder()
        part.calls = self.calls
        self.calls.append(("connector", name))
        return part


@pytest.mark.parametrize("verb", WORKER_VERBS)
def test_a_workers_button_makes_the_call_that_it_says(verb: str) -> None:
    cluster = Recorder()
    call = parse(cluster, {"verb": verb, "worker": "worker-1"})  # type: ignore[arg-type]
    call.run()
    assert (call.text, cluster.calls) == (f'cluster.{verb}("worker-1")', [(verb, "worker-1")])


@pytest.mark.parametrize("verb", CONNECTOR_VERBS)
def test_a_connectors_button_makes_the_call_that_it_says(verb: str) -> None:
    cluster = Recorder()
    call = parse(cluster, {"verb": verb, "connector": "lines"})  # type: ignore[arg-type]
    call.run()
    assert (call.text, cluster.calls) == (f'cluster["lines"].{verb}()', [("connector", "lines"), (verb,)])


def test_restart_of_what_failed_leaves_the_rest_alone() -> None:
    cluster = Recorder()
    call = parse(cluster, {"verb": "restart", "connector": "lines", "failed": True})  # type: ignore[arg-type]
    call.run()
    assert call.text == 'cluster["lines"].restart(include_tasks=True, only_failed=True)'
    assert cluster.calls[-1] == ("restart", ("include_tasks", True), ("only_failed", True))


def test_one_task_can_be_restarted_alone() -> None:
    class OneTask(Recorder):
        def __getattr__(self, verb: str) -> Any:
            return [self, self, self] if verb == "tasks" else super().__getattr__(verb)

        def __getitem__(self, name: str) -> Recorder:
            self.calls.append(("connector", name))
            return self

    cluster = OneTask()
    call = parse(cluster, {"verb": "restart_task", "connector": "lines", "task": 2})  # type: ignore[arg-type]
    call.run()
    assert (call.text, cluster.calls) == (
        'cluster["lines"].tasks[2].restart()',
        [("connector", "lines"), ("restart",)],
    )


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"verb": "restart", "failed": True}, "restart failed"),
        ({"verb": "restart", "failed": False}, "restart"),
        ({"verb": "restart_task", "task": 2}, "restart of task 2"),
        ({"verb": "update"}, "configured"),
        ({"verb": "create"}, "created"),
        ({"verb": "pause"}, "pause"),
    ],
)
def test_an_action_is_told_in_a_word_or_two(message: dict[str, Any], text: str) -> None:
    assert describe_action(message) == text


@pytest.mark.parametrize(
    "message",
    [
        {"verb": "close"},
        {"verb": "__class__", "worker": "worker-1"},
        {"verb": "events", "connector": "lines"},
        {"verb": "kill", "worker": 1},
        {"verb": "restart", "connector": "lines"},
        {"verb": "restart_task", "connector": "lines", "task": "0"},
        {},
    ],
)
def test_nothing_else_can_be_called(message: dict[str, Any]) -> None:
    cluster = Recorder()
    with pytest.raises(UnknownActionError):
        parse(cluster, message)  # type: ignore[arg-type]
    assert cluster.calls == []


def test_a_secret_that_was_shown_hidden_and_not_touched_stays_what_it_is() -> None:
    running = {"connection.password": "s3cret", "topic": "a"}
    assert with_secrets(running, {"connection.password": "[hidden]", "topic": "b"}) == {
        "connection.password": "s3cret",
        "topic": "b",
    }
    assert with_secrets(running, {"connection.password": "new"}) == {"connection.password": "new"}


def test_a_hidden_password_stays_in_a_url_of_which_the_host_was_changed() -> None:
    running = {"connection.url": "postgresql://me:s3cret@old/db?sslpassword=more", "topic": "a"}
    proposed = {"connection.url": "postgresql://me:[hidden]@new/db?sslpassword=[hidden]", "other": "[hidden]"}
    assert with_secrets(running, proposed) == {
        "connection.url": "postgresql://me:s3cret@new/db?sslpassword=more",
        "other": "[hidden]",
    }
    dropped = {"connection.url": "postgresql://me:s3cret@new/db"}
    assert with_secrets(running, dropped) == dropped


def test_a_validation_tells_the_page_no_value() -> None:
    config = {"connection.password": "s3cret", "topic": "a"}
    recorded = {"configs": [{"definition": {"name": key}, "value": {"value": text, "errors": ["e"]}} for key, text in
                        config.items()]}  # fmt: skip

    class Edited:
        def __getitem__(self, name: str) -> Any:
            return SimpleNamespace(config=config)

        def validate(self, proposed: dict[str, str]) -> Any:
            assert proposed["connection.password"] == "s3cret"
            return recorded

    asked = {"question": "validate", "connector": "x", "editing": True,
             "config": {**config, "connection.password": "[hidden]"}}  # fmt: skip
    found = answer(Edited(), asked)  # type: ignore[arg-type]
    assert "s3cret" not in str(found)
    assert [one["value"]["errors"] for one in found["validation"]["configs"]] == [["e"], ["e"]]


def test_errors_of_a_validation_quote_no_password_of_a_url() -> None:
    error = "Invalid value postgres://me:s3cret@db for configuration connection.url"
    recorded = {"configs": [{"definition": {"name": "connection.url"}, "value": {"value": None, "errors": [error]}}]}
    cluster = SimpleNamespace(validate=lambda config: recorded)
    asked = {"question": "validate", "connector": "", "editing": False, "config": {}}
    [one] = answer(cluster, asked)["validation"]["configs"]  # type: ignore[arg-type]
    assert one["value"]["errors"] == ["Invalid value postgres://me:[hidden]@db for configuration connection.url"]


def test_a_difference_names_keys_and_hides_secrets() -> None:
    running = {"connection.password": "s3cret", "topic": "a", "gone": "1"}
    proposed = {"connection.password": "other", "topic": "a", "new": "2"}
    assert difference(running, proposed) == [
        {"key": "connection.password", "before": "[hidden]", "after": "[hidden], another one"},
        {"key": "gone", "before": "1", "after": None},
        {"key": "new", "before": None, "after": "2"},
    ]
