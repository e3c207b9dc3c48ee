"""Waiting for a condition, with a limit: the one way in which tests on real parts wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

WAIT_S = 90.0
"""Longer than any flow over Spark takes on a busy machine."""

_POLL_S = 0.02
_SHARE = 3.0
_LONGEST_POLL_S = 0.5

T = TypeVar("T")


def until(condition: Callable[[], T | None], what: str = "a condition", timeout_s: float = WAIT_S) -> T:
    """Return the first true value of `condition`, polled every 20 ms or more; fail after `timeout_s`.

    A condition that reads tables or asks workers is polled less often, because what it waits for needs the processor.
    """
    end_s = time.monotonic() + timeout_s
    while True:
        began_s = time.monotonic()
        if found := condition():
            return found
        now_s = time.monotonic()
        assert now_s < end_s, f"waited {timeout_s:g} s for {what}"
        time.sleep(min(max(_POLL_S, _SHARE * (now_s - began_s)), _LONGEST_POLL_S))
