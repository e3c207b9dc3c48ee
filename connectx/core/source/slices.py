"""Where a source task asked for the boundaries of a transaction: behind a slice, or behind single records of it.

Decides nothing. Mirrors Kafka Connect's WorkerTransactionContext (KIP-618).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Boundary:
    """What the task asked of its TransactionContext at one place (KIP-618): both at once is a mistake."""

    commit: bool = False
    abort: bool = False

    def __or__(self, other: Boundary) -> Boundary:
        return Boundary(self.commit or other.commit, self.abort or other.abort)


NO_BOUNDARY: Final = Boundary()
BOTH_ASKED: Final = (
    "The connector asked to commit and to abort the same transaction, so nothing of it was committed. Correct the "
    "connector: behind one slice or row it may ask for one of the two."
)


@dataclass(frozen=True, slots=True)
class SlicePart:
    """Records of a slice up to a place where the task asked for a boundary, or up to its end.

    `records` are those left to send, `offset` the source offset behind the part.
    """

    records: int
    offset: Mapping[str, Any]
    boundary: Boundary = NO_BOUNDARY
