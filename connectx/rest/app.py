"""The REST resources of a worker: what each path means, and what it answers.

Decides how a request becomes a verb of the core and how a reply becomes JSON; it never decides what the worker does.
Mirrors Kafka Connect's RootResource, ConnectorsResource, InternalConnectResource and ConnectorPluginsResource.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import Executor
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from connectx.core.messages import Reply
from connectx.core.requests import Verb
from connectx.errors import ConnectxError, RestError
from connectx.model.states import ConnectorType
from connectx.protocol.signing import ALGORITHM_HEADER, AUTHORIZATION_HEADER
from connectx.rest import bodies
from connectx.rest.forwarding import Forwarder
from connectx.rest.services import Ask, Services

logger = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")

_HEALTHY = "Worker has completed startup and is ready to handle requests."
_STARTING = "Worker is still starting up."
_UNHEALTHY = "Worker was unable to handle this request and may be unable to handle other requests."


def create_app(resources: Resources, allowed_hosts: Collection[str] | None) -> ASGIApp:
    """The ASGI application; `allowed_hosts` are the names that a browser may know this worker by (None: any)."""
    app = Starlette(
        routes=[Route(path, _answering(endpoint), methods=[method]) for method, path, endpoint in _routes(resources)],
        exception_handlers={HTTPException: _http_error},
    )
    app.router.redirect_slashes = False

    async def encoded(scope: Scope, receive: Receive, send: Send) -> None:
        # Names are matched while still encoded, so that one with a slash in it stays one segment.
        path = scope["raw_path"].decode("ascii", "replace").rstrip("/") or "/"
        scope = {**scope, "path": path}
        if (refusal := _foreign(Request(scope), allowed_hosts)) is not None:
            await refusal(scope, receive, send)
            return
        with contextlib.suppress(asyncio.CancelledError):  # the server ended: nobody reads the answer
            await app(scope, receive, send)

    return encoded


def _routes(to: Resources) -> list[tuple[str, str, Endpoint]]:
    connector = "/connectors/{connector}"
    task = connector + "/tasks/{task}"
    plugin = "/connector-plugins/{plugin}"
    return [
        ("GET", "/", to.root),
        ("GET", "/health", to.health),
        ("GET", "/connectors", to.list_connectors),
        ("POST", "/connectors", to.create),
        ("GET", connector, to.verb(Verb.CONNECTOR_INFO)),
        ("DELETE", connector, to.verb(Verb.DELETE)),
        ("GET", connector + "/config", to.verb(Verb.CONNECTOR_CONFIG)),
        ("PUT", connector + "/config", to.put_config),
        ("PATCH", connector + "/config", to.patch_config),
        ("GET", connector + "/status", to.verb(Verb.CONNECTOR_STATUS)),
        ("POST", connector + "/restart", to.restart),
        ("PUT", connector + "/pause", to.verb(Verb.PAUSE)),
        ("PUT", connector + "/resume", to.verb(Verb.RESUME)),
        ("PUT", connector + "/stop", to.verb(Verb.STOP)),
        ("GET", connector + "/tasks", to.verb(Verb.TASKS)),
        ("POST", connector + "/tasks", to.put_task_configs),
        ("GET", task + "/status", to.task_verb(Verb.TASK_STATUS)),
        ("POST", task + "/restart", to.task_verb(Verb.RESTART_TASK)),
        ("PUT", connector + "/fence", to.fence),
        ("GET", connector + "/topics", to.verb(Verb.TOPICS)),
        ("PUT", connector + "/topics/reset", to.verb(Verb.TOPICS_RESET)),
        ("GET", connector + "/offsets", to.read_offsets),
        ("PATCH", connector + "/offsets", to.alter_offsets),
        ("DELETE", connector + "/offsets", to.reset_offsets),
        ("GET", "/connector-plugins", to.plugins),
        ("GET", plugin + "/config", to.plugin_config),
        ("PUT", plugin + "/config/validate", to.validate),
    ]


class Resources:
    """Handlers of one worker's endpoints. Lives in the event loop of its server; blocking work goes to `threads`."""

    def __init__(
        self, ask: Ask, services: Services, threads: Executor, *, request_timeout_s: float, health_timeout_s: float
    ) -> None:
        self._put = ask
        self._services = services
        self._threads = threads
        self._request_timeout_s = request_timeout_s
        self._health_timeout_s = health_timeout_s
        self.forwarder = Forwarder(request_timeout_s)

    # ---------------------------------------------------------------------------------------------- the worker

    async def root(self, request: Request) -> Response:
        """Version, commit and the id of the Kafka cluster."""
        return JSONResponse(await self._blocking(self._services.root))

    async def health(self, request: Request) -> Response:
        """Whether the worker has started and answers (KIP-1017)."""
        waiting = asyncio.wrap_future(self._put(Verb.WORKER, None, {}))
        done, _ = await asyncio.wait({waiting}, timeout=self._health_timeout_s)
        if not self._services.ready():
            return JSONResponse({"status": "starting", "message": _STARTING}, 503)
        if not done or waiting.exception() is not None:
            return JSONResponse({"status": "unhealthy", "message": _UNHEALTHY}, 500)
        return JSONResponse({"status": "healthy", "message": _HEALTHY})

    # ---------------------------------------------------------------------------------------------- connectors

    def verb(self, verb: Verb) -> Endpoint:
        """An endpoint that is one verb of the core, without a body."""

        async def endpoint(request: Request) -> Response:
            return await self._answer(request, b"", verb, _connector(request), {})

        return endpoint

    def task_verb(self, verb: Verb) -> Endpoint:
        """The same for a task."""

        async def endpoint(request: Request) -> Response:
            number = request.path_params["task"]
            if not (number.isascii() and number.isdigit()):
                raise RestError(f"Task {unquote(number)} is not a number", status=404)
            return await self._answer(request, b"", verb, _connector(request), {"task": int(number)})

        return endpoint

    async def list_connectors(self, request: Request) -> Response:
        """Names, or a map with status and info."""
        expand = tuple(request.query_params.getlist("expand"))
        return await self._answer(request, b"", Verb.LIST_CONNECTORS, None, {"expand": expand})

    async def create(self, request: Request) -> Response:
        """Create a connector."""
        body = await bodies.read_body(request)
        name, config, initial_state = bodies.parse_create(body)
        config = bodies.with_name(config, name)
        if leader := await self._leader_elsewhere():
            return await self.forwarder.forward(request, body, leader)
        await self._validate(config)
        args = {"config": config, "initial_state": initial_state}
        answer = await self._answer(request, body, Verb.CREATE, name, args)
        if answer.status_code == 201:
            answer.headers["location"] = _location(name)
        return answer

    async def put_config(self, request: Request) -> Response:
        """Create a connector, or replace its configuration."""
        body = await bodies.read_body(request)
        config = bodies.with_name(bodies.parse_config(body), _connector(request))
        if leader := await self._leader_elsewhere():
            return await self.forwarder.forward(request, body, leader)
        await self._validate(config)
        args = {"config": config, "expected": None}
        answer = await self._answer(request, body, Verb.PUT_CONFIG, _connector(request), args)
        if answer.status_code == 201:
            answer.headers["location"] = _location(_connector(request))
        return answer

    async def patch_config(self, request: Request) -> Response:
        """Change some keys of a configuration (KIP-477); null removes one."""
        body = await bodies.read_body(request)
        patch = bodies.parse_config(body)
        reply = await self._ask(Verb.CONNECTOR_CONFIG, _connector(request), {"leader": True})
        if reply.forward_to is not None or reply.status >= 400:
            return await self._respond(request, body, reply)
        current: Mapping[str, str | None] = reply.body
        merged = {key: value for key, value in {**current, **patch}.items() if patch.get(key, "") is not None}
        config = bodies.with_name(merged, _connector(request))
        await self._validate(config)
        args = {"config": config, "expected": dict(current)}
        return await self._answer(request, body, Verb.PUT_CONFIG, _connector(request), args)

    async def restart(self, request: Request) -> Response:
        """Restart a connector, with its tasks when asked to (KIP-745)."""
        args = {"include_tasks": _flag(request, "includeTasks"), "only_failed": _flag(request, "onlyFailed")}
        return await self._answer(request, b"", Verb.RESTART_CONNECTOR, _connector(request), args)

    # ------------------------------------------------------------------------------------- between workers (KIP-507)

    async def put_task_configs(self, request: Request) -> Response:
        """A worker publishes the task configurations that its connector made."""
        body = await bodies.read_body(request)
        args = {"task_configs": bodies.parse_task_configs(body), **_signature(request, body)}
        return await self._answer(request, body, Verb.PUT_TASK_CONFIGS, _connector(request), args)

    async def fence(self, request: Request) -> Response:
        """A worker asks for a fencing round before it starts a task (KIP-618)."""
        body = await bodies.read_body(request)
        return await self._answer(request, body, Verb.FENCE, _connector(request), _signature(request, body))

    # --------------------------------------------------------------------------------------------- offsets (KIP-875)

    async def read_offsets(self, request: Request) -> Response:
        """Committed offsets of a connector."""
        reply = await self._ask(Verb.OFFSETS, _connector(request))
        if reply.forward_to is not None or reply.status >= 400:
            return await self._respond(request, b"", reply)
        offsets = await self._blocking(self._services.read_offsets, *_permitted(request, reply))
        return JSONResponse({"offsets": offsets})

    async def alter_offsets(self, request: Request) -> Response:
        """Set offsets of a stopped connector."""
        body = await bodies.read_body(request)
        offsets = bodies.parse_offsets(body)
        reply = await self._ask(Verb.MODIFY_OFFSETS, _connector(request))
        if reply.forward_to is not None or reply.status >= 400:
            return await self._respond(request, body, reply)
        message = await self._blocking(self._services.alter_offsets, *_permitted(request, reply), offsets)
        return JSONResponse({"message": message})

    async def reset_offsets(self, request: Request) -> Response:
        """Forget the offsets of a stopped connector."""
        reply = await self._ask(Verb.MODIFY_OFFSETS, _connector(request))
        if reply.forward_to is not None or reply.status >= 400:
            return await self._respond(request, b"", reply)
        message = await self._blocking(self._services.reset_offsets, *_permitted(request, reply))
        return JSONResponse({"message": message})

    # -------------------------------------------------------------------------------------------------- plugins

    async def plugins(self, request: Request) -> Response:
        """Connectors that this worker has, or every plugin."""
        connectors_only = request.query_params.get("connectorsOnly", "true").lower() == "true"
        return JSONResponse(await self._blocking(self._services.plugins, connectors_only))

    async def plugin_config(self, request: Request) -> Response:
        """Configuration keys of a plugin."""
        return JSONResponse(await self._blocking(self._services.plugin_config, unquote(request.path_params["plugin"])))

    async def validate(self, request: Request) -> Response:
        """Validate a configuration; 200 also when it has errors."""
        plugin = unquote(request.path_params["plugin"])
        config = bodies.parse_config(await bodies.read_body(request))
        configured = config.get("connector.class")
        if configured is not None and not _short(configured).endswith(_short(plugin)):
            raise bodies.bad_request(f"Included connector type {configured} does not match request type {plugin}")
        return JSONResponse(await self._blocking(self._services.validate, config))

    # ---------------------------------------------------------------------------------------------------- steps

    async def _answer(
        self, request: Request, body: bytes, verb: Verb, connector: str | None, args: Mapping[str, Any]
    ) -> Response:
        return await self._respond(request, body, await self._ask(verb, connector, args))

    async def _ask(self, verb: Verb, connector: str | None, args: Mapping[str, Any] = MappingProxyType({})) -> Reply:
        waiting = asyncio.wrap_future(self._put(verb, connector, args))
        return await self._within_limit(waiting)

    async def _respond(self, request: Request, body: bytes, reply: Reply) -> Response:
        if reply.forward_to is not None:
            return await self.forwarder.forward(request, body, reply.forward_to)
        if reply.status >= 400:
            return error_response(reply.status, str(reply.body))
        return Response(status_code=reply.status) if reply.body is None else JSONResponse(reply.body, reply.status)

    async def _leader_elsewhere(self) -> str | None:
        """URL of the leader when it is another worker: validation is left to it."""
        worker = (await self._ask(Verb.WORKER, None)).body
        leader: str | None = worker["leader_url"]
        return leader if leader and leader != worker["url"] else None

    async def _validate(self, config: Mapping[str, str | None]) -> None:
        result = await self._blocking(self._services.validate, config)
        problems = [problem for entry in result["configs"] for problem in entry["value"]["errors"]]
        if problems:
            raise bodies.bad_request(
                "\n".join(
                    [
                        f"Connector configuration is invalid and contains the following {len(problems)} error(s):",
                        *problems,
                        "You can also find the above list of errors at the endpoint "
                        "`/connector-plugins/{connectorType}/config/validate`",
                    ]
                )
            )

    async def _blocking(self, function: Callable[..., T], *args: Any) -> T:
        return await self._within_limit(asyncio.get_running_loop().run_in_executor(self._threads, function, *args))

    async def _within_limit(self, waiting: asyncio.Future[T]) -> T:
        done, _ = await asyncio.wait({waiting}, timeout=self._request_timeout_s)
        if not done:
            raise RestError(f"Request timed out. The worker is currently {self._services.stage()}", status=500)
        return waiting.result()


