"""The panel as a page: who may ask its server, what goes through it, and that nothing is left when it stops."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import httpx
import pytest
from connectx_widgets.page import PanelPage

from connectx.errors.rest import ListenerError
from tests.unit.widgets.test_panel import Shown

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@pytest.fixture
def cluster() -> Shown:
    return Shown()


@pytest.fixture
def page(cluster: Shown) -> Iterator[PanelPage]:
    with PanelPage(cluster) as made:  # type: ignore[arg-type]
        yield made


def answers(page: PanelPage, wanted: int, *messages: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The first messages that a page gets that sends these as soon as it hears."""
    found: list[dict[str, Any]] = []
    with httpx.Client(trust_env=False) as client, client.stream("GET", f"{page.url}events") as stream:
        for line in stream.iter_lines():
            if line == "event: ready":
                for message in messages:
                    assert client.post(f"{page.url}messages", json=message).status_code == 204
            if line.startswith("data: {"):
                found.append(json.loads(line.removeprefix("data: ")))
            if len(found) == wanted:
                return found
    raise AssertionError(found)


def status_of(method: str, url: str, headers: Mapping[str, str] = NO_HEADERS) -> int:
    with httpx.Client(trust_env=False) as client:
        return client.request(method, url, headers=headers, content="{}" if method == "POST" else None).status_code


def test_the_page_and_its_files_are_served_at_the_link_alone(page: PanelPage) -> None:
    for file, media_type in (("", "text/html"), ("page.mjs", "text/javascript"), ("panel.css", "text/css")):
        found = httpx.get(page.url + file, trust_env=False)
        assert (found.status_code, found.headers["content-type"].partition(";")[0]) == (200, media_type)
        assert "script-src 'self'" in found.headers["content-security-policy"]
    root, token = page.url.rstrip("/").rsplit("/", 1)
    assert len(token) >= 32
    other = token[:-1] + ("y" if token.endswith("x") else "x")
    for path in ("", "/", f"/{token[:-1]}/", f"/{other}/", "/x/events", f"/{token}"):
        assert status_of("GET", root + path) == 403, path
    assert status_of("GET", f"{page.url}no-such-file") == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "attacker.example:80"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate"},
    ],
    ids=lambda headers: ",".join(headers.values()),
)
def test_other_pages_cannot_send_messages(page: PanelPage, headers: dict[str, str]) -> None:
    assert status_of("POST", f"{page.url}messages", headers) == 403
    assert status_of("POST", f"{page.url}messages", {"origin": page.url.rsplit("/", 2)[0]}) == 204


def test_a_link_on_another_site_can_be_followed_but_not_embedded(page: PanelPage) -> None:
    assert status_of("GET", page.url, {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}) == 200
    assert status_of("GET", page.url, {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}) == 403


def test_a_page_gets_everything_when_it_asks_and_the_result_of_its_calls(page: PanelPage, cluster: Shown) -> None:
    (everything,) = answers(page, 1, {"kind": "resync"})
    assert everything["set"]["head"]["facts"] == {"generation": "3"}
    called, result = answers(page, 2, {"kind": "call", "id": "1", "verb": "kill", "worker": "worker-9"})
    assert called["text"] == 'cluster.kill("worker-9")'
    assert "no such worker" in result["error"]
    assert cluster.calls == ["worker-9"]


def test_a_read_only_page_makes_no_call(cluster: Shown) -> None:
    with PanelPage(cluster, read_only=True) as page:  # type: ignore[arg-type]
        everything, result = answers(
            page, 2, {"kind": "resync"}, {"kind": "call", "id": "1", "verb": "kill", "worker": "worker-9"}
        )
    assert everything["set"]["head"]["read_only"]
    assert "read-only" in result["error"]
    assert cluster.calls == []


def test_a_body_that_is_no_message_is_refused(page: PanelPage) -> None:
    for body in (b"", b"[]", b"{"):
        assert httpx.post(f"{page.url}messages", content=body, trust_env=False).status_code == 400


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenerError, match=rf"127\.0\.0\.1:{port}.*port 0 takes a free one"):
            PanelPage(Shown(), port=port).start()  # type: ignore[arg-type]


def test_stopping_ends_open_streams_and_leaves_no_thread(cluster: Shown) -> None:
    before = threading.active_count()
    page = PanelPage(cluster).start()  # type: ignore[arg-type]
    with httpx.Client(trust_env=False) as client, client.stream("GET", f"{page.url}events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: ready"
        page.stop()
        with pytest.raises(httpx.HTTPError):
            list(lines)
    assert threading.active_count() == before
    page.stop()
