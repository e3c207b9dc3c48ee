"""Handles REST requests for the resources: calls the core and services, or forwards, within time limits.

Decides how a reply of the core becomes a response; `resources` and `admin` decide which verb a request is. Mirrors
Kafka Connect's HerderRequestHandler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar, assert_never, cast
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from connectx.core import verbs
from connectx.core.messages import Done, Forwarded, Refused, Reply
from connectx.core.verbs import Asks, Verb
from connectx.errors.rest import RestError
from connectx.rest import bodies
from connectx.rest.forwarding import Forwarder
from connectx.rest.services import Ask, Services

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of requests: times in ms, the body in bytes, and how many are answered at the same time."""

    request_timeout_ms: int = 90_000
    health_timeout_ms: int = 10_000
    max_body_bytes: int = bodies.MAX_BODY_BYTES
    max_requests: int = 256


class RequestHandler:
    """Completes requests. Lives in the event loop of a server; blocking work goes to `threads`."""

    def __init__(
        self, ask: Ask, services: Services, threads: Executor, forwarder: Forwarder, limits: Limits | None = None
    ) -> None:
        self.services = services
        self.limits = limits or Limits()
        self._put = ask
        self._threads = threads
        self._forwarder = forwarder

    async def body(self, request: Request) -> bytes:
        """The body of a request, within the limits of size and time; RestError 408, 413 or 415."""
        try:
            async with asyncio.timeout(self.limits.request_timeout_ms / 1000):
                return await bodies.read_body(request, self.limits.max_body_bytes)
        except TimeoutError as error:
            raise RestError("The request body did not arrive in time", status=408) from error

    async def answer(self, request: Request, body: bytes, verb: Verb) -> Response:
        """Ask the core, and answer or forward."""
        return await self.respond(request, body, await self.ask(verb))

    async def ask(self, verb: Verb) -> Reply:
        """The core's reply."""
        return await self._within_limit(asyncio.wrap_future(self._put(verb)))

    async def body_of(self, verb: Asks[T]) -> T | Refused | Forwarded:
        """The body that a verb asks for, or the reply that comes instead."""
        reply = await self.ask(cast("Verb", verb))
        return cast("T", reply.body) if isinstance(reply, Done) else reply

    async def answers_in(self, timeout_ms: int) -> bool:
        """True when the core answers within `timeout_ms`."""
        waiting = asyncio.wrap_future(self._put(verbs.Worker()))
        done, _ = await asyncio.wait({waiting}, timeout=timeout_ms / 1000)
        return bool(done) and waiting.exception() is None

    async def respond(self, request: Request, body: bytes, reply: Reply) -> Response:
        """The content of a reply, or the answer of the worker that it names."""
        match reply:
            case Forwarded():
                return await self.forward(request, body, reply.worker_url)
            case Refused():
                return error_response(reply.status, reply.message)
            case Done(body=None):
                return Response(status_code=reply.status)
            case Done():
                return JSONResponse(reply.body, reply.status)
            case _:
                assert_never(reply)

    async def forward(self, request: Request, body: bytes, worker_url: str) -> Response:
        """The answer of another worker."""
        return await self._forwarder.forward(request, body, worker_url)

    async def blocking(self, function: Callable[..., T], *args: Any) -> T:
        """Call a service on another thread."""
        return await self._within_limit(asyncio.get_running_loop().run_in_executor(self._threads, function, *args))

    async def _within_limit(self, waiting: asyncio.Future[T]) -> T:
        done, _ = await asyncio.wait({waiting}, timeout=self.limits.request_timeout_ms / 1000)
        if not done:
            raise RestError(f"Request timed out. The worker is currently {self.services.stage()}", status=500)
        return waiting.result()


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """The body that every failure has."""
    return JSONResponse({"error_code": status, "message": message}, status, headers)


def in_path(request: Request, name: str) -> str:
    """A part of the path, decoded."""
    return unquote(request.path_params[name])
