"""Fingerprints of the rows of a place (a topic, a file, a table, a source), for a check. Pure.

A row is identified by canonical bytes that all its copies share. Only a fingerprint of 8 bytes is kept of each; among
ten million rows, two different ones have the same with a probability of 1 to 10^6. A second reading finds the rows that
are shown as examples.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from connectx.values import Value

if TYPE_CHECKING:
    import numpy as np

MAX_ROWS = 5_000_000
"""How many rows of one place are compared; about 100 bytes of memory each at the most."""

OnRead = Callable[[str, int, int], None]
"""Called with a place, how many of its rows were read (every 2,000, and all at the end), and about how many it has (0
while that is unknown). It may raise to end the reading."""
_REPORT_ROWS = 2_000


class Row(Value):
    """One row.

    Attributes:
        identity: what its copies have in common.
        text: how an example shows it.
        partition, offset, time_ms: where it is; rows of one partition have an order. Of what a source holds, the
            partition numbers its source partitions.
        topic: where it comes from, if that is a topic.
        pending: it may come later; its absence is no loss.
        excused: a dead letter; its absence is no loss.
        older: it was in the target before the connector was created.
    """

    identity: bytes
    text: str = ""
    partition: int | None = None
    offset: int | None = None
    time_ms: int | None = None
    topic: str = ""
    pending: bool = False
    excused: bool = False
    older: bool = False


class Rows(Value):
    """A place that can be read again and again, with the same rows in the same order within each partition.

    Attributes:
        size: about how many rows it has, 0 where that is unknown.
    """

    place: str
    read: Callable[[], Iterable[Row]]
    size: int = 0


class Prints(Value):
    """What is kept of rows: arrays of the same length, and whether rows were left out because of the limit."""

    prints: np.ndarray[Any, Any]
    partitions: np.ndarray[Any, Any]
    pending: np.ndarray[Any, Any]
    excused: np.ndarray[Any, Any]
    older: np.ndarray[Any, Any]
    cut: bool

    def __len__(self) -> int:
        return len(self.prints)

    def recent(self) -> Prints:
        """Without rows that are older than the connector."""
        if not self.older.any():
            return self
        mine = ~self.older
        return Prints(
            self.prints[mine],
            self.partitions[mine],
            self.pending[mine],
            self.excused[mine],
            self.older[mine],
            self.cut,
        )


def fingerprint(identity: bytes) -> int:
    """64 bits that stand for an identity, the same in every process."""
    return int.from_bytes(blake2b(identity, digest_size=8).digest())


def take_prints(rows: Rows, on_read: OnRead, limit: int = MAX_ROWS) -> Prints:
    """Read a place up to `limit` rows."""
    import numpy as np

    prints, partitions, pending = array("Q"), array("i"), array("b")
    excused, older = array("b"), array("b")
    cut = False
    for count, row in enumerate(rows.read()):
        if count == limit:
            cut = True
            break
        prints.append(fingerprint(row.identity))
        partitions.append(-1 if row.partition is None else row.partition)
        pending.append(row.pending)
        excused.append(row.excused)
        older.append(row.older)
        if (count + 1) % _REPORT_ROWS == 0:
            on_read(rows.place, count + 1, max(rows.size, count + 2) if rows.size else 0)
    on_read(rows.place, len(prints), len(prints))
    return Prints(
        np.array(prints, dtype=np.uint64),
        np.array(partitions, dtype=np.int32),
        np.array(pending, dtype=bool),
        np.array(excused, dtype=bool),
        np.array(older, dtype=bool),
        cut,
    )


def pick(
    rows: Rows, wanted: Iterable[int], on_read: OnRead = lambda place, rows, size: None, *, copies: bool = False
) -> list[Row]:
    """Rows with these fingerprints, in the order of `wanted`: the first of each, or all copies of each by time."""
    found: dict[int, list[Row]] = {one: [] for one in wanted}
    left = len(found)
    for count, row in enumerate(rows.read() if found else (), start=1):
        if count % _REPORT_ROWS == 0:
            on_read(rows.place, count, max(rows.size, count + 1) if rows.size else 0)
        same = found.get(fingerprint(row.identity))
        if same is None:
            continue
        left -= not same
        same.append(row)
        if left == 0 and not copies:
            break
    for same in found.values():
        same.sort(key=lambda row: (row.time_ms or 0, row.partition or 0, row.offset or 0))
    return [row for same in found.values() for row in (same if copies else same[:1])]
