"""Texts that leave a worker, without values of placeholders: errors in stimuli, and what tasks write to the history.

A worker's mailbox takes stimuli through here, and tasks record through here; so no status, event or answer of REST that
the core makes has a secret, whatever raised the error. The log has `connectx.plugins.hidden_values`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final, TypeVar

from connectx.model.events import Transition

_ERRORS: Final = ("error", "reason", "trace")
_SHOWN_CHARS: Final = 4000
T = TypeVar("T")


def masked_errors(stimulus: T, masked: Callable[[str], str]) -> T:
    """A stimulus whose texts of errors are masked; nothing else of it is, because the core works with it."""
    given = {name: getattr(stimulus, name, None) for name in _ERRORS}
    changed = {name: shown for name, text in given.items() if type(text) is str and (shown := masked(text)) != text}
    return replace(stimulus, **changed) if changed else stimulus  # type: ignore[type-var]


def masked_transition(transition: Transition, masked: Callable[[str], str]) -> Transition:
    """A task's transition whose texts are masked.

    They are cut, because an error may quote a whole record, and the history keeps many.
    """

    def without(record: Any) -> Any:
        texts = {field.name: getattr(record, field.name) for field in fields(record)}
        cut = {name: _cut(masked(text)) for name, text in texts.items() if type(text) is str}
        return replace(record, **cut)

    why = None if transition.why is None else without(transition.why)
    return replace(transition, payload=without(transition.payload), why=why)


def _cut(text: str) -> str:
    left_out = len(text) - _SHOWN_CHARS
    return text if left_out <= 0 else f"{text[:_SHOWN_CHARS]} … ({left_out:,} more characters)"
