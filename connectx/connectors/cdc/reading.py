"""Reads a replication slot, by plain SQL or over a replication connection, and moves it.

A peek by SQL begins at the slot's confirmed position and decodes the WAL from the slot's restart position. So it is
repeatable, and costs the more, the less often the slot moves. Therefore one peek fills many slices, and before the next
one the slot moves to what was committed. If a peek does not reach the end of the WAL, a copy of the slot is read ahead.
Each message by SQL costs the server and the worker least. A replication connection decodes the WAL once, and sends
changes as they are committed. So by default a backlog is read by SQL, and what follows over a connection.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from connectx.connectors.cdc.backlog import LARGE_BYTES, ReadAhead, Reading, read
from connectx.connectors.cdc.catalog import Catalog
from connectx.connectors.cdc.positions import Position
from connectx.connectors.cdc.replication import ReplicationStream
from connectx.connectors.cdc.stream import Decoder, Transactions
from connectx.connectors.shared.postgres import PostgresSession
from connectx.errors.base import ConnectxError
from connectx.errors.databases import DatabaseUnavailableError
from connectx.protocol import walsender
from connectx.protocol.pgoutput import Messages

log = logging.getLogger(__name__)


class SlotReader:
    """One reader of a slot.

    Args:
        session: to read with.
        catalog: of the same session.
        values: the parsed configuration.
        slot: its name.
        stream: makes a replication connection.
        connect: makes a session to read ahead with.

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
        connect: Callable[[], PostgresSession],
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
        self._advance_s: float = values["slot.advance.interval.ms"] / 1000
        self._make_stream = stream
        self._stream: ReplicationStream | None = None
        self._connect = connect
        self._ahead: ReadAhead | None = None
        self._reads_ahead = True
        self._decoder: Decoder | None = None  # of the stream, or of the last reading
        self._parts: deque[Messages] = deque()  # of the last reading by SQL
        self._end: int | None = None  # LSN before which it left no transaction, if it reached the end of the WAL
        self._ready: deque[Transactions] = deque()
        self._confirmed = 0
        self._confirmed_s = 0.0
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
                    self._read(position)
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
        """End the connections that were made."""
        self._end_ahead()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

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

    def _read(self, position: Position) -> None:
        if not self._parts:
            reading = self._next_reading(position)
            self._parts.extend(reading.messages.parts(self._most))
            self._end = reading.flushed if reading.is_whole else None
            self._decoder = self._new_decoder(position)
        decoder = self._decoder
        assert decoder is not None, "each reading has a decoder"
        decoder.position = position
        self._ready.extend(decoder.slices(self._parts.popleft()))
        self.is_whole = self._end is not None and not self._parts
        self.reached = max(decoder.position.lsn, (self._end or 0) if self.is_whole else 0)
        self._streams = self.is_whole and self._mode == "auto"

    def _next_reading(self, position: Position) -> Reading:
        reading = self._from_ahead(position) or self._peek(position)
        if reading.is_whole:
            self._end_ahead()
            return reading
        if self._ahead is None and self._reads_ahead:
            self._start_ahead(max([position.lsn, *reading.messages.commits().end_lsns[-1:].tolist()]))
        if self._ahead is not None and reading.size <= LARGE_BYTES:
            self._ahead.begin()
        return reading

    def _peek(self, position: Position) -> Reading:
        self._confirm(position)
        most = self._most + self._unconfirmed
        reading = read(self._session, "peek", self._slot, self._publication, most)
        self._unconfirmed = len(reading.messages)
        return reading

    def _confirm(self, position: Position) -> None:
        """Move the slot, unless another reader has. If changes after `position` are gone, the task begins again."""
        self._confirmed_s = time.monotonic()
        if self._committed <= self._confirmed:
            return
        if not self._catalog.advance(self._slot, self._committed):
            slot = self._catalog.slot(self._slot)
            moved = f"Another reader has moved the slot {self._slot} beyond {self._committed}"
            if slot is None or slot.confirmed > position.lsn:
                raise DatabaseUnavailableError(
                    f"{moved}, and beyond {position.lsn}, where this task reads.",
                    next_step="The task begins again at its source offset.",
                )
            log.warning("%s.", moved)
        self._confirmed, self._unconfirmed = self._committed, 0

    def _start_ahead(self, lsn: int) -> None:
        self._ahead = ReadAhead(self._connect(), self._slot, self._publication, self._most)
        try:
            self._ahead.start(lsn)
        except ConnectxError as error:
            self._do_without_ahead(error)

    def _from_ahead(self, position: Position) -> Reading | None:
        """The next reading of the copy; None: there is no copy, or this session has it no more."""
        if self._ahead is None:
            return None
        if time.monotonic() >= self._confirmed_s + self._advance_s:
            self._confirm(position)
        try:
            return self._ahead.take()
        except ConnectxError as error:
            if self._ahead.copy not in error.message:
                raise
            self._do_without_ahead(error)
            return None

    def _do_without_ahead(self, error: ConnectxError) -> None:
        self._end_ahead()
        self._reads_ahead = False
        log.warning(
            "The backlog of the slot %s is not read ahead, which takes longer: %s To read ahead, a session needs a "
            "temporary copy of the slot. Check max_replication_slots, and that database.hostname is the server itself "
            "and not a connection pooler.",
            self._slot,
            error.message,
        )

    def _end_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()

    def _new_decoder(self, position: Position) -> Decoder:
        return Decoder(
            self._catalog.shape_of,
            position,
            self._slice_events,
            tombstones=self._tombstones,
            skipped=self._skipped,
        )
