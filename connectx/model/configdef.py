"""Definitions of configuration keys: types, defaults, checks, and the messages of Kafka Connect.

Decides whether a value fits its key and what it is as a Python value. It never loads a class, reads a file or resolves
a placeholder. Mirrors Kafka's ConfigDef; the texts of errors are Kafka's, since tools match on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypedDict

from connectx.errors.plugins import ConfigError
from connectx.values import Value
from connectx.views import Form, Listed, Shown


class ConfigType(StrEnum):
    """Type of a key, spelled as in REST. A CLASS stays a name here: resolving it is the plugins' part."""

    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    SHORT = "SHORT"
    DOUBLE = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"


class ConfigKeyInfo(TypedDict):
    """Definition of a key in REST (Kafka Connect: ConfigKeyInfo)."""

    name: str
    type: str
    required: bool
    default_value: str | None
    importance: str
    documentation: str | None
    group: str | None
    order_in_group: int
    width: str
    display_name: str
    dependents: list[str]


class ConfigValueInfo(TypedDict):
    """Value of a key in REST, and what is wrong with it (Kafka Connect: ConfigValueInfo)."""

    name: str
    value: str | None
    recommended_values: list[str | None]
    errors: list[str]
    visible: bool


class ConfigInfo(TypedDict):
    """A key with its value; without a definition it is an undefined key."""

    definition: ConfigKeyInfo | None
    value: ConfigValueInfo


class ConfigInfos(TypedDict):
    """Outcome of a validation. `name` is the connector class as it was given."""

    name: str | None
    error_count: int
    groups: list[str]
    configs: list[ConfigInfo]


class Secret:
    """A value that must not be shown: text forms show `[hidden]`, `value` has it (Kafka: Password)."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "[hidden]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.value == other.value

    def __hash__(self) -> int:
        return hash((Secret, self.value))


class _Required:
    """Type of REQUIRED."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""Stands for a default in keys that have none."""

_PYTHON_TYPES: Final[Mapping[type, ConfigType]] = {
    int: ConfigType.INT,
    float: ConfigType.DOUBLE,
    bool: ConfigType.BOOLEAN,
    str: ConfigType.STRING,
    list: ConfigType.LIST,
}
_INTEGER_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_INTEGER_NAMES: Final = {
    ConfigType.SHORT: "a 16-bit integer (short)",
    ConfigType.INT: "a 32-bit integer",
    ConfigType.LONG: "a 64-bit integer (long)",
}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
JAVA_BLANKS: Final = "".join(map(chr, range(33)))
"""What Java's String.trim takes away."""


class Validator(Value, Shown):
    """A check of one parsed value: `check` returns what is wrong, or None. `text` describes what is allowed.

    The error is appended to Kafka's "Invalid value ... for configuration ...", unless `whole_message` is set.

    Attributes:
        distinct: repeated entries of a list are an error of `ConfigDef.validate`; `ConfigDef.parse` drops them, so that
            connectors keep running that were created with them (KIP-1161).
    """

    check: Callable[[Any], str | None]
    text: str
    whole_message: bool = False
    distinct: bool = False

    def __str__(self) -> str:
        return self.text


class ConfigKey(Value, Shown):
    """One key, complete. `order` counts within `group`; -1 is unordered. Widths and importances are Kafka's."""

    name: str
    type: ConfigType
    default: Any
    doc: str
    group: str | None
    importance: str
    validator: Validator | None
    width: str
    order: int
    display_name: str
    dependents: tuple[str, ...]
    recommended: tuple[Any, ...]

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def row(self) -> dict[str, object]:
        """One line of a table of keys."""
        secret = self.type is ConfigType.PASSWORD and not self.required and self.default is not None
        default = "[hidden]" if secret else None if self.required else to_text(self.default)
        needed = "required" if self.required else str(self.importance).lower()
        return {
            "key": self.name,
            "type": str(self.type).lower(),
            "default": default,
            "importance": needed,
            "what": self.doc,
        }

    def _shown(self) -> Form:
        return Form(f"ConfigKey {self.name}", self.row())

    def to_json(self, prefix: str = "") -> ConfigKeyInfo:
        """The definition in the shape of REST, with `prefix` before the name."""
        return {
            "name": prefix + self.name,
            "type": str(self.type),
            "required": self.required,
            "default_value": None if self.required else to_text(self.default),
            "importance": self.importance,
            "documentation": self.doc,
            "group": self.group,
            "order_in_group": self.order,
            "width": self.width,
            "display_name": self.display_name,
            "dependents": list(self.dependents),
        }


