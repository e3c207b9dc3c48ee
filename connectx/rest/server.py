"""The REST server of one worker: a socket for each listener, and one thread that runs uvicorn.

Decides where to listen, which URL to advertise, and which operations each listener serves; `connectx.rest.app` handles
the requests. The thread starts in `start` and ends in `stop` or `abandon`; an idle server uses no CPU time. Mirrors
Kafka Connect's RestServer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from connectx.errors.rest import ListenerError, ListenerTakenError
from connectx.model.header_rules import HeaderRule
from connectx.model.worker_config import WorkerConfig
from connectx.rest.app import create_app
from connectx.rest.call import Backend, Limits
from connectx.rest.connections import Connections, most_connections
from connectx.rest.credentials import Credentials
from connectx.rest.forwarding import Forwarder
from connectx.rest.guard import Address, Guard
from connectx.rest.openapi import openapi
from connectx.rest.operation import Operation
from connectx.rest.operations import OPERATIONS
from connectx.rest.services import API_VERSION, Ask, Services
from connectx.rest.tls import server_context
from connectx.values import Value


class ResponseHeaders:
    """An application with further headers in its responses."""

    def __init__(self, app: ASGIApp, rules: Sequence[HeaderRule]) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add(MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, with_headers)

    def _add(self, headers: MutableHeaders) -> None:
        for rule in self._rules:
            value = formatdate(time.time() + int(rule.value) / 1000, usegmt=True) if rule.is_date else rule.value
            if rule.replaces:
                headers[rule.name] = value
            else:
                headers.append(rule.name, value)


__all__ = ["Ask", "Limits", "QuietServer", "RestServer", "Services"]

_ANYWHERE = ("0.0.0.0", "::")
_KEEP_ALIVE_S = 75
_MAX_HEAD_BYTES = 64 * 1024
_BACKLOG = 64
_THREADS = 32
"""Made as they are needed: validations that wait for a database must not hold up what others ask."""

_QUIET = logging.NullHandler()


class RestServer:
    """Serves one worker's REST API.

    Args:
        ask: puts a request to the worker's core.
        services: information outside of the core.
        config: `listeners` to listen on, such as `http://127.0.0.1:8083`, port 0 for a free one (without a
            host it is 127.0.0.1, where Kafka Connect would listen on all interfaces); `admin.listeners`; what to
            advertise: `rest.advertised.*`; who may ask: `rest.auth.*.file`; limits.
        name: the worker's name, for its threads.
        limits: other limits than those of the configuration.
    """

    def __init__(
        self, ask: Ask, services: Services, config: WorkerConfig, *, name: str = "worker", limits: Limits | None = None
    ) -> None:
        self._ask = ask
        self._services = services
        self._name = name
        self._config = config
        self._limits = limits or Limits(
            max_body_bytes=config.rest_request_max_bytes, max_requests=config.rest_max_concurrent_requests
        )
        self._url = self._admin_url = ""
        self._servers: list[QuietServer] = []
        self._thread: threading.Thread | None = None
        self._threads: ThreadPoolExecutor | None = None

    @property
    def url(self) -> str:
        """The advertised URL, empty before `start`."""
        return self._url

    @property
    def admin_url(self) -> str:
        """URL of the first of `admin.listeners`, empty where there is none."""
        return self._admin_url

    def start(self) -> str:
        """Listen and serve from a thread; returns the URL, with a slash at its end as Kafka Connect advertises it.

        Raises:
            ListenerError: a listener is no address of this machine.
            ListenerTakenError: its port is taken.
            RestAuthError: a file of logins cannot be read.
            RestTlsError: a certificate cannot be used.
        """
        assert self._thread is None, "a REST server starts once"
        config, forwarder = self._config, Forwarder(self._limits.request_timeout_ms / 1000, self._config)
        credentials = Credentials.of(config)
        places = [_Place(listener, _operations(config, is_admin=False)) for listener in config.listeners]
        places += [
            _Place(one, _operations(config, is_admin=True), is_admin=True) for one in config.admin_listeners or ()
        ]
        contexts = [place.context(config) for place in places]
        sockets = _listen_all([place.listener for place in places])
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix=f"{self._name}-rest-work")
        self._url = self._advertised(places, sockets)
        for place, listening, context in zip(places, sockets, contexts, strict=True):
            if place.is_admin and not self._admin_url:
                self._admin_url = _url(place.scheme, *listening.getsockname()[:2])
            schemes = {} if credentials is None else credentials.schemes
            document = openapi(place.operations, version=API_VERSION, schemes=schemes)
            backend = Backend(self._ask, self._services, self._threads, forwarder, self._limits, document)
            app = create_app(place.operations, backend)
            address = Address.of(listening, urlsplit(self._url).hostname or "")
            guard = Guard(app, address, _origins(config), credentials, self._limits.max_requests)
            answering = ResponseHeaders(_with_cors(guard, config), config.response_http_headers_config)
            self._servers.append(QuietServer(answering, context))
        # uvicorn's log goes where the user's logging sends it, and nowhere when there is none.
        logging.getLogger("uvicorn").addHandler(_QUIET)
        self._thread = threading.Thread(
            target=self._run, args=(sockets, forwarder), name=f"{self._name}-rest", daemon=True
        )
        self._thread.start()
        # The sockets listen already: clients that connect now are served as soon as the loop runs.
        return self._url

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Stop listening, let requests that are being answered end for a second; True when the thread has ended."""
        return self._end(timeout_s)

    def abandon(self) -> None:
        """Drop every socket without a goodbye, as a killed process does."""
        for server in self._servers:
            server.abandoned = True
        self._end(timeout_s=1.0)

    def _end(self, timeout_s: float) -> bool:
        if self._thread is None or self._threads is None:
            return True
        for server in self._servers:
            server.leave()
        self._threads.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(RuntimeError):  # `start` has yet to start it: it will find that its servers leave
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self, sockets: list[socket.socket], forwarder: Forwarder) -> None:
        with contextlib.ExitStack() as closing:
            for listening in sockets:
                closing.enter_context(listening)
            asyncio.run(_serve(self._servers, sockets, forwarder))

    def _advertised(self, places: list[_Place], sockets: list[socket.socket]) -> str:
        """Of the listener that `rest.advertised.listener` names; otherwise of the first http one, or the first."""
        config = self._config
        public = [(place.scheme, s) for place, s in zip(places, sockets, strict=True) if not place.is_admin]
        wanted = (config.rest_advertised_listener or "http").lower()
        scheme, listening = next((found for found in public if found[0] == wanted), public[0])
        host, port = listening.getsockname()[:2]
        host = config.rest_advertised_host_name or (socket.gethostname() if host in _ANYWHERE else host)
        return _url(scheme, host, config.rest_advertised_port or port)


