"""Errors of the event log and of recordings."""

from __future__ import annotations

from connectx.errors.base import ConnectxError


class EventLogError(ConnectxError):
    """A file of events cannot be read or written; for a broken line the message names it."""


class RecordingError(ConnectxError):
    """A recording of a worker's core cannot be read, written or replayed; for a broken line the message names it."""


class EventTimeoutError(ConnectxError):
    """An expected event did not come in time."""

    retriable = True
