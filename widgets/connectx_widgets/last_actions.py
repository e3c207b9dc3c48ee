"""What was last done to each connector: out of the history, and with the outcome when the panel did it."""

from __future__ import annotations

from typing import Any

from connectx.model.events import Event, EventKind
from connectx.model.payloads import ConnectorConfigured, RestartRequested, TargetStateChanged

_SOON_MS = 5_000
_VERBS = {"PAUSED": "pause", "STARTED": "resume", "STOPPED": "stop"}


class LastActions:
    """Takes events one by one, and the panel's own calls as they end."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Any]] = {}
        self._offsets: dict[str, int] = {}

    def take(self, event: Event) -> None:
        """Add the next event. Each worker reports what it reads in the config topic; the first report counts."""
        what, connector = _what(event), event.connector
        config_offset = getattr(event.payload, "config_offset", None)
        config_offset = event.seq if config_offset is None else config_offset
        if connector is None or config_offset <= self._offsets.get(connector, -1):
            return
        if event.kind is EventKind.CONNECTOR_DELETED:
            self._of.pop(connector, None)
        if what is not None:
            self._offsets[connector] = config_offset
            if self._is_recorded(connector, what, event.time_ms):
                return
            self._put(connector, {"what": what, "at": event.time_ms, "took_ms": None, "error": False})

    def done(self, connector: str, what: str, at_ms: int, took_ms: int, *, error: bool) -> None:
        """A call of the panel has ended."""
        self._put(connector, {"what": what, "at": at_ms, "took_ms": took_ms, "error": error})

    def of(self, connector: str) -> dict[str, Any] | None:
        """`what`, `at` (when it was over, milliseconds since 1970), `took_ms` (None: not by the panel), `error`."""
        return self._of.get(connector)

    def _is_recorded(self, connector: str, what: str, time_ms: int) -> bool:
        """True for what the panel has just done itself: a worker reads it a moment after the call has ended."""
        before = self._of.get(connector)
        own = before is not None and before["what"] == what and before["took_ms"] is not None
        return before is not None and own and time_ms - before["at"] < _SOON_MS

    def _put(self, connector: str, action: dict[str, Any]) -> None:
        before = self._of.get(connector)
        if before is None or before["at"] <= action["at"]:
            self._of[connector] = action


def _what(event: Event) -> str | None:
    match event.payload:
        case ConnectorConfigured(is_new):
            return "created" if is_new else "configured"
        case TargetStateChanged(target_state):
            return _VERBS.get(target_state)
        case RestartRequested(only_failed=only_failed):
            return "restart failed" if only_failed else "restart"
        case _:
            return None
