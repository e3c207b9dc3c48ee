"""Waiting for a condition, with a limit: the one way in which tests on real parts wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

WAIT_S = 90.0
"""Longer than any flow over Spark takes on a busy machine."""

T = TypeVar("T")


def until(condition: Callable[[], T | None], what: str = "a condition", timeout_s: float = WAIT_S) -> T:
    """Return the first true value of `condition`, polled every 20 ms; fail after `timeout_s`."""
    end_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end_s, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.02)
    return found
