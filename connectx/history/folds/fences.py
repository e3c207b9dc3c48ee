"""Who fenced a producer, as the worker that ran it found out (FENCED_BY): the other half of a rejected write. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from connectx.model.events import Event, EventKind


def fenced_by(events: Iterable[Event]) -> dict[int, str]:
    """By the number of each PRODUCER_FENCED event: who it was, in a sentence part; missing while nobody knows."""
    names: dict[str, str] = {}
    waiting: dict[tuple[str | None, str | None, int | None], int] = {}
    found: dict[int, str] = {}
    for event in events:
        where = (event.worker, event.connector, event.task)
        if event.kind is EventKind.WORKER_STARTED and event.worker is not None and event.data.get("url"):
            names[urlsplit(str(event.data["url"])).netloc] = event.worker
        elif event.kind is EventKind.PRODUCER_FENCED:
            waiting[where] = event.seq
        elif event.kind is EventKind.FENCED_BY and event.data.get("known") and where in waiting:
            by = str(event.data.get("by"))
            found[waiting.pop(where)] = event.cause.replace(f"worker {by}", names.get(by, f"worker {by}"))
    return found
