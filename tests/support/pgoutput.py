"""Writes messages of pgoutput, protocol version 1, as PostgreSQL does (proto.c)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from connectx.protocol.pgoutput import (
    POSTGRES_EPOCH_US,
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Relation,
    RelationColumn,
    Row,
    Truncate,
    Update,
)


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
