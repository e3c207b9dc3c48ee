"""Clients that take their time."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from connectx.rest.connection import Connection

HEAD = b"GET / HTTP/1.1\r\nhost: a\r\n"


LARGE = 8_000_000  # more than sockets hold


async def app(scope: Any, receive: Any, send: Any) -> None:
    body = b"k" * LARGE if scope["path"] == "/large" else b"ok"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def exchanged(*parts: bytes, keep_alive_s: float, until_closed: bool) -> bytes:
    """What the server says to these parts; without `until_closed`, up to the end of the last answer."""
    config = uvicorn.Config(app, http=Connection, ws="none", lifespan="off", log_config=None)
    config.load()
    config.timeout_keep_alive = keep_alive_s  # type: ignore[assignment]
    made = lambda: Connection(config, ServerState(), {}, asyncio.get_running_loop())  # noqa: E731
    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        said = b""
        for part in parts:
            writer.write(part)
            if part.endswith(b"\r\n\r\n"):
                said += await reader.readuntil(b"ok")
        if until_closed:
            said += await asyncio.wait_for(reader.read(), 30)
        writer.close()
    return said


@pytest.mark.parametrize("parts", [(), (HEAD,), (HEAD + b"\r\n", HEAD)], ids=["nothing", "half", "half of the second"])
def test_a_client_that_does_not_finish_its_request_is_let_go(parts: tuple[bytes, ...]) -> None:
    said = asyncio.run(exchanged(*parts, keep_alive_s=0.05, until_closed=True))
    assert said.count(b"200 OK") == sum(part.endswith(b"\r\n\r\n") for part in parts)


def test_one_that_asks_in_parts_and_again_is_answered() -> None:
    whole = HEAD + b"\r\n"
    said = asyncio.run(exchanged(whole, whole, HEAD, b"x: y\r\n\r\n", keep_alive_s=60, until_closed=False))
    assert said.count(b"200 OK") == 3


async def let_go(sent: bytes) -> ServerState:
    """The server's state once it has dropped a client that sends this and reads nothing."""
    config = uvicorn.Config(app, http=Connection, ws="none", lifespan="off", log_config=None)
    config.load()
    config.timeout_keep_alive = 0.05  # type: ignore[assignment]
    loop, state, lost = asyncio.get_running_loop(), ServerState(), asyncio.Event()

    class Watched(Connection):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set()

    server = await loop.create_server(lambda: Watched(config, state, {}, loop), "127.0.0.1", 0)
    async with server:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_connect(client, server.sockets[0].getsockname()[:2])
            await loop.sock_sendall(client, sent)
            await asyncio.wait_for(lost.wait(), 30)
            await asyncio.gather(*state.tasks)
    return state


@pytest.mark.parametrize("requests", [1, 2], ids=["one answer", "a second that waits for the first"])
def test_a_client_that_does_not_read_its_answers_is_let_go_and_takes_no_place(requests: int) -> None:
    state = asyncio.run(let_go(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n" * requests))
    assert (state.connections, state.tasks) == (set(), set())


def test_what_is_left_of_a_request_that_is_answered_is_not_waited_for_without_end() -> None:
    async def scenario() -> bytes:
        head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n"
        return await exchanged(head, b"{", keep_alive_s=0.05, until_closed=True)

    assert asyncio.run(scenario()).count(b"200 OK") == 1
