"""Values of a core as JSON and back: stimuli, effects and state. Pure.

A dataclass or enum becomes an object whose key `$` names its class, so that unions keep their types. A codec reads only
the classes of its kind of core: a file cannot name any other. `Mask` hides what may be secret.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field, fields, is_dataclass
from enum import Enum
from typing import Any, Final, get_args, get_origin, get_type_hints

from connectx.model.placeholders import placeholders, replaced
from connectx.values import Value
from connectx.views import masked_text

_CLASS: Final = "$"
_HIDDEN: Final = "[hidden "
_DIGEST: Final = re.compile(r"\[hidden [0-9a-f]{16}\]")
_SENTENCES: Final = frozenset({"body", "trace", "error"})
_QUALIFIED: Final = ("verbs", "causes")
"""Modules whose classes are named with them, since other modules have classes of the same names."""

_Plan = tuple[str, tuple[tuple[str, frozenset[str] | None, bool, bool], ...]]
"""Name of a class, and of its fields; of each field the keys that are shown, and whether texts and keys are hidden."""


class Mask(Value):
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
        return "".join((f"{_HIDDEN}{digest}]", *(found.text for found in placeholders(value))))

    def data(self, value: bytes) -> bytes:
        """Return a digest of the same length: the core compares the size of keys."""
        digest = hashlib.blake2b(value, key=self.salt).digest()
        return (digest * (len(value) // len(digest) + 1))[: len(value)]


class Secrets(Value):
    """What a mask hides in the values of a kind of core, besides bytes and passwords in URLs.

    Attributes:
        open_keys: by the name of a field that holds configurations, the keys whose values are shown.
        texts: names of fields whose texts are hidden, also those in mappings and sequences. Their keys are shown.
        json_keys: names of fields whose keys are JSON texts of such mappings.
    """

    open_keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
    texts: frozenset[str] = frozenset()
    json_keys: frozenset[str] = frozenset()


class Codec:
    """Writes and reads the values of one kind of core.

    Args:
        values: types that stimuli, effects, settings and state can have. Classes of their fields are found from them.
        parts: dataclasses whose fields are state, but which are not values themselves.
        secrets: what a mask hides.
    """

    def __init__(self, values: Iterable[Any], *, parts: Iterable[type] = (), secrets: Secrets | None = None) -> None:
        self._classes = _classes(tuple(values), tuple(parts))
        self._secrets = secrets or Secrets()
        self._plans: dict[type, _Plan] = {}

    def encode(self, value: Any, mask: Mask | None = None) -> Any:
        """Return `value` as JSON values, with what may be secret replaced by `mask`."""
        return self._encode(value, mask, None)

    def _encode(self, value: Any, mask: Mask | None, open_keys: frozenset[str] | None) -> Any:
        """`open_keys` is set inside a configuration: values of all other keys are replaced."""
        cls = type(value)
        if value is None or cls is int or cls is bool or cls is float:
            return value
        if cls is str:
            return value if mask is None else masked_text(value)
        if isinstance(value, Enum):
            return {_CLASS: _name_of(cls), "value": value.value}
        if isinstance(value, tuple):
            return [self._encode(item, mask, open_keys) for item in value]
        if is_dataclass(cls):
            return self._dataclass(value, cls, mask)
        if isinstance(value, Mapping):
            return self._mapping(value, mask, open_keys)
        if isinstance(value, (bytes, bytearray)):
            return {_CLASS: "bytes", "hex": (bytes(value) if mask is None else mask.data(bytes(value))).hex()}
        if isinstance(value, list):
            return {_CLASS: "list", "items": [self._encode(item, mask, open_keys) for item in value]}
        if isinstance(value, (set, frozenset)):
            return {_CLASS: "set", "items": sorted((self._encode(item, mask, open_keys) for item in value), key=repr)}
        return {_CLASS: "text", "text": str(value)}

    def _dataclass(self, value: Any, cls: type, mask: Mask | None) -> dict[str, Any]:
        name, items = self._plan(cls)
        encoded: dict[str, Any] = {_CLASS: name}
        for item, open_keys, has_texts, has_keys in items:
            content = getattr(value, item)
            if mask is not None and has_texts:
                content = _hidden(content, mask)
            if mask is not None and has_keys:
                content = {json.dumps(_hidden(json.loads(key), mask)): of_key for key, of_key in content.items()}
            encoded[item] = self._encode(content, mask, open_keys)
        return encoded

    def _plan(self, cls: type) -> _Plan:
        """What is needed of a class and its fields, found once."""
        if cls not in self._plans:
            secrets, names = self._secrets, [item.name for item in fields(cls)]
            plan = ((n, secrets.open_keys.get(n), n in secrets.texts, n in secrets.json_keys) for n in names)
            self._plans[cls] = _name_of(cls), tuple(plan)
        return self._plans[cls]

    def _mapping(self, value: Mapping[Any, Any], mask: Mask | None, open_keys: frozenset[str] | None) -> dict[str, Any]:
        def content(key: Any, item: Any) -> Any:
            if open_keys is not None and mask is not None and type(item) is str and key not in open_keys:
                return mask.text(item)
            return self._encode(item, mask, self._secrets.open_keys.get(key, open_keys))

        if _CLASS not in value and all(type(key) is str for key in value):
            return {key: content(key, item) for key, item in value.items()}
        items = [[self._encode(key, mask, None), content(key, item)] for key, item in value.items()]
        return {_CLASS: "dict", "items": items}

    def size(self, value: Any) -> int:
        """Return the rough size of `value` in a file. Of a container the first item counts for all."""
        cls = type(value)
        if value is None or cls is int or cls is bool or cls is float:
            return 5
        if cls is str or cls is bytes:
            return 2 + len(value)
        if isinstance(value, Enum):
            return 40
        if isinstance(value, (tuple, list, set, frozenset)):
            return 2 + len(value) * (1 + self.size(next(iter(value)))) if value else 2
        if isinstance(value, Mapping):
            return 2 + len(value) * sum(self.size(item) for item in next(iter(value.items()))) if value else 2
        if not is_dataclass(cls):
            return 20
        return 20 + sum(len(name) + 4 + self.size(getattr(value, name)) for name, *_ in self._plan(cls)[1])

    def decode(self, value: Any) -> Any:
        """Return what `encode` was given.

        Raises:
            ValueError: not a value that `encode` returns, or a class that this kind of core does not have.
        """
        if isinstance(value, list):
            return tuple(self.decode(item) for item in value)
        if not isinstance(value, dict):
            return value
        content = {key: item for key, item in value.items() if key != _CLASS}
        match value.get(_CLASS):
            case None:
                return {key: self.decode(item) for key, item in content.items()}
            case "list":
                return [self.decode(item) for item in content["items"]]
            case "set":
                return {self.decode(item) for item in content["items"]}
            case "dict":
                return {self.decode(key): self.decode(item) for key, item in content["items"]}
            case "bytes":
                return bytes.fromhex(content["hex"])
            case "text":
                return content["text"]
            case name:
                return self._object(name, content)

    def _object(self, name: Any, content: Mapping[str, Any]) -> Any:
        cls = self._classes.get(name) if isinstance(name, str) else None
        if cls is None:
            raise ValueError(f"the class {name!r} is not known")
        try:
            if issubclass(cls, Enum):
                return cls(content["value"])
            return cls(**{key: self.decode(item) for key, item in content.items()})
        except (TypeError, KeyError) as error:
            raise ValueError(f"{name} has other fields in this version: {error}") from error


def _hidden(value: Any, mask: Mask) -> Any:
    """Return JSON values with digests in place of their texts."""
    if type(value) is str:
        return mask.text(value)
    if isinstance(value, Mapping):
        return {key: _hidden(item, mask) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_hidden(item, mask) for item in value)
    return value


def _name_of(cls: type) -> str:
    module = cls.__module__.rpartition(".")[2]
    return f"{module}.{cls.__name__}" if module in _QUALIFIED else cls.__name__


def _classes(values: tuple[Any, ...], parts: tuple[type, ...]) -> dict[str, type]:
    """Return the dataclasses and enums that the fields of values and parts can hold, by name."""
    found: dict[str, type] = {}
    seen: set[Any] = set()
    waiting: list[Any] = [*values, *parts]
    while waiting:
        hint = waiting.pop()
        if isinstance(hint, list) or hint in seen:  # a list: arguments of a Callable
            continue
        seen.add(hint)
        waiting += (*get_args(hint), get_origin(hint))
        if isinstance(hint, type) and is_dataclass(hint):
            hints = get_type_hints(hint)
            waiting += (hints[item.name] for item in fields(hint) if item.compare)  # the others are no values
        if isinstance(hint, type) and issubclass(hint, Value):
            waiting += hint.__subclasses__()
        if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, Enum)) and hint not in parts:
            other = found.setdefault(_name_of(hint), hint)
            if other is not hint:
                raise TypeError(f"{other} and {hint} have the same name in a recording")
    return found


def agree(recorded: Any, encoded: Any, sentences: bool = True) -> bool:
    """Return whether an encoded value is the recorded one, whose texts may be hidden where a core made new ones.

    A core that is replayed makes them without secrets, or around digests that it was given.

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
        return recorded == encoded or not _is_digest(encoded)
    return bool(recorded == encoded)


def _is_digest(text: str) -> bool:
    found = _DIGEST.match(text)
    return found is not None and not replaced(text[found.end() :], lambda _: "")


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
