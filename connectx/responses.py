"""Bodies of responses of other programs, read within a limit of bytes and of time.

Responses are httpx's, or those of httpx2, which has the same interface. A client's timeout holds for each read, so a
server that sends a byte at a time would hold its reader forever; here the time counts for the whole body. Compressed
bodies are refused, because few bytes can become any number: requests ask for none.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import import_module
from typing import Any, Final

from connectx.values import Value

PLAIN: Final = {"accept-encoding": "identity"}
"""Header of requests whose response is read here."""

WORKER_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of a worker's answer, which may list thousands of connectors with their configurations."""


class BodyError(Exception):
    """A body is beyond its limit; the text continues "the server answered with"."""


class Limit(Value):
    """What a body may take."""

    most_bytes: int
    within_s: float

    def read(self, response: Any, clock_s: Callable[[], float] = time.monotonic) -> bytes:
        """The body of a response that was requested as a stream, and which is closed then.

        Raises:
            BodyError: it is longer, takes longer, or is compressed.
            httpx.TransportError: the connection ended.
        """
        try:
            refuse_compressed(response)
            # A response that was not made from a stream has its body already.
            parts = iter((response.content,)) if response.is_stream_consumed else response.iter_raw()
            return b"".join(self.counted(parts, clock_s))
        finally:
            response.close()

    async def read_async(self, response: Any, clock_s: Callable[[], float] = time.monotonic) -> bytes:
        """As `read`, of a client for asyncio."""
        try:
            refuse_compressed(response)
            body = [part async for part in self._counted_async(response.aiter_raw(), clock_s)]
            return b"".join(body)
        finally:
            await response.aclose()

    def counted(self, parts: Iterator[bytes], clock_s: Callable[[], float] = time.monotonic) -> Iterator[bytes]:
        """The parts of a body, until it is beyond the limit."""
        count = _Count(self, clock_s)
        for part in parts:
            count.add(part)
            yield part

    async def _counted_async(self, parts: AsyncIterator[bytes], clock_s: Callable[[], float]) -> AsyncIterator[bytes]:
        count = _Count(self, clock_s)
        async for part in parts:
            count.add(part)
            yield part


class _Count:
    """What a body has taken."""

    def __init__(self, limit: Limit, clock_s: Callable[[], float]) -> None:
        self._limit = limit
        self._clock_s = clock_s
        self._begin_s = clock_s()
        self._bytes = 0

    def add(self, part: bytes) -> None:
        self._bytes += len(part)
        if self._bytes > self._limit.most_bytes:
            raise BodyError(f"more than {self._limit.most_bytes} bytes")
        if self._clock_s() - self._begin_s > self._limit.within_s:
            raise BodyError(f"a body that is not complete after {self._limit.within_s:g} s")


def refuse_compressed(response: Any) -> None:
    """Raises BodyError for a compressed body."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise BodyError(f"a body in the encoding {encoding[:40]}, which was not asked for")


def limit_client(client: Any, limit: Limit) -> None:
    """Let a client of httpx or httpx2 that another library uses raise BodyError beyond a limit."""
    base: Any = import_module(type(client).__module__.partition(".")[0]).SyncByteStream

    class Limited(base):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            return limit.counted(iter(self._stream))

        def close(self) -> None:
            self._stream.close()

    def receive(response: Any) -> None:
        refuse_compressed(response)
        response.stream = Limited(response.stream)

    client.headers.update(PLAIN)
    client.event_hooks = {**client.event_hooks, "response": [*client.event_hooks["response"], receive]}
