"""Messages of pgoutput, protocol version 1, as PostgreSQL writes them (proto.c)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from connectx.connectors.cdc.backlog import messages_of
from connectx.protocol.pgoutput import POSTGRES_EPOCH_US, Messages, Relation, RelationColumn


class Unchanged:
    """Type of UNCHANGED."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged()
"""A value that PostgreSQL does not send."""

Row: TypeAlias = "tuple[bytes | Unchanged | None, ...]"


@dataclass(frozen=True)
class Begin:
    """Start of a transaction."""

    commit_lsn: int
    commit_us: int
    xid: int


@dataclass(frozen=True)
class Commit:
    """End of a transaction."""

    commit_lsn: int
    end_lsn: int
    commit_us: int


@dataclass(frozen=True)
class Insert:
    """A new row."""

    relation: int
    new: Row


@dataclass(frozen=True)
class Update:
    """A changed row; `old_is_key`: the old row has only its key."""

    relation: int
    new: Row
    old: Row | None
    old_is_key: bool


@dataclass(frozen=True)
class Delete:
    """A deleted row."""

    relation: int
    old: Row
    old_is_key: bool


@dataclass(frozen=True)
class Truncate:
    """Emptied tables."""

    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


Message: TypeAlias = "Begin | Commit | Relation | Insert | Update | Delete | Truncate"


def messages(pairs: Iterable[tuple[int, bytes]]) -> Messages:
    """What a reading gives, of LSNs and messages."""
    lsns, data = zip(*given, strict=True) if (given := list(pairs)) else ((), ())
    return messages_of([pa.table([pa.array(lsns, pa.int64()), pa.array(data, pa.binary())], ["lsn", "data"])])


def encoded(message: Message) -> bytes:
    """The bytes of a message."""
    match message:
        case Begin(lsn, micros, xid):
            return b"B" + struct.pack(">QqI", lsn, micros - POSTGRES_EPOCH_US, xid)
        case Commit(lsn, end, micros):
            return b"C" + struct.pack(">BQQq", 0, lsn, end, micros - POSTGRES_EPOCH_US)
        case Relation(oid, schema, name, identity, columns):
            head = b"R" + struct.pack(">I", oid) + _text(schema) + _text(name) + identity.encode()
            return head + struct.pack(">H", len(columns)) + b"".join(map(_column, columns))
        case Insert(oid, new):
            return b"I" + struct.pack(">I", oid) + b"N" + _row(new)
        case Update(oid, new, old, is_key):
            before = b"" if old is None else (b"K" if is_key else b"O") + _row(old)
            return b"U" + struct.pack(">I", oid) + before + b"N" + _row(new)
        case Delete(oid, old, is_key):
            return b"D" + struct.pack(">I", oid) + (b"K" if is_key else b"O") + _row(old)
        case Truncate(oids, cascade, restart):
            options = cascade | restart << 1
            return b"T" + struct.pack(">IB", len(oids), options) + b"".join(struct.pack(">I", oid) for oid in oids)
    raise AssertionError(message)


def relation(oid: int, *columns: str, name: str = "t", types: Sequence[int] = ()) -> Relation:
    """A table whose first column is the key; all columns are texts without `types`."""
    kinds = types or [25] * len(columns)
    made = tuple(RelationColumn(c, kind, -1, n == 0) for n, (c, kind) in enumerate(zip(columns, kinds, strict=True)))
    return Relation(oid, "public", name, "d", made)


def _column(column: RelationColumn) -> bytes:
    return bytes([column.is_key]) + _text(column.name) + struct.pack(">Ii", column.type_oid, column.modifier)


def _row(row: Row) -> bytes:
    parts = [struct.pack(">H", len(row))]
    for value in row:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, bytes):
            parts.append(b"t" + struct.pack(">I", len(value)) + value)
        else:
            assert value is UNCHANGED
            parts.append(b"u")
    return b"".join(parts)


def _text(text: str) -> bytes:
    return text.encode() + b"\0"
