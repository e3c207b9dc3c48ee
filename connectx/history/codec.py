"""Events as plain JSON values and back. Pure.

Data of an event is made plain when it is recorded, not when it is written: so a log that was read from a file equals
the one that wrote it, and nobody can change an event through a dict that he kept.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from connectx.model.events import Event, EventKind
from connectx.model.ids import TaskId, TopicPartition

_FIELDS = tuple(field.name for field in dataclasses.fields(Event))
_OPTIONAL_TEXT = ("worker", "connector")
_OPTIONAL_INT = ("task", "generation", "producer_epoch")


def json_value(value: Any) -> Any:
    """A copy of `value` out of dicts, lists, strings, numbers, booleans and None.

    Mappings become dicts with string keys, sequences and sets lists (sets sorted), ids and enums their text, other
    dataclasses dicts of their fields, bytes hexadecimal text, anything else its `str`.
    """
    if isinstance(value, Enum):
        return json_value(value.value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((json_value(item) for item in value), key=repr)
    if isinstance(value, (TaskId, TopicPartition)):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_value(getattr(value, field.name)) for field in dataclasses.fields(value) if field.repr}
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return str(value)


def event_to_json(event: Event) -> str:
    """One line of JSON with all fields of the event."""
    return json.dumps({name: getattr(event, name) for name in _FIELDS}, ensure_ascii=False, separators=(",", ":"))


def event_from_json(value: Any) -> Event:
    """Inverse of `event_to_json` after JSON parsing.

    Raises:
        KeyError: a field is missing. ValueError, TypeError: a field has a wrong value; the message names it.
    """
    if not isinstance(value, dict):
        raise TypeError("it is not a JSON object")
    unknown = sorted(set(value) - set(_FIELDS))
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
    return Event(**{**value, "kind": EventKind(value["kind"])})


def _require(value: dict[str, Any], name: str, *types: type) -> None:
    if not isinstance(value[name], types) or isinstance(value[name], bool):
        raise TypeError(f"{name} is {value[name]!r}")
