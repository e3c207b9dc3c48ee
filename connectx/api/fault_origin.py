"""The origin of a fault in the history: requested by a user, scheduled, or part of a chaos.

A verb that a user calls is recorded as asked for. Chaos and schedules set their own cause for the calling thread (a
context variable), because several threads may break the same cluster at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from connectx.model.causes import FaultAsked, FaultOfChaos, FaultScheduled
from connectx.model.events import Transition
from connectx.model.payloads import FaultFailed, FaultInjected

_Origin = FaultScheduled | FaultOfChaos
_ORIGINS: ContextVar[tuple[_Origin, ...]] = ContextVar("connectx_fault_origins", default=())


@contextmanager
def caused_by(origin: _Origin) -> Iterator[None]:
    """Within the block, faults of this thread have this origin, in addition to those of enclosing blocks."""
    before = _ORIGINS.set((*_ORIGINS.get(), origin))
    try:
        yield
    finally:
        _ORIGINS.reset(before)


def injected(fault: str, **details: Any) -> Transition:
    """A fault as an event of the history; `details` are fields of `FaultInjected`."""
    return Transition(FaultInjected(fault, **details, **_origin()), why=_last() or FaultAsked(fault))


def failed(fault: str, error: str) -> Transition:
    """A planned or scheduled fault that could not be injected."""
    return Transition(FaultFailed(fault, error, **_origin()), why=_last())


def _last() -> _Origin | None:
    return next(iter(reversed(_ORIGINS.get())), None)


def _origin() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for origin in _ORIGINS.get():
        if isinstance(origin, FaultScheduled):
            found["after_s"] = origin.after_s
        else:
            found["chaos_seed"] = origin.seed
            if origin.number is not None:
                found["chaos_fault"] = origin.number
    return found
