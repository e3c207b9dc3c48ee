"""A connection to the REST server: uvicorn's, closed when its client neither sends nor reads in time.

Decides how long a client may take to begin and to finish the head of a request, to send what is left of one that is
answered, and to read an answer; other bodies have their own limit (`RequestHandler.body`). uvicorn waits indefinitely,
so that clients without a login could hold all sockets of a worker, and others a place among its requests.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """Closes if a request head does not arrive within `timeout_keep_alive`. Drops clients that do not read the
    response in that time."""

    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(1)  # data that cannot be sent immediately pauses writing (0 is none for TLS)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        super().connection_lost(exc)
        self._forget()
        self._forget_unread()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is written to: wait for it, and then no longer."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read everything."""
        super().resume_writing()
        self._forget_unread()

    def handle_events(self) -> None:
        """Take what has come; begin or end to wait for the rest of a head."""
        super().handle_events()
        self._watch()

    def _watch(self) -> None:
        """Between two requests uvicorn's own limit counts, which ends with the first byte of the next."""
        begun = self.cycle is None or bool(self.conn.trailing_data[0])
        is_head = begun and self.conn.their_state is h11.IDLE
        is_answered = self.conn.our_state is h11.DONE  # before all of its body has come: uvicorn's limit ends with it
        if not (is_head or is_answered) or self.transport.is_closing():
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _forget_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
