"""Positions in a change stream: Debezium's source offsets, and the changes after them.

Pure. Mirrors PostgresOffsetContext and WalPositionLocator of Debezium 3.6. All LSNs are integers. The log is decoded
transaction by transaction in the order of commits, so that a position is the end of a commit, and for an offset that
Debezium wrote within a transaction also the last change that it had sent of that one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from connectx.errors.databases import ReplicationMessageError
from connectx.model.source_offsets import SourceOffset

SNAPSHOT: Final = "connectx_snapshot"
"""Key of an offset that Debezium ignores: the state of a snapshot, as JSON."""

_CHANGES: Final = ("INSERT", "UPDATE", "DELETE", "TRUNCATE")
"""Values of messageType when a change was the last message."""

_XID_BITS: Final = 32
_NUMBERS: Final = ("lsn", "lsn_proc", "lsn_commit", "lsn_events_processed", "txId", "ts_usec", "xmin")
_TEXTS: Final = ("snapshot", "messageType", "transaction_id", "origin", SNAPSHOT)
_FLAGS: Final = ("last_snapshot_record", "snapshot_completed")


@dataclass(frozen=True, slots=True)
class Visible:
    """Transactions whose changes a snapshot has, as pg_current_snapshot() writes them: `xmin:xmax:running,...`.

    `until` is an LSN after the commits of all of them.
    """

    text: str
    until: int

    def has(self, xid: int) -> bool:
        """True when the snapshot has the changes of a transaction, which is named by the lower 32 bits of its id."""
        low, high, running = self.text.split(":")
        xmin, xmax = int(low), int(high)
        whole = (xmax >> _XID_BITS << _XID_BITS) + xid
        if whole - xmax >= 1 << (_XID_BITS - 1):
            whole -= 1 << _XID_BITS
        elif xmax - whole > 1 << (_XID_BITS - 1):
            whole += 1 << _XID_BITS
        if whole < xmin:
            return True
        return whole < xmax and str(whole) not in running.split(",")


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows of a table between two values of its primary key, as texts.

    Attributes:
        after: key of the row before the first one; empty: there is no lower bound.
        to: key of the last row; empty: there is no upper bound.
    """

    after: tuple[str, ...] = ()
    to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """A snapshot that has begun.

    Attributes:
        visible: what its first transaction saw. Changes that a later transaction of it saw, too, come in the stream.
        done: tables that were read whole, as `schema.table`.
        reading: those that were read in part, with the ranges of rows that are left.
        finished: all rows were sent, and the stream has not passed `visible` yet.
    """

    visible: Visible
    done: tuple[str, ...] = ()
    reading: Mapping[str, tuple[KeyRange, ...]] = field(default_factory=dict)
    finished: bool = False

    def to_json(self) -> str:
        """Text for the source offset; inverse of `of`."""
        whole = {"xids": self.visible.text, "until": self.visible.until}
        if not self.finished:
            reading = {table: [[each.after, each.to] for each in left] for table, left in self.reading.items()}
            whole |= {"done": list(self.done), "reading": reading}
        return json.dumps(whole, separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> SnapshotState:
        """The state that `to_json` wrote."""
        given = json.loads(text)
        visible = Visible(str(given["xids"]), int(given["until"]))
        if "done" not in given:
            return cls(visible, finished=True)
        reading = {table: tuple(map(_key_range, left)) for table, left in given["reading"].items()}
        return cls(visible, tuple(given["done"]), reading)


def _key_range(given: Sequence[Sequence[str]]) -> KeyRange:
    after, to = map(tuple, given)
    return KeyRange(after, to)


@dataclass(frozen=True, slots=True)
class Position:
    """What was sent.

    Attributes:
        lsn: all transactions whose commit ends here or before were sent.
        xid: a transaction after `lsn` of which changes were sent; None: there is none.
        change_lsn, changes: of that one, changes before this LSN and so many at it were sent (None: all at it).
        snapshot: a snapshot whose rows or whose transactions are not all sent yet.
        last_xid, commit_us: id and commit time (us since 1970) of the last transaction, for records and offsets.
    """

    lsn: int
    xid: int | None = None
    change_lsn: int = 0
    changes: int | None = None
    snapshot: SnapshotState | None = None
    last_xid: int | None = None
    commit_us: int = 0

    @classmethod
    def of(cls, offset: SourceOffset) -> Position | None:
        """The position of an offset of connectx or Debezium; None: its snapshot has to begin again.

        Raises:
            ReplicationMessageError: the offset has no LSN.
        """
        state = SnapshotState.of(offset[SNAPSHOT]) if offset.get(SNAPSHOT) else None
        in_snapshot = bool(offset.get("snapshot")) and offset.get("snapshot") not in (False, "false")
        if (
            in_snapshot
            and state is None
            and not (offset.get("last_snapshot_record") or offset.get("snapshot_completed"))
        ):
            return None
        lsn, processed = offset.get("lsn"), offset.get("lsn_proc")
        committed = offset.get("lsn_commit", processed)
        if lsn is None:
            raise ReplicationMessageError(
                f"The source offset {json.dumps(dict(offset))} has no lsn.",
                next_step="Correct or delete the offsets of the connector, and restart it.",
            )
        base = int(lsn if committed is None else committed)
        kind, xid = offset.get("messageType"), offset.get("txId")
        micros = int(offset.get("ts_usec", 0))
        # A change right after a commit has the position of its end.
        is_partial = int(lsn) > base or (int(lsn) == base and kind in _CHANGES)
        if state is not None or in_snapshot or xid is None or kind in ("BEGIN", "COMMIT") or not is_partial:
            return cls(base, snapshot=state, last_xid=xid, commit_us=micros)
        count = offset.get("lsn_events_processed")
        return cls(base, int(xid) % (1 << _XID_BITS), int(lsn), None if not count else int(count), None, xid, micros)

    @property
    def offset(self) -> dict[str, Any]:
        """Debezium's offset after a whole transaction, or of a snapshot."""
        moved: dict[str, Any] = {"ts_usec": self.commit_us} if self.commit_us else {}
        if self.last_xid is not None:
            moved["txId"] = self.last_xid
        if self.snapshot is None:
            return {**moved, "lsn": self.lsn, "lsn_proc": self.lsn, "lsn_commit": self.lsn, "messageType": "COMMIT"}
        flags = {"snapshot": "INITIAL", "last_snapshot_record": False, "snapshot_completed": False}
        return {**moved, "lsn": self.lsn, **flags, SNAPSHOT: self.snapshot.to_json()}

    def has_sent(self, commit_lsn: int, xid: int) -> bool:
        """True when nothing of a transaction is to be sent. `commit_lsn` is where its commit record begins."""
        if commit_lsn < self.lsn:
            return True
        state = self.snapshot
        return state is not None and commit_lsn < state.visible.until and state.visible.has(xid)

    def within(self, xid: int) -> Resumed | None:
        """How to continue within a transaction that was sent in part."""
        return Resumed(self.change_lsn, self.changes) if xid == self.xid else None


@dataclass(slots=True)
class Resumed:
    """Skips the changes of one transaction that Debezium has sent."""

    lsn: int
    count: int | None
    _seen: int = field(default=0)

    def skips(self, lsn: int) -> bool:
        """Whether the change at this LSN, the next in order, was sent."""
        if lsn != self.lsn:
            return lsn < self.lsn
        self._seen += 1
        return self.count is None or self._seen <= self.count


def check_offset(offset: SourceOffset | None) -> None:
    """Raise ValueError for an offset that no task could continue from."""
    for key, value in (offset or {}).items():
        number = isinstance(value, int) and not isinstance(value, bool)
        if key in _NUMBERS and value is not None and not number:
            raise ValueError(f"The value for the '{key}' key in the offset is expected to be a Long value")
        if key in _FLAGS and not isinstance(value, bool):
            raise ValueError(f"The value for the '{key}' key in the offset is expected to be a Boolean value")
        if key not in (*_NUMBERS, *_TEXTS, *_FLAGS) and not key.startswith(("transaction_", "incremental_snapshot_")):
            raise ValueError(f"Offset objects have no key '{key}'")
    if offset is not None and offset.get("lsn") is None:
        raise ValueError("Offset objects should contain the key 'lsn'")
