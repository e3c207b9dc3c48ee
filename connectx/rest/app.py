"""The ASGI application of a worker's REST server: routes from the operations, error responses from exceptions.

Decides which handler serves a path and how an error is shown. What an operation does is in `resources` and `admin`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from connectx.errors.base import ConnectxError
from connectx.errors.clusters import WorkerStoppedError
from connectx.errors.rest import RestError
from connectx.rest.admin import AdminResources
from connectx.rest.operations import Operation
from connectx.rest.request_handler import error_response
from connectx.rest.resources import Endpoint, Resources

logger = logging.getLogger(__name__)


def create_app(operations: Iterable[Operation], connectors: Resources, admin: AdminResources) -> ASGIApp:
    """The ASGI application that serves `operations`."""
    paths: dict[str, dict[str, Endpoint]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _answering(_endpoint(operation, connectors, admin))
    routes = [_route(path, endpoints) for path, endpoints in paths.items()]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
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


def _endpoint(operation: Operation, connectors: Resources, admin: AdminResources) -> Endpoint:
    if operation.handler == "task_verb":
        assert operation.verb is not None
        return connectors.task_verb(operation.verb)
    if operation.handler is None:
        assert operation.verb is not None
        return connectors.verb(operation.verb)
    owner = connectors if hasattr(connectors, operation.handler) else admin
    endpoint: Endpoint = getattr(owner, operation.handler)
    return endpoint


def _answering(endpoint: Endpoint) -> Endpoint:
    """The endpoint with its failures turned into answers."""

    async def answering(request: Request) -> Response:
        try:
            return await endpoint(request)
        except RestError as error:
            return error_response(error.status, str(error))
        except WorkerStoppedError as error:  # 503, not 500: other workers may ask again
            return error_response(503, str(error))
        except ConnectxError as error:
            return error_response(500, str(error))
        except ClientDisconnect:
            return error_response(400, "The client went away before its request was complete")
        except Exception as error:
            logger.exception("%s %s failed", request.method, request.scope["path"])
            return error_response(500, f"{type(error).__name__}: {error}")

    return answering


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(error.status_code, f"HTTP {error.status_code} {error.detail}", error.headers)
