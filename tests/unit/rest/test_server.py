"""What the server's sockets and limits do to clients that take too long or send too much."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from connectx.rest.server import QuietServer, listen

LARGE = 8_000_000  # more than sockets hold


async def app(scope: Any, receive: Any, send: Any) -> None:
    body = b"k" * LARGE if scope["path"] == "/large" else b"ok"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def serving(unread_s: float = 60) -> AsyncIterator[tuple[QuietServer, tuple[str, int]]]:
    """A server of `app`, and its address."""
    server, listening = QuietServer(app), listen("http://127.0.0.1:0", unread_s=unread_s)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield server, listening.getsockname()
    finally:
        server.leave()
        await running


async def until_gone(server: QuietServer) -> None:
    state = server.server_state
    while state.connections or state.tasks:
        await asyncio.sleep(0.01)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux closes such connections")
@pytest.mark.parametrize("requests", [1, 2], ids=["one response", "a second that waits for the first"])
def test_a_client_that_does_not_read_its_responses_is_disconnected(requests: int) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with serving(unread_s=0.1) as (server, address):
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.setblocking(False)
                await loop.sock_connect(client, address)
                await loop.sock_sendall(client, b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n" * requests)
                while not server.server_state.connections:
                    await asyncio.sleep(0.01)
                await asyncio.wait_for(until_gone(server), 30)

    asyncio.run(scenario())


def test_a_head_above_the_limit_is_refused() -> None:
    async def scenario() -> bytes:
        async with serving() as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 70_000)
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 30)
            writer.close()
            return answer

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 400")
