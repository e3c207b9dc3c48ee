"""Finds the plugins that installed packages declare as entry points: those of connectx, and those of others.

The groups are `connectx.connectors`, `connectx.converters`, `connectx.transforms`, `connectx.predicates` and
`connectx.config_providers`; the name of an entry point is the plugin's alias in configurations. A class is imported
when a configuration first names it, or when plugins are listed. An entry point that cannot be loaded is left out with a
warning. In the place of Kafka Connect's plugin path.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from threading import Lock
from typing import Any

from connectx.errors.plugins import PluginNotFoundError
from connectx.plugins.config_providers import ConfigProvider
from connectx.plugins.connectors import SinkConnector, SourceConnector

_log = logging.getLogger(__name__)


class Group(StrEnum):
    """Groups of entry points."""

    CONNECTORS = "connectx.connectors"
    CONVERTERS = "connectx.converters"
    TRANSFORMS = "connectx.transforms"
    PREDICATES = "connectx.predicates"
    CONFIG_PROVIDERS = "connectx.config_providers"


class InstalledPlugins:
    """Plugin classes of installed packages, which are read once, at the first question. Any thread may ask."""

    def __init__(self) -> None:
        self._loaded: dict[EntryPoint, type | None] = {}
        self._lock = Lock()

    def named(self, group: Group, name: str) -> list[type]:
        """Classes whose entry point has this name, or the simple or full name of the class; mostly none or one.

        Raises:
            PluginNotFoundError: connectx is not installed, so that it has no entry points.
        """
        points = [point for point in self._points[group] if name in _names(group, point)]
        return [cls for point in points if (cls := self._load(group, point)) is not None]

    def replacing(self, group: Group, name: str) -> type | None:
        """The class that replaces a Java class of this name, or that has it among its other names.

        Imports all classes of the group if it finds none, but first one with the simple name of the Java class.
        """
        simple = name.rpartition(".")[2].partition("$")[0]
        points = sorted(self._points[group], key=lambda point: simple not in _names(group, point))
        classes = (cls for point in points for cls in with_variants(self._load(group, point)))
        return next((cls for cls in classes if name and name in _further_names(cls)), None)

    def listed(self, group: Group) -> dict[str, type]:
        """All classes of a group that can be loaded, by the names of their entry points."""
        return {point.name: cls for point in self._points[group] if (cls := self._load(group, point)) is not None}

    @cached_property
    def _points(self) -> dict[Group, list[EntryPoint]]:
        declared = entry_points()
        found = {group: sorted(declared.select(group=group), key=lambda point: point.name) for group in Group}
        if not any(point.module.startswith("connectx.") for point in found[Group.CONNECTORS]):
            raise PluginNotFoundError(
                "connectx is not installed in this Python environment, so none of its connectors and converters is "
                "found: they are entry points of the package.",
                next_step="Run pip install connectx, or pip install --editable . in a checkout.",
            )
        return found

    def _load(self, group: Group, point: EntryPoint) -> type | None:
        with self._lock:
            if point not in self._loaded:
                self._loaded[point] = _loaded(group, point)
            return self._loaded[point]


def _loaded(group: Group, point: EntryPoint) -> type | None:
    try:
        found = point.load()
        if not (isinstance(found, type) and issubclass(found, _bases(group))):
            raise TypeError(f"{point.value} is not a subclass of what the group needs")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the module of another package may raise anything when it is imported
        package = "an unknown package" if point.dist is None else point.dist.name
        why = f"{type(error).__name__}: {error}"
        _log.warning("The entry point %s of %s in %s is left out: %s", point.name, package, group, why)
        return None
    return found


def with_variants(cls: Any) -> Iterator[type]:
    """A class, and the variants of a transformation; nothing for None."""
    if cls is not None:
        yield cls
        yield from getattr(cls, "variants", tuple)()


def _further_names(cls: type) -> tuple[str, ...]:
    java_class = vars(cls).get("java_class") or ""
    return (java_class, java_class.rpartition(".")[2], *vars(cls).get("other_names", ()))


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
