"""A connection of a client to a REST server: uvicorn's, and let go when no request comes.

Decides how long a client may take to begin and to finish the head of a request; bodies have a limit of their own
(`Steps.body`). uvicorn waits for ever, so that clients without a login could hold every socket that a worker may have.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """Closes when the head of a request is not there within `timeout_keep_alive`, whatever has come of it."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        super().connection_lost(exc)
        self._forget()

    def handle_events(self) -> None:
        """Take what has come; begin or end to wait for the rest of a head."""
        super().handle_events()
        self._watch()

    def _watch(self) -> None:
        """Between two requests uvicorn's own limit counts, which ends with the first byte of the next."""
        begun = self.cycle is None or bool(self.conn.trailing_data[0])
        if not begun or self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
