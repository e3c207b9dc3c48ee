"""REST operations on connectors, their tasks and offsets: each request becomes verbs of the core.

They never decide what the worker does. Mirrors Kafka Connect's ConnectorsResource and InternalConnectResource.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from connectx.core import verbs
from connectx.core.replies import ConnectorInfo, OffsetsPermit
from connectx.model.states import ConnectorType
from connectx.protocol.signing import ALGORITHM_HEADER, AUTHORIZATION_HEADER
from connectx.rest import bodies
from connectx.rest.bodies import Config, bad_request
from connectx.rest.call import VALIDATING, Call, ForwardedError
from connectx.rest.operation import Answer, Query, of_verb, operation

_CONNECTOR: Final = "/connectors/{connector}"
_TASK: Final = _CONNECTOR + "/tasks/{task}"


@operation("POST", "/connectors", 201, forwarded=True)
async def create(call: Call, body: bodies.NewConnector) -> Answer[ConnectorInfo]:
    """Create a connector."""
    name = (body.name or "").strip()
    config = bodies.with_name(bodies.as_config(body.config or {}), name)
    await _validate(call, config)
    initial_state = None if body.initial_state is None else body.initial_state.target
    return _located(name, await call.answer(verbs.Create(name, config, initial_state)))


@operation("PUT", _CONNECTOR + "/config", 200, 201, forwarded=True)
async def put_config(call: Call, body: bodies.Settings) -> Answer[ConnectorInfo]:
    """Create a connector, or replace its configuration."""
    config = bodies.with_name(bodies.as_config(body), call.connector)
    await _validate(call, config)
    return _located(call.connector, await call.answer(verbs.PutConfig(call.connector, config)))


@operation("PATCH", _CONNECTOR + "/config", forwarded=True)
async def patch_config(call: Call, body: bodies.Settings) -> Answer[ConnectorInfo]:
    """Change some keys of a connector's configuration; null removes one (KIP-477)."""
    patch = bodies.as_config(body)
    current = await call.ask(verbs.ConnectorConfig(call.connector, leader=True))
    merged = {key: value for key, value in {**current, **patch}.items() if patch.get(key, "") is not None}
    config = bodies.with_name(merged, call.connector)
    await _check_config(call, config)
    return await call.answer(verbs.PutConfig(call.connector, config, dict(current)))


@operation("GET", _CONNECTOR + "/tasks-config", deprecated=True)
async def tasks_config(call: Call) -> Answer[dict[str, Mapping[str, str | None]]]:
    """Read the configurations of a connector's tasks by task; removed from Kafka Connect in 4.0 (KIP-970)."""
    tasks = await call.ask(verbs.Tasks(call.connector))
    return Answer({"{connector}-{task}".format(**task["id"]): task["config"] for task in tasks})


@operation("GET", _CONNECTOR + "/offsets")
async def read_offsets(call: Call) -> Answer[bodies.Offsets]:
    """Read the committed offsets of a connector (KIP-875)."""
    permit = await call.ask(verbs.Offsets(call.connector))
    return Answer({"offsets": list(await call.blocking(call.services.read_offsets, *_permitted(call, permit)))})


@operation("PATCH", _CONNECTOR + "/offsets", forwarded=True)
async def alter_offsets(call: Call, body: bodies.NewOffsets) -> Answer[bodies.Message]:
    """Set offsets of a stopped connector."""
    if not body.offsets:
        raise bad_request("Partitions / offsets need to be provided for an alter offsets request")
    permit = await call.ask(verbs.ModifyOffsets(call.connector))
    alter, stage = call.services.alter_offsets, _modifying(call)
    message = await call.blocking(alter, *_permitted(call, permit), body.offsets, stage=stage)
    return Answer({"message": message})


@operation("DELETE", _CONNECTOR + "/offsets", forwarded=True, errors=(400,))
async def reset_offsets(call: Call) -> Answer[bodies.Message]:
    """Forget the offsets of a stopped connector."""
    permit = await call.ask(verbs.ModifyOffsets(call.connector))
    reset, stage = call.services.reset_offsets, _modifying(call)
    return Answer({"message": await call.blocking(reset, *_permitted(call, permit), stage=stage)})


