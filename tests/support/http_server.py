"""A web service: keeps what it gets, and answers as a test wants."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Received:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True)
class Answer:
    """One response."""

    status: int = 200
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class Service:
    """`received` has every request, `accepted` those that were answered with 2xx."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.accepted: list[Received] = []
        self.answer: Callable[[Received], Answer] = lambda request: Answer()
        self.url = ""


@contextmanager
def http_service(tls: ssl.SSLContext | None = None) -> Iterator[Service]:
    """A service on a free port of this machine, until the block ends; with `tls` of HTTPS."""
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            request = Received(self.command, self.path, dict(self.headers.items()), body)
            service.received.append(request)
            answer = service.answer(request)
            if answer.status < 300:
                service.accepted.append(request)
            data = answer.body.encode()
            self.send_response(answer.status)
            for name, value in {**answer.headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    service.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
