"""Permitted transitions between the states of a producer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from connectx.core.producer.messages import ProducerState as State

TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    # Initialize; a producer without producer ids is ready with it. Borrow: the transaction of another one is open.
    State.NEW: frozenset({State.INITIALIZING, State.READY, State.OPEN}),
    # The producer id was granted.
    State.INITIALIZING: frozenset({State.READY, State.FAILED}),
    # BeginTransaction. RENEWING without transactions: a batch with a sequence was refused, which leaves a gap.
    State.READY: frozenset({State.OPEN, State.RENEWING, State.FAILED}),
    # REFUSED: a batch was, or the producer was purged.
    State.OPEN: frozenset({State.COMMITTING, State.ABORTING, State.REFUSED, State.FAILED}),
    State.REFUSED: frozenset({State.ABORTING, State.FAILED}),
    # REFUSED only before EndTxn was sent. RENEWING: protocol 1, and a request stayed unanswered or failed.
    State.COMMITTING: frozenset({State.READY, State.RENEWING, State.REFUSED, State.ABORTING, State.FAILED}),
    # RENEWING: always with protocol 1, since a late batch could join the next transaction of the same epoch.
    State.ABORTING: frozenset({State.READY, State.RENEWING, State.FAILED}),
    State.RENEWING: frozenset({State.READY, State.FAILED}),
    # A new producer has to be made.
    State.FAILED: frozenset(),
}


class IllegalTransitionError(Exception):
    """A state was asked to be followed by one that cannot follow it."""

    def __init__(self, before: State, after: State) -> None:
        super().__init__(f"a producer that is {before} cannot become {after}")


def check(before: State, after: State) -> State:
    """Return the state after; raises IllegalTransitionError if it cannot follow."""
    if after not in TRANSITIONS[before]:
        raise IllegalTransitionError(before, after)
    return after
