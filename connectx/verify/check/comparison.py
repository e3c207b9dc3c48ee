"""Compares expected with found rows of a place: lost, duplicated, reordered. Pure.

Rows are counted as multisets, so equal rows in the data are no anomaly. Order is compared for unique rows, within one
partition on both sides, as Kafka guarantees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from connectx.values import Value
from connectx.verify.check.rows import MAX_ROWS, OnRead, Prints, Rows, take_prints

if TYPE_CHECKING:
    import numpy as np


class Comparison(Value):
    """What should be in one place, and what is there.

    Attributes:
        connectors: who moves them: sources for a topic, one sink for a target.
        found: what is there.
        wanted: what should be there; None: unknown.
        committed: number of records that were committed to the place, by the history; None: unknown.
        identified: rows have an identity that makes them unique (`key=`), so that an equal one is a copy.
        ordered: `found` has an order.
        exact: a row is in `found` as it is in `wanted`. Otherwise a row that is missing may be there in other form.
        from_topic: `wanted` is read from topics, whose offsets show when a row was committed.
        tolerated: how many records were skipped on purpose (errors.tolerance).
        hidden: why rows may be there that cannot be seen, so that none can be called lost.
        waits: what hides them will pass.
        goal: how many rows were wanted when the check began. Once so many are needed, later ones are not waited for.
        late: asked once `found` was read, without `wanted`: fingerprints of rows after one that should follow them.
        ahead: asked once both sides were read: whether `wanted` may hold what is to come to `found` yet.
        replayed: rows of `found` that no commit in the history explains are applied and compared elsewhere.
        unchecked: asked once both sides were read: what of them was not compared, as parts of sentences.
        outdated: asked once `wanted` was read: fingerprints of rows as they were before later records changed them.
        dead_letters: name of the sink's dead letter queue, and how many records it holds.
        count: counts the difference itself, instead of reading all of `found` and `wanted`, which have its examples.
    """

    connectors: tuple[str, ...]
    found: Rows
    wanted: Rows | None = None
    committed: int | None = None
    identified: bool = False
    ordered: bool = True
    exact: bool = True
    from_topic: bool = False
    tolerated: int = 0
    hidden: tuple[str, ...] = ()
    waits: bool = False
    goal: int | None = None
    late: Callable[[], Sequence[int]] = tuple
    ahead: Callable[[], bool] = bool
    replayed: bool = False
    unchecked: Callable[[], tuple[str, ...]] = tuple
    outdated: Callable[[], Sequence[int]] = tuple
    dead_letters: tuple[str, int] = ("", 0)
    count: Callable[[OnRead, int], Difference] | None = None


class Difference(Value):
    """How many rows of each kind, and the fingerprints of the first of them.

    `expected` counts those that have to be there and those of the pending that are, `needed` only the former;
    `repeated` counts equal rows whose expected number is unknown; `alien` those that should not be there
    and are no copies, `outdated` those of them that were right before; `pending` those that may still come. `older`
    counts rows that were there before the connector was created, which no other number does, and `unclear` wanted
    rows that are there only among these. With `by_key` only keys were compared.
    """

    found: int
    expected: int | None
    needed: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    repeated: int = 0
    alien: int = 0
    outdated: int = 0
    older: int = 0
    unclear: int = 0
    pending: int = 0
    cut: bool = False
    by_key: bool = False
    lost_prints: tuple[int, ...] = ()
    duplicated_prints: tuple[int, ...] = ()
    reordered_prints: tuple[int, ...] = ()
    alien_prints: tuple[int, ...] = ()


def compare(comparison: Comparison, on_read: OnRead, examples: int = 5, limit: int = MAX_ROWS) -> Difference:
    """Read both sides and count."""
    if comparison.count is not None:
        return comparison.count(on_read, examples)
    found = take_prints(comparison.found, on_read, limit)
    if comparison.wanted is None:
        return _alone(found, comparison, examples)
    wanted = take_prints(comparison.wanted, on_read, limit)
    if found.cut or wanted.cut:
        return Difference(len(found), None, cut=True)
    return _against(found, wanted, comparison, examples)


def _alone(found: Prints, comparison: Comparison, examples: int) -> Difference:
    """The difference when the expected rows are unknown, and at most their number is known."""
    import numpy as np

    prints, counts = np.unique(found.prints, return_counts=True)
    more = prints[counts > 1]
    surplus = int((counts - 1).sum())
    late = np.intersect1d(np.array(comparison.late(), dtype=np.uint64), prints[counts == 1])  # no copies
    missing = 0 if comparison.committed is None or found.cut else max(comparison.committed - len(found), 0)
    return Difference(
        len(found),
        comparison.committed,
        lost=missing,
        duplicated=surplus if comparison.identified else 0,
        reordered=len(late),
        repeated=0 if comparison.identified else surplus,
        cut=found.cut,
        duplicated_prints=_first(more, found, examples),
        reordered_prints=_first(late, found, examples),
    )


def _against(found: Prints, wanted: Prints, comparison: Comparison, examples: int) -> Difference:
    import numpy as np

    prints, where = np.unique(np.concatenate([wanted.prints, found.prints]), return_inverse=True)
    where = where.reshape(-1)
    in_wanted, in_found = where[: len(wanted)], where[len(wanted) :]
    count = len(prints)
    before = np.bincount(in_found[found.older], minlength=count)
    in_found, found = in_found[~found.older], found.recent()
    there = np.bincount(in_found, minlength=count)
    allowed = np.bincount(in_wanted, minlength=count)
    needed = np.bincount(in_wanted[~(wanted.pending | wanted.excused)], minlength=count)
    excused = np.bincount(in_wanted[wanted.excused], minlength=count)
    open_ = np.maximum(allowed - np.maximum(there, needed), 0)
    lost = np.maximum(needed - there, 0)
    unclear = np.minimum(lost, before)
    lost = lost - unclear
    surplus = np.where(allowed > 0, np.maximum(there - allowed, 0), 0)
    alien = np.where(allowed == 0, there, 0)
    late = in_found[:0]
    if comparison.ordered:
        late = np.unique(in_found[_late(in_found, in_wanted, allowed, found, wanted)])
    return Difference(
        len(found),
        int(np.maximum(needed, np.minimum(allowed, there)).sum()),
        needed=int(needed.sum()),
        lost=int(lost.sum()),
        duplicated=int(surplus.sum()),
        reordered=len(late),
        alien=int(alien.sum()),
        outdated=int(alien[np.isin(prints, np.array(comparison.outdated(), dtype=np.uint64))].sum()),
        older=int(before.sum()),
        unclear=int(unclear.sum()),
        pending=int(np.maximum(open_ - excused, 0).sum()),
        lost_prints=_first(prints[lost > 0], wanted, examples),
        duplicated_prints=_first(prints[surplus > 0], wanted, examples),
        reordered_prints=_first(prints[late], wanted, examples),
        alien_prints=_first(prints[alien > 0], found, examples),
    )


def _late(
    in_found: np.ndarray[Any, Any],
    in_wanted: np.ndarray[Any, Any],
    allowed: np.ndarray[Any, Any],
    found: Prints,
    wanted: Prints,
) -> np.ndarray[Any, Any]:
    """Indexes in `found` of unique rows that come after a row which should follow them; first copies only."""
    import numpy as np

    rank = np.full(len(allowed), -1, dtype=np.int64)
    rank[in_wanted] = np.arange(len(in_wanted))
    rank[allowed != 1] = -1
    _, first = np.unique(in_found, return_index=True)
    first = np.sort(first)
    first = first[rank[in_found[first]] >= 0]
    ranks = rank[in_found[first]]
    lanes = found.partitions[first].astype(np.int64) << 32 | (wanted.partitions[ranks].astype(np.int64) & 0xFFFFFFFF)
    late = [first[lane][_late_places(ranks[lane])] for lane in _lanes(lanes)]
    return np.concatenate(late) if late else first[:0]


def _lanes(lanes: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    import numpy as np

    for lane in np.unique(lanes):
        yield np.flatnonzero(lanes == lane)


def _late_places(ranks: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    result: np.ndarray[Any, Any] = np.maximum.accumulate(ranks) > ranks
    return result


def _first(prints: np.ndarray[Any, Any], order: Prints, examples: int) -> tuple[int, ...]:
    """Those of the fingerprints that come first in a place, partition by partition."""
    import numpy as np

    at = np.flatnonzero(np.isin(order.prints, prints))
    at = at[np.argsort(order.partitions[at], kind="stable")]
    return tuple(dict.fromkeys(order.prints[at].tolist()))[:examples]
