"""The OpenAPI 3.1 document of a worker, from the declarations of its operations and the types of their bodies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from connectx.rest.bodies import Error
from connectx.rest.operation import TASK, Operation, Query

_JSON: Final = "application/json"
_FORWARD: Final = Query("forward", "Set between workers: true after the first hop, false after the second.")

Schema = dict[str, Any]


def openapi(operations: Iterable[Operation[Any]], *, version: str, schemes: Mapping[str, Any]) -> dict[str, Any]:
    """The document: `schemes` are OpenAPI security schemes, any of which lets a request in (none: all do)."""
    schemas: dict[str, Schema] = {}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemes, schemas)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Kafka Connect REST API, served by connectx", "version": version},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if schemes:
        document["components"]["securitySchemes"] = dict(schemes)
        document["security"] = [{name: []} for name in schemes]
    return document


def _operation(operation: Operation[Any], schemes: Mapping[str, Any], schemas: dict[str, Schema]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "operationId": f"{operation.method.lower()}{re.sub(r'[^a-z]+', '_', operation.path)}".rstrip("_"),
        "summary": operation.summary,
        "responses": _responses(operation, schemes, schemas),
    }
    if parameters := [*_in_path(operation.path), *_in_query(operation)]:
        shown["parameters"] = parameters
    if operation.takes is not None:
        shown["requestBody"] = {"required": True, "content": {_JSON: {"schema": _schema(operation.takes, schemas)}}}
    if operation.deprecated:
        shown["deprecated"] = True
    if operation.internal:
        shown["description"] = "Between workers only, signed with the session key of the group (KIP-507)."
    return shown


def _responses(operation: Operation[Any], schemes: Mapping[str, Any], schemas: dict[str, Schema]) -> dict[str, Any]:
    """Every operation may also be answered 404 or, when the worker is not up or fails, 500 and 503."""
    errors = {*operation.errors, 500, 503, *((404,) if "{" in operation.path else ())}
    errors |= {400, 408, 413} if operation.takes is not None else set()
    errors |= {415} if operation.method != "GET" else set()
    errors |= {409} if operation.forwarded else set()
    errors |= {401} if schemes else set()
    bodies = dict.fromkeys(operation.statuses, operation.body)
    bodies |= dict.fromkeys(sorted(errors - {*operation.statuses}), Error)
    found: dict[str, Any] = {}
    for status, body in bodies.items():
        found[str(status)] = {"description": HTTPStatus(status).phrase}
        if operation.media_type is not None and status in operation.statuses:
            media_type = operation.media_type.partition(";")[0]
            found[str(status)]["content"] = {media_type: {"schema": {"type": "string"}}}
        elif body is not None and status != HTTPStatus.NO_CONTENT:
            found[str(status)]["content"] = {_JSON: {"schema": _schema(body, schemas)}}
    return found


def _schema(kind: Any, schemas: dict[str, Schema]) -> Schema:
    """The schema of a type; `schemas` get those of the objects in it, which have no properties but theirs."""
    (schema,), found = msgspec.json.schema_components([kind], ref_template="#/components/schemas/{name}")
    for component in found.values():
        if "properties" in component:
            component["additionalProperties"] = False
    schemas |= found
    return schema


def _in_path(path: str) -> list[dict[str, Any]]:
    number, text = {"type": "integer", "minimum": 0}, {"type": "string", "minLength": 1}
    return [
        {"name": name, "in": "path", "required": True, "schema": number if name == TASK else text}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _in_query(operation: Operation[Any]) -> list[dict[str, Any]]:
    queries = [*operation.query, *([_FORWARD] if operation.forwarded else ())]
    return [
        {
            "name": query.name,
            "in": "query",
            "description": query.description,
            "schema": msgspec.json.schema(query.type) | ({"default": query.default} if query.default != () else {}),
        }
        for query in queries
    ]
