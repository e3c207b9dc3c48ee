"""Converts events to lines of JSON and back. Pure.

Payloads become JSON values when they are recorded, not when they are written: so a log that was read from a file
equals the one that wrote it, and no writer can change an event through a mapping that it kept.

A line of version 2 holds the cause twice: `cause` in words, as in version 1, and `why` with its type and fields, which
is what is read. Lines of version 1 have no `version` and no `why`: `connectx.history.version_1` finds the types.
"""

from __future__ import annotations

import json
from typing import Any

from connectx.history import version_1
from connectx.model.causes import cause_from_json, cause_to_json
from connectx.model.events import Event, EventKind, Sighting
from connectx.model.ids import TaskId
from connectx.model.json_values import from_json, record_to_json
from connectx.model.payloads import Payload, payload_of

VERSION = 2
"""Version of the lines that are written."""

_FIELDS = ("seq", "time_ms", "worker", "kind", "connector", "task", "generation", "producer_epoch", "cause", "data")
_OPTIONAL_TEXT = ("worker", "connector")
_OPTIONAL_INT = ("task", "generation", "producer_epoch")
_NEW_FIELDS = ("version", "why")  # since version 2
_SEEN = ("origin", "after_ms", "written_ms")


def plain(payload: Payload) -> Payload:
    """The payload as it comes back from a file."""
    return payload_of(payload.kind, record_to_json(payload))


def event_to_json(event: Event) -> str:
    """One line of JSON with all fields of the event."""
    line = {"version": VERSION} | {name: getattr(event, name) for name in _FIELDS}
    return json.dumps({**line, "why": cause_to_json(event.why)}, ensure_ascii=False, separators=(",", ":"))


def event_from_json(value: Any) -> Event:
    """Inverse of `event_to_json` after JSON parsing; also reads lines of version 1.

    Raises:
        KeyError: a field is missing. ValueError, TypeError: a field has a wrong value; the message names it.
    """
    if not isinstance(value, dict):
        raise TypeError("it is not a JSON object")
    unknown = sorted(set(value) - {*_FIELDS, *_NEW_FIELDS})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")
    for name in ("seq", "time_ms"):
        _require(value, name, int)
    for name in _OPTIONAL_INT:
        _require(value, name, int, type(None))
    for name in _OPTIONAL_TEXT:
        _require(value, name, str, type(None))
    _require(value, "cause", str)
    _require(value, "data", dict)
    if value["seq"] < 1:
        raise ValueError("seq must be 1 or more")
    version = value.get("version", 1)
    if version not in (1, VERSION):
        raise ValueError(f"version is {version!r}, not 1 or {VERSION}")
    kind, data = EventKind(value["kind"]), value["data"]
    if version == 1:
        payload, why = version_1.read(kind, data, value["cause"], _task(value))
    else:
        payload, why = payload_of(kind, data), cause_from_json(value["why"])
    rest = {name: value[name] for name in ("seq", "time_ms", *_OPTIONAL_TEXT, *_OPTIONAL_INT)}
    return Event(**rest, payload=payload, why=why, seen=sighting_of(kind, data))


def sighting_of(kind: EventKind, data: dict[str, Any]) -> Sighting | None:
    """How an attached cluster's event was seen; the events of sight itself have an origin that is no such thing."""
    if "origin" not in data or kind in (EventKind.SIGHT_LOST, EventKind.SIGHT_REGAINED):
        return None
    sighting: Sighting = from_json(Sighting, data)
    return sighting


def _task(value: dict[str, Any]) -> TaskId | None:
    connector, task = value["connector"], value["task"]
    return None if connector is None or task is None else TaskId(connector, task)


def _require(value: dict[str, Any], name: str, *types: type) -> None:
    if not isinstance(value[name], types) or isinstance(value[name], bool):
        raise TypeError(f"{name} is {value[name]!r}")
