"""The OpenAPI 3.1 document of a worker, generated from the same description as its routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

from connectx.rest.operations import Operation
from connectx.rest.schemas import SCHEMAS, ref

_JSON: Final = "application/json"
_PATH_PARAMETERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "connector": {"type": "string", "minLength": 1},
    "task": {"type": "integer", "minimum": 0},
    "plugin": {"type": "string", "minLength": 1},
    "logger": {"type": "string", "minLength": 1},
}


def openapi(operations: Iterable[Operation], *, version: str, schemes: Mapping[str, Any]) -> dict[str, Any]:
    """The document: `schemes` are OpenAPI security schemes, any of which lets a request in (none: all do)."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemes)
    components: dict[str, Any] = {"schemas": dict(SCHEMAS)}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Kafka Connect REST API, served by connectx", "version": version},
        "paths": paths,
        "components": components,
    }
    if schemes:
        components["securitySchemes"] = dict(schemes)
        document["security"] = [{name: []} for name in schemes]
    return document


def _operation(operation: Operation, schemes: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "operationId": f"{operation.method.lower()}{re.sub(r'[^a-z]+', '_', operation.path)}".rstrip("_"),
        "summary": operation.summary,
        "responses": _responses(operation, schemes),
    }
    if parameters := [*_in_path(operation.path), *_in_query(operation)]:
        shown["parameters"] = parameters
    if operation.takes is not None:
        shown["requestBody"] = {"required": True, "content": {_JSON: {"schema": ref(operation.takes)}}}
    if operation.deprecated:
        shown["deprecated"] = True
    if operation.internal:
        shown["description"] = "Between workers only, signed with the session key of the group (KIP-507)."
    return shown


def _responses(operation: Operation, schemes: Mapping[str, Any]) -> dict[str, Any]:
    """Every operation may also be answered 404 or, when the worker is not up or fails, 500 and 503."""
    found: dict[str, Any] = {}
    for status, name in operation.answers.items():
        found[str(status)] = {"description": HTTPStatus(status).phrase}
        if name is not None:
            found[str(status)]["content"] = {_JSON: {"schema": ref(name)}}
        elif operation.text is not None:
            found[str(status)]["content"] = {operation.text: {"schema": {"type": "string"}}}
    errors = {*operation.errors, 500, 503, *((404,) if "{" in operation.path else ())}
    errors |= {400, 408, 413, 415} if operation.takes is not None else set()
    errors |= {401} if schemes else set()
    for status in sorted(errors):
        if str(status) not in found:
            body = {_JSON: {"schema": ref("Health" if operation.path == "/health" else "Error")}}
            found[str(status)] = {"description": HTTPStatus(status).phrase, "content": body}
    return found


def _in_path(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", path)
    return [{"name": name, "in": "path", "required": True, "schema": dict(_PATH_PARAMETERS[name])} for name in names]


def _in_query(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": query.name, "in": "query", "description": query.description, "schema": dict(query.schema)}
        for query in operation.query
    ]
