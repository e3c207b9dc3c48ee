"""Which connectors and tasks there are to run: what the config topic said last. Pure.

Every worker tells what it reads, some later than others; what the newest record says counts, whoever told it.
"""

from __future__ import annotations

from dataclasses import dataclass

from connectx.model.events import Event, EventKind


@dataclass(slots=True)
class _Connector:
    config_offset: int = -1
    exists: bool = True
    since_seq: int = 0
    since_ms: int = 0
    tasks: int | None = None
    tasks_since_ms: int = 0


class ConfiguredFold:
    """Takes events one by one, in order, and knows what is configured."""

    def __init__(self) -> None:
        self._connectors: dict[str, _Connector] = {}

    def take(self, event: Event) -> None:
        """Add the next event."""
        if event.connector is None or event.kind not in _KINDS:
            return
        connector = self._connectors.setdefault(event.connector, _Connector())
        offset = event.data.get("config_offset")
        if isinstance(offset, int):
            if offset <= connector.config_offset:
                return  # a late worker repeats what others recorded before
            connector.config_offset = offset
        if event.kind is EventKind.CONNECTOR_DELETED:
            connector.exists, connector.tasks = False, None
        elif event.kind is EventKind.CONNECTOR_CONFIGURED:
            if not connector.exists:  # made anew: what ran under its name before was another one
                connector.since_seq, connector.since_ms = event.seq, 0
            connector.exists, connector.since_ms = True, connector.since_ms or event.time_ms
        elif (tasks := event.data.get("tasks")) != connector.tasks and isinstance(tasks, int):
            connector.tasks, connector.tasks_since_ms = tasks, event.time_ms

    def has(self, connector: str, task: int | None, seq: int) -> bool:
        """Whether a run that began with the event `seq` is of something that is configured; yes when nobody said."""
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


_KINDS = (EventKind.CONNECTOR_CONFIGURED, EventKind.CONNECTOR_DELETED, EventKind.TASKS_CONFIGURED)
