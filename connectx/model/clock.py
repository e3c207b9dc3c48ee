"""Time as the runtime reads it: a function that is passed in, so that a test can set it. Pure."""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], int]
"""Returns milliseconds since 1970, never less than it returned before."""
