"""Waits for commits of a connector, by the events of a history."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from connectx.errors.rest import WaitTimeoutError
from connectx.history.log import EventLog
from connectx.history.wording import plural
from connectx.model.events import Event
from connectx.model.payloads import OffsetsCommitted, TransactionCommitted
from connectx.verify.check.judge import blocked

_Committed = TransactionCommitted | OffsetsCommitted


def wait_committed(
    events: EventLog,
    connector: str,
    records: int,
    offset: Mapping[str, Any] | None,
    worker: str | None,
    since: int,
    timeout_s: float,
    waits: Callable[[], str] = lambda: "",
) -> Event:
    """Wait for the commit that meets all conditions; see `ConnectCluster.wait_committed`.

    `waits` returns the sentence why a task waits or retries; empty: it does neither.
    """
    deadline, seen, reached = time.monotonic() + timeout_s, 0, offset is None
    with events.subscribe(since) as news:
        while True:
            for event in news.get(max(0.0, deadline - time.monotonic())):
                committed = event.payload
                if not isinstance(committed, _Committed) or event.connector != connector:
                    continue
                if worker not in (None, event.worker):
                    continue
                seen += committed.records
                reached = reached or _has_offset(committed, offset)
                if reached and seen >= records:
                    return event
            if time.monotonic() >= deadline:
                where = "" if offset is None else f", and not the offset {dict(offset)}"
                count = f"{seen:,} of {plural(records, 'record')}" if records else plural(seen, "record")
                text = f"Connector {connector} has committed {count}{where} within {timeout_s:g} s"
                if failed := blocked(list(events)).get(connector):
                    raise WaitTimeoutError(
                        f"{text}: {failed.why.rstrip('.')}.", next_step="Repair the cause, and restart the task."
                    )
                if reason := waits():
                    raise WaitTimeoutError(
                        f"{text}: a task waits: {reason.rstrip('.')}.",
                        next_step="Repair the cause; the task continues without a restart.",
                    )
                raise WaitTimeoutError(
                    f"{text}.", next_step="Wait longer with timeout=, or see cluster.events for what happened."
                )


def _has_offset(committed: _Committed, offset: Mapping[str, Any] | None) -> bool:
    """Whether a source has committed this offset in some source partition."""
    offsets = committed.offsets
    return isinstance(offsets, tuple) and any(covered.offset == offset for covered in offsets)
