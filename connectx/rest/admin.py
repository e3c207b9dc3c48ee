"""REST resources about the worker itself: root, health, loggers, metrics, its OpenAPI document.

Mirrors Kafka Connect's RootResource and LoggingResource.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from connectx.core import verbs
from connectx.rest import bodies
from connectx.rest.exchange import PROMETHEUS
from connectx.rest.request_handler import RequestHandler, in_path

_HEALTHY = "Worker has completed startup and is ready to handle requests."
_STARTING = "Worker is still starting up."
_UNHEALTHY = "Worker was unable to handle this request and may be unable to handle other requests."


class AdminResources:
    """Handlers by the names of `connectx.rest.operations`.

    Args:
        handler: asks the core and the services.
        document: the OpenAPI document.
    """

    def __init__(self, handler: RequestHandler, document: Mapping[str, Any]) -> None:
        self._handler = handler
        self._services = handler.services
        self._document = document

    async def root(self, request: Request) -> Response:
        """Version, commit and the id of the Kafka cluster."""
        return JSONResponse(await self._handler.blocking(self._services.root))

    async def health(self, request: Request) -> Response:
        """Whether the worker has started and answers (KIP-1017)."""
        answers = await self._handler.answers_in(self._handler.limits.health_timeout_ms)
        if not self._services.ready():
            return JSONResponse({"status": "starting", "message": _STARTING}, 503)
        if not answers:
            return JSONResponse({"status": "unhealthy", "message": _UNHEALTHY}, 500)
        return JSONResponse({"status": "healthy", "message": _HEALTHY})

    async def metrics(self, request: Request) -> Response:
        """Metrics in Prometheus's text format."""
        listed = await self._handler.body_of(verbs.ListConnectors(("info", "status")))
        connectors = listed if isinstance(listed, dict) else {}  # a worker that starts or ends refuses to answer
        text = await self._handler.blocking(self._services.metrics, connectors)
        return Response(text, headers={"content-type": PROMETHEUS})

    async def openapi(self, request: Request) -> Response:
        """The OpenAPI document."""
        return JSONResponse(dict(self._document))

    async def loggers(self, request: Request) -> Response:
        """Levels of all loggers."""
        return JSONResponse(await self._handler.blocking(self._services.loggers))

    async def logger(self, request: Request) -> Response:
        """Level of one logger."""
        return JSONResponse(await self._handler.blocking(self._services.logger, in_path(request, "logger")))

    async def set_logger(self, request: Request) -> Response:
        """Set the level of a logger here, or (scope=cluster) by a record that every worker reads."""
        body = await self._handler.body(request)
        level, namespace = bodies.parse_level(body), in_path(request, "logger")
        if request.query_params.get("scope", "worker").lower() == "cluster":
            verb = verbs.LoggerLevel(namespace, self._services.logger_level(level))
            return await self._handler.answer(request, body, verb)
        return JSONResponse(await self._handler.blocking(self._services.set_logger, namespace, level))
