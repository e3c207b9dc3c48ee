"""The operations of a worker's REST API: one description, from which the routes and the OpenAPI document are made.

Decides which paths there are, and the request and response of each; never what an operation does. Mirrors the resources
of Kafka Connect 4.3; what is not Kafka Connect's is marked so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from connectx.core import verbs
from connectx.core.verbs import Verb
from connectx.rest.schemas import Schema


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter."""

    name: str
    description: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path.

    Attributes:
        handler: name of the method that answers it; None when `verb` is all there is to it.
        answers: status of a success, and the name of its schema (None: no body).
        errors: statuses besides those that every operation may have.
        verb: the class of the core's verb that it is.
        takes: name of the schema of its body.
        admin: an operation of `admin.listeners`.
        internal: between workers, signed (KIP-507).
        text: media type of an answer that is not JSON.
    """

    method: str
    path: str
    summary: str
    answers: Mapping[int, str | None]
    handler: str | None = None
    verb: Callable[..., Verb] | None = None
    errors: tuple[int, ...] = ()
    query: tuple[Query, ...] = ()
    takes: str | None = None
    admin: bool = False
    internal: bool = False
    deprecated: bool = False
    text: str | None = None


_BOOLEAN: Final[Schema] = {"type": "boolean", "default": False}
_FORWARD: Final = Query("forward", "Set between workers: true after the first hop, false after the second.", _BOOLEAN)
_CONNECTOR: Final = "/connectors/{connector}"
_TASK: Final = _CONNECTOR + "/tasks/{task}"
_PLUGIN: Final = "/connector-plugins/{plugin}"
_LOGGER: Final = "/admin/loggers/{logger}"
_WRITES: Final = (400, 409)

_WORKER: Final = (
    Operation("GET", "/", "Version, commit and Kafka cluster", {200: "Root"}, "root"),
    Operation("GET", "/health", "Whether the worker is ready (KIP-1017)", {200: "Health", 503: "Health"}, "health"),
)
_CONNECTORS: Final = (
    Operation(
        "GET",
        "/connectors",
        "Names of connectors, or a map with what expand asks for",
        {200: "Connectors"},
        "list_connectors",
        query=(
            Query(
                "expand",
                "status, info, or both by repeating it; others are ignored.",
                {"type": "array", "items": {"type": "string"}},
            ),
        ),
    ),
    Operation(
        "POST",
        "/connectors",
        "Create a connector",
        {201: "Connector"},
        "create",
        takes="NewConnector",
        query=(_FORWARD,),
        errors=_WRITES,
    ),
    Operation("GET", _CONNECTOR, "A connector", {200: "Connector"}, verb=verbs.ConnectorInfo),
    Operation(
        "DELETE", _CONNECTOR, "Delete a connector", {204: None}, verb=verbs.Delete, query=(_FORWARD,), errors=(409,)
    ),
    Operation("GET", _CONNECTOR + "/config", "Its configuration", {200: "ConfigShown"}, verb=verbs.ConnectorConfig),
    Operation(
        "PUT",
        _CONNECTOR + "/config",
        "Create a connector, or replace its configuration",
        {200: "Connector", 201: "Connector"},
        "put_config",
        takes="Config",
        query=(_FORWARD,),
        errors=_WRITES,
    ),
    Operation(
        "PATCH",
        _CONNECTOR + "/config",
        "Change some keys of its configuration; null removes one (KIP-477)",
        {200: "Connector"},
        "patch_config",
        takes="Config",
        query=(_FORWARD,),
        errors=_WRITES,
    ),
    Operation(
        "GET", _CONNECTOR + "/status", "State of it and of its tasks", {200: "Status"}, verb=verbs.ConnectorStatus
    ),
    Operation(
        "POST",
        _CONNECTOR + "/restart",
        "Restart it, and its tasks when asked to (KIP-745)",
        {202: "Status", 204: None},
        "restart",
        query=(
            Query("includeTasks", "Restart the tasks too.", _BOOLEAN),
            Query("onlyFailed", "Restart only what has failed.", _BOOLEAN),
            _FORWARD,
        ),
        errors=(409,),
    ),
    Operation("PUT", _CONNECTOR + "/pause", "Pause it; tasks stay assigned", {202: None}, verb=verbs.Pause),
    Operation("PUT", _CONNECTOR + "/resume", "Resume it", {202: None}, verb=verbs.Resume),
    Operation(
        "PUT",
        _CONNECTOR + "/stop",
        "Stop it and give its tasks up (KIP-875)",
        {204: None},
        verb=verbs.Stop,
        query=(_FORWARD,),
        errors=(409,),
    ),
)
_TASKS: Final = (
    Operation("GET", _CONNECTOR + "/tasks", "Tasks with their configurations", {200: "Tasks"}, verb=verbs.Tasks),
    Operation(
        "GET",
        _CONNECTOR + "/tasks-config",
        "Configurations of its tasks; removed from Kafka Connect in 4.0 (KIP-970)",
        {200: "TasksConfig"},
        "tasks_config",
        deprecated=True,
    ),
    Operation("GET", _TASK + "/status", "State of a task", {200: "TaskStatus"}, "task_verb", verb=verbs.TaskStatus),
    Operation(
        "POST",
        _TASK + "/restart",
        "Restart a task",
        {204: None},
        "task_verb",
        verb=verbs.RestartTask,
        query=(_FORWARD,),
        errors=(409,),
    ),
    Operation(
        "GET",
        _CONNECTOR + "/topics",
        "Topics that it has used (KIP-558)",
        {200: "Topics"},
        verb=verbs.Topics,
        errors=(403,),
    ),
    Operation(
        "PUT",
        _CONNECTOR + "/topics/reset",
        "Forget which topics it has used",
        {202: None},
        verb=verbs.ResetTopics,
        errors=(403,),
    ),
)
_OFFSETS: Final = (
    Operation("GET", _CONNECTOR + "/offsets", "Committed offsets (KIP-875)", {200: "Offsets"}, "read_offsets"),
    Operation(
        "PATCH",
        _CONNECTOR + "/offsets",
        "Set offsets of a stopped connector",
        {200: "Message"},
        "alter_offsets",
        takes="NewOffsets",
        query=(_FORWARD,),
        errors=_WRITES,
    ),
    Operation(
        "DELETE",
        _CONNECTOR + "/offsets",
        "Forget the offsets of a stopped connector",
        {200: "Message"},
        "reset_offsets",
        query=(_FORWARD,),
        errors=_WRITES,
    ),
)
_BETWEEN_WORKERS: Final = (
    Operation(
        "POST",
        _CONNECTOR + "/tasks",
        "Publish task configurations",
        {204: None},
        "put_task_configs",
        takes="TaskConfigs",
        query=(_FORWARD,),
        errors=(400, 403, 409),
        internal=True,
    ),
    Operation(
        "PUT",
        _CONNECTOR + "/fence",
        "Fence older producers of its tasks (KIP-618)",
        {204: None},
        "fence",
        query=(_FORWARD,),
        errors=(400, 403, 409),
        internal=True,
    ),
)
_PLUGINS: Final = (
    Operation(
        "GET",
        "/connector-plugins",
        "Plugins of this worker",
        {200: "Plugins"},
        "plugins",
        query=(Query("connectorsOnly", "false: converters and the like, too.", {"type": "boolean", "default": True}),),
    ),
    Operation(
        "GET", _PLUGIN + "/config", "Configuration keys of a plugin", {200: "Keys"}, "plugin_config", errors=(400,)
    ),
    Operation(
        "PUT",
        _PLUGIN + "/config/validate",
        "Check a configuration; 200 also when it has errors",
        {200: "Validation"},
        "validate",
        takes="Config",
        errors=(400,),
    ),
)
_ADMIN: Final = (
    Operation("GET", "/admin/loggers", "Levels of loggers (KIP-495)", {200: "Loggers"}, "loggers", admin=True),
    Operation("GET", _LOGGER, "Level of a logger", {200: "Logger"}, "logger", admin=True),
    Operation(
        "PUT",
        _LOGGER,
        "Set the level of a logger and of those below it, here or on every worker (KIP-976)",
        {200: "LoggerNames", 204: None},
        "set_logger",
        takes="NewLevel",
        query=(Query("scope", "worker, or cluster; others count as worker.", {"type": "string", "default": "worker"}),),
        errors=(400,),
        admin=True,
    ),
)
_OWN: Final = (
    Operation(
        "GET",
        "/metrics",
        "Kafka Connect's metrics in Prometheus's text format; not an endpoint of Kafka Connect",
        {200: None},
        "metrics",
        text="text/plain",
    ),
    Operation("GET", "/openapi.json", "This document; not an endpoint of Kafka Connect", {200: "Document"}, "openapi"),
)

OPERATIONS: Final = (
    *_WORKER,
    *_CONNECTORS,
    *_TASKS,
    *_OFFSETS,
    *_BETWEEN_WORKERS,
    *_PLUGINS,
    *_ADMIN,
    *_OWN,
)
"""Every operation that a worker serves."""
