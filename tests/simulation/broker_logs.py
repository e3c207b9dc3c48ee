"""Partitions of a model broker: records and control markers at log offsets, transactions, compaction.

It decides what a consumer sees. Mirrors Kafka's UnifiedLog with ProducerStateManager (last stable offset, aborted
transactions) and LogCleaner. A transaction is a number here; who may write in it is decided elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Outcome(Enum):
    """What a client is told about a transaction or an offset commit; the values are Kafka's names where it has one."""

    OK = "OK"
    FENCED = "FENCED"  # another producer has the transactional id
    EXPIRED = "EXPIRED"  # the same, but the transaction had been open for longer than its time-out
    INVALID_STATE = "INVALID_STATE"  # the client itself refuses: no transaction was begun, or one is open already
    UNKNOWN_MEMBER = "UNKNOWN_MEMBER_ID"
    ILLEGAL_GENERATION = "ILLEGAL_GENERATION"
    REBALANCE_IN_PROGRESS = "REBALANCE_IN_PROGRESS"
    NOT_COORDINATOR = "NOT_COORDINATOR"


@dataclass(slots=True)
class Entry:
    """A record, or the marker that ends a transaction in this partition."""

    log_offset: int
    value: Any
    transaction: int | None = None
    is_marker: bool = False


@dataclass(slots=True)
class Log:
    """One partition; `end` is the offset of the next record. Offsets have gaps after compaction, and at markers."""

    entries: list[Entry] = field(default_factory=list)
    end: int = 0
    open: dict[int, int] = field(default_factory=dict)  # transaction to the offset of its first record here
    aborted: set[int] = field(default_factory=set)

    @property
    def last_stable(self) -> int:
        """Where read_committed readers stop: the first record of an open transaction, or the end."""
        return min(self.open.values(), default=self.end)

    def append(self, values: Iterable[Any], transaction: int | None = None) -> None:
        for value in values:
            if transaction is not None:
                self.open.setdefault(transaction, self.end)
            self._add(value, transaction)

    def mark(self, transaction: int, *, commit: bool) -> None:
        """End a transaction: its marker takes an offset."""
        self.open.pop(transaction, None)
        if not commit:
            self.aborted.add(transaction)
        self._add(None, transaction, is_marker=True)

    def read(self, from_offset: int, *, committed: bool = True, limit: int | None = None) -> list[tuple[int, Any]]:
        """Records with their log offsets, markers left out; with `committed` none of an open or aborted transaction."""
        found: list[tuple[int, Any]] = []
        last_stable = self.last_stable
        for entry in self.entries[bisect_left(self.entries, from_offset, key=lambda entry: entry.log_offset) :]:
            if (committed and entry.log_offset >= last_stable) or len(found) == limit:
                break
            if not entry.is_marker and not (committed and entry.transaction in self.aborted):
                found.append((entry.log_offset, entry.value))
        return found

    def compact(self, key: Callable[[Any], Hashable]) -> None:
        """Keep the newest record of each key, and markers. What is not stable stays, and what was aborted goes."""
        last_stable = self.last_stable
        newest: dict[Hashable, int] = {}
        for log_offset, value in self.read(0):
            newest[key(value)] = log_offset
        kept = set(newest.values())
        self.entries = [
            entry
            for entry in self.entries
            if entry.is_marker or entry.log_offset >= last_stable or entry.log_offset in kept
        ]

    def _add(self, value: Any, transaction: int | None, *, is_marker: bool = False) -> None:
        self.entries.append(Entry(self.end, value, transaction, is_marker))
        self.end += 1
