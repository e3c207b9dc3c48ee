"""Converts events to lines of JSON and back. Pure.

Payloads become JSON values when they are recorded, not when they are written: so a log that was read from a file
equals the one that wrote it, and no writer can change an event through a mapping that it kept.

A line holds the cause twice: `cause` in words, and `why` with its type and fields, which is what is read.
"""

from __future__ import annotations

import json
from typing import Any

from connectx.model.causes import cause_from_json, cause_to_json
from connectx.model.events import Event, EventKind, Sighting
from connectx.model.json_values import from_json, record_to_json
from connectx.model.payloads import Payload, payload_of

VERSION = 2
"""Version of the lines that are written."""

_FIELDS = ("seq", "time_ms", "worker", "kind", "connector", "task", "generation", "producer_epoch", "cause", "data")
_KEYS = frozenset({"version", "why", *_FIELDS})
_OPTIONAL_TEXT = ("worker", "connector")
_OPTIONAL_INT = ("task", "generation", "producer_epoch")
_SEEN = ("origin", "after_ms", "written_ms")


class VersionError(ValueError):
    """A line is of another version of the format."""


def plain(payload: Payload) -> Payload:
    """The payload as it comes back from a file."""
    return payload_of(payload.kind, record_to_json(payload))


def event_to_json(event: Event) -> str:
    """One line of JSON with all fields of the event."""
    line = {"version": VERSION} | {name: getattr(event, name) for name in _FIELDS}
    text = json.dumps({**line, "why": cause_to_json(event.why)}, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace").decode()  # half of a surrogate pair cannot be written


def event_from_json(value: Any) -> Event:
    """Inverse of `event_to_json` after JSON parsing.

    Raises:
        VersionError: another version wrote the line. KeyError: a field is missing.
        ValueError, TypeError: a field has a wrong value; the message names it.
    """
    if not isinstance(value, dict):
        raise TypeError("it is not a JSON object")
    if value.get("version") != VERSION:
        raise VersionError(f"its version is {value.get('version')!r}, and this connectx reads version {VERSION}")
    unknown = sorted(set(value) - _KEYS)
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
    kind, data = EventKind(value["kind"]), value["data"]
    rest = {name: value[name] for name in ("seq", "time_ms", *_OPTIONAL_TEXT, *_OPTIONAL_INT)}
    why = cause_from_json(value["why"])
    return Event(**rest, payload=payload_of(kind, data), why=why, seen=sighting_of(kind, data))


def sighting_of(kind: EventKind, data: dict[str, Any]) -> Sighting | None:
    """How an attached cluster's event was seen; the events of sight itself have an origin that is no such thing."""
    if "origin" not in data or kind in (EventKind.SIGHT_LOST, EventKind.SIGHT_REGAINED):
        return None
    sighting: Sighting = from_json(Sighting, data)
    return sighting


def _require(value: dict[str, Any], name: str, *types: type) -> None:
    if not isinstance(value[name], types) or isinstance(value[name], bool):
        raise TypeError(f"{name} is {value[name]!r}")
