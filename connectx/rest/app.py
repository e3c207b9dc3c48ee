"""The ASGI application of a worker's REST server: routes from the operations, error responses from exceptions.

Decides which handler serves a path and how a result or an error is shown. What an operation does is in `resources` and
`admin`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from connectx.core import verbs
from connectx.errors.base import ConnectxError
from connectx.errors.clusters import WorkerStoppedError
from connectx.errors.rest import RestError
from connectx.model.group import ProtocolVersion
from connectx.rest import bodies
from connectx.rest.call import Backend, Call, ForwardedError, JsonResponse, error_response
from connectx.rest.guard import NO_LOGIN, UNKNOWN_SENDER
from connectx.rest.operation import Answer, Operation

logger = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(operations: Iterable[Operation[Any]], backend: Backend) -> ASGIApp:
    """The ASGI application that serves `operations`."""
    paths: dict[str, dict[str, Endpoint]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _endpoint(operation, backend)
    return routed(paths, error_response)


def routed(paths: Mapping[str, Mapping[str, Endpoint]], error: Callable[..., Response]) -> ASGIApp:
    """An application of endpoints by path and method; `error` makes the response of a status and a message."""

    async def http_error(request: Request, raised: Exception) -> Response:
        assert isinstance(raised, HTTPException)
        return error(raised.status_code, f"HTTP {raised.status_code} {raised.detail}", raised.headers)

    routes = [_route(path, endpoints) for path, endpoints in paths.items()]
    app = Starlette(routes=routes, exception_handlers={HTTPException: http_error})
    app.router.redirect_slashes = False

    async def encoded(scope: Scope, receive: Receive, send: Send) -> None:
        # Names are matched while still encoded, so that one with a slash in it stays one segment.
        path = scope["raw_path"].decode("ascii", "replace").rstrip("/") or "/"
        with contextlib.suppress(asyncio.CancelledError):  # the server ended, so the response has no reader
            await app({**scope, "path": path}, receive, send)

    return encoded


def _route(path: str, endpoints: Mapping[str, Endpoint]) -> Route:
    """All methods of one path: OPTIONS and the response 405 list them. HEAD is GET without its body."""
    methods = sorted({*endpoints, "OPTIONS"} | ({"HEAD"} if "GET" in endpoints else set()))

    async def endpoint(request: Request) -> Response:
        if request.method == "OPTIONS":
            allowed = ", ".join(methods)
            return Response(allowed, headers={"allow": allowed}, media_type="text/plain")
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, endpoint, methods=methods)


def _endpoint(operation: Operation[Any], backend: Backend) -> Endpoint:
    """The endpoint of an operation, with its failures turned into responses that show no secret."""

    def refused(status: int, why: object) -> Response:
        return error_response(status, backend.services.masked(str(why)))

    async def endpoint(request: Request) -> Response:
        try:
            return await _respond(operation, Call(backend, request))
        except RestError as error:
            return refused(error.status, error)
        except WorkerStoppedError as error:  # 503, not 500: other workers may ask again
            return refused(503, error)
        except ConnectxError as error:
            return refused(500, error)
        except ClientDisconnect:
            return error_response(400, "The client went away before its request was complete")
        except Exception as error:
            logger.exception("%s %s failed", request.method, request.scope["path"])
            return refused(500, f"{type(error).__name__}: {error}")

    return endpoint


async def _respond(operation: Operation[Any], call: Call) -> Response:
    if operation.internal:
        await _require_sender(call)
    content = b"" if operation.takes is None else await call.read()
    try:
        answer = await _answer(operation, call, content)
    except ForwardedError as elsewhere:
        return await call.forward(elsewhere.worker_url)
    if answer.body is None:
        return Response(status_code=answer.status, headers=answer.headers)
    if operation.media_type is not None:
        return Response(answer.body, answer.status, {"content-type": operation.media_type})
    return JsonResponse(answer.body, answer.status, answer.headers)


async def _answer(operation: Operation[Any], call: Call, content: bytes) -> Answer[Any]:
    if operation.handler is None:
        return await call.answer(call.verb(operation))
    if operation.takes is None:
        return await operation.handler(call)
    return await operation.handler(call, bodies.decode(content, operation.takes))


async def _require_sender(call: Call) -> None:
    """A signature stands for a login, but only where the group's protocol has it verified (KIP-507)."""
    if call.request.scope[UNKNOWN_SENDER]:
        worker = await call.ask(verbs.Worker())
        if worker["protocol"] != ProtocolVersion.SESSIONED.wire_name:
            raise RestError(NO_LOGIN, status=401)
