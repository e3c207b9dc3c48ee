"""Messages of a slot as slices of whole transactions.

Pure but for the catalog that it asks about tables. Decides what each change becomes; never what is read or confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from connectx.connectors.postgres.cdc.events import CREATE, DELETE, TRUNCATE, UPDATE, Changes, TableShape
from connectx.connectors.postgres.cdc.positions import Position, Resumed
from connectx.errors import ReplicationMessageError
from connectx.protocol import pgoutput
from connectx.protocol.pgoutput import UNCHANGED, Begin, Commit, Delete, Insert, Relation, Row, Truncate, Update

Shapes = Callable[[Relation], TableShape | None]

_SKIPS_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(slots=True)
class Transactions:
    """Whole transactions in order, at most a slice of them, and the position after them."""

    position: Position
    changes: list[Changes] = field(default_factory=list)
    events: int = 0

    @property
    def parts(self) -> list[Changes]:
        """Changes in order: of each table as often as its columns changed."""
        return [part for part in self.changes if part.ops]


class Decoder:
    """Makes slices of the messages of one reading of a slot.

    Args:
        shapes: the table that a Relation message describes, None when it is not read.
        position: what was sent before.
        most: about how many events a slice takes.
        tombstones: whether a tombstone follows each delete.
        skipped: operations without events.
    """

    def __init__(
        self,
        shapes: Shapes,
        position: Position,
        most: int,
        *,
        tombstones: bool = True,
        skipped: frozenset[str] = _SKIPS_NOTHING,
    ) -> None:
        self._shapes = shapes
        self._most = most
        self._tombstones = tombstones
        self._skipped = skipped
        self._relations: dict[int, TableShape | None] = {}
        self._current: dict[int, Changes] = {}
        self._begin: Begin | None = None
        self._sends = False
        self._resumed: Resumed | None = None
        self._transaction: tuple[int | None, int | None, int] = (None, None, 0)
        self._slice = Transactions(position)

    @property
    def position(self) -> Position:
        """After the last whole transaction, also one without events."""
        return self._slice.position

    def slices(self, messages: Iterable[tuple[int, bytes]]) -> Iterator[Transactions]:
        """Slices with events, of messages with their LSNs.

        Raises:
            ReplicationMessageError: a message cannot be read, or the last transaction is not whole.
        """
        for lsn, data in messages:
            message = pgoutput.decode(data)
            match message:
                case Insert() | Update() | Delete():
                    if self._sends:
                        self._take(lsn, message)
                case Begin():
                    self._on_begin(message)
                case Commit():
                    if self._on_commit(message):
                        yield self._cut()
                case Relation():
                    self._relations[message.oid] = self._shapes(message)
                    self._current.pop(message.oid, None)
                case Truncate():
                    if self._sends:
                        self._take_truncate(lsn, message)
        if self._begin is not None:
            raise ReplicationMessageError(
                f"The slot gave the transaction {self._begin.xid} without its end.",
                next_step="Report it with the version of PostgreSQL.",
            )
        if self._slice.events:
            yield self._cut()

    # ---------------------------------------------------------------------------------------------- inner parts

    def _cut(self) -> Transactions:
        cut, self._slice = self._slice, Transactions(self._slice.position)
        self._current = {}
        return cut

    def _on_begin(self, begin: Begin) -> None:
        position = self._slice.position
        self._begin = begin
        self._sends = not position.has_sent(begin.commit_lsn, begin.xid)
        self._resumed = position.within(begin.xid) if self._sends else None
        self._transaction = (position.lsn, begin.xid, begin.commit_us)

    def _on_commit(self, commit: Commit) -> bool:
        """Move past the transaction; True when the slice is full."""
        begin, self._begin = self._begin, None
        if begin is None or begin.commit_lsn != commit.commit_lsn:
            raise ReplicationMessageError(
                f"The slot gave the end of a transaction at {commit.commit_lsn} without its begin.",
                next_step="Report it with the version of PostgreSQL.",
            )
        position = self._slice.position
        if commit.end_lsn > position.lsn:
            state = position.snapshot
            if state is not None and commit.end_lsn >= state.visible.until:
                state = None
            self._slice.position = Position(
                commit.end_lsn, snapshot=state, last_xid=begin.xid, commit_us=commit.commit_us
            )
        return self._slice.events >= self._most

    def _take(self, lsn: int, message: Insert | Update | Delete) -> None:
        shape = self._relations[message.relation]
        if shape is None or (self._resumed is not None and self._resumed.skips(lsn)):
            return
        changes = self._changes(message.relation, shape)
        match message:
            case Insert(_, new):
                self._add(changes, CREATE, None, new, lsn)
            case Delete(_, old, is_partial):
                self._delete(changes, old, lsn, is_partial=is_partial)
            case Update(_, new, old, is_partial):
                self._update(changes, old, _complete(new, old), lsn, is_partial=is_partial)

    def _update(self, changes: Changes, old: Row | None, new: Row, lsn: int, *, is_partial: bool) -> None:
        if old is not None and any(old[at] != new[at] for at in changes.shape.key):  # Debezium: another row then
            self._delete(changes, old, lsn, is_partial=is_partial)
            self._add(changes, CREATE, None, new, lsn)
        else:
            self._add(changes, UPDATE, None if is_partial else old, new, lsn)

    def _delete(self, changes: Changes, old: Row, lsn: int, *, is_partial: bool) -> None:
        if self._add(changes, DELETE, old, None, lsn, is_partial=is_partial) and self._tombstones and changes.shape.key:
            changes.add_tombstone()

    def _add(
        self, changes: Changes, op: str, before: Row | None, after: Row | None, lsn: int, *, is_partial: bool = False
    ) -> bool:
        if op in self._skipped:
            return False
        changes.add(op, before, after, lsn, self._transaction, is_partial=is_partial)
        self._slice.events += 1
        return True

    def _take_truncate(self, lsn: int, message: Truncate) -> None:
        for oid in message.relations:
            shape = self._relations.get(oid)
            if shape is not None and not (self._resumed is not None and self._resumed.skips(lsn)):
                self._add(self._changes(oid, shape), TRUNCATE, None, None, lsn)

    def _changes(self, oid: int, shape: TableShape) -> Changes:
        if oid not in self._current:
            self._current[oid] = Changes(shape)
            self._slice.changes.append(self._current[oid])
        return self._current[oid]


def _complete(new: Row, old: Row | None) -> Row:
    """The new row, with values that PostgreSQL did not send where the old row has them."""
    if old is None or UNCHANGED not in new:
        return new
    return tuple(
        before if value is UNCHANGED and before is not None else value for value, before in zip(new, old, strict=True)
    )


def after_wal(position: Position, lsn: int) -> Position:
    """The position when no transaction that commits before `lsn` is left."""
    state = position.snapshot
    if state is not None and lsn < state.visible.until:
        return replace(position, lsn=max(position.lsn, lsn))
    return replace(position, lsn=max(position.lsn, lsn), snapshot=None, xid=None)