@operation("POST", _CONNECTOR + "/tasks", 204, forwarded=True, internal=True, errors=(403,))
async def put_task_configs(call: Call, body: list[bodies.Settings]) -> Answer[None]:
    """Publish the task configurations that a connector has made."""
    configs = [bodies.as_config(settings) for settings in body]
    return await call.answer(verbs.PutTaskConfigs(call.connector, configs, call.content, *_signature(call)))


@operation("PUT", _CONNECTOR + "/fence", 204, forwarded=True, internal=True, errors=(400, 403))
async def fence(call: Call) -> Answer[None]:
    """Fence older producers of a connector's tasks (KIP-618)."""
    return await call.answer(verbs.Fence(call.connector, await call.read(), *_signature(call)))


OPERATIONS: Final = (
    of_verb(
        "GET",
        "/connectors",
        verbs.ListConnectors,
        query=(
            Query(
                "expand", "status, info, or both by repeating it; others are ignored.", list[str], (), field="expand"
            ),
        ),
    ),
    create,
    of_verb("GET", _CONNECTOR, verbs.ConnectorInfo),
    of_verb("DELETE", _CONNECTOR, verbs.Delete, 204, forwarded=True),
    of_verb("GET", _CONNECTOR + "/config", verbs.ConnectorConfig),
    put_config,
    patch_config,
    of_verb("GET", _CONNECTOR + "/status", verbs.ConnectorStatus),
    of_verb(
        "POST",
        _CONNECTOR + "/restart",
        verbs.RestartConnector,
        202,
        204,
        forwarded=True,
        query=(
            Query("includeTasks", "Restart the tasks too.", field="include_tasks"),
            Query("onlyFailed", "Restart only what has failed.", field="only_failed"),
        ),
    ),
    of_verb("PUT", _CONNECTOR + "/pause", verbs.Pause, 202),
    of_verb("PUT", _CONNECTOR + "/resume", verbs.Resume, 202),
    of_verb("PUT", _CONNECTOR + "/stop", verbs.Stop, 204, forwarded=True),
    of_verb("GET", _CONNECTOR + "/tasks", verbs.Tasks),
    tasks_config,
    of_verb("GET", _TASK + "/status", verbs.TaskStatus),
    of_verb("POST", _TASK + "/restart", verbs.RestartTask, 204, forwarded=True),
    of_verb("GET", _CONNECTOR + "/topics", verbs.Topics, errors=(403,)),
    of_verb("PUT", _CONNECTOR + "/topics/reset", verbs.ResetTopics, 202, errors=(403,)),
    read_offsets,
    alter_offsets,
    reset_offsets,
    put_task_configs,
    fence,
)
"""What a worker serves about its connectors."""


async def _validate(call: Call, config: Config) -> None:
    """Leave validation to the leader; on the leader, refuse a configuration with errors."""
    worker = await call.ask(verbs.Worker())
    leader = worker["leader_url"]
    if leader and leader != worker["url"]:
        raise ForwardedError(leader)
    await _check_config(call, config)


async def _check_config(call: Call, config: Config) -> None:
    """Refuse a configuration with errors, with a 400 that lists them."""
    result = await call.blocking(call.services.validate, config, stage=VALIDATING)
    problems = [problem for entry in result["configs"] for problem in entry["value"]["errors"]]
    if problems:
        raise bad_request(
            "\n".join(
                [
                    f"Connector configuration is invalid and contains the following {len(problems)} error(s):",
                    *problems,
                    "You can also find the above list of errors at the endpoint "
                    "`/connector-plugins/{connectorType}/config/validate`",
                ]
            )
        )


def _located(connector: str, answer: Answer[ConnectorInfo]) -> Answer[ConnectorInfo]:
    """The answer, with the path of the connector if it was created."""
    headers = {"location": f"/connectors/{quote(connector, safe='')}"} if answer.status == 201 else None
    return Answer(answer.body, answer.status, headers)


def _permitted(call: Call, permit: OffsetsPermit) -> tuple[str, ConnectorType, Mapping[str, str | None]]:
    return call.connector, ConnectorType(permit["type"]), permit["config"]


def _modifying(call: Call) -> str:
    return f"modifying offsets for connector {call.connector}"


def _signature(call: Call) -> tuple[str | None, str | None]:
    """The two headers of a signed request, as they came."""
    headers = call.request.headers
    return headers.get(AUTHORIZATION_HEADER), headers.get(ALGORITHM_HEADER)
