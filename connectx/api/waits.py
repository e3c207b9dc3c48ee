"""Waits for commits of a connector, by the events of a history."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from connectx.errors import WaitTimeoutError
from connectx.history.log import EventLog
from connectx.history.wording import plural
from connectx.model.events import Event, EventKind

_COMMITS = (EventKind.TRANSACTION_COMMITTED, EventKind.OFFSETS_COMMITTED)


def wait_committed(
    events: EventLog,
    connector: str,
    records: int,
    offset: Mapping[str, Any] | None,
    worker: str | None,
    since: int,
    timeout_s: float,
) -> Event:
    """Wait for the commit after which all of what is wanted holds; see `ConnectCluster.wait_committed`."""
    deadline, seen, reached = time.monotonic() + timeout_s, 0, offset is None
    with events.subscribe(since) as news:
        while True:
            for event in news.get(max(0.0, deadline - time.monotonic())):
                if event.kind not in _COMMITS or event.connector != connector or worker not in (None, event.worker):
                    continue
                seen += int(event.data.get("records", 0))
                reached = reached or _has_offset(event, offset)
                if reached and seen >= records:
                    return event
            if time.monotonic() >= deadline:
                where = "" if offset is None else f", and not the offset {dict(offset)}"
                count = f"{seen:,} of {plural(records, 'record')}" if records else plural(seen, "record")
                raise WaitTimeoutError(
                    f"Connector {connector} has committed {count}{where} within {timeout_s:g} s.",
                    next_step="Wait longer with timeout=, or see cluster.events for what happened.",
                )


def _has_offset(event: Event, offset: Mapping[str, Any] | None) -> bool:
    """Whether a source has committed this offset in some source partition."""
    committed = event.data.get("offsets")
    return isinstance(committed, list | tuple) and any(one.get("offset") == offset for one in committed)
