"""Dataclasses as JSON values and back, by their annotations. Pure.

`json_value` makes plain JSON of any value; `from_json` is its inverse for a type that is known. A field that equals its
default is left out of a record (`record_to_json`), and a missing one gets its default back.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from connectx.model.ids import TaskId, TopicPartition, parse_task


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
        return record_to_json(value)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return str(value)


def record_to_json(record: Any) -> dict[str, Any]:
    """The fields of a dataclass; without those that are hidden (`repr=False`) or equal their default."""
    found = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.repr and (field.default is dataclasses.MISSING or value != field.default):
            found[_key(field.name)] = json_value(value)
    return found


def from_json(kind: Any, value: Any) -> Any:
    """The value of type `kind` that `json_value` made `value` of; keys that the type does not know are ignored.

    Raises:
        KeyError: a field is missing. ValueError, TypeError: a value is not one of its type.
    """
    if kind is Any:
        return value
    origin = get_origin(kind)
    if origin in (types.UnionType, Union):
        return _first_of(get_args(kind), value)
    if origin is tuple:
        _require(isinstance(value, list | tuple), kind, value)
        return tuple(from_json(get_args(kind)[0], item) for item in value)
    if origin is not None and issubclass(origin, Mapping):
        _require(isinstance(value, Mapping), kind, value)
        return {str(key): from_json(get_args(kind)[1], item) for key, item in value.items()}
    if kind is TaskId:
        task = parse_task(str(value))
        _require(task is not None, kind, value)
        return task
    if dataclasses.is_dataclass(kind):
        _require(isinstance(value, Mapping), kind, value)
        return _record(kind, value)
    if kind is float:
        _require(isinstance(value, int | float) and not isinstance(value, bool), kind, value)
        return float(value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    _require(isinstance(value, kind) and not (kind is int and isinstance(value, bool)), kind, value)
    return value


def _record(kind: Any, value: Mapping[str, Any]) -> Any:
    hints, given = _hints(kind), {}
    for field in dataclasses.fields(kind):
        key = _key(field.name)
        if key in value:
            try:
                given[field.name] = from_json(hints[field.name], value[key])
            except (TypeError, ValueError) as error:
                raise type(error)(f"{key}: {error}") from error
        elif field.default is dataclasses.MISSING:
            raise KeyError(key)
    return kind(**given)


def _first_of(kinds: tuple[Any, ...], value: Any) -> Any:
    for kind in kinds:
        try:
            return from_json(kind, value)
        except (TypeError, ValueError, KeyError):
            continue
    raise TypeError(f"it is {value!r}")


def _require(fits: bool, kind: Any, value: Any) -> None:
    if not fits:
        raise TypeError(f"it is {value!r}, not {getattr(kind, '__name__', kind)}")


def _key(name: str) -> str:
    return name.rstrip("_")  # `from_` holds the key `from`


_hints = cache(get_type_hints)
