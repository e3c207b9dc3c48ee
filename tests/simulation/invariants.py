"""What must always hold, by number as in docs/kip-618.md, and how a breach is raised."""

from __future__ import annotations

from typing import NoReturn

from tests.support.kip618 import rules

SENTENCES = {int(rule.id.removeprefix("always.")): rule.text for rule in rules()["What must always hold"]}


class Broken(AssertionError):
    """An invariant does not hold. `number` is its number, `detail` what was seen."""

    def __init__(self, number: int, detail: str) -> None:
        super().__init__(f"invariant {number} is broken: {detail}\n  {SENTENCES[number]}")
        self.number = number
        self.detail = detail


def broken(number: int, detail: str) -> NoReturn:
    """Stop the run."""
    raise Broken(number, detail)


def must(number: int, holds: bool, detail: str) -> None:
    """Stop the run unless it holds."""
    if not holds:
        raise Broken(number, detail)
