"""Messages of a slot as slices of whole transactions.

Pure but for the catalog that it asks about tables. Decides what each change becomes; never what is read or confirmed.
Changes are handled as columns, all of a table in a slice at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectx.connectors.cdc.events import (
    CREATE,
    DELETE,
    STREAMED,
    TRUNCATE,
    UPDATE,
    Changes,
    RowTexts,
    TableShape,
)
from connectx.connectors.cdc.positions import Position
from connectx.errors.databases import ReplicationMessageError
from connectx.protocol import pgoutput
from connectx.protocol.pgoutput import Begins, Commits, Messages, Relation, Rows, Texts

Shapes = Callable[[Relation], TableShape | None]

_SKIPS_NOTHING: Final[frozenset[str]] = frozenset()
_KINDS: Final = {pgoutput.INSERT: CREATE, pgoutput.UPDATE: UPDATE, pgoutput.DELETE: DELETE, pgoutput.TRUNCATE: TRUNCATE}
_OPS: Final = np.array([_KINDS.get(kind, "") for kind in range(max(_KINDS) + 1)])
"""Operation of each kind of message."""

_LONG_BYTES: Final = 64
"""Texts that are longer on average are copied one by one: an index of all of their bytes would take more memory."""

_MOST_BYTES: Final = (1 << 31) - 1
_NOT_DESCRIBED: Final = -2


@dataclass(slots=True)
class Transactions:
    """Whole transactions in order, at most a slice of them, and the position after them.

    `parts` are the changes in order: of each table as often as its columns changed.
    """

    position: Position
    parts: list[Changes] = field(default_factory=list)

    @property
    def events(self) -> int:
        """How many events there are."""
        return sum(map(len, self.parts))


class _Found(NamedTuple):
    """Changes of tables that are read, in order, as int64 arrays.

    Attributes:
        numbers: of their messages.
        shapes: numbers of the descriptions that are valid for them.
        transactions: numbers of their transactions.
    """

    numbers: Any
    shapes: Any
    transactions: Any

    def take(self, which: Any) -> _Found:
        """Some of the changes."""
        return _Found(*(column[which] for column in self))


class _Log(NamedTuple):
    """The transactions of one reading; `before` is the end of the one before each (int64)."""

    messages: Messages
    begins: Begins
    commits: Commits
    before: Any


class Decoder:
    """Makes slices of the messages of a slot, which describe each table before its first change.

    Args:
        shapes: the table that a Relation message describes, None when it is not read.
        position: what was sent before.
        most: about how many events a slice takes.
        tombstones: whether a tombstone follows each delete.
        skipped: operations without events.

    Attributes:
        position: after the last whole transaction of the slices so far, also one without events; what follows is sent.
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
        self._known: dict[int, TableShape | None] = {}  # by oid, as it was described last
        self.position = position

    def slices(self, messages: Messages) -> Iterator[Transactions]:
        """Slices with events.

        Raises:
            ReplicationMessageError: a message cannot be read, or a transaction is not whole.
        """
        log = _log(messages, self.position.lsn)
        shapes, found = self._found(log)
        found = found.take(self._is_new(log, found))
        counts = np.cumsum(np.bincount(found.transactions, minlength=len(log.before)))
        first, sent = 0, 0
        while first < len(counts):
            last = min(int(np.searchsorted(counts, sent + self._most)), len(counts) - 1)
            chosen = found.take(slice(sent, int(counts[last])))
            self.position = _after(self.position, log, last)
            parts = []
            for number in dict.fromkeys(chosen.shapes.tolist()):
                parts.append(self._part(log, shapes[number], chosen.take(chosen.shapes == number)))
                self._relax(shapes, number, parts[-1].shape)
            first, sent = last + 1, int(counts[last])
            if parts := [part for part in parts if len(part)]:
                yield Transactions(self.position, parts)

    def _found(self, log: _Log) -> tuple[list[TableShape], _Found]:
        """The descriptions of tables that are read, and the changes of these."""
        messages = log.messages
        numbers, oids = messages.changes()
        truncated = [(number, oid) for number, tables in messages.truncates() for oid in tables]
        numbers = np.concatenate([numbers, np.array([number for number, _ in truncated], np.int64)])
        oids = np.concatenate([oids, np.array([oid for _, oid in truncated], np.int64)])
        order = np.argsort(numbers, kind="stable")
        numbers, oids = numbers[order], oids[order]
        shapes: list[TableShape] = []
        described = np.where(messages.kinds[numbers] == pgoutput.TRUNCATE, -1, _NOT_DESCRIBED)
        new = [(number, relation.oid, self._shapes(relation)) for number, relation in messages.relations()]
        changed = np.unique(oids).tolist()
        for number, oid, shape in [*((-1, oid, self._known[oid]) for oid in changed if oid in self._known), *new]:
            described[(numbers > number) & (oids == oid)] = -1 if shape is None else len(shapes)
            if shape is not None:
                shapes.append(shape)
        self._known.update((oid, shape) for _, oid, shape in new)
        if (described == _NOT_DESCRIBED).any():
            raise _inconsistent("a change of a table that it did not describe")
        read = described >= 0
        transactions = np.searchsorted(log.begins.numbers, numbers[read], "right") - 1
        return shapes, _Found(numbers[read], described[read], transactions)

    def _is_new(self, log: _Log, found: _Found) -> Any:
        """Mask of the changes that were not sent before."""
        position, (_, commit_lsns, _, xids) = self.position, log.begins
        new = commit_lsns >= position.lsn
        if position.snapshot is not None:
            for number in np.flatnonzero(new & (commit_lsns < position.snapshot.visible.until)).tolist():
                new[number] = not position.has_sent(int(commit_lsns[number]), int(xids[number]))
        mask = new[found.transactions]
        for number in np.flatnonzero(new).tolist() if position.xid is not None else []:
            if (resumed := position.within(int(xids[number]))) is not None:
                for change in np.flatnonzero(found.transactions == number).tolist():
                    mask[change] = not resumed.skips(int(log.messages.lsns[found.numbers[change]]))
        return mask

    def _relax(self, shapes: list[TableShape], number: int, shape: TableShape) -> None:
        """Keep what the rows of a description showed for those that follow."""
        known, shapes[number] = shapes[number], shape
        self._known.update((oid, shape) for oid, other in self._known.items() if other is known)

    def _part(self, log: _Log, shape: TableShape, found: _Found) -> Changes:
        messages, numbers = log.messages, found.numbers
        kinds = messages.kinds[numbers]
        has_row = kinds != pgoutput.TRUNCATE
        rows = _completed(_read(messages.rows(numbers[has_row], shape.width), shape.places))
        row_of = np.where(has_row, np.cumsum(has_row) - 1, -1)
        shape = _with_nulls(shape, rows)
        marks = np.where(has_row, np.append(rows.marks, 0)[row_of], 0)
        is_old = (marks == pgoutput.KEY) | (marks == pgoutput.OLD)
        moved = np.zeros(len(numbers), bool)
        updated = np.flatnonzero(is_old & (kinds == pgoutput.UPDATE))
        if len(updated):
            moved[updated] = _moved(messages.buffer, rows, shape.message_key, row_of[updated])
        # Debezium: a row whose key changes is another row then.
        change = np.repeat(np.arange(len(numbers)), 1 + moved)
        is_second = np.append(False, change[1:] == change[:-1]) if len(change) else np.zeros(0, bool)
        ops = _OPS[kinds][change]
        ops[moved[change]] = DELETE
        ops[is_second] = CREATE
        kept = ~np.isin(ops, list(self._skipped)) if self._skipped else np.ones(len(ops), bool)
        change, ops = change[kept], ops[kept]
        is_delete, row, mark, has_moved = ops == DELETE, row_of[change], marks[change], moved[change]
        before = np.where(is_delete | has_moved | ((ops == UPDATE) & (mark == pgoutput.OLD)), row, -1)
        after = np.where((ops == CREATE) | (ops == UPDATE) | has_moved, row, -1)
        partial = (is_delete | has_moved) & (mark == pgoutput.KEY)
        transaction = found.transactions[change]
        return Changes(
            shape,
            pa.array(ops, pa.string()),
            _row_texts(messages.buffer, rows.old, before),
            _row_texts(messages.buffer, rows.new, after),
            lsns=pa.array(messages.lsns[numbers[change]]),
            commits=pa.array(log.before[transaction]),
            xids=pa.array(log.begins.xids[transaction]),
            moments=pa.array(log.begins.commits_us[transaction]),
            snapshot=pa.repeat(STREAMED, len(change)),
            partial=partial if partial.any() else None,
            tombstones=np.flatnonzero(is_delete) if self._tombstones and shape.message_key else (),
            moved=has_moved if has_moved.any() else None,
        )


