"""Rules of a core's state: what a broken one is, and how a core's table of rules is checked. Pure.

Tests and the simulation check each core after every step. A broken rule is a bug of the core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import TypeVar

from connectx.values import Value
from connectx.views import Shown

_Rule = TypeVar("_Rule", bound=StrEnum)
_Core = TypeVar("_Core")
Rules = Mapping[_Rule, Callable[[_Core], Iterator[str]]]
"""Rule to a function that returns what was found instead of it, nothing for a sound core."""

Marks = Mapping[str, int]
"""Numbers of a core that never go back, by name. One whose name is not there after a step is not compared."""


class BrokenRule(Shown, Value):
    """A rule that does not hold, whose value is its sentence, and what was found instead."""

    rule: StrEnum
    found: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.found}"


def broken_rules(rules: Rules[_Rule, _Core], core: _Core) -> Iterator[BrokenRule]:
    """Return the rules of a table that do not hold between two steps of a core."""
    for rule, check in rules.items():
        for found in check(core):
            yield BrokenRule(rule, found)


def gone_back(rule: StrEnum, before: Marks, after: Marks) -> Iterator[BrokenRule]:
    """Return the rule for each number that is lower after a step than it was before."""
    for name, was in before.items():
        now = after.get(name, was)
        if now < was:
            yield BrokenRule(rule, f"{name} went from {was} to {now}")
