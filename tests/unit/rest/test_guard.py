"""Who is let in, by the headers of a request alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from connectx.rest.guard import Address, Guard

LOCAL = Address({"127.0.0.1", "::1", "localhost"}, is_local=True)
PUBLIC = Address({"127.0.0.1", "localhost", "connect-1", "connect.example"}, is_local=False)


async def answered(
    guard: Guard, path: str = "/connectors", method: str = "GET", scheme: str = "http", **headers: str
) -> int:
    """Status of a request; `_` in names of headers is `-`."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    pairs = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": pairs}
    scope["scheme"] = scheme
    await guard(scope, receive, send)
    status: int = sent[0]["status"]
    return status


async def ok(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


def status_of(address: Address, *allowed: str, **request: str) -> int:
    return asyncio.run(answered(Guard(ok, address, allowed, None, 1), **request))


@pytest.mark.parametrize("headers", [{"host": "["}, {"host": "127.0.0.1", "origin": "http://["}, {"host": "[::1"}])
def test_a_name_that_cannot_be_one_is_refused_like_a_foreign_one(headers: dict[str, str]) -> None:
    assert status_of(LOCAL, **headers) == 403


@pytest.mark.parametrize(
    ("address", "host", "origin", "status"),
    [
        (LOCAL, "localhost:8083", "http://localhost:8083", 200),
        (LOCAL, "[::1]:8083", "http://[::1]:8083", 200),
        (LOCAL, "127.0.0.1", "http://127.0.0.1:80", 200),
        (LOCAL, "localhost:8083", "http://localhost:3000", 403),
        (LOCAL, "localhost:8083", "http://localhost", 403),
        (LOCAL, "localhost:8083", "https://localhost:8083", 403),
        (LOCAL, "localhost:8083", "http://127.0.0.1:8083", 403),
        (LOCAL, "localhost:8083", "null", 403),
        (LOCAL, "localhost:8083", "", 403),
        (LOCAL, "10.0.0.5:8083", "http://10.0.0.5:8083", 403),
        (LOCAL, "attacker.example:8083", None, 403),
        (LOCAL, "attacker.example:8083", "http://attacker.example:8083", 403),
        (PUBLIC, "connect.example:8083", "http://connect.example:8083", 200),
        (PUBLIC, "10.0.0.5:8083", "http://10.0.0.5:8083", 200),
        (PUBLIC, "connect.connect.svc:8083", None, 200),
        (PUBLIC, "connect.example:8083", "http://attacker.example", 403),
        (PUBLIC, "connect.example:8083", "http://connect.example", 403),
        (PUBLIC, "10.0.0.5:8083", "http://10.0.0.6:8083", 403),
        (PUBLIC, "attacker.example:8083", "http://attacker.example:8083", 403),  # rebound to this address
    ],
)
def test_a_page_may_ask_only_at_its_own_scheme_host_and_port(
    address: Address, host: str, origin: str | None, status: int
) -> None:
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    assert status_of(address, method="POST", **headers) == status


@pytest.mark.parametrize("address", [LOCAL, PUBLIC])
@pytest.mark.parametrize(
    ("fetch", "method", "status"),
    [
        ({"sec_fetch_site": "same-origin"}, "GET", 200),
        ({"sec_fetch_site": "none", "sec_fetch_mode": "navigate"}, "GET", 200),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors", "sec_fetch_dest": "image"}, "GET", 403),
        ({"sec_fetch_site": "same-site", "sec_fetch_mode": "no-cors", "sec_fetch_dest": "script"}, "GET", 403),
        ({"sec_fetch_site": "same-site", "sec_fetch_mode": "cors", "sec_fetch_dest": "empty"}, "POST", 403),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}, "GET", 200),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}, "POST", 403),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "iframe"}, "GET", 403),
    ],
)
def test_what_a_browser_says_of_the_asking_page_counts(
    address: Address, fetch: dict[str, str], method: str, status: int
) -> None:
    assert status_of(address, method=method, host="localhost:8083", **fetch) == status


def test_every_origin_may_ask_when_the_setting_says_so() -> None:
    origin = {"host": "127.0.0.1", "origin": "https://anywhere.example", "sec_fetch_site": "cross-site"}
    assert status_of(LOCAL, "*", **origin) == 200
    assert status_of(LOCAL, "https://anywhere.example", **origin) == 200
    assert status_of(LOCAL, **origin) == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"content_length": "0"}, 200),
        ({"content_type": "application/json", "content_length": "2"}, 200),
        ({"content_type": "Application/vnd.schemaregistry.v1+JSON; charset=utf-8", "content_length": "2"}, 200),
        ({"content_length": "2"}, 415),
        ({"transfer_encoding": "chunked"}, 415),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "text/plain; application/json", "content_length": "2"}, 415),
        ({"content_type": "text/plain,application/json", "content_length": "2"}, 415),
        ({"content_type": "application/x-www-form-urlencoded", "content_length": "2"}, 415),
        ({"content_type": "multipart/form-data; boundary=+json", "content_length": "2"}, 415),
        ({"content_type": ""}, 415),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_change_needs_a_body_of_json_or_none(method: str, headers: dict[str, str], status: int) -> None:
    assert status_of(LOCAL, method=method, host="localhost", **headers) == status


def test_requests_for_health_take_no_place_of_others() -> None:
    async def scenario() -> int:
        held, begun = asyncio.Event(), asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["path"] == "/health":
                begun.set()
                await held.wait()
            await ok(scope, receive, send)

        guard = Guard(app, LOCAL, (), None, max_requests=1)
        health = asyncio.create_task(answered(guard, "/health", host="localhost"))
        await begun.wait()
        status = await answered(guard, host="localhost")
        held.set()
        await health
        return status

    assert asyncio.run(scenario()) == 200
