"""REST resources of connectors, their offsets and plugins: each request becomes a verb of the core.

It never decides what the worker does. Mirrors Kafka Connect's ConnectorsResource, InternalConnectResource and
ConnectorPluginsResource.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from connectx.core import verbs
from connectx.core.messages import Forwarded, Refused
from connectx.core.replies import OffsetsPermit, WorkerPlace
from connectx.core.verbs import Verb
from connectx.errors.rest import RestError
from connectx.model.group import ProtocolVersion
from connectx.model.states import ConnectorType
from connectx.protocol.signing import ALGORITHM_HEADER, AUTHORIZATION_HEADER
from connectx.rest import bodies
from connectx.rest.guard import NO_LOGIN, UNKNOWN_SENDER
from connectx.rest.request_handler import RequestHandler, in_path

Endpoint = Callable[[Request], Awaitable[Response]]
ConnectorVerb = Callable[[str], Verb]
TaskVerb = Callable[[str, int], Verb]

_TASK_DIGITS = 9
"""Of the largest task number; Kafka Connect's are 32-bit."""


class Resources:
    """Handlers by the names of `connectx.rest.operations`; `verb` and `task_verb` make those of plain verbs."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._services = handler.services

    def verb(self, verb: ConnectorVerb) -> Endpoint:
        """An endpoint that is one verb of the core, without a body."""

        async def endpoint(request: Request) -> Response:
            return await self._handler.answer(request, b"", verb(_connector(request)))

        return endpoint

    def task_verb(self, verb: TaskVerb) -> Endpoint:
        """The same for a task."""

        async def endpoint(request: Request) -> Response:
            number = request.path_params["task"]
            if not (number.isascii() and number.isdigit() and len(number) <= _TASK_DIGITS):
                raise RestError("HTTP 404 Not Found", status=404)
            return await self._handler.answer(request, b"", verb(_connector(request), int(number)))

        return endpoint

    async def list_connectors(self, request: Request) -> Response:
        """Names, or a map with status and info."""
        expand = tuple(request.query_params.getlist("expand"))
        return await self._handler.answer(request, b"", verbs.ListConnectors(expand))

    async def create(self, request: Request) -> Response:
        """Create a connector."""
        body = await self._handler.body(request)
        name, config, initial_state = bodies.parse_create(body)
        config = bodies.with_name(config, name)
        if leader := await self._leader_elsewhere():
            return await self._handler.forward(request, body, leader)
        await self._validate(config)
        answer = await self._handler.answer(request, body, verbs.Create(name, config, initial_state))
        if answer.status_code == 201:
            answer.headers["location"] = _location(name)
        return answer

    async def put_config(self, request: Request) -> Response:
        """Create a connector, or replace its configuration."""
        body = await self._handler.body(request)
        config = bodies.with_name(bodies.parse_config(body), _connector(request))
        if leader := await self._leader_elsewhere():
            return await self._handler.forward(request, body, leader)
        await self._validate(config)
        answer = await self._handler.answer(request, body, verbs.PutConfig(_connector(request), config))
        if answer.status_code == 201:
            answer.headers["location"] = _location(_connector(request))
        return answer

    async def patch_config(self, request: Request) -> Response:
        """Change some keys of a configuration (KIP-477); null removes one."""
        body = await self._handler.body(request)
        patch = bodies.parse_config(body)
        current = await self._handler.body_of(verbs.ConnectorConfig(_connector(request), leader=True))
        if isinstance(current, Refused | Forwarded):
            return await self._handler.respond(request, body, current)
        merged = {key: value for key, value in {**current, **patch}.items() if patch.get(key, "") is not None}
        config = bodies.with_name(merged, _connector(request))
        await self._validate(config)
        return await self._handler.answer(request, body, verbs.PutConfig(_connector(request), config, dict(current)))

    async def tasks_config(self, request: Request) -> Response:
        """Configurations of the tasks by task id, as Kafka Connect gave them before 4.0."""
        tasks = await self._handler.body_of(verbs.Tasks(_connector(request)))
        if isinstance(tasks, Refused | Forwarded):
            return await self._handler.respond(request, b"", tasks)
        return JSONResponse({"{connector}-{task}".format(**task["id"]): task["config"] for task in tasks})

    async def restart(self, request: Request) -> Response:
        """Restart a connector, with its tasks when asked to (KIP-745)."""
        flags = _flag(request, "includeTasks"), _flag(request, "onlyFailed")
        return await self._handler.answer(request, b"", verbs.RestartConnector(_connector(request), *flags))

    async def put_task_configs(self, request: Request) -> Response:
        """A worker publishes the task configurations that its connector made."""
        await self._require_sender(request)
        body = await self._handler.body(request)
        task_configs, headers = bodies.parse_task_configs(body), _signature(request)
        verb = verbs.PutTaskConfigs(_connector(request), task_configs, body, *headers)
        return await self._handler.answer(request, body, verb)

    async def fence(self, request: Request) -> Response:
        """A worker asks for a fencing round before it starts a task (KIP-618)."""
        await self._require_sender(request)
        body = await self._handler.body(request)
        verb = verbs.Fence(_connector(request), body, *_signature(request))
        return await self._handler.answer(request, body, verb)

    async def read_offsets(self, request: Request) -> Response:
        """Committed offsets of a connector."""
        permit = await self._handler.body_of(verbs.Offsets(_connector(request)))
        if isinstance(permit, Refused | Forwarded):
            return await self._handler.respond(request, b"", permit)
        offsets = await self._handler.blocking(self._services.read_offsets, *_permitted(request, permit))
        return JSONResponse({"offsets": offsets})

    async def alter_offsets(self, request: Request) -> Response:
        """Set offsets of a stopped connector."""
        body = await self._handler.body(request)
        offsets = bodies.parse_offsets(body)
        permit = await self._handler.body_of(verbs.ModifyOffsets(_connector(request)))
        if isinstance(permit, Refused | Forwarded):
            return await self._handler.respond(request, body, permit)
        message = await self._handler.blocking(self._services.alter_offsets, *_permitted(request, permit), offsets)
        return JSONResponse({"message": message})

    async def reset_offsets(self, request: Request) -> Response:
        """Forget the offsets of a stopped connector."""
        permit = await self._handler.body_of(verbs.ModifyOffsets(_connector(request)))
        if isinstance(permit, Refused | Forwarded):
            return await self._handler.respond(request, b"", permit)
        message = await self._handler.blocking(self._services.reset_offsets, *_permitted(request, permit))
        return JSONResponse({"message": message})

    async def plugins(self, request: Request) -> Response:
        """Connectors that this worker has, or every plugin."""
        connectors_only = request.query_params.get("connectorsOnly", "true").lower() == "true"
        return JSONResponse(await self._handler.blocking(self._services.plugins, connectors_only))

    async def plugin_config(self, request: Request) -> Response:
        """Configuration keys of a plugin."""
        return JSONResponse(await self._handler.blocking(self._services.plugin_config, in_path(request, "plugin")))

    async def validate(self, request: Request) -> Response:
        """Validate a configuration; 200 also when it has errors."""
        plugin = in_path(request, "plugin")
        config = bodies.parse_config(await self._handler.body(request))
        configured = config.get("connector.class")
        if configured is not None and not _short(configured).endswith(_short(plugin)):
            raise bodies.bad_request(f"Included connector type {configured} does not match request type {plugin}")
        return JSONResponse(await self._handler.blocking(self._services.validate, config))

    async def _require_sender(self, request: Request) -> None:
        """A signature stands for a login, but only where the group's protocol has it verified (KIP-507)."""
        if request.scope[UNKNOWN_SENDER]:
            worker = await self._worker()
            if worker["protocol"] != ProtocolVersion.SESSIONED.wire_name:
                raise RestError(NO_LOGIN, status=401)

    async def _leader_elsewhere(self) -> str | None:
        """URL of the leader when it is another worker: validation is left to it."""
        worker = await self._worker()
        leader = worker["leader_url"]
        return leader if leader and leader != worker["url"] else None

    async def _worker(self) -> WorkerPlace:
        """This worker's place in the group; any worker answers that at any time."""
        place = await self._handler.body_of(verbs.Worker())
        assert not isinstance(place, Refused | Forwarded), "a worker describes itself in every phase"
        return place

    async def _validate(self, config: Mapping[str, str | None]) -> None:
        result = await self._handler.blocking(self._services.validate, config)
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


def _connector(request: Request) -> str:
    return in_path(request, "connector")


def _permitted(request: Request, permit: OffsetsPermit) -> tuple[str, ConnectorType, Mapping[str, str | None]]:
    return _connector(request), ConnectorType(permit["type"]), permit["config"]


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "false").lower() == "true"


def _location(connector: str) -> str:
    return f"/connectors/{quote(connector, safe='')}"


def _short(plugin: str) -> str:
    return plugin.removesuffix("Connector") or plugin


def _signature(request: Request) -> tuple[str | None, str | None]:
    """The two headers of a signed request, as they came."""
    return request.headers.get(AUTHORIZATION_HEADER), request.headers.get(ALGORITHM_HEADER)
