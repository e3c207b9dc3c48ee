"""What a worker is told of a connector whose texts no topic can hold, such as names of files that are not UTF-8."""

from __future__ import annotations

from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any

import pytest

from connectx.core.messages import (
    ConnectorFailed,
    ConnectorStarted,
    GenerateTaskConfigs,
    StartConnector,
    Stimulus,
    StopConnector,
    TaskConfigsGenerated,
)
from connectx.model.states import TargetState
from connectx.plugins.api import SourceConnector
from connectx.plugins.config_providers import ConfigProviders
from connectx.runtime.tasks.connector_host import ConnectorHost

NAME = "caf\udce9.csv"


class Source(SourceConnector):
    """Starts, or fails with the name of a file."""

    def start(self, config: Mapping[str, str], context: Any) -> None:
        if "fails" in config:
            raise ValueError(f"{NAME} is empty")


def answers(config: dict[str, str | None], value: Any) -> tuple[Stimulus, ...]:
    """What is said of the start, and of task configs with this value."""
    said: SimpleQueue[Stimulus] = SimpleQueue()
    providers = ConfigProviders({}, lambda name: (None, "unknown"))
    order = StartConnector("c", 1, config, TargetState.STARTED)
    host = ConnectorHost(order, lambda given: Source(), lambda plugin, given: ({"file": value},), said.put, providers)
    host.start()
    host.execute(GenerateTaskConfigs("c", 1, config))
    host.execute(StopConnector("c", 1))
    found = (said.get(timeout=30), said.get(timeout=30))
    assert host.join(30)
    return found


@pytest.mark.parametrize("value", [NAME, b"bytes"])
def test_task_configs_that_no_topic_can_hold_are_the_connectors_failure(value: Any) -> None:
    _, made = answers({}, value)
    assert isinstance(made, TaskConfigsGenerated)
    assert made.task_configs == ()
    assert "Error" in str(made.error)


def test_task_configs_of_text_are_passed_on() -> None:
    begun, made = answers({}, "caf\u00e9.csv")
    assert isinstance(begun, ConnectorStarted)
    assert made == TaskConfigsGenerated("c", 1, ({"file": "caf\u00e9.csv"},))


def test_a_trace_can_always_be_written() -> None:
    begun, _ = answers({"fails": "yes"}, "x")
    assert isinstance(begun, ConnectorFailed)
    assert "caf\\udce9.csv is empty" in begun.trace
    assert begun.trace.encode()
