"""Keyed timers of the core, with a token to recognise outdated ones.

It decides whether a timer that fired still counts. It has no clock: the driver delivers `TimerFired` when the time of
`SetTimer` has come, and needs no way to cancel, because a token that is no longer awaited is not accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from connectx.core.messages import SetTimer, TimerFired
from connectx.core.timer_keys import TimerKey


@dataclass(slots=True)
class Timers:
    """Tokens of the timers that are set; a token is never used twice by one `Timers`."""

    last_token: int = 0
    awaited: dict[TimerKey, int] = field(default_factory=dict)

    def set(self, key: TimerKey, at_ms: int) -> SetTimer:
        """Order a timer for `at_ms` of the core's clock; an earlier one of that key no longer counts."""
        self.last_token += 1
        self.awaited[key] = self.last_token
        return SetTimer(key, self.last_token, at_ms)

    def cancel(self, *keys: TimerKey) -> None:
        """Forget timers; unknown keys are fine."""
        for key in keys:
            self.awaited.pop(key, None)

    def is_set(self, key: TimerKey) -> bool:
        """True while a timer of that key is awaited."""
        return key in self.awaited

    def expects(self, fired: TimerFired) -> bool:
        """True for the awaited token of a key, False for any other."""
        return self.awaited.get(fired.key) == fired.token

    def accept(self, fired: TimerFired) -> bool:
        """As `expects`, and forget the timer: it fires once."""
        if not self.expects(fired):
            return False
        del self.awaited[fired.key]
        return True
