"""What must always hold, by number: the list of ARCHITECTURE.md in one sentence each, and how a breach is raised."""

from __future__ import annotations

from typing import NoReturn

SENTENCES = {
    1: "At most one instance of a task can commit: an older one is fenced before a newer one produces.",
    2: "What a read_committed consumer sees of a source partition is a gapless prefix without repeats.",
    3: "Source offsets only move forward and never ahead of the records committed with them.",
    4: "A task count record follows the latest task configs before a source task of theirs starts.",
    5: "One leader per group generation; an assignment names nothing twice and, after the delay, leaves nothing out.",
    6: "A partly written set of task configs is never acted on.",
    7: "A completion from an older generation or epoch changes nothing.",
    8: "A sink never acknowledges offsets whose rows are not in the target, nor of partitions that it does not own; an "
    "exactly-once sink holds each row once, and the target refuses a zombie.",
    9: "After faults end, the group becomes stable, every task runs once, and lag goes to zero within a bound.",
}


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
