"""One request to a worker's REST server: reads its body, asks the core and the services, within time limits.

Never decides which verb a request is; `resources` and `admin` do. Mirrors Kafka Connect's HerderRequestHandler.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, Final, TypeVar, assert_never, cast
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import override

from connectx.core import verbs
from connectx.core.messages import Done, Forwarded, Refused
from connectx.core.verbs import Asks, Verb
from connectx.errors.rest import RestError
from connectx.model.decoding import exceeds
from connectx.protocol import compact_json
from connectx.rest import bodies
from connectx.rest.forwarding import Forwarder
from connectx.rest.operation import TASK, Answer, Operation
from connectx.rest.services import Ask, Services
from connectx.rest.stages import Stage
from connectx.values import Value

T = TypeVar("T")

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
"""Largest body: far above any configuration, far below what would hurt a worker."""

VALIDATING: Final = "performing multi-property validation for the connector"
"""Kafka Connect's stage while a connector validates its configuration."""

_TOUCH_S: Final = 0.1
"""How often a health check that waits for the group looks again."""

_TASK_DIGITS: Final = 9
"""Of the largest task number; Kafka Connect's are 32-bit."""


class Limits(Value):
    """Limits of requests: times in ms, the body in bytes, and how many are answered at the same time."""

    request_timeout_ms: int = 90_000
    health_timeout_ms: int = 10_000
    max_body_bytes: int = MAX_BODY_BYTES
    max_requests: int = 256


class Backend(Value):
    """What calls use. Lives in the event loop of a server; blocking work goes to `threads`."""

    ask: Ask
    services: Services
    threads: Executor
    forwarder: Forwarder
    limits: Limits
    document: Mapping[str, Any]
    """The OpenAPI document of the listener."""


class ForwardedError(Exception):
    def __init__(self, worker_url: str) -> None:
        super().__init__(worker_url)
        self.worker_url = worker_url


class Call:
    """One request. `content` is its body, once it is read.

    Methods that ask the core raise `ForwardedError` if another worker must answer, and `RestError` if it refuses or
    does not answer in time.
    """

    def __init__(self, backend: Backend, request: Request) -> None:
        self.services = backend.services
        self.limits = backend.limits
        self.document = backend.document
        self.request = request
        self.content = b""
        self._backend = backend

    @property
    def connector(self) -> str:
        """Name of the connector in the path."""
        return self.path("connector")

    def path(self, name: str) -> str:
        """A part of the path, decoded."""
        return unquote(self.request.path_params[name])

    def verb(self, operation: Operation[Any]) -> Verb:
        """The verb of an operation, with the arguments that path and query have; RestError 404 for no task's number."""
        assert operation.verb is not None
        given: dict[str, Any] = {name: self.path(name) for name in self.request.path_params}
        if TASK in given:
            number = given[TASK]
            if not (number.isascii() and number.isdigit() and len(number) <= _TASK_DIGITS):
                raise RestError("HTTP 404 Not Found", status=404)
            given[TASK] = int(number)
        for query in operation.query:
            values = self.request.query_params.getlist(query.name)
            given[query.field] = self.flag(query.name, "false") if query.type is bool else tuple(values)
        return operation.verb(**given)

    def flag(self, name: str, default: str) -> bool:
        """A query parameter that is true or false."""
        return self.request.query_params.get(name, default).lower() == "true"

    async def read(self) -> bytes:
        """The whole body; RestError 408 or 413."""
        self.content = await read_body(self.request, self.limits.max_body_bytes, self.limits.request_timeout_ms / 1000)
        return self.content

    async def ask(self, verb: Asks[T]) -> T:
        """The body that a verb asks for."""
        return (await self.answer(verb)).body

    async def answer(self, verb: Asks[T]) -> Answer[T]:
        asked = self._backend.ask(cast("Verb", verb))
        reply = await self._within_limit(asyncio.wrap_future(asked), lambda: asked.stage)
        match reply:
            case Done():
                return Answer(cast("T", reply.body), reply.status)
            case Refused():
                raise RestError(reply.message, status=reply.status)
            case Forwarded():
                raise ForwardedError(reply.worker_url)
            case _:
                assert_never(reply)

    async def is_healthy(self, timeout_ms: int) -> bool:
        """Whether the worker's core answers in time, and its group answers the worker."""
        deadline_s = time.monotonic() + timeout_ms / 1000
        waiting = asyncio.wrap_future(self._backend.ask(verbs.Worker()))
        done, _ = await asyncio.wait({waiting}, timeout=timeout_ms / 1000)
        if not done or waiting.exception() is not None:
            return False
        while not self.services.in_touch():
            if time.monotonic() >= deadline_s:
                return False
            await asyncio.sleep(_TOUCH_S)
        return True

    async def blocking(self, function: Callable[..., T], *args: Any, stage: str | None = None) -> T:
        """Call on another thread; `stage` follows "the worker is currently" if it takes too long."""
        loop = asyncio.get_running_loop()
        began = None if stage is None else Stage(stage, int(time.time() * 1000))
        waiting = loop.run_in_executor(self._backend.threads, _contained, function, *args)
        return await self._within_limit(waiting, lambda: began)

    async def forward(self, worker_url: str) -> Response:
        return await self._backend.forwarder.forward(self.request, self.content, worker_url)

    async def _within_limit(self, waiting: asyncio.Future[T], stage: Callable[[], Stage | None]) -> T:
        done, _ = await asyncio.wait({waiting}, timeout=self.limits.request_timeout_ms / 1000)
        if not done:
            last = stage() or self.services.stage()
            raise RestError(f"Request timed out. {last.summary()}", status=500)
        return waiting.result()


def _contained(function: Callable[..., T], *args: Any) -> T:
    """Call, and let no plugin end the event loop, as with sys.exit."""
    try:
        return function(*args)
    except Exception:
        raise
    except BaseException as error:
        raise RestError(f"A plugin raised {type(error).__name__}: {error}", status=500) from error


class JsonResponse(Response):
    """A JSON body. What others wrote into it, such as half of a surrogate pair, does not keep it from being sent."""

    media_type = "application/json"

    @override
    def render(self, content: Any) -> bytes:
        return compact_json.dumps(content, errors="replace")


async def read_body(request: Request, max_bytes: int, timeout_s: float) -> bytes:
    """The whole body; RestError 408 when it does not arrive in time, 413 when it is too large."""
    declared = request.headers.get("content-length", "")
    too_large = RestError(
        f"The request body is larger than {max_bytes} bytes", status=413, next_step="See rest.request.max.bytes."
    )
    if exceeds(declared, max_bytes):
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise too_large
    except TimeoutError as error:
        raise RestError("The request body did not arrive in time", status=408) from error
    return bytes(body)


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """The body that every failure has."""
    return JsonResponse(bodies.Error(error_code=status, message=message), status, headers)
