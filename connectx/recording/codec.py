"""Values of a core as JSON and back: stimuli, effects and state. Pure.

A dataclass or enum becomes an object whose key `$` names its class, so that unions keep their types. Only classes of
the core and the model are read: a file cannot name any other. `Mask` hides what may be secret.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Final, get_args, get_type_hints

from connectx.core import messages
from connectx.core.config_log import PLACEHOLDER
from connectx.core.config_writer import ConfigWriter
from connectx.core.connectors import Connectors
from connectx.core.context import Context
from connectx.core.fencing import FencingRounds
from connectx.core.group.leadership import Leadership
from connectx.core.group.membership import Membership
from connectx.core.group.rebalance import Rebalance
from connectx.core.requests import RequestHandler
from connectx.core.settings import CoreSettings
from connectx.core.step import Step
from connectx.core.takeovers import Takeovers
from connectx.core.tasks import Tasks
from connectx.model.worker_config import WorkerConfig
from connectx.views import masked_text

_CLASS: Final = "$"
_HIDDEN: Final = "[hidden "
_SENTENCES: Final = frozenset({"body", "trace", "error"})
_OPEN_KEYS: Final = frozenset(
    {"name", "connector.class", "task.class", "tasks.max", "task.restart.max", "task.restart.backoff.ms"}
)
"""Keys of connectors and tasks whose values are shown: the core decides by them, and none can be a secret."""

_OPEN_REPLY_KEYS: Final = _OPEN_KEYS | {
    *("connector", "state", "worker_id", "type", "version", "trace", "url", "member_id", "protocol"),
    *("leader", "leader_url"),
}
_CONFIG_FIELDS: Final = frozenset(
    {
        *("properties", "config", "expected", "task_configs", "connector_config", "task_config", "generated"),
        *("expected_config", "_configs", "_task_configs", "_buffered", "_applied_configs"),
    }
)
"""Fields that hold configurations of connectors and tasks."""

_PARTS: Final = (
    *(Context, Membership, ConfigWriter, FencingRounds, Leadership, Connectors, Tasks, Takeovers, Rebalance),
    RequestHandler,
)
"""Parts of a core: their fields are recorded, they themselves are not."""


def _name_of(cls: type) -> str:
    module = cls.__module__.rpartition(".")[2]
    return f"{module}.{cls.__name__}" if module in ("verbs", "causes") else cls.__name__


def _classes() -> dict[str, type]:
    """Return the dataclasses and enums that the fields of stimuli, effects and parts can hold, by name."""
    found: dict[str, type] = {}
    seen: list[Any] = [CoreSettings, WorkerConfig, Step]
    waiting: list[Any] = [messages.Stimulus, messages.Effect, *_PARTS]
    while waiting:
        hint = waiting.pop()
        if hint in seen:
            continue
        seen.append(hint)
        waiting += get_args(hint)
        if isinstance(hint, type) and is_dataclass(hint):
            waiting += get_type_hints(hint).values()
        if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, Enum)) and hint not in _PARTS:
            found[_name_of(hint)] = hint
    return found


_CLASSES: Final[Mapping[str, type]] = _classes()


@dataclass(frozen=True, slots=True)
class Mask:
    """Replaces secrets by digests: equal values have equal digests, so that the core still sees what has changed.

    Attributes:
        salt: up to 64 random bytes that are not in the file, so that a digest cannot be searched for.
    """

    salt: bytes

    def text(self, value: str) -> str:
        """Return a digest, with the placeholders of the text, which name secrets and are none."""
        if not value:
            return value
        digest = hashlib.blake2b(value.encode(errors="surrogatepass"), key=self.salt, digest_size=8).hexdigest()
        return "".join((f"{_HIDDEN}{digest}]", *(found.group() for found in PLACEHOLDER.finditer(value))))

    def data(self, value: bytes) -> bytes:
        """Return a digest of the same length: the core compares the size of keys."""
        digest = hashlib.blake2b(value, key=self.salt).digest()
        return (digest * (len(value) // len(digest) + 1))[: len(value)]


def encode(value: Any, mask: Mask | None = None) -> Any:
    """Return `value` as JSON values, with what may be secret replaced by `mask`."""
    return _encode(value, mask, None)


def _encode(value: Any, mask: Mask | None, open_keys: frozenset[str] | None) -> Any:
    """`open_keys` is set inside a configuration: values of all other keys are replaced."""
    if value is None or isinstance(value, (bool, float)) or type(value) is int:
        return value
    if type(value) is str:
        return masked_text(value) if mask is not None and ("@" in value or "=" in value) else value
    if isinstance(value, Enum):
        return {_CLASS: _name_of(type(value)), "value": value.value}
    if isinstance(value, tuple):
        return [_encode(item, mask, open_keys) for item in value]
    if is_dataclass(value):
        return _dataclass(value, mask)
    if isinstance(value, Mapping):
        return _mapping(value, mask, open_keys)
    if isinstance(value, (bytes, bytearray)):
        return {_CLASS: "bytes", "hex": (bytes(value) if mask is None else mask.data(bytes(value))).hex()}
    if isinstance(value, list):
        return {_CLASS: "list", "items": [_encode(item, mask, open_keys) for item in value]}
    if isinstance(value, (set, frozenset)):
        return {_CLASS: "set", "items": sorted((_encode(item, mask, open_keys) for item in value), key=repr)}
    return {_CLASS: "text", "text": str(value)}


def _dataclass(value: Any, mask: Mask | None) -> dict[str, Any]:
    cls = type(value)
    is_reply = cls is messages.Done
    encoded: dict[str, Any] = {_CLASS: _name_of(cls)}
    for item in fields(cls):
        name = item.name
        content = getattr(value, name)
        if mask is not None and name == "signature" and type(content) is str:
            encoded[name] = mask.text(content)
        elif is_reply and name == "body":
            encoded[name] = _encode(content, mask, _OPEN_REPLY_KEYS)
        else:
            encoded[name] = _encode(content, mask, _OPEN_KEYS if name in _CONFIG_FIELDS else None)
    return encoded


def _mapping(value: Mapping[Any, Any], mask: Mask | None, open_keys: frozenset[str] | None) -> dict[str, Any]:
    def content(key: Any, item: Any) -> Any:
        if open_keys is not None and mask is not None and type(item) is str and key not in open_keys:
            return mask.text(item)
        return _encode(item, mask, _OPEN_KEYS if key == "config" else open_keys)

    if _CLASS not in value and all(type(key) is str for key in value):
        return {key: content(key, item) for key, item in value.items()}
    items = [[_encode(key, mask, None), content(key, item)] for key, item in value.items()]
    return {_CLASS: "dict", "items": items}


def decode(value: Any) -> Any:
    """Return what `encode` was given.

    Raises:
        ValueError: not a value that `encode` returns, or a class that this version does not have.
    """
    if isinstance(value, list):
        return tuple(decode(item) for item in value)
    if not isinstance(value, dict):
        return value
    content = {key: item for key, item in value.items() if key != _CLASS}
    match value.get(_CLASS):
        case None:
            return {key: decode(item) for key, item in content.items()}
        case "list":
            return [decode(item) for item in content["items"]]
        case "set":
            return {decode(item) for item in content["items"]}
        case "dict":
            return {decode(key): decode(item) for key, item in content["items"]}
        case "bytes":
            return bytes.fromhex(content["hex"])
        case "text":
            return content["text"]
        case name:
            return _decode_object(name, content)


def _decode_object(name: Any, content: Mapping[str, Any]) -> Any:
    cls = _CLASSES.get(name) if isinstance(name, str) else None
    if cls is None:
        raise ValueError(f"the class {name!r} is not known")
    try:
        if issubclass(cls, Enum):
            return cls(content["value"])
        return cls(**{key: decode(item) for key, item in content.items()})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{name} has other fields in this version: {error}") from error


def agree(recorded: Any, encoded: Any, sentences: bool = True) -> bool:
    """Return whether an encoded value is the recorded one, whose texts may be hidden where a core made new ones.

    Without `sentences`, bodies of replies, traces and errors may differ: they change with their wording.
    """
    if isinstance(recorded, dict) and isinstance(encoded, dict):
        keys = [key for key in recorded if sentences or key not in _SENTENCES]
        return recorded.keys() == encoded.keys() and all(agree(recorded[key], encoded[key], sentences) for key in keys)
    if isinstance(recorded, list) and isinstance(encoded, list):
        return len(recorded) == len(encoded) and all(
            agree(*pair, sentences) for pair in zip(recorded, encoded, strict=True)
        )
    if isinstance(recorded, str) and isinstance(encoded, str) and recorded.startswith(_HIDDEN):
        return recorded == encoded or not encoded.startswith(_HIDDEN)
    return bool(recorded == encoded)


def shown(value: Any) -> str:
    """Return an encoded value as text on one line, such as `SetTimer(key='mismatch', token=4, at_ms=1100)`."""
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if not isinstance(value, dict):
        return repr(value)
    name, items = value.get(_CLASS), [(key, item) for key, item in value.items() if key != _CLASS]
    if name is None:
        return "{" + ", ".join(f"{key!r}: {shown(item)}" for key, item in items) + "}"
    if name in ("list", "set", "dict", "text", "bytes") or (len(items) == 1 and items[0][0] == "value"):
        return shown(items[0][1])
    return f"{name}({', '.join(f'{key}={shown(item)}' for key, item in items)})"
