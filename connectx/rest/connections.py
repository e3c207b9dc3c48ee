"""The open connections of a server, and the limit of their number.

Decides which connection is closed when there is one too many: the one that has been without a request for longest,
otherwise the newest. A process has a limit of open files, and a worker needs some for Kafka and its tasks. Connections
count from when they are accepted, before the TLS handshake, which has a time limit.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

try:
    import resource
except ImportError:  # on Windows, which has no such limit
    resource = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)

_LEAST: Final = 16
_MOST: Final = 4_096
_SHARE: Final = 4
_LOG_EVERY_S: Final = 60.0
_HANDSHAKE_S: Final = 10.0
_NO_FILES: Final = "socket.accept() out of system resource"


def most_connections() -> int:
    """How many connections a server keeps: a quarter of the files that this process may open."""
    files = _MOST * _SHARE if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if files < 0 else max(_LEAST, min(_MOST, files // _SHARE))


class Connections:
    """Counts the connections of one server. From its event loop alone.

    Args:
        most: how many are kept.
        context: of TLS; None: connections are plain.
        clock: in seconds.
    """

    def __init__(
        self,
        most: int,
        context: ssl.SSLContext | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most = most
        self._context = context
        self._clock = clock
        self._open: dict[H11Protocol, asyncio.Transport] = {}
        self._closed = self._not_accepted = 0
        self._logged_s: float | None = None

    def opened(self, connection: H11Protocol, transport: asyncio.Transport) -> None:
        """Take a new connection, and close one if it is one too many."""
        self._open[connection] = transport
        if len(self._open) <= self.most:
            return
        others = list(self._open)[:-1]
        surplus = next((one for one in others if _is_idle(one)), connection)
        self._open.pop(surplus).abort()
        self._closed += 1
        self._report()

    def ended(self, connection: H11Protocol) -> None:
        """Forget a connection."""
        self._open.pop(connection, None)

    def abort(self) -> None:
        """Close all without a goodbye, also those in a handshake."""
        for transport in list(self._open.values()):
            transport.abort()

    def not_accepted(self) -> None:
        """Note that the process has no file left for a connection."""
        self._not_accepted += 1
        self._report()

    def _report(self) -> None:
        """Log what was refused, at most once a minute."""
        now_s = self._clock()
        if self._logged_s is not None and now_s < self._logged_s + _LOG_EVERY_S:
            return
        self._logged_s = now_s
        _log.warning(
            "%d connections were closed, as more than %d were open, and %d could not be accepted for want of files.",
            self._closed,
            self.most,
            self._not_accepted,
        )
        self._closed = self._not_accepted = 0

    def protocol(self, *args: Any, **kwargs: Any) -> asyncio.BaseProtocol:
        """Make the protocol of a new connection; uvicorn calls it as its class."""
        if self._context is None:
            return _Connection(self, *args, **kwargs)
        return _TlsConnection(self, H11Protocol(*args, **kwargs), self._context)

    def on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error of the loop: asyncio reports each connection that it cannot accept."""
        if context.get("message") == _NO_FILES:
            self.not_accepted()
        else:
            loop.default_exception_handler(context)


class _Connection(H11Protocol):
    """A plain connection that its server counts."""

    def __init__(self, connections: Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections = connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it."""
        super().connection_made(transport)
        self._connections.opened(self, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._connections.ended(self)
        super().connection_lost(exc)


class _TlsConnection(SSLProtocol):
    """A TLS connection that its server counts: asyncio would report it only after the handshake."""

    def __init__(self, connections: Connections, served: H11Protocol, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        limits: Any = {"waiter": None, "ssl_handshake_timeout": _HANDSHAKE_S}  # wider than typeshed has them
        super().__init__(loop, served, context, server_side=True, **limits)
        self._connections = connections
        self._served = served

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, and begin the handshake."""
        super().connection_made(transport)
        self._connections.opened(self._served, transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget it."""
        self._connections.ended(self._served)
        super().connection_lost(exc)


def _is_idle(connection: H11Protocol) -> bool:
    """Whether no request is being answered. One whose head has not come yet counts as none."""
    return connection.cycle is None or connection.cycle.response_complete
