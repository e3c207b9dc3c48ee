"""Who a fault comes from: what the history says of it besides what it is.

A verb that was called by hand was asked for; one that chaos or a schedule calls says so. The origin belongs to the
calling thread (a context variable), because several of them may break the same cluster at the same time.
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
