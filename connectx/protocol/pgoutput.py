"""Messages of PostgreSQL's output plugin pgoutput, protocol version 1, with values as text.

Pure. Source: PostgreSQL documentation, "Logical Replication Message Formats"; logicalrep_write_* in proto.c.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final, TypeAlias

from connectx.errors import ReplicationMessageError

POSTGRES_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970; PostgreSQL counts from there."""

_BEGIN: Final = Struct(">QqI")
_COMMIT: Final = Struct(">BQQq")
_COLUMN: Final = Struct(">Ii")
_COUNT: Final = Struct(">H")
_OID: Final = Struct(">I")
_TRUNCATE: Final = Struct(">IB")
_NEW, _KEY, _OLD = ord("N"), ord("K"), ord("O")
_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")


class Unchanged:
    """Type of UNCHANGED."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
"""A value stored out of line (TOAST) that an update did not change; PostgreSQL does not send it."""

Value: TypeAlias = "bytes | Unchanged | None"
Row: TypeAlias = "tuple[Value, ...]"


@dataclass(frozen=True, slots=True)
class Begin:
    """Start of a transaction: LSN of its commit record, commit time (us since 1970), transaction id (32 bits)."""

    commit_lsn: int
    commit_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """End of a transaction: LSN of the commit record, LSN after it, commit time (us since 1970)."""

    commit_lsn: int
    end_lsn: int
    commit_us: int


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


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row."""

    relation: int
    new: Row


@dataclass(frozen=True, slots=True)
class Update:
    """A changed row. `old` is the row before, or only its key (`old_is_key`), or None when the key did not change."""

    relation: int
    new: Row
    old: Row | None
    old_is_key: bool


@dataclass(frozen=True, slots=True)
class Delete:
    """A deleted row. `old` is the row, or only its key (`old_is_key`) with nulls in all other columns."""

    relation: int
    old: Row
    old_is_key: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    """Emptied tables."""

    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class Other:
    """A message that changes no row: O (origin), Y (type) or M (logical message)."""

    kind: str


Message: TypeAlias = "Begin | Commit | Relation | Insert | Update | Delete | Truncate | Other"


def decode(data: bytes) -> Message:
    """Read one message.

    Raises:
        ReplicationMessageError: it is no message of protocol version 1, or has binary values.
    """
    try:
        message, end = _decode(data)
    except (StructError, IndexError, UnicodeDecodeError, ValueError) as error:
        raise _malformed(data, str(error) or type(error).__name__) from error
    if end != len(data):
        raise _malformed(data, f"it has {len(data) - end} bytes too many")
    return message


def _decode(data: bytes) -> tuple[Message, int]:
    match data[:1]:
        case b"I":
            _expect(data, 5, _NEW)
            new, end = _row(data, 6)
            return Insert(_OID.unpack_from(data, 1)[0], new), end
        case b"U":
            old, at = None, 5
            if (mark := data[5]) in (_KEY, _OLD):
                old, at = _row(data, 6)
            _expect(data, at, _NEW)
            new, end = _row(data, at + 1)
            return Update(_OID.unpack_from(data, 1)[0], new, old, old is not None and mark == _KEY), end
        case b"D":
            if (mark := data[5]) not in (_KEY, _OLD):
                raise ValueError(f"a row begins with {mark}")
            old, end = _row(data, 6)
            return Delete(_OID.unpack_from(data, 1)[0], old, mark == _KEY), end
        case b"B":
            lsn, micros, xid = _BEGIN.unpack_from(data, 1)
            return Begin(lsn, micros + POSTGRES_EPOCH_US, xid), 1 + _BEGIN.size
        case b"C":
            _, lsn, end_lsn, micros = _COMMIT.unpack_from(data, 1)
            return Commit(lsn, end_lsn, micros + POSTGRES_EPOCH_US), 1 + _COMMIT.size
        case b"R":
            return _relation(data)
        case b"T":
            count, options = _TRUNCATE.unpack_from(data, 1)
            end = 1 + _TRUNCATE.size + count * _OID.size
            relations = tuple(_OID.unpack_from(data, at)[0] for at in range(1 + _TRUNCATE.size, end, _OID.size))
            return Truncate(relations, bool(options & 1), bool(options & 2)), end
        case b"O" | b"Y" | b"M":
            return Other(chr(data[0])), len(data)
    raise ValueError("its kind is unknown")


def _row(data: bytes, at: int) -> tuple[Row, int]:
    """Values of a row, and where it ends."""
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    values: list[Value] = []
    for _ in range(count):
        kind = data[at]
        if kind == _TEXT:
            start = at + 5
            at = start + int.from_bytes(data[at + 1 : start], "big")
            if at > len(data):
                raise ValueError("a value ends after the message")
            values.append(data[start:at])
        elif kind == _NULL:
            values.append(None)
            at += 1
        elif kind == _UNCHANGED:
            values.append(UNCHANGED)
            at += 1
        else:
            raise ValueError(f"a value is of the kind {kind}")
    return tuple(values), at


def _relation(data: bytes) -> tuple[Relation, int]:
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
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns)), at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _expect(data: bytes, at: int, mark: int) -> None:
    if data[at] != mark:
        raise ValueError(f"a row begins with {data[at]}")


def _malformed(data: bytes, reason: str) -> ReplicationMessageError:
    return ReplicationMessageError(
        f"PostgreSQL sent a message of pgoutput ({data[:1]!r}) that cannot be read: {reason}.",
        next_step="Report it with the version of PostgreSQL.",
    )
