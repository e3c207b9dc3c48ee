"""Reads a replication slot, by plain SQL or over a replication connection, and moves it.

A peek by SQL begins at the slot's confirmed position and decodes the WAL from the slot's restart position. So it is
repeatable, and costs the more, the less often the slot moves. Therefore one peek fills many slices, and before the next
one the slot moves to what was committed. Each message of a peek costs the server and the worker least. A replication
connection decodes the WAL once, and sends changes as they are committed. So by default a backlog is read by SQL, and
what follows over a connection.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connectx.connectors.postgres.cdc.catalog import Catalog, as_number
from connectx.connectors.postgres.cdc.positions import Position
from connectx.connectors.postgres.cdc.replication import ReplicationStream
from connectx.connectors.postgres.cdc.stream import Decoder, Transactions
from connectx.connectors.postgres.session import PostgresSession, identifier, literal
from connectx.errors import ConnectxError, DatabaseUnavailableError
from connectx.protocol import walsender
from connectx.protocol.pgoutput import Messages

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class SlotReader:
    """One reader of a slot.

    Args:
        session: to read with.
        catalog: of the same session.
        values: the parsed configuration.
        slot: its name.
        stream: makes a replication connection.

    Attributes:
        reached: LSN before which no committed transaction is left, after `next` returned None.
        is_whole: the last reading reached the end of the WAL.
    """

    def __init__(
        self,
        session: PostgresSession,
        catalog: Catalog,
        values: Mapping[str, Any],
        slot: str,
        stream: Callable[[], ReplicationStream],
    ) -> None:
        self._session = session
        self._catalog = catalog
        self._slot = slot
        self._mode: str = values["slot.read.mode"]
        self._publication: str = values["publication.name"]
        self._slice_events: int = values["max.batch.size"]
        self._most: int = values["max.queue.size"]
        self._tombstones: bool = values["tombstones.on.delete"]
        self._skipped = frozenset(values["skipped.operations"])
        self._make_stream = stream
        self._stream: ReplicationStream | None = None
        self._decoder: Decoder | None = None  # of the stream
        self._ready: deque[Transactions] = deque()
        self._confirmed = 0
        self._committed = 0
        self._unconfirmed = 0  # messages that a peek finds again, since their transactions are not committed
        self._streams = self._mode == "stream"
        self.is_whole = True
        self.reached = 0

    def committed(self, position: Position) -> None:
        """Changes up to a position are durable in Kafka."""
        self._committed = max(self._committed, position.lsn)
        if self._stream is not None:
            self._stream.confirm(self._committed)

    def next(self, position: Position) -> Transactions | None:
        """The next transactions with events; None when there are none now.

        Raises:
            DatabaseUnavailableError: the database cannot be reached, or the slot is in use.
            DatabaseError: slot.read.mode is stream, and the server allows no replication connection.
        """
        if not self._ready:
            try:
                if self._streams and self._stream is None:
                    self._start_stream(position)
                if self._stream is None:
                    self._peek(position)
                else:
                    self._take(self._stream, position)
            except DatabaseUnavailableError as error:
                if "is active for PID" in error.message:
                    error.next_step = "End the other reader of slot.name, or name another slot; the task tries again."
                raise
        return self._ready.popleft() if self._ready else None

    def wait(self, timeout_s: float) -> bool:
        """Wait until the stream has changes; False: there is no stream."""
        if self._stream is not None:
            self._stream.wait(timeout_s)
        return self._stream is not None

    def close(self) -> None:
        """End the replication connection."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    # ------------------------------------------------------------------------------------------ over a connection

    def _start_stream(self, position: Position) -> None:
        stream = self._make_stream()
        try:
            stream.start(position.lsn, self._committed)
        except ConnectxError as error:
            stream.close()
            if self._mode == "stream" or "is active for PID" in error.message:
                raise
            self._streams = False
            self._mode = "sql"
            log.warning("The slot %s is read by SQL: %s %s", self._slot, error.message, error.next_step)
        else:
            self._stream, self._decoder = stream, self._new_decoder(position)

    def _take(self, stream: ReplicationStream, position: Position) -> None:
        frames, reached = stream.take()
        decoder = self._decoder
        assert decoder is not None, "each stream has a decoder"
        decoder.position = position
        if frames:
            self._ready.extend(decoder.slices(walsender.messages_of(frames)))
            reached = decoder.position.lsn
        self.is_whole, self.reached = True, reached

    # ---------------------------------------------------------------------------------------------------- by SQL

    def _peek(self, position: Position) -> None:
        self._confirm()
        flushed = self._catalog.flushed()
        decoder = self._new_decoder(position)
        most = self._most + self._unconfirmed
        messages = self._messages(most)
        self._ready.extend(decoder.slices(messages))
        count = len(messages)
        self._unconfirmed = count
        self.is_whole = count < most
        self.reached = max(decoder.position.lsn, flushed) if self.is_whole else decoder.position.lsn
        self._streams = self.is_whole and self._mode == "auto"

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

    # ---------------------------------------------------------------------------------------------- inner parts

    def _new_decoder(self, position: Position) -> Decoder:
        return Decoder(
            self._catalog.shape_of,
            position,
            self._slice_events,
            tombstones=self._tombstones,
            skipped=self._skipped,
        )


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
