"""Bodies of other servers: endless, slow, compressed and nested ones end in a typed error of each client."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from starlette.requests import Request

from connectx.connectors.http.errors import HttpLoginError
from connectx.connectors.http.oauth import OAuthSettings, Tokens
from connectx.data.registry.client import RegistryClient
from connectx.data.registry.keys import REGISTRY_CONFIG
from connectx.errors.plugins import ConversionError
from connectx.errors.rest import RestError
from connectx.model.worker_config import WorkerConfig
from connectx.responses import BodyError, Limit
from connectx.rest.client import RestClient
from connectx.rest.forwarding import Forwarder

MINIMAL = {
    "bootstrap.servers": "h:1",
    "group.id": "g",
    "key.converter": "String",
    "value.converter": "String",
    "config.storage.topic": "c",
    "offset.storage.topic": "o",
    "status.storage.topic": "s",
}
DEEP = b"[" * 100_000 + b"]" * 100_000
BOMB = gzip.compress(bytes(2_000_000))


@contextmanager
def server(parts: Callable[[], Iterator[bytes]], *headers: str, status: str = "200 OK") -> Iterator[str]:
    """A server that answers any request with these parts of a body, chunked, until the client closes."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            length = 0
            while line := self.rfile.readline().strip():
                name, _, value = line.lower().partition(b":")
                length = int(value) if name == b"content-length" else length
            self.rfile.read(length)  # a close with unread bytes would reset the connection
            lines = (
                f"HTTP/1.1 {status}",
                "Content-Type: application/json",
                "Transfer-Encoding: chunked",
                "Connection: close",
                *headers,
            )
            try:
                self.wfile.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
                for part in parts():
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
                self.wfile.write(b"0\r\n\r\n")
            except OSError:  # the client has closed
                pass

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{found.server_address[1]}"
        found.shutdown()


def endless() -> Iterator[bytes]:
    return itertools.repeat(b" " * 60_000)


def ask_worker(url: str) -> object:
    return RestClient([url], retry_s=0).root()


def ask_through_worker(url: str) -> object:
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": []}

    async def ask() -> object:
        forwarder = Forwarder(10, WorkerConfig.parse(MINIMAL))
        try:
            return await forwarder.forward(Request(scope), b"", url)
        finally:
            await forwarder.close()

    return asyncio.run(ask())


def ask_token_service(url: str) -> object:
    with httpx.Client() as client:
        return Tokens(OAuthSettings(url, "id", "secret"), client).current()


def ask_registry(url: str) -> object:
    settings = REGISTRY_CONFIG.parse({"schema.registry.url": url})
    return RegistryClient(settings, "AvroConverter", "value").schema(1)


CLIENTS = [
    (ask_worker, RestError),
    (ask_through_worker, RestError),
    (ask_token_service, HttpLoginError),
    (ask_registry, ConversionError),
]


@pytest.mark.parametrize(("ask", "error"), CLIENTS)
def test_a_body_without_an_end_is_refused(ask: Callable[[str], object], error: type[Exception]) -> None:
    with server(endless) as url, pytest.raises(error, match=r"more than [0-9]+ bytes"):
        ask(url)


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
@pytest.mark.parametrize(("ask", "error"), CLIENTS)
def test_a_compressed_body_is_refused_before_it_is_unpacked(
    ask: Callable[[str], object], error: type[Exception], status: str
) -> None:
    with (
        server(lambda: iter([BOMB]), "Content-Encoding: gzip", status=status) as url,
        pytest.raises(error, match="encoding gzip"),
    ):
        ask(url)


@pytest.mark.parametrize(("ask", "error"), [one for one in CLIENTS if one[0] is not ask_through_worker])
@pytest.mark.parametrize("body", [DEEP, b'{"version": ' + b"9" * 5_000 + b"}", b'["x"]', b"7"], ids=len)
def test_json_that_is_no_answer_is_a_typed_error(
    ask: Callable[[str], object], error: type[Exception], body: bytes
) -> None:
    with server(lambda: iter([body])) as url, pytest.raises(error):
        ask(url)


def test_the_time_counts_for_the_whole_body_and_not_for_each_part() -> None:
    clock = itertools.count()
    parts = Limit(most_bytes=1_000, within_s=10).counted(itertools.repeat(b"x"), lambda: next(clock))
    with pytest.raises(BodyError, match="not complete after 10 s"):
        list(parts)


def test_a_body_of_exactly_the_limit_is_read() -> None:
    with server(lambda: iter([b"x" * 600, b"y" * 400])) as url, httpx.Client() as client:
        for most, length in ((1_000, 1_000), (999, None)):
            answer = client.send(client.build_request("GET", url), stream=True)
            if length is None:
                with pytest.raises(BodyError):
                    Limit(most, 60).read(answer)
            else:
                assert len(Limit(most, 60).read(answer)) == length
            assert answer.is_closed