def _log(messages: Messages, lsn: int) -> _Log:
    """Check that transactions are whole and follow each other."""
    begins, commits = messages.begins(), messages.commits()
    ends = messages.kinds[(messages.kinds == pgoutput.BEGIN) | (messages.kinds == pgoutput.COMMIT)]
    wrong = np.flatnonzero(ends != np.resize([pgoutput.BEGIN, pgoutput.COMMIT], len(ends)))
    at = int(wrong[0]) if len(wrong) else len(ends)
    if at % 2:
        raise _inconsistent(f"the transaction {begins.xids[at // 2]} without its end")
    if at < len(ends):
        raise _inconsistent(f"the end of a transaction at {commits.commit_lsns[at // 2]} without its begin")
    wrong = np.flatnonzero(begins.commit_lsns != commits.commit_lsns)
    if len(wrong):
        raise _inconsistent(f"the end of a transaction at {commits.commit_lsns[wrong[0]]} without its begin")
    before = np.maximum(lsn, np.append(lsn, commits.end_lsns[:-1])) if len(commits.end_lsns) else commits.end_lsns
    return _Log(messages, begins, commits, before)


def _inconsistent(what: str) -> ReplicationMessageError:
    return ReplicationMessageError(f"The slot gave {what}.", next_step="Report it with the version of PostgreSQL.")


