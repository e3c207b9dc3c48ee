"""JSON bodies of requests: read within a limit, parsed strictly, refused with a 400 that names the problem.

Mirrors what Kafka Connect's REST resources accept: scalars become strings in configurations, unknown fields of request
objects are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from starlette.requests import Request

from connectx.errors.rest import RestError
from connectx.model.states import TargetState

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Largest body: far above any configuration, far below what would hurt a worker."""

_INITIAL_STATES = {"RUNNING": TargetState.STARTED, "PAUSED": TargetState.PAUSED, "STOPPED": TargetState.STOPPED}

Config = dict[str, str | None]


def bad_request(message: str) -> RestError:
    """A 400."""
    return RestError(message, status=400)


async def read_body(request: Request, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """The whole body; RestError 413 above `max_bytes`, 415 when there is one that does not claim to be JSON."""
    declared = request.headers.get("content-length", "")
    body = bytearray()
    if not (declared.isdecimal() and int(declared) > max_bytes):
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                break
        else:
            _check_type(request, body)
            return bytes(body)
    raise RestError(
        f"The request body is larger than {max_bytes} bytes", status=413, next_step="See rest.request.max.bytes."
    )


def _check_type(request: Request, body: bytes | bytearray) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and media_type != "application/json" and not media_type.endswith("+json"):
        raise RestError(f"The request body must be application/json, not {media_type or 'without a type'}", status=415)


def parse_config(body: bytes) -> Config:
    """A configuration: an object of strings; numbers and booleans become the text they were written as."""
    return _config(_json(body, exact=True), "The request body")


def parse_task_configs(body: bytes) -> list[Config]:
    """A list of configurations."""
    configs = _json(body, exact=True)
    if not isinstance(configs, list):
        raise bad_request("The request body must be a list of task configurations")
    return [_config(config, f"Task configuration {index}") for index, config in enumerate(configs)]


def parse_create(body: bytes) -> tuple[str, Config, TargetState | None]:
    """Name, configuration and initial state of a connector to create (KIP-980)."""
    fields = _object(_json(body, exact=True), "The request body", {"name", "config", "initial_state"})
    name, config, state = fields.get("name"), fields.get("config"), fields.get("initial_state")
    if not isinstance(name, str | None):
        raise bad_request("The field name must be a string")
    if state is not None and (not isinstance(state, str) or state.upper() not in _INITIAL_STATES):
        raise bad_request(f"The field initial_state must be one of {', '.join(_INITIAL_STATES)}, not {state!r}")
    configured = _config({} if config is None else config, "The field config")
    initial = None if state is None else _INITIAL_STATES[state.upper()]
    return (name or "").strip(), configured, initial


def parse_offsets(body: bytes) -> list[dict[str, Any]]:
    """Offsets to alter (KIP-875): objects, and None as an offset to reset its partition."""
    fields = _object(_json(body), "The request body", {"offsets"})
    offsets = fields.get("offsets")
    if not offsets or not isinstance(offsets, list):
        raise bad_request("Partitions / offsets need to be provided for an alter offsets request")
    entries = []
    for entry in offsets:
        checked = _object(entry, "An entry of offsets", {"partition", "offset"})
        partition, offset = checked.get("partition"), checked.get("offset")
        if not isinstance(partition, dict) or not isinstance(offset, dict | None):
            raise bad_request("Each entry of offsets needs an object partition, and an object or null as offset")
        entries.append({"partition": partition, "offset": offset})
    return entries


def parse_level(body: bytes) -> str:
    """The level that a logger shall have."""
    fields = _json(body)
    level = fields.get("level") if isinstance(fields, dict) else None
    if not isinstance(level, str):
        raise bad_request("Desired 'level' parameter was not specified in request.")
    return level


def with_name(config: Mapping[str, str | None], name: str) -> Config:
    """The configuration with the connector's name in it; a 400 when it has another one."""
    configured = config.get("name")
    if configured is not None and configured != name:
        raise bad_request(
            f"Connector name configuration ({configured}) doesn't match connector name in the URL ({name})"
        )
    return {**config, "name": name}


def _json(body: bytes, *, exact: bool = False) -> Any:
    """Parsed JSON; `exact` keeps numbers as the text they were written as."""
    try:
        numbers: dict[str, Any] = {"parse_int": str, "parse_float": str} if exact else {}
        value = json.loads(body, parse_constant=_refuse, **numbers)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is read, and no topic can hold it
        return value
    except (ValueError, RecursionError) as error:
        raise bad_request(f"The request body is not JSON: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _object(value: Any, what: str, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise bad_request(f"{what} must be a JSON object")
    if unknown := sorted(value.keys() - known):
        raise bad_request(f"{what} has fields that are not known: {', '.join(unknown)}")
    return value


def _config(value: Any, what: str) -> Config:
    if not isinstance(value, dict):
        raise bad_request(f"{what} must be a JSON object of configuration keys and values")
    return {key: _text(key, setting) for key, setting in value.items()}


def _text(key: str, value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str):
        return value
    raise bad_request(f"The value of {key} must be a string, not an object or a list")
