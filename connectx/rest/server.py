"""The REST server of one worker: a socket, a thread with an event loop, uvicorn.

Decides nothing about requests (`connectx.rest.app` does). The thread starts in `start` and ends in `stop` or `abandon`;
an idle server wakes nobody up. Mirrors Kafka Connect's RestServer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from connectx.errors import ListenerError, ListenerTakenError
from connectx.model.worker_config import WorkerConfig
from connectx.rest.app import Resources, create_app
from connectx.rest.services import Ask, OffsetEntry, Services

__all__ = ["Ask", "OffsetEntry", "RestServer", "Services"]

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANYWHERE = ("0.0.0.0", "::")
_KEEP_ALIVE_S = 75
_QUIET = logging.NullHandler()


class RestServer:
    """Serves one worker's REST API.

    Args:
        ask: puts a request to the worker's core.
        services: what the core does not know.
        config: says where to listen: the first of `listeners`, such as `http://127.0.0.1:8083`, port 0 for a free one
            (without a host it is 127.0.0.1, where Kafka Connect would listen on all interfaces); and what to advertise:
            `rest.advertised.host.name`, `rest.advertised.port`.
        name: the worker's name, for its threads.
        request_timeout_ms, health_timeout_ms: limits of a request and of `GET /health`, as in Kafka Connect.
    """

    def __init__(
        self,
        ask: Ask,
        services: Services,
        config: WorkerConfig,
        *,
        name: str = "worker",
        request_timeout_ms: int = 90_000,
        health_timeout_ms: int = 10_000,
    ) -> None:
        self._ask = ask
        self._services = services
        self._name = name
        self._config = config
        self._request_timeout_s = request_timeout_ms / 1000
        self._health_timeout_s = health_timeout_ms / 1000
        self._url = ""
        self._uvicorn: _Uvicorn | None = None
        self._thread: threading.Thread | None = None
        self._threads: ThreadPoolExecutor | None = None

    @property
    def url(self) -> str:
        """The advertised URL, empty before `start`."""
        return self._url

    def start(self) -> str:
        """Listen and serve from a thread; returns the URL, with a slash at its end as Kafka Connect advertises it.

        Raises:
            ListenerError: the listener is no http address of this machine.
            ListenerTakenError: its port is taken.
        """
        assert self._thread is None, "a REST server starts once"
        listening = _listen(self._config.listeners[0])
        host, port = listening.getsockname()[:2]
        reachable = socket.gethostname() if host in _ANYWHERE else host
        advertised_host = self._config.rest_advertised_host_name or reachable
        advertised_port = self._config.rest_advertised_port or port
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix=f"{self._name}-rest-work")
        resources = Resources(
            self._ask,
            self._services,
            self._threads,
            request_timeout_s=self._request_timeout_s,
            health_timeout_s=self._health_timeout_s,
        )
        self._uvicorn = _Uvicorn(create_app(resources, {*_LOOPBACK, advertised_host} if host in _LOOPBACK else None))
        # uvicorn's log goes where the user's logging sends it, and nowhere when there is none.
        logging.getLogger("uvicorn").addHandler(_QUIET)
        self._thread = threading.Thread(
            target=self._run, args=(listening, resources), name=f"{self._name}-rest", daemon=True
        )
        self._thread.start()
        # The socket listens already: whoever connects now is served as soon as the loop runs.
        shown_host = f"[{advertised_host}]" if ":" in advertised_host else advertised_host
        self._url = f"http://{shown_host}:{advertised_port}/"
        return self._url

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Stop listening, let requests that are being answered end for a second; True when the thread has ended."""
        return self._end(timeout_s)

    def abandon(self) -> None:
        """Drop every socket at once, as a killed process does."""
        if self._uvicorn is not None:
            self._uvicorn.abandoned = True
        self._end(timeout_s=1.0)

    def _end(self, timeout_s: float) -> bool:
        if self._thread is None or self._uvicorn is None or self._threads is None:
            return True
        self._uvicorn.leave()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self, listening: socket.socket, resources: Resources) -> None:
        assert self._uvicorn is not None
        with listening:
            asyncio.run(_serve(self._uvicorn, listening, resources))


async def _serve(server: _Uvicorn, listening: socket.socket, resources: Resources) -> None:
    try:
        await server.serve(sockets=[listening])
    finally:
        await resources.forwarder.close()


class _Uvicorn(uvicorn.Server):
    """uvicorn without its clock (ten wake-ups a second), and able to drop everything."""

    def __init__(self, app: ASGIApp) -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
        )
        super().__init__(config)
        self.abandoned = False
        self._left = threading.Event()
        self._leaving: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def leave(self) -> None:
        """End soon; from any thread, at any time, more than once."""
        self._left.set()
        if self._leaving is not None:
            loop, leaving = self._leaving
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(leaving.set)

    async def main_loop(self) -> None:
        """Wait until told to leave."""
        leaving = asyncio.Event()
        self._leaving = (asyncio.get_running_loop(), leaving)
        if not self._left.is_set():
            await leaving.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close politely, or cut the connections when abandoned."""
        if not self.abandoned:
            await super().shutdown(sockets)
            return
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)  # connections learn of it before their requests are cancelled


def _listen(listener: str) -> socket.socket:
    """A listening socket for a URL of `listeners`."""
    try:
        url = urlsplit(listener)
        host, port = url.hostname or "127.0.0.1", url.port
    except ValueError as error:
        raise _listener_error(listener, str(error)) from error
    if url.scheme != "http" or port is None:
        raise _listener_error(listener, "it must be http with a port")
    listening = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        if listening is not None:
            listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ListenerTakenError(listener) from error
        raise _listener_error(listener, str(error)) from error
    return listening


def _listener_error(listener: str, reason: str) -> ListenerError:
    return ListenerError(
        f"REST cannot listen on {listener!r}, an entry of the setting `listeners`: {reason}.",
        next_step="Use something like http://127.0.0.1:8083, with port 0 for a free one.",
    )
