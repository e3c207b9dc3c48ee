"""JSON schemas of the REST API's requests and responses, by name; the OpenAPI document refers to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

_STATES: Final = ["UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "RESTARTING", "STOPPED"]
_STRING: Final[Schema] = {"type": "string"}
_NULLABLE_STRING: Final[Schema] = {"type": ["string", "null"]}
_INTEGER: Final[Schema] = {"type": "integer", "format": "int32", "minimum": 0}


def _object(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object of these properties and no others."""
    properties = {**required, **(optional or {})}
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def ref(name: str) -> Schema:
    """Refers to one of SCHEMAS."""
    return {"$ref": f"#/components/schemas/{name}"}


_TASK_ID: Final = _object({"connector": _STRING, "task": _INTEGER})
_STATE: Final[Mapping[str, Schema]] = {"state": {"enum": _STATES}, "worker_id": _STRING, "version": _NULLABLE_STRING}
_TRACE: Final[Mapping[str, Schema]] = {"trace": _STRING}
_TASK_STATE: Final = _object({"id": _INTEGER, **_STATE}, _TRACE)
_KEY: Final = _object(
    {
        **dict.fromkeys(("name", "type", "importance", "width", "display_name"), _STRING),
        **dict.fromkeys(("default_value", "documentation", "group"), _NULLABLE_STRING),
        "required": {"type": "boolean"},
        "dependents": _list(_STRING),
    },
    {"order": {"type": "integer"}, "order_in_group": {"type": "integer"}},
)
_CHECKED: Final = _object(
    {
        "name": _STRING,
        "value": _NULLABLE_STRING,
        "recommended_values": _list({}),
        "errors": _list(_STRING),
        "visible": {"type": "boolean"},
    }
)
_PARTITION: Final[Schema] = {"type": "object"}
_OFFSET: Final[Schema] = {"type": ["object", "null"]}
_CONFIG_VALUE: Final[Schema] = {"type": ["string", "number", "boolean", "null"]}

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Error": _object({"error_code": {"type": "integer"}, "message": _STRING}),
    "Root": _object(dict.fromkeys(("version", "commit", "kafka_cluster_id"), _STRING)),
    "Health": _object({"status": {"enum": ["healthy", "starting", "unhealthy"]}, "message": _STRING}),
    "Config": {**_map(_CONFIG_VALUE), "description": "Configuration keys; numbers and booleans are taken as text."},
    "ConfigShown": _map(_NULLABLE_STRING),
    "NewConnector": _object(
        {"name": _STRING, "config": ref("Config")},
        {"initial_state": {"enum": ["RUNNING", "PAUSED", "STOPPED", None]}},
    ),
    "Connector": _object(
        {
            "name": _STRING,
            "config": ref("ConfigShown"),
            "tasks": _list(_TASK_ID),
            "type": {"enum": ["source", "sink", "unknown"]},
        }
    ),
    "Status": _object(
        {
            "name": _STRING,
            "connector": _object(_STATE, _TRACE),
            "tasks": _list(_TASK_STATE),
            "type": {"enum": ["source", "sink", "unknown"]},
        }
    ),
    "Connectors": {
        "anyOf": [
            _list(_STRING),
            _map(_object({}, {"status": ref("Status"), "info": ref("Connector")})),
        ],
        "description": "Names; with expand, a map of what was asked for.",
    },
    "TaskStatus": _TASK_STATE,
    "Tasks": _list(_object({"id": _TASK_ID, "config": ref("ConfigShown")})),
    "TasksConfig": _map(ref("ConfigShown")),
    "TaskConfigs": _list(ref("Config")),
    "Topics": _map(_object({"topics": _list(_STRING)})),
    "Offsets": _object({"offsets": _list(_object({"partition": _PARTITION, "offset": _OFFSET}))}),
    "NewOffsets": _object({"offsets": {**_list(_object({"partition": _PARTITION, "offset": _OFFSET})), "minItems": 1}}),
    "Message": _object({"message": _STRING}),
    "Plugins": _list(_object({"class": _STRING, "type": _STRING}, {"version": _STRING})),
    "Keys": _list(_KEY),
    "Validation": _object(
        {
            "name": _NULLABLE_STRING,
            "error_count": _INTEGER,
            "groups": _list(_STRING),
            "configs": _list(_object({"definition": {"anyOf": [_KEY, {"type": "null"}]}, "value": _CHECKED})),
        }
    ),
    "Loggers": _map(ref("Logger")),
    "Logger": _object({"level": _STRING, "last_modified": {"type": ["integer", "null"]}}),
    "NewLevel": {"type": "object", "required": ["level"], "properties": {"level": _STRING}},
    "LoggerNames": _list(_STRING),
    "Document": {"type": "object"},
}
"""Every schema by its name."""
