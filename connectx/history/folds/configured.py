"""Configured connectors and tasks, by the newest records of the config topic. Pure.

Every worker reports what it reads, some later than others. The newest record counts, whichever worker reported it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from connectx.model.events import Event
from connectx.model.payloads import ConnectorConfigured, ConnectorDeleted, TasksConfigured


@dataclass(slots=True)
class _Connector:
    config_offset: int = -1
    exists: bool = True
    since_seq: int = 0
    since_ms: int = 0
    tasks: int | None = None
    tasks_since_ms: int = 0


class ConfiguredFold:
    """Consumes events one by one, in order, and keeps what is configured."""

    def __init__(self) -> None:
        self._connectors: dict[str, _Connector] = {}

    def take(self, event: Event) -> None:
        change = event.payload
        if event.connector is None or not isinstance(change, ConnectorConfigured | ConnectorDeleted | TasksConfigured):
            return
        connector = self._connectors.setdefault(event.connector, _Connector())
        if change.config_offset is not None:
            if change.config_offset <= connector.config_offset:
                return  # a late worker repeats what others recorded before
            connector.config_offset = change.config_offset
        match change:
            case ConnectorDeleted():
                connector.exists, connector.tasks = False, None
            case ConnectorConfigured():
                if not connector.exists:  # created again: what ran under its name before was another one
                    connector.since_seq, connector.since_ms = event.seq, 0
                connector.exists, connector.since_ms = True, connector.since_ms or event.time_ms
            case TasksConfigured(tasks):
                if tasks != connector.tasks:
                    connector.tasks, connector.tasks_since_ms = tasks, event.time_ms
            case _:
                assert_never(change)

    def has(self, connector: str, task: int | None, seq: int) -> bool:
        """Whether a run that began with the event `seq` is configured; yes when it is unknown."""
        known = self._connectors.get(connector)
        if known is None:
            return True
        beyond = task is not None and known.tasks is not None and task >= known.tasks
        return known.exists and seq >= known.since_seq and not beyond

    def work(self) -> dict[tuple[str, int | None], int]:
        """Connectors and their tasks (None: the connector itself) to when they were configured, in milliseconds."""
        found: dict[tuple[str, int | None], int] = {}
        for name, connector in self._connectors.items():
            if connector.exists and connector.since_ms:
                found[(name, None)] = connector.since_ms
            if connector.exists:
                found |= {(name, task): connector.tasks_since_ms for task in range(connector.tasks or 0)}
        return found
