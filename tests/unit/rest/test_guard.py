"""Who is let in, by the headers of a request alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from connectx.rest.guard import Guard


async def answered(guard: Guard, path: str = "/connectors", method: str = "GET", **headers: str) -> int:
    """Status of a request."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    pairs = [(name.encode(), text.encode()) for name, text in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": pairs}
    await guard(scope, receive, send)
    status: int = sent[0]["status"]
    return status


async def ok(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


@pytest.mark.parametrize("headers", [{"host": "["}, {"host": "127.0.0.1", "origin": "http://["}, {"host": "[::1"}])
def test_a_name_that_cannot_be_one_is_refused_like_a_foreign_one(headers: dict[str, str]) -> None:
    guard = Guard(ok, {"127.0.0.1", "::1"}, (), None, 1)
    assert asyncio.run(answered(guard, **headers)) == 403


def test_every_origin_may_ask_when_the_setting_says_so() -> None:
    origin = {"host": "127.0.0.1", "origin": "https://anywhere.example"}
    assert asyncio.run(answered(Guard(ok, {"127.0.0.1"}, ("*",), None, 1), **origin)) == 200
    assert asyncio.run(answered(Guard(ok, {"127.0.0.1"}, (), None, 1), **origin)) == 403


def test_requests_for_health_take_no_place_of_others() -> None:
    async def scenario() -> int:
        held, begun = asyncio.Event(), asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["path"] == "/health":
                begun.set()
                await held.wait()
            await ok(scope, receive, send)

        guard = Guard(app, None, (), None, max_requests=1)
        health = asyncio.create_task(answered(guard, "/health"))
        await begun.wait()
        status = await answered(guard)
        held.set()
        await health
        return status

    assert asyncio.run(scenario()) == 200
