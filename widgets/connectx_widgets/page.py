"""The panel as a separate page in the browser, served by HTTP: the same front end and messages as in a notebook.

Messages for the page go as server-sent events, what the page asks for comes as POST. The path of every URL begins with
a random token, without which nothing is answered, and requests of other sites' and ports' pages are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import threading
from collections.abc import AsyncIterator
from html import escape
from typing import TYPE_CHECKING, Any, Final, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from connectx.errors.rest import ListenerError, RestError
from connectx.history.render.shapes import LOOK
from connectx.rest.call import read_body
from connectx.rest.server import QuietServer
from connectx_widgets import front_end
from connectx_widgets.panel import Panel

if TYPE_CHECKING:
    from connectx.api.connect_cluster import ConnectCluster

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_JOIN_S = 5.0
_MAX_MESSAGE_BYTES: Final = 1024 * 1024
_MESSAGE_S: Final = 30.0
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class PanelPage:
    """Serves the panel of a cluster as a page, from a thread; as a context manager it starts and stops.

    Args:
        cluster: what the panel shows and acts on. The page does not close it.
        host: address to listen at. Anything but loopback is reached from other machines, unencrypted.
        port: 0 for a free one.
        read_only: show only, and refuse every call.
    """

    def __init__(
        self, cluster: ConnectCluster, *, host: str = "127.0.0.1", port: int = 0, read_only: bool = False
    ) -> None:
        self._host, self._port = host, port
        self._token = secrets.token_urlsafe(24)
        self._panel = Panel(cluster, self._send, read_only=read_only)
        self._files = _files(_title(cluster))
        self._readers: set[asyncio.Queue[str]] = set()
        routes = [
            Route("/{token}/events", self._events),
            Route("/{token}/messages", self._messages, methods=["POST"]),
            Route("/{token}/{file:path}", self._file),
        ]
        app = Starlette(routes=routes, exception_handlers={404: self._not_found})
        app.router.redirect_slashes = False
        self._server = QuietServer(app)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connectx-page", daemon=True)
        self._socket: socket.socket | None = None

    @property
    def url(self) -> str:
        """Its URL with the token, once it is started."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/{self._token}/"

    def start(self) -> Self:
        """Listen, and begin to follow the cluster.

        Raises:
            ListenerError: the address is none of this machine, or its port is taken.
        """
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            self._socket = socket.create_server((self._host, self._port), family=family)
        except OSError as error:
            raise ListenerError(
                f"The panel cannot be served at {self._host}:{self._port}: {error.strerror or error}.",
                next_step="Choose another address or port; port 0 takes a free one.",
            ) from error
        self._port = self._socket.getsockname()[1]
        self._thread.start()
        self._running.wait()
        self._panel.start()
        return self

    def wait(self) -> None:
        """Wait until the page is stopped."""
        self._thread.join()

    def stop(self) -> None:
        """Stop following, and drop every connection."""
        self._panel.stop()
        self._server.abandoned = True
        self._server.leave()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _run(self) -> None:
        assert self._socket is not None
        with self._socket:
            asyncio.run(self._serve(self._socket))

    async def _serve(self, listening: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._running.set()
        await self._server.serve(sockets=[listening])

    def _send(self, message: dict[str, Any]) -> None:
        """Called by the panel, on its threads."""
        if self._readers and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._spread, f"data: {json.dumps(message)}\n\n")

    def _spread(self, event: str) -> None:
        for reader in self._readers:
            reader.put_nowait(event)

    async def _events(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        return StreamingResponse(self._stream(), media_type="text/event-stream", headers=_HEADERS)

    async def _stream(self) -> AsyncIterator[str]:
        """The messages from now on. After the event `ready` a page asks for the present state."""
        reader: asyncio.Queue[str] = asyncio.Queue()
        self._readers.add(reader)
        try:
            yield "event: ready\ndata:\n\n"
            while True:
                yield await reader.get()
        finally:
            self._readers.discard(reader)

    async def _messages(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        try:
            message = json.loads(await read_body(request, _MAX_MESSAGE_BYTES, _MESSAGE_S))
        except RestError as error:
            return _refused(error.status, error.message)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            return _refused(400, "This is no message of a panel.")
        self._panel.receive(message)
        return Response(status_code=204, headers=_HEADERS)

    async def _file(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        if (file := self._files.get(request.path_params["file"])) is None:
            return _refused(404, "There is no such file.")
        text, media_type = file
        return Response(text, media_type=media_type, headers=_HEADERS)

    async def _not_found(self, request: Request, error: Exception) -> Response:
        return _refused(403, "Open the whole link that was printed: it ends with a token.")

    def _refusal(self, request: Request) -> Response | None:
        """The answer to a request without the token, or of a page of another site or port; None for others."""
        if not secrets.compare_digest(request.path_params["token"].encode(), self._token.encode()):
            return _refused(403, "Open the whole link that was printed: it ends with a token.")
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        is_own_name = self._host not in LOOPBACK or host.rpartition(":")[0].strip("[]") in LOOPBACK
        is_own_page = origin in (None, f"http://{host}")
        is_same_site = request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        if is_own_name and is_own_page and (is_same_site or _is_navigation(request)):
            return None
        return _refused(403, "Only the page itself may ask.")


def _is_navigation(request: Request) -> bool:
    """Whether a link was followed, also one on another site: its page cannot read the answer."""
    return request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status_code=status, headers=_HEADERS)


def _title(cluster: ConnectCluster) -> str:
    facts = cluster.overview()
    return f"connectx: {facts.get('group') or facts.get('url') or 'a cluster'}"


def _files(title: str) -> dict[str, tuple[str, str]]:
    """Text and media type of each file."""
    look = json.dumps(LOOK).replace("<", "\\u003c")
    return {
        "": (front_end.static("page.html").replace("{title}", escape(title)).replace("{look}", look), "text/html"),
        "page.mjs": (front_end.static("page.mjs"), "text/javascript"),
        "panel.mjs": (front_end.module(), "text/javascript"),
        "panel.css": (front_end.style() + front_end.static("page.css"), "text/css"),
    }