class _Place(Value):
    listener: str
    operations: tuple[Operation[Any], ...]
    is_admin: bool = False

    @property
    def scheme(self) -> str:
        """http or https."""
        return urlsplit(self.listener).scheme.lower()

    def context(self, config: WorkerConfig) -> ssl.SSLContext | None:
        """TLS of an https listener."""
        if self.scheme != "https":
            return None
        return server_context(config, "admin.listeners.https." if self.is_admin else "listeners.https.")


def _operations(config: WorkerConfig, *, is_admin: bool) -> tuple[Operation[Any], ...]:
    """Admin operations are on the main listeners, on their own, or (an empty `admin.listeners`) nowhere."""
    if is_admin:
        return tuple(operation for operation in OPERATIONS if operation.admin)
    return tuple(one for one in OPERATIONS if config.admin_listeners is None or not one.admin)


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"


def _with_cors(app: ASGIApp, config: WorkerConfig) -> ASGIApp:
    """`access.control.allow.origin` and `.methods`: web pages of these origins may read the answers."""
    if not (origins := _origins(config)):
        return app
    methods = [name.strip() for name in config.access_control_allow_methods.split(",") if name.strip()]
    return CORSMiddleware(app, allow_origins=origins, allow_methods=methods or ["GET", "POST", "HEAD"])


def _origins(config: WorkerConfig) -> tuple[str, ...]:
    allowed = config.access_control_allow_origin
    return tuple(origin.strip() for origin in allowed.split(",") if origin.strip())


async def _serve(servers: list[QuietServer], sockets: list[socket.socket], forwarder: Forwarder) -> None:
    try:
        await asyncio.gather(*(server.serve(sockets=[one]) for server, one in zip(servers, sockets, strict=True)))
    finally:
        await forwarder.close()


class QuietServer(uvicorn.Server):
    """uvicorn without its clock (ten wake-ups a second), with a limit of connections, and able to drop everything."""

    def __init__(
        self, app: ASGIApp, context: ssl.SSLContext | None = None, *, max_connections: int | None = None
    ) -> None:
        self.connections = Connections(max_connections or most_connections(), context)
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
            h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
            backlog=min(_BACKLOG, self.connections.most),  # asyncio accepts as many before it counts one of them
        )
        config.load()
        config.http_protocol_class = self.connections.protocol  # type: ignore[assignment]
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
        """Run until `leave` is called."""
        leaving, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.set_exception_handler(self.connections.on_error)
        self._leaving = (loop, leaving)
        if not self._left.is_set():
            await leaving.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close politely, or cut the connections when abandoned."""
        if not self.abandoned:
            await super().shutdown(sockets)
            self.connections.abort()
            return
        for server in self.servers:
            server.close()
        self.connections.abort()
        await asyncio.sleep(0)  # connections learn of it before their requests are cancelled


def _listen_all(listeners: list[str]) -> list[socket.socket]:
    """A listening socket for each, or none at all."""
    with contextlib.ExitStack() as closing:
        sockets = [closing.enter_context(listen(listener)) for listener in listeners]
        closing.pop_all()
    return sockets


def listen(listener: str, *, unread_s: float = _KEEP_ALIVE_S) -> socket.socket:
    """A listening socket for a URL of `listeners`.

    On Linux its connections close if a client has read nothing of a response for `unread_s` (TCP_USER_TIMEOUT, which
    accepted sockets inherit).

    Raises:
        ListenerError: no address of this machine.
        ListenerTakenError: the port is taken.
    """
    try:
        url = urlsplit(listener)
        host, port = url.hostname or "127.0.0.1", url.port
    except ValueError as error:
        raise _listener_error(listener, str(error)) from error
    if url.scheme not in ("http", "https") or port is None:
        raise _listener_error(listener, "it must be http or https with a port")
    listening = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(unread_s * 1000))
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
