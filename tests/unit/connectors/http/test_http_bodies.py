"""Bodies of responses: read up to a limit, and never decompressed."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import httpx
import pytest
from typing_extensions import override

from connectx.connectors.http.client import HttpTarget
from connectx.connectors.http.config import HttpSettings
from connectx.connectors.http.errors import HttpError
from connectx.connectors.http.requests import Request
from connectx.errors.base import ConnectxError
from connectx.model.ids import TopicPartition

SETTINGS = HttpSettings.of({"http.api.url": "http://h/in"})
REQUEST = Request("POST", "http://h/in", TopicPartition("t", 0), (0,), ("a",))


class Endless(httpx.SyncByteStream):
    """A body that goes on until it is closed."""

    def __init__(self, part: bytes, most: int = 1_000) -> None:
        self._part, self._most = part, most
        self.parts = 0
        self.is_closed = False

    @override
    def __iter__(self) -> Iterator[bytes]:
        while self.parts < self._most:
            self.parts += 1
            yield self._part

    @override
    def close(self) -> None:
        self.is_closed = True


def error_of(status: int, body: Endless, **headers: str) -> ConnectxError | None:
    """What a request to a service with this response ends with."""

    def respond(request: httpx.Request) -> httpx.Response:
        assert request.headers["Accept-Encoding"] == "identity"
        return httpx.Response(status, headers=headers, stream=body)

    with HttpTarget(SETTINGS, httpx.MockTransport(respond)) as target:
        try:
            target.send(REQUEST)
        except ConnectxError as error:
            return error
    return None


@pytest.mark.parametrize("status", [200, 404])
def test_a_body_without_an_end_is_read_up_to_a_limit_and_closed(status: int) -> None:
    body = Endless(b"x" * 10_000)
    error = error_of(status, body)
    assert (None if error is None else type(error)) == (HttpError if status == 404 else None)
    assert body.parts <= 14
    assert body.is_closed


@pytest.mark.parametrize("part", [gzip.compress(bytes(10_000_000)), b"no gzip"])
def test_a_compressed_body_is_left_out(part: bytes) -> None:
    error = error_of(404, Endless(part, 2), **{"Content-Encoding": "gzip"})
    assert isinstance(error, HttpError)
    assert "\0" not in error.message
    assert "no gzip" not in error.message
