"""Reads a replication slot by plain SQL, and moves it.

A peek begins at the slot's confirmed position and decodes the WAL from the slot's restart position, so that it is
repeatable and costs the more, the less often the slot moves. Therefore one peek fills many slices, and before the next
one the slot moves to what was committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connectx.connectors.postgres.cdc.catalog import Catalog, as_number
from connectx.connectors.postgres.cdc.positions import Position
from connectx.connectors.postgres.cdc.stream import Decoder, Transactions
from connectx.connectors.postgres.session import PostgresSession, identifier, literal
from connectx.errors import DatabaseUnavailableError
from connectx.protocol.pgoutput import Messages

if TYPE_CHECKING:
    import pyarrow as pa


class SlotReader:
    """One reader of a slot.

    Args:
        session: to read with.
        catalog: of the same session.
        values: the parsed configuration.
        slot: its name.

    Attributes:
        reached: LSN before which no committed transaction is left, after `next` returned None.
        is_whole: the last peek reached the end of the WAL.
    """

    def __init__(self, session: PostgresSession, catalog: Catalog, values: Mapping[str, Any], slot: str) -> None:
        self._session = session
        self._catalog = catalog
        self._slot = slot
        self._publication: str = values["publication.name"]
        self._slice_events: int = values["max.batch.size"]
        self._most: int = values["max.queue.size"]
        self._tombstones: bool = values["tombstones.on.delete"]
        self._skipped = frozenset(values["skipped.operations"])
        self._ready: deque[Transactions] = deque()
        self._confirmed = 0
        self._committed = 0
        self._unconfirmed = 0  # messages that a peek finds again, since their transactions are not committed
        self.is_whole = True
        self.reached = 0

    def committed(self, position: Position) -> None:
        """Changes up to a position are durable in Kafka."""
        self._committed = max(self._committed, position.lsn)

    def next(self, position: Position) -> Transactions | None:
        """The next transactions with events; None when there are none now.

        Raises:
            DatabaseUnavailableError: the database cannot be reached, or the slot is in use.
        """
        if not self._ready:
            self._peek(position)
        return self._ready.popleft() if self._ready else None

    # ---------------------------------------------------------------------------------------------- inner parts

    def _peek(self, position: Position) -> None:
        try:
            self._confirm()
            flushed = self._catalog.flushed()
            decoder = Decoder(
                self._catalog.shape_of,
                position,
                self._slice_events,
                tombstones=self._tombstones,
                skipped=self._skipped,
            )
            most = self._most + self._unconfirmed
            messages = self._messages(most)
            self._ready.extend(decoder.slices(messages))
        except DatabaseUnavailableError as error:
            if "is active for PID" in error.message:
                error.next_step = "End the other reader of slot.name, or name another slot; the task tries again."
            raise
        count = len(messages)
        self._unconfirmed = count
        self.is_whole = count < most
        self.reached = max(decoder.position.lsn, flushed) if self.is_whole else decoder.position.lsn

    def _confirm(self) -> None:
        if self._committed > self._confirmed:
            self._catalog.advance(self._slot, self._committed)
            self._confirmed, self._unconfirmed = self._committed, 0

    def _messages(self, most: int) -> Messages:
        names = identifier(self._publication)
        sql = (
            f"SELECT {as_number('lsn')}, data FROM pg_logical_slot_peek_binary_changes({literal(self._slot)}, NULL, "
            f"{most}, 'proto_version', '1', 'publication_names', {literal(names)})"
        )
        found = list(self._session.read(sql))
        self._session.commit()
        return messages_of(found)


def messages_of(tables: Sequence[pa.Table]) -> Messages:
    """The messages in tables with two columns, LSN (int64) and message (binary)."""
    import numpy as np
    import pyarrow as pa

    if not sum(table.num_rows for table in tables):
        return Messages(np.empty(0, np.uint8), np.zeros(1, np.int64), np.empty(0, np.int64))
    lsns = pa.concat_arrays([chunk for table in tables for chunk in table.column(0).chunks])
    data = pa.concat_arrays([chunk.cast(pa.large_binary()) for table in tables for chunk in table.column(1).chunks])
    _, offsets, content = data.buffers()
    starts = np.frombuffer(offsets, np.int64, len(data) + 1, 8 * data.offset)
    return Messages(np.frombuffer(content, np.uint8), starts, lsns.to_numpy())
