"""Rules that hold for both loops of tasks after every step. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, Protocol

from connectx.core.loops.messages import EffectFailed
from connectx.core.rules import BrokenRule, Marks, Rules, broken_rules, gone_back


class LoopRule(StrEnum):
    """A rule of both loops; the value is its sentence."""

    WORK_IS_ASKED = "a loop that starts, works or ends has an effect outstanding, and no other has"
    PAUSE_IS_ORDERED = "a loop that waits was ordered to, and neither stopped nor cancelled"
    FAILURE_ENDS = "a loop that has not started or waits has no failure"
    NEVER_BACK = "time and the numbers that were given never go back"


class Loop(Protocol):
    """What the rules read of a loop."""

    @property
    def phase(self) -> StrEnum:
        """Where it is."""

    outstanding: dict[int, Any]
    last_number: int
    pause_requested: bool
    stop_requested: bool
    cancelled: bool
    failure: EffectFailed | None


def broken_by(rules: Rules[Any, Any], loop: Any, before: Marks | None) -> tuple[BrokenRule, ...]:
    """Return the rules of both loops, and of one kind of loop, that do not hold; none is sound."""
    back = () if before is None else gone_back(LoopRule.NEVER_BACK, before, loop.marks())
    return (*broken_rules(_RULES, loop), *broken_rules(rules, loop), *back)


def _work_is_asked(loop: Loop) -> Iterator[str]:
    if bool(loop.outstanding) != (loop.phase in ("starting", "working", "ending")):
        yield f"{loop.phase}, and {list(loop.outstanding.values()) or 'nothing'} is outstanding"
    if any(number > loop.last_number for number in loop.outstanding):
        yield f"{max(loop.outstanding)} was given after {loop.last_number}"


def _pause_is_ordered(loop: Loop) -> Iterator[str]:
    if loop.phase == "waiting" and (not loop.pause_requested or loop.stop_requested or loop.cancelled):
        yield "it waits"


def _failure_ends(loop: Loop) -> Iterator[str]:
    if loop.phase in ("new", "waiting") and loop.failure is not None:
        yield f"{loop.phase} after {loop.failure.error}"


_RULES: Final[Mapping[LoopRule, Any]] = {
    LoopRule.WORK_IS_ASKED: _work_is_asked,
    LoopRule.PAUSE_IS_ORDERED: _pause_is_ordered,
    LoopRule.FAILURE_ENDS: _failure_ends,
}