@dataclass(slots=True)
class ConfigValue(Shown):
    """The result for one key: the parsed value, and its errors."""

    name: str
    value: Any = None
    recommended_values: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    visible: bool = True

    def to_json(self, prefix: str = "") -> ConfigValueInfo:
        """The value in the shape of REST; secrets are hidden."""
        return {
            "name": prefix + self.name,
            "value": to_text(self.value),
            "recommended_values": [to_text(value) for value in self.recommended_values],
            "errors": list(self.errors),
            "visible": self.visible,
        }


class ConfigDef:
    """Keys of a connector, converter or worker, in the order of definition."""

    def __init__(self, *others: ConfigDef) -> None:
        self._keys: dict[str, ConfigKey] = {}
        self._group: str | None = None
        for other in others:
            self._keys.update(other._keys)

    def group(self, name: str) -> ConfigDef:
        """Name the group of the keys that are defined next; returns this definition, as `define` does."""
        self._group = name
        return self

    def define(
        self,
        name: str,
        type: type[int | float | bool | str | list[str]] | ConfigType | str = ConfigType.STRING,  # noqa: A002
        default: Any = REQUIRED,
        *,
        doc: str = "",
        group: str | None = None,
        importance: str = "MEDIUM",
        validator: Validator | Callable[[Any], str | None] | None = None,
        width: str = "NONE",
        order: int | None = None,
        display_name: str | None = None,
        dependents: Sequence[str] = (),
        recommended: Sequence[Any] = (),
        secret: bool = False,
    ) -> ConfigDef:
        """Add a key and return this definition, so that calls can be chained.

        Args:
            name: the key; put the unit last (`poll.interval.ms`).
            type: int (32 bits), float, bool, str, list, or one of Connect's names such as "LONG".
            default: value when the user gives none; without it the key is required.
            group: its group, when it is not that of the last call of `group`.
            order: place within its group; counted on when left out.
            validator: a Validator, or a function that returns what is wrong with the parsed value, or None.
            secret: the value is a password: parsed into a Secret.

        Raises:
            ConfigError: the key is defined already, or the default does not fit its type or validator.
        """
        if name in self._keys:
            raise ConfigError([f"Configuration {name} is defined twice."])
        config_type = ConfigType.PASSWORD if secret else _config_type(type)
        if validator is not None and not isinstance(validator, Validator):
            validator = Validator(validator, (validator.__doc__ or "").strip())
        if default is not REQUIRED:
            default, problem = _parse_type(name, default, config_type)
            if problem is None and validator is not None:
                problem = _invalid(name, default, validator)
            if problem:
                raise ConfigError([problem])
        group = group or self._group
        if order is None:
            order = -1 if group is None else 1 + sum(key.group == group for key in self._keys.values())
        self._keys[name] = ConfigKey(
            name=name,
            type=config_type,
            default=default,
            doc=doc,
            group=group,
            importance=importance.upper(),
            validator=validator,
            width=width.upper(),
            order=order,
            display_name=display_name or name,
            dependents=tuple(dependents),
            recommended=tuple(recommended),
        )
        return self

    @classmethod
    def of(cls, keys: Iterable[ConfigKey]) -> ConfigDef:
        made = cls()
        made._keys = {key.name: key for key in keys}
        return made

    @property
    def keys(self) -> Mapping[str, ConfigKey]:
        """Keys by name, in the order of definition."""
        return dict(self._keys)

    @property
    def groups(self) -> list[str]:
        """Groups in the order of first use."""
        return list(dict.fromkeys(key.group for key in self._keys.values() if key.group is not None))

    def parse(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Typed values of all defined keys; unknown keys are left out.

        Raises:
            ConfigError: with all problems, one per key.
        """
        values = [_validate_key(key, config, parsing=True) for key in self._keys.values()]
        problems = [value.errors[0] for value in values if value.errors]
        if problems:
            raise ConfigError(problems)
        return {value.name: value.value for value in values}

    def validate(self, config: Mapping[str, Any]) -> Listed[ConfigValue]:
        """One ConfigValue per defined key, with its errors; never raises for a bad value."""
        return Listed([_validate_key(key, config) for key in self._keys.values()], "keys")

    def __contains__(self, name: str) -> bool:
        return name in self._keys

    def __repr__(self) -> str:
        return f"ConfigDef({', '.join(self._keys)})"

    def _repr_html_(self) -> str:
        return Form("ConfigDef", {}, [[key.row() for key in self._keys.values()]]).html


def _validate_key(key: ConfigKey, config: Mapping[str, Any], *, parsing: bool = False) -> ConfigValue:
    outcome = ConfigValue(key.name, recommended_values=list(key.recommended))
    if key.name in config:
        outcome.value, problem = _parse_type(key.name, config[key.name], key.type)
        outcome.errors += [problem] if problem else []
    elif key.required:
        outcome.errors.append(f'Missing required configuration "{key.name}" which has no default value.')
    else:
        outcome.value = key.default
    if parsing and key.validator is not None and key.validator.distinct and outcome.value is not None:
        outcome.value = list(dict.fromkeys(outcome.value))
    # As in Kafka the validator also sees the null that is left of a value that could not be read.
    if key.validator is not None and (problem := _invalid(key.name, outcome.value, key.validator)):
        outcome.errors.append(problem)
    return outcome


def invalid_value(name: str, value: Any, reason: str) -> str:
    """Kafka's sentence about a bad value (ConfigException)."""
    return f"Invalid value {_shown(value)} for configuration {name}: {reason}"


def _invalid(name: str, value: Any, validator: Validator) -> str | None:
    reason = validator.check(value)
    return reason if reason is None or validator.whole_message else invalid_value(name, value, reason)


def _config_type(given: type | ConfigType | str) -> ConfigType:
    if isinstance(given, type):
        if given not in _PYTHON_TYPES:
            raise ConfigError([f"A configuration key cannot be of the Python type {given.__name__}."])
        return _PYTHON_TYPES[given]
    try:
        return ConfigType(given.upper())
    except ValueError:
        raise ConfigError([f"Unknown configuration type {given}; known are {', '.join(ConfigType)}."]) from None


def _parse_type(name: str, value: Any, config_type: ConfigType) -> tuple[Any, str | None]:
    """(parsed value, None) or (None, what is wrong). Null stays null (Kafka: ConfigDef.parseType)."""
    if value is None:
        return None, None
    try:
        if isinstance(value, str):
            return _parse_text(value.strip(JAVA_BLANKS), config_type), None
        return _take_typed(value, config_type), None
    except ValueError as error:
        return None, invalid_value(name, value, str(error))


def _parse_text(text: str, config_type: ConfigType) -> Any:
    match config_type:
        case ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ValueError("Expected value to be either true or false")
            return text.lower() == "true"
        case ConfigType.INT | ConfigType.LONG | ConfigType.SHORT:
            number = int(text) if _INTEGER.fullmatch(text) else None
            if number is None or not _fits(number, config_type):
                raise ValueError(f"Not a number of type {config_type}")
            return number
        case ConfigType.DOUBLE:
            if text.lstrip("+-") in ("NaN", "Infinity"):
                return float(text)
            digits = _DOUBLE.fullmatch(text)
            if digits is None:
                raise ValueError("Not a number of type DOUBLE")
            return float(digits.group(1))
        case ConfigType.LIST:
            return [part.strip() for part in text.split(",")] if text else []
        case ConfigType.PASSWORD:
            return Secret(text)
        case _:
            return text


def _take_typed(value: Any, config_type: ConfigType) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    kind = type(value).__name__
    match config_type:
        case ConfigType.BOOLEAN:
            if not isinstance(value, bool):
                raise ValueError("Expected value to be either true or false")
        case ConfigType.INT | ConfigType.LONG | ConfigType.SHORT:
            if not is_number or isinstance(value, float) or not _fits(value, config_type):
                raise ValueError(f"Expected value to be {_INTEGER_NAMES[config_type]}, but it was a {kind}")
        case ConfigType.DOUBLE:
            if not is_number:
                raise ValueError(f"Expected value to be a double, but it was a {kind}")
            return float(value)
        case ConfigType.LIST:
            if not isinstance(value, (list, tuple)):
                raise ValueError("Expected a comma separated list.")
            return list(value)
        case ConfigType.PASSWORD:
            if not isinstance(value, Secret):
                raise ValueError(f"Expected value to be a string, but it was a {kind}")
        case _:
            raise ValueError(f"Expected value to be a string, but it was a {kind}")
    return value


def _fits(number: int, config_type: ConfigType) -> bool:
    limit = 1 << (_INTEGER_BITS[config_type] - 1)
    return -limit <= number < limit


def to_text(value: Any) -> str | None:
    """A parsed value as configuration text (Kafka: ConfigDef.convertToString); None stays None."""
    if value is None:
        return None
    if isinstance(value, list):
        return ",".join(map(str, value))
    return _shown(value)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(str, value))}]"
    return str(value)
