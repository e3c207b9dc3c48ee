"""The Java plugins that one worker knows, and classes that represent its Java connectors to the rest of connectx."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from connectx.errors.plugins import ConfigError, JavaPluginError
from connectx.model.configdef import ConfigDef, invalid_value
from connectx.plugins.connectors import Connector, SinkConnector, SourceConnector
from connectx.plugins.description import PluginDescription
from connectx.plugins.java.finder import duplicates, find
from connectx.plugins.java.plugin import Found, JavaPlugin, PluginKind, shown

_log = logging.getLogger(__name__)

_BASES: Final[Mapping[PluginKind, type[Connector]]] = {
    PluginKind.SOURCE: SourceConnector,
    PluginKind.SINK: SinkConnector,
}
_LISTED: Final = (
    PluginKind.CONVERTER,
    PluginKind.HEADER_CONVERTER,
    PluginKind.TRANSFORMATION,
    PluginKind.PREDICATE,
)
"""Kinds that `GET /connector-plugins?connectorsOnly=false` of Kafka Connect lists besides connectors."""


class JavaCatalog:
    """Java plugins by class name. Never changes after it was made; any thread may ask.

    Attributes:
        found: what the plugin path has.
    """

    def __init__(self, found: Found | None = None) -> None:
        self.found = found or Found()
        self._by_name: dict[str, list[JavaPlugin]] = {}
        for plugin in self.found.plugins:
            self._by_name.setdefault(plugin.class_name, []).append(plugin)
        self._classes = {name: _stand_in(one) for name in self._by_name if (one := self.connector(name)) is not None}

    @classmethod
    def of(cls, plugin_path: Iterable[Path | str], discovery: str) -> JavaCatalog:
        """Find the plugins of a path, and log what is skipped.

        Raises:
            ConfigError: `discovery` is hybrid_fail, and a plugin has no service manifest.
        """
        mode = discovery.lower()
        catalog = cls(find(plugin_path, mode))
        for refusal in catalog.found.refusals:
            _log.warning("plugin.path: %s", refusal)
        for used, other in duplicates(catalog.found.plugins):
            versions = f"{used.version or 'undefined'} is used by default"
            if used.version == other.version:
                versions = f"that in {shown(used.location)} is used"
            _log.warning("plugin.path: %s is also in %s; %s", used.class_name, shown(other.location), versions)
        lacking = sorted({plugin.class_name for plugin in catalog.found.plugins if not plugin.in_manifest})
        if lacking and mode == "hybrid_fail":
            problem = f"These plugins have no service manifest: {', '.join(lacking)}"
            raise ConfigError([invalid_value("plugin.discovery", discovery, problem)])
        if lacking and mode == "hybrid_warn":
            _log.warning(
                "plugin.path: found by a scan of class files, without service manifests: %s. Install newer versions, "
                "or run Kafka's connect-plugin-path sync-manifests, so that they load faster.",
                ", ".join(lacking),
            )
        return catalog

    def runs(self, config: Mapping[str, Any]) -> bool:
        """Whether the connector of a configuration is written in Java."""
        return self.connector(config.get("connector.class")) is not None

    def connector(self, name: str | None) -> JavaPlugin | None:
        """The connector of this full Java class name in its newest version, if the path has it."""
        return next((one for one in self.versions(name) if one.kind in _BASES), None)

    def names(self) -> list[str]:
        """Names of the connectors."""
        return list(self._classes)

    def versions(self, name: str | None) -> list[JavaPlugin]:
        """All plugins of a class, the newest version first."""
        return self._by_name.get((name or "").strip(), [])

    def connector_class(self, name: str) -> type[Connector] | None:
        """The class that represents a Java connector: its type, version and Java name, and nothing that runs."""
        return self._classes.get(name.strip())

    def describe(self, *, connectors_only: bool) -> list[PluginDescription]:
        """Plugins as lists show them: each version once, the newest last, as in Kafka Connect."""
        kinds = (*_BASES, *(() if connectors_only else _LISTED))
        described = [
            PluginDescription(self._classes.get(one.class_name, JavaPlugin), one.class_name, one.kind, one.version)
            for one in reversed(self.found.plugins)
            if one.kind in kinds
        ]
        return list(dict.fromkeys(described))


class _JavaClass:
    """Base of classes that represent Java connectors."""

    @classmethod
    def check_requirements(cls) -> None:
        """Refuse to run it in Python."""
        raise JavaPluginError(vars(cls)["java_class"])


def _stand_in(plugin: JavaPlugin) -> type[Connector]:
    package, _, simple = plugin.class_name.rpartition(".")
    content: dict[str, Any] = {
        "__module__": package,
        "__doc__": f"Represents the Java connector {plugin.class_name}.",
        "java_class": plugin.class_name,
        "version": plugin.version,
        "config": ConfigDef(),
    }
    return type(simple, (_JavaClass, _BASES[plugin.kind]), content)
