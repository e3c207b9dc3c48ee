"""Classes of the plugins that ship, by the entry points of connectx."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connectx.data.converter import Converter
from connectx.data.transforms.api import KAFKA as PACKAGE
from connectx.data.transforms.api import Predicate, Transform
from connectx.plugins.description import PluginDescription
from connectx.plugins.registry import Plugins

__all__ = ["CONVERTERS", "PACKAGE", "PREDICATES", "TRANSFORMS"]

_SHIPPED: Final[tuple[PluginDescription, ...]] = tuple(
    plugin for plugin in Plugins().describe(connectors_only=False) if plugin.cls.__module__.startswith("connectx.")
)


def _named(plugin_type: str) -> Mapping[str, Any]:
    return {plugin.name: plugin.cls for plugin in _SHIPPED if plugin.type == plugin_type}


CONVERTERS: Final[tuple[type[Converter], ...]] = tuple(_named("converter").values())
TRANSFORMS: Final[Mapping[str, type[Transform]]] = _named("transformation")
PREDICATES: Final[Mapping[str, type[Predicate]]] = _named("predicate")
