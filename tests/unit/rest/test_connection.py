"""Clients that take their time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from connectx.rest.connection import Connection

HEAD = b"GET / HTTP/1.1\r\nhost: a\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


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
