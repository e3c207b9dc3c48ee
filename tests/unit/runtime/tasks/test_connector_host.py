"""What a worker is told of a connector: what its monitor asks for, and texts that no topic can hold."""

from __future__ import annotations

from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any

import pytest

from connectx.core.messages import (
    ConnectorFailed,
    ConnectorStarted,
    ConnectorStateReached,
    ConnectorStopped,
    GenerateTaskConfigs,
    SetConnectorTargetState,
    StartConnector,
    Stimulus,
    StopConnector,
    TaskConfigsGenerated,
    TaskReconfigurationRequested,
)
from connectx.model.states import TargetState
from connectx.plugins.config_providers import ConfigProviders
from connectx.plugins.connectors import SourceConnector
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


class Watching(SourceConnector):
    """Asks for new task configs at its first look, and fails at its second."""

    def start(self, config: Mapping[str, str], context: Any) -> None:
        self.context = context
        self.looks = 0

    def monitor_interval_ms(self) -> int | None:
        return 0

    def monitor(self) -> None:
        self.looks += 1
        if self.looks > 1:
            raise ValueError("the outside system is gone")
        self.context.request_task_reconfiguration()


def watched(target_state: TargetState) -> tuple[SimpleQueue[Stimulus], ConnectorHost, Watching]:
    said: SimpleQueue[Stimulus] = SimpleQueue()
    providers = ConfigProviders({}, lambda name: (None, "unknown"))
    plugin = Watching()
    order = StartConnector("c", 1, {}, target_state)
    host = ConnectorHost(order, lambda given: plugin, lambda plugin, given: (), said.put, providers)
    host.start()
    assert isinstance(said.get(timeout=30), ConnectorStarted)
    return said, host, plugin


def test_a_started_connector_is_monitored_until_its_monitor_fails() -> None:
    said, host, plugin = watched(TargetState.STARTED)
    assert said.get(timeout=30) == TaskReconfigurationRequested("c", 1)
    failed = said.get(timeout=30)
    assert isinstance(failed, ConnectorFailed)
    assert "the outside system is gone" in failed.trace
    host.execute(GenerateTaskConfigs("c", 1, {}))
    assert said.get(timeout=30) == TaskConfigsGenerated("c", 1, ())
    host.execute(StopConnector("c", 1))
    assert host.join(30)
    assert plugin.looks == 2


def test_a_paused_connector_is_not_monitored() -> None:
    said, host, _ = watched(TargetState.PAUSED)
    host.execute(SetConnectorTargetState("c", 1, TargetState.STARTED))
    assert isinstance(said.get(timeout=30), ConnectorStateReached)
    assert said.get(timeout=30) == TaskReconfigurationRequested("c", 1)
    host.execute(StopConnector("c", 1))
    assert host.join(30)


class Ending(Source):
    """Ends its program when it is asked for its interval."""

    def monitor_interval_ms(self) -> int | None:
        raise SystemExit(3)


def test_a_connector_that_ends_its_program_fails_alone() -> None:
    said: SimpleQueue[Stimulus] = SimpleQueue()
    order = StartConnector("c", 1, {}, TargetState.STARTED)
    providers = ConfigProviders({}, lambda name: (None, "unknown"))
    host = ConnectorHost(order, lambda given: Ending(), lambda plugin, given: (), said.put, providers)
    host.start()
    assert isinstance(said.get(timeout=30), ConnectorStarted)
    failed = said.get(timeout=30)
    assert isinstance(failed, ConnectorFailed)
    assert "SystemExit" in failed.trace
    host.execute(StopConnector("c", 1))
    assert isinstance(said.get(timeout=30), ConnectorStopped)
    assert host.join(30)
