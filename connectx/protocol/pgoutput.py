"""Messages of PostgreSQL's output plugin pgoutput, protocol version 1, with values as text.

Pure. All messages of one reading lie in one buffer, and numpy reads each field of all of them at a time: a row costs
no Python object. Source: PostgreSQL documentation, "Logical Replication Message Formats", and proto.c.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np

from connectx.errors.databases import ReplicationMessageError
from connectx.model.decoding import refusing

POSTGRES_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970; PostgreSQL counts from there."""

BEGIN, COMMIT, RELATION, INSERT, UPDATE, DELETE, TRUNCATE = b"BCRIUDT"
KEY, OLD, NEW = b"KON"
"""What a row is: the old key, the whole old row, the new row."""

ABSENT, NULL, UNCHANGED, TEXT = b"\0nut"
"""Kinds of a value. ABSENT: without a row. UNCHANGED: stored out of line (TOAST) and not sent, as it did not change."""

_KINDS: Final = np.frombuffer(b"BCRIUDTOYM", np.uint8)
_ROWS: Final = np.array([INSERT, UPDATE, DELETE], np.uint8)
_BEGIN_BYTES: Final = 21
_COMMIT_BYTES: Final = 26
_COLUMN: Final = Struct(">Ii")
_COUNT: Final = Struct(">H")
_OID: Final = Struct(">I")
_TRUNCATE: Final = Struct(">IB")


def _unreadable(reason: str) -> ReplicationMessageError:
    return ReplicationMessageError(
        f"PostgreSQL sent a message of pgoutput that cannot be read: {reason}.",
        next_step="Report it with the version of PostgreSQL.",
    )


readable: Final = refusing(_unreadable)
"""Decorates what reads bytes of PostgreSQL."""


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column: `is_key` when it belongs to the replica identity, type by oid, `modifier` as in pg_attribute."""

    name: str
    type_oid: int
    modifier: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it was when the rows after this message were changed.

    `identity` is the replica identity: d (default), n (nothing), f (full) or i (index).
    """

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Begins(NamedTuple):
    """All starts of transactions, as int64 arrays.

    Attributes:
        numbers: of the messages.
        commit_lsns: where the commit records begin.
        commits_us: commit times, us since 1970.
        xids: transaction ids (32 bits).
    """

    numbers: Any
    commit_lsns: Any
    commits_us: Any
    xids: Any


class Commits(NamedTuple):
    """All ends of transactions, as int64 arrays: numbers of the messages, begin and end of the commit records."""

    numbers: Any
    commit_lsns: Any
    end_lsns: Any


class Texts(NamedTuple):
    """Values of one column: their kinds (uint8), and where in the buffer texts begin and how long they are (int64)."""

    kinds: Any
    starts: Any
    lengths: Any

    def take(self, numbers: Any) -> Texts:
        """The values of some rows; a negative number gives ABSENT."""
        return Texts(np.where(numbers < 0, ABSENT, self.kinds[numbers]), self.starts[numbers], self.lengths[numbers])


class Rows(NamedTuple):
    """Rows of inserts, updates and deletes.

    Attributes:
        marks: what each message begins with (uint8): KEY, OLD or NEW.
        old: columns of the old rows; ABSENT in messages without one.
        new: columns of the new rows; ABSENT in deletes.
    """

    marks: Any
    old: list[Texts]
    new: list[Texts]


