"""The system clock, for code that starts a history or a worker. Everything below takes a `Clock`."""

from __future__ import annotations

import time

from connectx.model.clock import Clock


def system_clock() -> Clock:
    """Return a clock of milliseconds since 1970: anchored to wall-clock time once, then monotonic."""
    anchor_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (anchor_ns + time.monotonic_ns()) // 1_000_000
