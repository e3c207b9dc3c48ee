"""Transformations and predicates of a connector's configuration: their keys, their classes, and the chain they make.

Mirrors what Kafka Connect's ConnectorConfig does with `transforms` and `predicates` (EnrichablePlugin).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from connectx.errors.plugins import ConfigError, PluginNotFoundError
from connectx.model.class_names import public_name
from connectx.model.configdef import ConfigDef, invalid_value
from connectx.model.worker_config import with_prefix
from connectx.values import Value

if TYPE_CHECKING:
    from connectx.data.transforms.api import Predicate, Transform
    from connectx.data.transforms.chain import Chain

_IMPLICIT: Final = ("predicate", "negate", "type")


class Kind(Value):
    """`transforms` or `predicates`, and the words for them."""

    key: str
    group: str
    word: str
    base: str


TRANSFORMS: Final = Kind("transforms", "Transforms", "Transformation", "Transformation")
PREDICATES: Final = Kind("predicates", "Predicates", "Predicate", "Predicate")

Load = Callable[[str], tuple[Any, str]]


def plugin_class(
    kind: Kind, name: str, registered: Mapping[str, type], load: Load
) -> type[Transform] | type[Predicate]:
    """Class for a value of `transforms.<alias>.type` or `predicates.<alias>.type`.

    Raises:
        PluginNotFoundError: there is none, or it cannot be used; in Kafka Connect's words.
    """
    from connectx.data.transforms.api import Predicate, Transform

    name = name.strip()
    found, reason = registered.get(name), ""
    if found is None:
        found, reason = load(name)
    if found is None:
        raise PluginNotFoundError(f"Class {name} could not be found.{reason}")
    if not (isinstance(found, type) and issubclass(found, Transform if kind is TRANSFORMS else Predicate)):
        raise PluginNotFoundError(f"Not a {kind.base}")
    if issubclass(found, Transform) and (variants := found.variants()):
        names = ", ".join(map(public_name, variants))
        raise PluginNotFoundError(f"Transformation is abstract and cannot be created. Did you mean {names}?")
    return found


def aliases(kind: Kind, config: Mapping[str, str | None]) -> list[str]:
    """Aliases in order, each once."""
    return [alias for alias in dict.fromkeys(part.strip() for part in (config.get(kind.key) or "").split(",")) if alias]


def type_definition(kind: Kind, alias: str, recommended: Sequence[str]) -> ConfigDef:
    """The key `type` of an alias, with classes to choose from."""
    return ConfigDef().define(
        f"{kind.key}.{alias}.type",
        "CLASS",
        doc=f"Class for the '{alias}' {kind.word.lower()}.",
        group=f"{kind.group}: {alias}",
        importance="HIGH",
        width="LONG",
        order=0,
        display_name=f"{kind.base} type for {alias}",
        recommended=recommended,
    )


def own_definition(kind: Kind, alias: str, cls: type[Transform] | type[Predicate]) -> ConfigDef:
    """Keys of an alias's class, and those that every transformation has."""
    definition = ConfigDef()
    if kind is TRANSFORMS:
        definition.define("predicate", str, "", doc="Alias of the predicate that selects its records.")
        definition.define("negate", bool, False, doc="Whether it is for the other records.")
    own = {name: key for name, key in cls.config.keys.items() if kind is PREDICATES or name not in _IMPLICIT}
    group = f"{kind.group}: {alias}"
    prefix = f"{kind.key}.{alias}."
    keys = (*definition.keys.values(), *own.values())
    return ConfigDef.of(
        replace(key, name=prefix + key.name, group=group, order=order) for order, key in enumerate(keys, 1)
    )


def settings_of(kind: Kind, alias: str, config: Mapping[str, str | None]) -> dict[str, str]:
    """An alias's own keys without prefix."""
    given = with_prefix(config, f"{kind.key}.{alias}.")
    implicit = _IMPLICIT if kind is TRANSFORMS else ("type",)
    return {name: text for name, text in given.items() if text is not None and name not in implicit}


def alias_problems(config: Mapping[str, str | None], alias: str) -> dict[str, str]:
    """What is wrong with a transformation's `predicate` and `negate`, by key."""
    predicate, negate = f"transforms.{alias}.predicate", f"transforms.{alias}.negate"
    if config.get(negate) is not None and config.get(predicate) is None:
        what = (
            f"Config '{negate}' was provided but there is no config '{predicate}' defining a predicate to be negated."
        )
        return {f"transforms.{alias}.type": what}
    named = (config.get(predicate) or "").strip()
    if named and named not in aliases(PREDICATES, config):
        return {predicate: invalid_value(predicate, named, "predicates names no such alias.")}
    return {}


def chain_of(config: Mapping[str, str | None], find: Callable[[Kind, str], type[Transform] | type[Predicate]]) -> Chain:
    """The transformations of a connector, ready to be applied.

    Raises:
        PluginNotFoundError: an unknown class.
        ConfigError: wrong settings.
    """
    from connectx.data.transforms.chain import Chain, Step

    def made(kind: Kind, alias: str) -> Any:
        name = f"{kind.key}.{alias}.type"
        if config.get(name) is None:
            raise ConfigError([f'Missing required configuration "{name}" which has no default value.'])
        return find(kind, config[name] or "")(settings_of(kind, alias, config))

    steps = []
    for alias in aliases(TRANSFORMS, config):
        problems = alias_problems(config, alias)
        if problems:
            raise ConfigError(list(problems.values()))
        named = (config.get(f"transforms.{alias}.predicate") or "").strip()
        negate = (config.get(f"transforms.{alias}.negate") or "").strip().lower() == "true"
        predicate = made(PREDICATES, named) if named else None
        steps.append(Step(alias, made(TRANSFORMS, alias), predicate, negate, named))
    return Chain(tuple(steps))
