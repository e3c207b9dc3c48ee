"""Reads a backlog of a replication slot by SQL, if it is long ahead of the task.

`ReadAhead` has a session that reads a temporary copy of the slot, while the task sends the reading before. Each reading
moves the copy, and PostgreSQL drops it with the session. The slot itself stays at what is committed in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from connectx.connectors.cdc.catalog import as_lsn, as_number, copies_of
from connectx.connectors.shared.postgres import PostgresSession, identifier, literal
from connectx.protocol.pgoutput import Messages

if TYPE_CHECKING:
    import pyarrow as pa

LARGE_BYTES: Final = 64 << 20
"""A larger reading is sent before the next one begins, so that memory never has two of them."""

_MOST_TIMES: Final = 8
"""How many times as many messages as the first reading a later one may have."""

_CANCEL_S: Final = 0.05
"""How long a cancelled statement may take to end until it is cancelled again."""


class Reading(NamedTuple):
    """Messages of whole transactions.

    Attributes:
        messages: in the order of the slot.
        is_whole: they reach the end of the WAL.
        flushed: LSN up to which the WAL was durable before.
    """

    messages: Messages
    is_whole: bool
    flushed: int

    @property
    def size(self) -> int:
        """Bytes of the messages."""
        return int(self.messages.buffer.nbytes)


def read(session: PostgresSession, how: str, slot: str, publication: str, most: int) -> Reading:
    """Read a slot from its confirmed position on.

    Args:
        session: to read with.
        how: peek, or get, which also moves the slot.
        slot: its name.
        publication: its name.
        most: after so many messages the reading ends with their transaction.
    """
    ((flushed,),) = session.query(f"SELECT {as_number('pg_current_wal_flush_lsn()')}")
    found = list(
        session.read(
            f"SELECT {as_number('lsn')}, data FROM pg_logical_slot_{how}_binary_changes({literal(slot)}, NULL, {most}, "
            f"'proto_version', '1', 'publication_names', {literal(identifier(publication))})"
        )
    )
    session.commit()
    messages = messages_of(found)
    return Reading(messages, len(messages) < most, int(flushed))


def messages_of(tables: Sequence[pa.Table]) -> Messages:
    """The messages in tables with two columns, LSN (int64) and message (binary)."""
    import numpy as np
    import pyarrow as pa

    if not sum(table.num_rows for table in tables):
        return Messages(np.empty(0, np.uint8), *(np.empty(0, np.int64) for _ in range(3)))
    lsns = pa.concat_arrays([chunk for table in tables for chunk in table.column(0).chunks])
    data = pa.concat_arrays([chunk.cast(pa.large_binary()) for table in tables for chunk in table.column(1).chunks])
    _, offsets, content = data.buffers()
    starts = np.frombuffer(offsets, np.int64, len(data) + 1, 8 * data.offset)
    return Messages(np.frombuffer(content, np.uint8), starts[:-1], starts[1:], lsns.to_numpy())


def next_most(least: int, before: int, messages: int, size: int) -> int:
    """How many messages the reading after one is for.

    Readings grow, since each one decodes the WAL from the slot's restart position, which may be before all of them.

    Args:
        least: of any reading.
        before: how many the last one was for.
        messages: how many it had.
        size: how many bytes these had.
    """
    fitting = LARGE_BYTES * messages // max(1, size)
    return max(least, min(2 * before, _MOST_TIMES * least, fitting))


class ReadAhead:
    """Reads a copy of a slot, one reading ahead.

    Args:
        session: a separate one; `close` closes it.
        slot: the name of the original.
        publication: its name.
        most: how many messages the first reading is for.

    Attributes:
        copy: name of the copy; empty before `start`.
    """

    def __init__(self, session: PostgresSession, slot: str, publication: str, most: int) -> None:
        self._session = session
        self._slot = slot
        self._publication = publication
        self._least = self._most = most
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"ahead-{slot}")
        self._reading: Future[Reading] | None = None
        self._after: int | None = None  # where the first reading begins
        self.copy = ""

    def start(self, lsn: int) -> None:
        """Copy the slot, to read the transactions that commit after `lsn`.

        Raises:
            ConnectxError: the copy cannot be made.
        """
        ((self.copy,),) = self._session.query(
            f"SELECT slot_name::text FROM pg_copy_logical_replication_slot({literal(self._slot)}, "
            f"{literal(copies_of(self._slot))} || pg_backend_pid(), true)"
        )
        self._session.commit()
        self._after = lsn

    def begin(self) -> Future[Reading]:
        """Begin the next reading in the thread, unless it has begun."""
        if self._reading is None:
            self._reading = self._pool.submit(self._read)
        return self._reading

    def take(self) -> Reading:
        """Wait for the next reading.

        Raises:
            DatabaseUnavailableError: the connection was lost, or another session has the copy.
            ConnectxError: the server refuses to read it.
        """
        reading = self.begin().result()
        self._reading = None
        return reading

    def close(self) -> None:
        """End thread and connection, and with these the copy."""
        while self._reading is not None and not self._reading.done():
            with suppress(Exception):  # the server may be gone
                self._session.cancel()  # has no effect between two statements
            wait([self._reading], _CANCEL_S)
        self._pool.shutdown()
        self._session.close()

    def _read(self) -> Reading:
        if self._after is not None:
            place = f"{literal(self.copy)}, {as_lsn(self._after)}"
            self._session.query(f"SELECT 1 FROM pg_replication_slot_advance({place})")
            self._session.commit()
            self._after = None
        reading = read(self._session, "get", self.copy, self._publication, self._most)
        self._most = next_most(self._least, self._most, len(reading.messages), reading.size)
        return reading
