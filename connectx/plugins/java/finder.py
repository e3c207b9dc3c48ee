"""Finds the Java plugins of a plugin path without a JVM.

A plugin is named by a service manifest of its jar (KIP-898), or derives from a class of Kafka by its class file. The
second way reads all class files, as Kafka Connect's ReflectionScanner does in a JVM: one to a few seconds for a large
plugin. What was found is kept in the user's cache until a file of the location changes. Whatever cannot be used is
skipped and reported; nothing raises. Mirrors Kafka Connect's ServiceLoaderScanner, ReflectionScanner and PluginUtils.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from connectx.model.decoding import WrongShape
from connectx.plugins.java import index
from connectx.plugins.java.contents import Contents, opened
from connectx.plugins.java.hierarchy import Hierarchy
from connectx.plugins.java.kafka_classes import KAFKA_CLASSES, KINDS
from connectx.plugins.java.locations import files_of, locations
from connectx.plugins.java.lock import change_of
from connectx.plugins.java.manifests import services, version_of
from connectx.plugins.java.plugin import SERVICES, Found, JavaPlugin, PluginKind, Refusal
from connectx.plugins.versions import newest_first
from connectx.version import KAFKA_VERSION

SERVICE_LOAD: Final = "service_load"
ONLY_SCAN: Final = "only_scan"

_KAFKAS: Final = re.compile(
    r"org\.apache\.kafka\.(?:connect\.(?:transforms|json|file|mirror|mirror-client|converters|connector\.policy)\..*"
    r"|connect\.storage\.(?:String|SimpleHeader)Converter"
    r"|connect\.rest\.basic\.auth\.extension\.BasicAuthSecurityRestExtension"
    r"|common\.config\.provider\..*)"
)
"""Classes of Kafka that a plugin may bring; Connect loads all others from its own jars (PluginUtils)."""


def find(plugin_path: Iterable[Path | str], discovery: str = "hybrid_warn") -> Found:
    """Find the plugins in the folders of a plugin path.

    Args:
        plugin_path: folders with a folder or a jar per plugin.
        discovery: a value of `plugin.discovery`: `service_load` reads no class files but those of plugins,
            `only_scan` no manifests.
    """
    plugins: list[JavaPlugin] = []
    refusals: list[Refusal] = []
    used: list[Path] = []
    for location in locations(plugin_path, refusals.append):
        found = find_in(location, discovery)
        refusals += found.refusals
        plugins += found.plugins
        used += found.locations
    ordered = newest_first(plugins, lambda plugin: plugin.version or "")
    ordered = sorted(ordered, key=lambda plugin: (plugin.class_name, plugin.kind))
    return Found(tuple(ordered), tuple(refusals), tuple(used))


def find_in(location: Path, discovery: str = "hybrid_warn") -> Found:
    """Find the plugins of one folder or jar."""
    if change := change_of(location):
        return Found(refusals=(Refusal(location, f"{change}; remove it and install it again"),))
    refusals: list[Refusal] = []
    files = files_of(location, refusals.append)
    mode = discovery if discovery in (SERVICE_LOAD, ONLY_SCAN) else "hybrid"
    print_of_files = index.fingerprint(location, files, mode)
    found = index.read(location, print_of_files)
    if found is None:
        found = _searched(location, files, mode)
        index.write(location, print_of_files, found)
    return Found(found.plugins, (*refusals, *found.refusals), found.locations)


def _searched(location: Path, files: list[Path], mode: str) -> Found:
    refusals: list[Refusal] = []
    with ExitStack() as stack:
        units: list[Contents] = []
        for file in files:
            try:
                units.append(stack.enter_context(opened(file)))
            except WrongShape as error:
                refusals.append(Refusal(file, str(error)))
        search = _Search(location, units, refusals)
        if mode != ONLY_SCAN:
            search.manifests()
        if mode != SERVICE_LOAD:
            search.scan()
    plugins = tuple(search.plugins.values())
    return Found(plugins, tuple(refusals), (location,) if plugins else ())


class _Search:
    """One search of a location."""

    def __init__(self, location: Path, units: list[Contents], refusals: list[Refusal]) -> None:
        self.location = location
        self.units = units
        self.refusals = refusals
        self.plugins: dict[tuple[str, PluginKind], JavaPlugin] = {}
        self.classes = Hierarchy(units)
        self._versions: dict[Path, str | None] = {}

    def manifests(self) -> None:
        """Take what service manifests name."""
        for unit in self.units:
            for kind, service in SERVICES.items():
                for name in services(unit, service):
                    if isinstance(name, WrongShape):
                        self._refuse(unit.path, str(name))
                    elif _is_isolated(name):
                        self._take_named(unit, name, kind)

    def _take_named(self, unit: Contents, name: str, kind: PluginKind) -> None:
        internal = name.replace(".", "/")
        what = f"its service manifest names {name}"
        if internal not in self.classes.where:
            self._refuse(unit.path, f"{what}, a class that is not there")
            return
        try:
            makeable = self.classes.class_file(internal).makeable
        except WrongShape as error:
            self._refuse(unit.path, f"{what}, whose class file is unreadable: {error}")
            return
        if not makeable:
            self._refuse(
                unit.path, f"{what}, which is not public, is abstract, or has no constructor without arguments"
            )
            return
        kinds = self._kinds(internal)
        if kind in kinds or self.classes.outside(internal):
            self._add(internal, kind, in_manifest=True)
        else:
            self._refuse(unit.path, f"{what} as {kind}, from whose class it does not derive")

    def scan(self) -> None:
        """Take all classes that derive from a class of Kafka that makes a plugin."""
        for internal in self.classes.candidates():
            if self.classes.class_file(internal).makeable and _is_isolated(internal.replace("/", ".")):
                for kind in self._kinds(internal):
                    self._add(internal, kind, in_manifest=False)

    def _kinds(self, internal: str) -> list[PluginKind]:
        bases = self.classes.bases(internal)
        return [kind for base, kind in KINDS.items() if base in bases]

    def _add(self, internal: str, kind: PluginKind, *, in_manifest: bool) -> None:
        name = internal.replace("/", ".")
        if (name, kind) in self.plugins:
            return
        self.plugins[name, kind] = JavaPlugin(name, kind, self._version(internal), self.location, in_manifest)
        if internal in self.classes.twice:
            first, second = self.classes.twice[internal]
            self._refuse(second.path, f"its class {name} is in {first.path.name}, too, which Java takes")

    def _version(self, internal: str) -> str | None:
        """That of its jar, if it has a version at all: one that derives from a class of Kafka inherits Kafka's."""
        if not self.classes.declares_version(internal):
            return KAFKA_VERSION if not self.classes.bases(internal).isdisjoint(KAFKA_CLASSES) else None
        unit = self.classes.where[internal]
        if unit.path not in self._versions:
            self._versions[unit.path] = version_of(unit)
        return self._versions[unit.path]

    def _refuse(self, path: Path, reason: str) -> None:
        refusal = Refusal(path, reason)
        if refusal not in self.refusals:
            self.refusals.append(refusal)


def _is_isolated(name: str) -> bool:
    return not name.startswith(("org.apache.kafka.", "java.", "javax.")) or _KAFKAS.fullmatch(name) is not None


def duplicates(plugins: Iterable[JavaPlugin]) -> Iterator[tuple[JavaPlugin, JavaPlugin]]:
    """Plugins of one class and kind in several locations: the one that is used without a version, and the other."""
    first: dict[tuple[str, PluginKind], JavaPlugin] = {}
    for plugin in plugins:
        used = first.setdefault((plugin.class_name, plugin.kind), plugin)
        if used is not plugin:
            yield used, plugin
