"""Waiting for a condition, with a limit: the one way in which integration tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], what: str = "a condition", timeout_s: float = 30.0) -> T:
    """The first true value of `condition`, which is asked again every 20 ms at most; fails after `timeout_s`."""
    end_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end_s, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.02)
    return found
