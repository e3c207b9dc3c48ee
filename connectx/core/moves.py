"""Moves between phases, by a table of permitted moves beside each enum of phases. Pure.

`moved` is the only way to enter a phase, so a move that a table does not have is found where it happens, not by what
follows from it. The diagrams in docs/how-it-works.md are generated from the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

_Phase = TypeVar("_Phase", bound=StrEnum)
Moves = Mapping[_Phase, frozenset[_Phase]]
"""Phase to the phases that may follow it; one that is a key without phases ends."""


class IllegalMoveError(AssertionError):
    """A part entered a phase that cannot follow its present one: a defect of the core. `subject` is the part."""

    def __init__(self, subject: object, before: StrEnum, after: StrEnum) -> None:
        super().__init__(f"{subject} cannot go from {before} to {after}.")
        self.subject = subject


def moved(moves: Moves[_Phase], before: _Phase, after: _Phase, what: object) -> _Phase:
    """Return `after`, the next phase of `what`; staying in a phase is no move.

    Raises:
        IllegalMoveError: the table has no such move.
    """
    if after is not before and after not in moves[before]:
        raise IllegalMoveError(what, before, after)
    return after