def _after(position: Position, log: _Log, last: int) -> Position:
    """The position after a transaction."""
    end = int(log.commits.end_lsns[last])
    if end <= position.lsn:
        return position
    state = position.snapshot
    state = None if state is not None and end >= state.visible.until else state
    xid, moment_us = int(log.begins.xids[last]), int(log.begins.commits_us[last])
    return Position(end, snapshot=state, last_xid=xid, commit_us=moment_us)


def _with_nulls(shape: TableShape, rows: Rows) -> TableShape:
    """A table whose columns may be null where rows have nulls: they became NOT NULL later."""
    whole = rows.marks == pgoutput.OLD
    wrong = {
        number
        for number, (column, old, new) in enumerate(zip(shape.columns, rows.old, rows.new, strict=True))
        if not column.is_nullable
        and ((new.kinds == pgoutput.NULL).any() or (whole & (old.kinds == pgoutput.NULL)).any())
    }
    if not wrong:
        return shape
    columns = [replace(one, is_nullable=one.is_nullable or at in wrong) for at, one in enumerate(shape.columns)]
    return replace(shape, columns=tuple(columns))


def _read(rows: Rows, places: list[int]) -> Rows:
    """Rows with the columns that are read."""
    return Rows(rows.marks, [rows.old[at] for at in places], [rows.new[at] for at in places])


def _completed(rows: Rows) -> Rows:
    """Rows with values that PostgreSQL did not send where the old row has them."""
    new = []
    for before, after in zip(rows.old, rows.new, strict=True):
        filled = (after.kinds == pgoutput.UNCHANGED) & (before.kinds == pgoutput.TEXT)
        new.append(
            Texts(*(np.where(filled, *both) for both in zip(before, after, strict=True))) if filled.any() else after
        )
    return Rows(rows.marks, rows.old, new)


def _moved(buffer: Any, rows: Rows, key: tuple[int, ...], which: Any) -> Any:
    """Mask of the rows of updates whose key changed."""
    moved = np.zeros(len(which), bool)
    for at in key:
        old, new = rows.old[at].take(which), rows.new[at].take(which)
        differs = pc.fill_null(pc.not_equal(_gathered(buffer, old), _gathered(buffer, new)), False)
        moved |= (old.kinds != new.kinds) | differs.to_numpy(zero_copy_only=False)
    return moved


def _row_texts(buffer: Any, columns: list[Texts], rows: Any) -> RowTexts | None:
    """Some rows as texts; a negative number is none."""
    missing = rows < 0
    if missing.all():
        return None
    every = not missing.any() and len(rows) == len(columns[0].kinds) and bool((rows[1:] > rows[:-1]).all())
    taken = columns if every else [texts.take(rows) for texts in columns]
    unchanged = {
        number: mask for number, texts in enumerate(taken) if (mask := texts.kinds == pgoutput.UNCHANGED).any()
    }
    return RowTexts([_gathered(buffer, texts) for texts in taken], unchanged, missing if missing.any() else None)


def _gathered(buffer: Any, texts: Texts) -> pa.BinaryArray:
    """Texts one after another, null where there is none."""
    is_text = texts.kinds == pgoutput.TEXT
    lengths = np.where(is_text, texts.lengths, 0)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    if total > _MOST_BYTES:
        raise ReplicationMessageError(
            f"The values of a column have {total} bytes in one slice, and 2 GiB are possible.",
            next_step="Lower max.batch.size, or write smaller transactions, and restart the task.",
        )
    if total > _LONG_BYTES * len(lengths):
        view, places = memoryview(buffer), zip(texts.starts.tolist(), lengths.tolist(), strict=True)
        data = b"".join(view[start : start + size] for start, size in places)
    else:
        data = buffer[np.arange(total) + np.repeat(texts.starts - (ends - lengths), lengths)]
    offsets = np.append(0, ends).astype(np.int32)
    valid = None if is_text.all() else pa.array(is_text).buffers()[1]
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def after_wal(position: Position, lsn: int) -> Position:
    """The position when no transaction that commits before `lsn` is left."""
    state = position.snapshot
    if state is not None and lsn < state.visible.until:
        return replace(position, lsn=max(position.lsn, lsn))
    return replace(position, lsn=max(position.lsn, lsn), snapshot=None, xid=None)
