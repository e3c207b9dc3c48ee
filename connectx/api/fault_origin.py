"""The origin of a fault in the history: requested by a user, scheduled, or part of a chaos.

A verb that a user calls is recorded as asked for. Chaos and schedules set their own cause for the calling thread (a
context variable), because several threads may break the same cluster at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from connectx.model.events import EventKind, Transition

_ORIGIN: ContextVar[Mapping[str, object]] = ContextVar("connectx_fault_origin")
_CAUSE = "cause"


@contextmanager
def caused_by(cause: str, **data: object) -> Iterator[None]:
    """Within the block, faults of this thread have this cause, and `data` beside their own."""
    before = _ORIGIN.set({**_ORIGIN.get({}), **data, _CAUSE: cause})
    try:
        yield
    finally:
        _ORIGIN.reset(before)


def injected(fault: str, **data: object) -> Transition:
    """A fault as an event of the history."""
    return _event(EventKind.FAULT_INJECTED, f"{fault} was asked for", fault, data)


def failed(fault: str, error: str, **data: object) -> Transition:
    """A fault that was to come and could not be injected."""
    return _event(EventKind.FAULT_FAILED, error, fault, {**data, "error": error})


def _event(kind: EventKind, cause: str, fault: str, data: Mapping[str, object]) -> Transition:
    origin = dict(_ORIGIN.get({}))
    said = str(origin.pop(_CAUSE, cause))
    return Transition(kind, cause=said, data={"fault": fault, **data, **origin})
