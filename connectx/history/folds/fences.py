"""The worker that fenced a producer, as the fenced worker found out later (FENCED_BY). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from connectx.model.causes import TakenOver
from connectx.model.events import Event
from connectx.model.payloads import FencedBy, ProducerFenced, WorkerStarted


def fenced_by(events: Iterable[Event]) -> dict[int, str]:
    """By the number of each PRODUCER_FENCED event: who it was, as a sentence part; missing while that is not known."""
    names: dict[str, str] = {}
    waiting: dict[tuple[str | None, str | None, int | None], int] = {}
    found: dict[int, str] = {}
    for event in events:
        where = (event.worker, event.connector, event.task)
        match event.payload:
            case WorkerStarted(url) if event.worker is not None and url:
                names[urlsplit(url).netloc] = event.worker
            case ProducerFenced():
                waiting[where] = event.seq
            case FencedBy(known=True) if where in waiting:
                found[waiting.pop(where)] = _text(event, names)
    return found


def _text(event: Event, names: dict[str, str]) -> str:
    takeover = event.why
    if isinstance(takeover, TakenOver) and takeover.by in names:
        return takeover.worded(names[takeover.by])
    return event.cause
