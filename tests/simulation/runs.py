"""One run of a simulated cluster from a seed or a trail, and the shortest trail that breaks the same invariant."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tests.simulation.chaos import Chaos
from tests.simulation.chooser import Chooser, Replay, Seeded
from tests.simulation.invariants import Broken


@dataclass
class Run:
    """What came out. `number` is that of the broken invariant, 0 for any other error, None when all held."""

    chaos: Chaos
    error: Exception | None = None
    trail: list[int] = field(default_factory=list)

    @property
    def number(self) -> int | None:
        if self.error is None:
            return None
        return self.error.number if isinstance(self.error, Broken) else 0

    @property
    def kind(self) -> tuple[int | None, str]:
        """What two runs must share to count as the same failure."""
        return self.number, "" if isinstance(self.error, Broken) else type(self.error).__name__

    def digest(self) -> str:
        """The history in a few letters: the same seed gives the same ones in every process."""
        return hashlib.sha256(repr(self.chaos.world.history).encode()).hexdigest()[:16]


def run(chooser: Chooser) -> Run:
    """Let a cluster live through what the chooser picks."""
    chaos = Chaos(chooser=chooser)
    error: Exception | None = None
    try:
        chaos.run()
    except Exception as raised:
        error = raised
    return Run(chaos, error, calmed(chooser.trail))


def run_seed(seed: int) -> Run:
    return run(Seeded(seed))


def run_trail(trail: list[int]) -> Run:
    return run(Replay(trail))


def calmed(trail: list[int]) -> list[int]:
    """Without the zeros at its end: a trail that has ended goes on with zeros."""
    end = len(trail)
    while end and trail[end - 1] == 0:
        end -= 1
    return trail[:end]


class Repeatable(Protocol):
    """A run that can be repeated from its trail."""

    trail: list[int]

    @property
    def kind(self) -> tuple[int | None, str]: ...


AnyRun = TypeVar("AnyRun", bound=Repeatable)


def shortest(failed: AnyRun, repeat: Callable[[list[int]], AnyRun], attempts: int = 300) -> AnyRun:
    """Cut, drop and zero choices, ever smaller pieces of them, while the same invariant breaks.

    Args:
        repeat: makes the run of a trail.
    """
    best, left = failed, attempts

    def tries(trail: list[int]) -> bool:
        nonlocal best, left
        trail = calmed(trail)
        if trail == best.trail or left == 0:
            return False
        left -= 1
        again = repeat(trail)
        if again.kind != failed.kind:
            return False
        best = again
        return True

    piece = max(1, len(best.trail) // 2)
    while piece and left:
        while len(best.trail) > piece and tries(best.trail[:-piece]):
            pass
        at = 0
        while at < len(best.trail):
            trail = best.trail
            if tries(trail[:at] + trail[at + piece :]):
                continue
            tries(trail[:at] + [0] * piece + trail[at + piece :])
            at += piece
        piece //= 2
    return best