def error_response(status: int, message: str) -> Response:
    """The body that every failure has."""
    return JSONResponse({"error_code": status, "message": message}, status)


def _answering(endpoint: Endpoint) -> Endpoint:
    """The endpoint with its failures turned into answers."""

    async def answering(request: Request) -> Response:
        try:
            return await endpoint(request)
        except RestError as error:
            return error_response(error.status, str(error))
        except ConnectxError as error:
            return error_response(500, str(error))
        except Exception as error:
            logger.exception("%s %s failed", request.method, request.scope["path"])
            return error_response(500, f"{type(error).__name__}: {error}")

    return answering


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = error_response(error.status_code, f"HTTP {error.status_code} {error.detail}")
    response.headers.update(error.headers or {})
    return response


def _foreign(request: Request, allowed_hosts: Collection[str] | None) -> Response | None:
    """A 403 for requests that a page of another site makes a browser send (also through DNS rebinding)."""
    if allowed_hosts is None:
        return None
    origin = request.headers.get("origin")
    hosts = [urlsplit(f"//{request.headers.get('host', '')}").hostname]
    if origin is not None:
        hosts.append(urlsplit(origin).hostname)
    if all(host in allowed_hosts for host in hosts):
        return None
    return error_response(403, "This worker answers only requests that are made to its own address")


def _connector(request: Request) -> str:
    return unquote(request.path_params["connector"])


def _permitted(request: Request, reply: Reply) -> tuple[str, ConnectorType, Mapping[str, str | None]]:
    return _connector(request), ConnectorType(reply.body["type"]), reply.body["config"]


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "false").lower() == "true"


def _location(connector: str) -> str:
    return f"/connectors/{quote(connector, safe='')}"


def _short(plugin: str) -> str:
    return plugin.removesuffix("Connector") or plugin


def _signature(request: Request, body: bytes) -> dict[str, Any]:
    """What the core needs to verify a signature."""
    signature, algorithm = request.headers.get(AUTHORIZATION_HEADER), request.headers.get(ALGORITHM_HEADER)
    return {"body": body, "signature": signature, "algorithm": algorithm}
