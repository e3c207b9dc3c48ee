"""What the server's sockets and limits do to clients that take too long or send too much."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from connectx.errors.rest import RestError
from connectx.rest.call import _contained
from connectx.rest.connections import Connections
from connectx.rest.server import QuietServer, listen

LARGE = 8_000_000  # more than sockets hold


async def app(scope: Any, receive: Any, send: Any) -> None:
    body = b"k" * LARGE if scope["path"] == "/large" else b"ok"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def serving(
    unread_s: float = 60, max_connections: int | None = None, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[QuietServer, tuple[str, int]]]:
    """A server of `app`, and its address."""
    server, listening = (
        QuietServer(app, context, max_connections=max_connections),
        listen("http://127.0.0.1:0", unread_s=unread_s),
    )
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


def test_idle_connections_are_closed_for_new_ones_with_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> bytes:
        async with serving(max_connections=3) as (server, address):
            idle = [await asyncio.open_connection(*address) for _ in range(8)]
            for reader, _ in idle[:5]:
                with contextlib.suppress(ConnectionError):
                    assert await asyncio.wait_for(reader.read(), 30) == b""
            assert len(server.server_state.connections) <= 3
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            return await asyncio.wait_for(reader.readuntil(b"\r\n"), 30)

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 200")
    assert len([one for one in caplog.records if one.name == "connectx.rest.connections"]) == 1


def in_tls() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS of a server on this machine, and of a client that trusts it."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    return server, client


def test_connections_whose_tls_handshake_is_not_complete_count(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> bytes:
        ours, theirs = in_tls()
        async with serving(max_connections=3, context=ours) as (_, address):
            silent = [await asyncio.open_connection(*address) for _ in range(8)]
            for reader, _ in silent[:5]:
                with contextlib.suppress(ConnectionError):
                    assert await asyncio.wait_for(reader.read(), 30) == b""
            reader, writer = await asyncio.open_connection(*address, ssl=theirs)
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            return await asyncio.wait_for(reader.readuntil(b"\r\n"), 30)

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 200")
    assert len([one for one in caplog.records if one.name == "connectx.rest.connections"]) == 1


def test_a_tls_handshake_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectx.rest.connections._HANDSHAKE_S", 0.1)

    async def scenario() -> None:
        async with serving(context=in_tls()[0]) as (_, address):
            reader, _ = await asyncio.open_connection(*address)
            assert await asyncio.wait_for(reader.read(), 30) == b""

    asyncio.run(scenario())


def test_connections_that_cannot_be_accepted_are_reported_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [0.0]
    connections = Connections(3, clock=lambda: now_s[0])
    loop = asyncio.new_event_loop()
    for _ in range(1_000):
        connections.on_error(loop, {"message": "socket.accept() out of system resource"})
    now_s[0] = 61.0
    connections.not_accepted()
    loop.close()
    assert [one.args[-1] for one in caplog.records if isinstance(one.args, tuple)] == [1, 1_000]


def test_a_plugin_that_ends_its_program_is_an_error_of_its_request() -> None:
    with pytest.raises(RestError, match="SystemExit"):
        _contained(sys.exit, 3)
