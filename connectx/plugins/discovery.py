"""Finds the plugins that other installed packages declare as entry points.

The groups are `connectx.connectors`, `connectx.converters`, `connectx.transforms`, `connectx.predicates` and
`connectx.config_providers`; the name of an entry point is the plugin's alias in configurations. A class is imported
when a configuration first names it, or when plugins are listed. An entry point that cannot be loaded is left out with a
warning. In the place of Kafka Connect's plugin path.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points

from connectx.plugins.api import SinkConnector, SourceConnector
from connectx.plugins.config_providers import ConfigProvider

_log = logging.getLogger(__name__)


class Group(StrEnum):
    """Groups of entry points."""

    CONNECTORS = "connectx.connectors"
    CONVERTERS = "connectx.converters"
    TRANSFORMS = "connectx.transforms"
    PREDICATES = "connectx.predicates"
    CONFIG_PROVIDERS = "connectx.config_providers"


class InstalledPlugins:
    """Plugin classes of other packages. The installed packages are read once, at the first question."""

    def __init__(self) -> None:
        self._loaded: dict[EntryPoint, type | None] = {}

    def named(self, group: Group, name: str) -> list[type]:
        """Classes whose entry point has this name, or the simple or full name of the class; mostly none or one."""
        points = [point for point in self._points[group] if name in _names(group, point)]
        return [cls for point in points if (cls := self._load(group, point)) is not None]

    def listed(self, group: Group) -> dict[str, type]:
        """All classes of a group that can be loaded, by the names of their entry points."""
        return {point.name: cls for point in self._points[group] if (cls := self._load(group, point)) is not None}

    @cached_property
    def _points(self) -> dict[Group, list[EntryPoint]]:
        return {group: sorted(entry_points(group=group), key=lambda point: point.name) for group in Group}

    def _load(self, group: Group, point: EntryPoint) -> type | None:
        if point not in self._loaded:
            self._loaded[point] = None
            try:
                found = point.load()
                if not (isinstance(found, type) and issubclass(found, _bases(group))):
                    raise TypeError(f"{point.value} is not a subclass of what the group needs")
                self._loaded[point] = found
            except Exception as error:  # the module of another package may raise anything when it is imported
                package = "an unknown package" if point.dist is None else point.dist.name
                why = f"{type(error).__name__}: {error}"
                _log.warning("The entry point %s of %s in %s is left out: %s", point.name, package, group, why)
        return self._loaded[point]


def _names(group: Group, point: EntryPoint) -> tuple[str, ...]:
    simple = point.attr.rpartition(".")[2]
    aliases = (point.name, simple, point.value, f"{point.module}.{point.attr}")
    return (*aliases, f"{point.name}Connector", f"{simple}Connector") if group is Group.CONNECTORS else aliases


def _bases(group: Group) -> tuple[type, ...]:
    """Imported when asked for: converters and transformations load Arrow."""
    from connectx.data.converter import Converter
    from connectx.data.transforms.api import Predicate, Transform

    bases: dict[Group, tuple[type, ...]] = {
        Group.CONNECTORS: (SourceConnector, SinkConnector),
        Group.CONVERTERS: (Converter,),
        Group.TRANSFORMS: (Transform,),
        Group.PREDICATES: (Predicate,),
        Group.CONFIG_PROVIDERS: (ConfigProvider,),
    }
    return bases[group]