class Messages:
    """Messages of one reading.

    Args:
        buffer: uint8, all messages one after another.
        starts, ends: int64, where each begins and ends.
        lsns: int64, of each.

    Attributes:
        buffer, lsns: as given.
        kinds: uint8, of each.

    Raises:
        ReplicationMessageError: a message is empty or of a kind that protocol version 1 does not have.
    """

    @readable
    def __init__(self, buffer: Any, starts: Any, ends: Any, lsns: Any) -> None:
        self.buffer = buffer
        self.lsns = lsns
        self._starts = starts
        self._ends = ends
        everything = np.arange(len(lsns))
        self._refuse(everything, ends <= starts, "it is empty")
        self.kinds = buffer[starts]
        self._refuse(everything, ~np.isin(self.kinds, _KINDS), "its kind is unknown")

    def __len__(self) -> int:
        return len(self.kinds)

    @readable
    def begins(self) -> Begins:
        """The starts of transactions in order."""
        numbers = self._all(BEGIN, _BEGIN_BYTES)
        at = self._starts[numbers]
        moments = self._numbers(at + 9, ">i8") + POSTGRES_EPOCH_US
        return Begins(numbers, self._numbers(at + 1, ">u8"), moments, self._numbers(at + 17, ">u4"))

    @readable
    def commits(self) -> Commits:
        """The ends of transactions in order."""
        numbers = self._all(COMMIT, _COMMIT_BYTES)
        at = self._starts[numbers]
        return Commits(numbers, self._numbers(at + 2, ">u8"), self._numbers(at + 10, ">u8"))

    def parts(self, least: int) -> Iterator[Messages]:
        """The messages as parts of whole transactions, each but the last with at least so many messages."""
        ends = np.flatnonzero(self.kinds == COMMIT) + 1
        first = 0
        while (place := int(np.searchsorted(ends, first + least))) < len(ends) - 1:
            yield self._slice(first, int(ends[place]))
            first = int(ends[place])
        yield self._slice(first, len(self))

    @readable
    def relations(self) -> list[tuple[int, Relation]]:
        """Number of the message and table, of each description of a table."""
        return [(number, _relation(self.data(number))) for number in self._of(RELATION)]

    @readable
    def truncates(self) -> list[tuple[int, tuple[int, ...]]]:
        """Number of the message and oids of the tables, of each TRUNCATE."""
        return [(number, _truncated(self.data(number))) for number in self._of(TRUNCATE)]

    @readable
    def changes(self) -> tuple[Any, Any]:
        """Numbers of all inserts, updates and deletes, and the oids of their tables (int64)."""
        numbers = np.flatnonzero(np.isin(self.kinds, _ROWS))
        starts = self._starts[numbers]
        self._refuse(numbers, starts + 6 > self._ends[numbers], "it ends before its row")
        return numbers, self._numbers(starts + 1, ">u4")

    @readable
    def rows(self, numbers: Any, width: int) -> Rows:
        """The rows of some inserts, updates and deletes of a table.

        Args:
            numbers: of the messages.
            width: how many columns the table has.

        Raises:
            ReplicationMessageError: a row has another form.
        """
        kinds, at, ends = self.kinds[numbers], self._starts[numbers] + 5, self._ends[numbers]
        marks = self.buffer[at]
        has_old, has_new = (marks == KEY) | (marks == OLD), kinds != DELETE
        fits = np.where(kinds == INSERT, marks == NEW, has_old | ((kinds == UPDATE) & (marks == NEW)))
        self._refuse(numbers, ~fits, "a row begins with another mark")
        old, at = self._row(numbers, at, ends, has_old, width)
        both = has_old & has_new
        self._refuse(numbers, both & (at >= ends), "it ends before its new row")
        self._refuse(numbers, both & (self.buffer[np.where(both, at, 0)] != NEW), "a row begins with another mark")
        new, at = self._row(numbers, at, ends, has_new, width)
        self._refuse(numbers, at != ends, "it has bytes after its end")
        return Rows(marks, old, new)

    @readable
    def data(self, number: int) -> bytes:
        """The bytes of a message."""
        return bytes(self.buffer[self._starts[number] : self._ends[number]])

    def _row(self, numbers: Any, at: Any, ends: Any, present: Any, width: int) -> tuple[list[Texts], Any]:
        """Read a row, which begins with its mark, in the messages where it is present; returns where each ends."""
        if not present.all():
            some = np.flatnonzero(present)
            everything = np.ones(len(some), bool)
            columns, at_some = self._row(numbers[some], at[some], ends[some], everything, width)
            after = at.copy()
            after[some] = at_some
            return [Texts(*(_spread(part, some, len(at)) for part in column)) for column in columns], after
        at = at + 1
        self._refuse(numbers, at + 2 > ends, "it ends within a row")
        self._refuse(numbers, self._numbers(at, ">u2") != width, f"a row has not {width} columns")
        at = at + 2
        columns = []
        for _ in range(width):
            self._refuse(numbers, at >= ends, "it ends within a row")
            kinds = self.buffer[at]
            is_text = kinds == TEXT
            self._refuse(numbers, ~is_text & (kinds != NULL) & (kinds != UNCHANGED), "a value is not text")
            self._refuse(numbers, is_text & (at + 5 > ends), "it ends within a row")
            lengths = np.where(is_text, self._numbers(np.where(is_text, at + 1, 0), ">u4"), 0)
            columns.append(Texts(kinds, at + 5, lengths))
            at = at + np.where(is_text, lengths + 5, 1)
            self._refuse(numbers, at > ends, "a value ends after it")
        return columns, at

    def _slice(self, first: int, end: int) -> Messages:
        chosen = slice(first, end)
        return Messages(self.buffer, self._starts[chosen], self._ends[chosen], self.lsns[chosen])

    def _of(self, kind: int) -> list[int]:
        found: list[int] = np.flatnonzero(self.kinds == kind).tolist()
        return found

    def _all(self, kind: int, size: int) -> Any:
        numbers = np.flatnonzero(self.kinds == kind)
        self._refuse(numbers, self._ends[numbers] - self._starts[numbers] != size, f"it has not {size} bytes")
        return numbers

    def _numbers(self, at: Any, kind: str) -> Any:
        """Numbers of a type of numpy at some places of the buffer, as int64."""
        if not len(at):
            return np.empty(0, np.int64)
        places = len(self.buffer) - np.dtype(kind).itemsize + 1
        return np.ndarray((places,), kind, self.buffer, strides=(1,))[at].astype(np.int64)

    def _refuse(self, numbers: Any, wrong: Any, reason: str) -> None:
        if wrong.any():
            raise _malformed(self.data(int(numbers[wrong.argmax()])), reason)


def _spread(values: Any, places: Any, count: int) -> Any:
    """An array of zeros with values at some places."""
    made = np.zeros(count, values.dtype)
    made[places] = values
    return made


def _relation(data: bytes) -> Relation:
    oid = _OID.unpack_from(data, 1)[0]
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    identity, (count,) = chr(data[at]), _COUNT.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        is_key = bool(data[at] & 1)
        column, at = _text(data, at + 1)
        type_oid, modifier = _COLUMN.unpack_from(data, at)
        columns.append(RelationColumn(column, type_oid, modifier, is_key))
        at += _COLUMN.size
    if at != len(data):
        raise _malformed(data, "it has bytes after its end")
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _truncated(data: bytes) -> tuple[int, ...]:
    first = 1 + _TRUNCATE.size
    if len(data) < first or len(data) != first + _TRUNCATE.unpack_from(data, 1)[0] * _OID.size:
        raise _malformed(data, "its size does not fit its number of tables")
    return tuple(_OID.unpack_from(data, at)[0] for at in range(first, len(data), _OID.size))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _malformed(data: bytes, reason: str) -> ReplicationMessageError:
    return _unreadable(f"it begins with {data[:1]!r}, and {reason}")
