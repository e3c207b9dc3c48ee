"""All chance of a simulated world: pick one of n. Drawn from a seed, replayed from a trail, or all ways in turn.

Choice 0 is the quiet one by convention (nothing fails, nothing is late), so that a trail gets calmer by zeros, and a
trail that has come to its end goes on calmly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Protocol, TypeVar

T = TypeVar("T")


class Chooser(Protocol):
    """Where a world's chance comes from. `trail` holds what was picked so far."""

    trail: list[int]

    def pick(self, n: int) -> int:
        """One of 0 to n - 1."""


class Seeded:
    """The same picks for the same seed, in every process."""

    def __init__(self, seed: int) -> None:
        self._draw = Random(seed).random
        self.trail: list[int] = []

    def pick(self, n: int) -> int:
        picked = int(self._draw() * n)
        self.trail.append(picked)
        return picked


class Replay:
    """What a trail says, and 0 when it has ended. A number that is too large means the last choice."""

    def __init__(self, trail: Iterable[int]) -> None:
        self._left = iter(trail)
        self.trail: list[int] = []

    def pick(self, n: int) -> int:
        picked = min(next(self._left, 0), n - 1)
        self.trail.append(picked)
        return picked


class Exhaustive:
    """Every way through a piece of code: run it again and again while `next_round` says that there is another way."""

    def __init__(self) -> None:
        self._plan: list[int] = []
        self._sizes: list[int] = []
        self._begun = False
        self.trail: list[int] = []

    def next_round(self) -> bool:
        """Prepare the next way; False when all have been taken."""
        if self._begun:
            picked = self.trail
            while picked and picked[-1] == self._sizes[len(picked) - 1] - 1:
                picked.pop()
            if not picked:
                return False
            self._plan = [*picked[:-1], picked[-1] + 1]
        self._begun = True
        self.trail, self._sizes = [], []
        return True

    def pick(self, n: int) -> int:
        at = len(self.trail)
        self.trail.append(self._plan[at] if at < len(self._plan) else 0)
        self._sizes.append(n)
        return self.trail[-1]


def one_of(chooser: Chooser, things: Sequence[T]) -> T:
    """One of these; the first is the quiet one."""
    return things[chooser.pick(len(things))]


def happens(chooser: Chooser, per_mille: int) -> bool:
    """True that often in a thousand times; no choice is taken where there is none."""
    return per_mille > 0 and chooser.pick(1000) >= 1000 - per_mille


def written(trail: Sequence[int]) -> str:
    """A trail as text, such as `3 0*12 7`: n*k stands for k times n."""
    parts: list[str] = []
    at = 0
    while at < len(trail):
        end = at
        while end < len(trail) and trail[end] == trail[at]:
            end += 1
        parts.append(str(trail[at]) if end - at == 1 else f"{trail[at]}*{end - at}")
        at = end
    return " ".join(parts)


def read(text: str) -> list[int]:
    """Inverse of `written`."""
    trail: list[int] = []
    for part in text.replace(",", " ").split():
        number, _, times = part.partition("*")
        trail += [int(number)] * int(times or 1)
    return trail
