"""Lanes of a task: the worker itself (tail) or Spark's executors (bulk), and the choice between them.

*Tail*: the worker converts and writes batch by batch, within milliseconds. *Bulk*: a Spark job does both for a slice
of many megabytes, and the worker only commits it. A job costs about three times the processor time of the tail, so it
pays for a large lag and several cores. Both lanes give the same results; this module decides only which one is used.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from connectx.model.causes import BulkModeSet, Cause, FewCores, LaneObstacle, LittleWaits, MuchWaits
from connectx.values import Value

MIN_CORES: Final = 4
"""Cores from which on a job is faster than the worker."""

_LEAVE: Final = 4  # a bulk lane ends below this part of the bytes that it begins with


class Lane(StrEnum):
    """Where records are converted and written."""

    TAIL = "tail"
    BULK = "bulk"


class BulkMode(StrEnum):
    """Values of `bulk.mode`."""

    AUTO = "auto"
    NEVER = "never"
    ALWAYS = "always"


class LaneSettings(Value):
    """`bulk.*` of a connector. `min_bytes` are waiting bytes from which on `auto` uses Spark."""

    mode: BulkMode = BulkMode.AUTO
    min_bytes: int = 64 << 20


class LaneChoice(Value):
    lane: Lane
    reason: Cause


def choose_lane(
    settings: LaneSettings, current: Lane, waiting_bytes: int, cores: int | None, obstacle: str | None = None
) -> LaneChoice:
    """The lane of the next records.

    With `auto` the bulk lane begins at `min_bytes` and ends below a quarter of them, so that a lag near the limit does
    not change the lane with each poll.

    Args:
        settings: of the connector.
        current: the lane of the last records.
        waiting_bytes: lag of a sink, or size of a source's next slice.
        cores: cores of Spark's executors; None while they are not known, which counts as too few.
        obstacle: why the connector cannot use Spark; None if it can.
    """
    if settings.mode is BulkMode.NEVER:
        return LaneChoice(Lane.TAIL, BulkModeSet(settings.mode))
    if obstacle is not None:
        return LaneChoice(Lane.TAIL, LaneObstacle(obstacle))
    if settings.mode is BulkMode.ALWAYS:
        return LaneChoice(Lane.BULK, BulkModeSet(settings.mode))
    limit = settings.min_bytes if current is Lane.TAIL else settings.min_bytes // _LEAVE
    if waiting_bytes < limit:
        return LaneChoice(Lane.TAIL, LittleWaits(waiting_bytes, limit))
    if cores is None or cores < MIN_CORES:
        return LaneChoice(Lane.TAIL, FewCores(waiting_bytes, cores, MIN_CORES))
    return LaneChoice(Lane.BULK, MuchWaits(waiting_bytes, cores))


def needs_cores(settings: LaneSettings, waiting_bytes: int, obstacle: str | None = None) -> bool:
    """Whether the number of cores decides, so that Spark should be asked for it."""
    return settings.mode is BulkMode.AUTO and obstacle is None and waiting_bytes >= settings.min_bytes
