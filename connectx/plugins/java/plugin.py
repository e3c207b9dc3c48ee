"""Java plugins as the finder reports them, and what it refused."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

from connectx.values import Value


class PluginKind(StrEnum):
    """Kinds of plugins, with the words of `GET /connector-plugins` (Kafka Connect: PluginType)."""

    SOURCE = "source"
    SINK = "sink"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"
    CONFIG_PROVIDER = "configprovider"
    REST_EXTENSION = "rest_extension"
    OVERRIDE_POLICY = "connector_client_config_override_policy"

    @property
    def is_connector(self) -> bool:
        """Whether it is a source or sink connector."""
        return self in (PluginKind.SOURCE, PluginKind.SINK)


SERVICES: Final = {
    PluginKind.SOURCE: "org.apache.kafka.connect.source.SourceConnector",
    PluginKind.SINK: "org.apache.kafka.connect.sink.SinkConnector",
    PluginKind.CONVERTER: "org.apache.kafka.connect.storage.Converter",
    PluginKind.HEADER_CONVERTER: "org.apache.kafka.connect.storage.HeaderConverter",
    PluginKind.TRANSFORMATION: "org.apache.kafka.connect.transforms.Transformation",
    PluginKind.PREDICATE: "org.apache.kafka.connect.transforms.predicates.Predicate",
    PluginKind.CONFIG_PROVIDER: "org.apache.kafka.common.config.provider.ConfigProvider",
    PluginKind.REST_EXTENSION: "org.apache.kafka.connect.rest.ConnectRestExtension",
    PluginKind.OVERRIDE_POLICY: "org.apache.kafka.connect.connector.policy.ConnectorClientConfigOverridePolicy",
}
"""Class or interface of each kind: a service manifest has its name, and plugins derive from it."""


class JavaPlugin(Value):
    """A Java class on the plugin path.

    Attributes:
        class_name: full name, with `$` before a nested class.
        kind: what it is. A class of two kinds is two plugins.
        version: of its jar (`pom.properties` or `Implementation-Version`), None if the jar names none. Kafka Connect
            asks an instance, which needs a JVM; the two differ if an author lets them.
        location: the plugin's folder, or its jar, as Kafka Connect's plugin isolation sees it.
        in_manifest: whether a service manifest names it; otherwise the scan of class files has found it.
    """

    class_name: str
    kind: PluginKind
    version: str | None
    location: Path
    in_manifest: bool = True


class Refusal(Value):
    """A folder, jar, manifest or class that is skipped; `reason` is a clause without a full stop."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{shown(self.path)} is skipped: {self.reason}"


class Found(Value):
    """What a plugin path has.

    Attributes:
        plugins: all of them, sorted by class name and kind, with the newest version first.
        refusals: what was skipped, in the order of the path.
        locations: folders and jars that have a plugin and were not refused.
    """

    plugins: tuple[JavaPlugin, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    locations: tuple[Path, ...] = ()

    @property
    def all_in_manifests(self) -> bool:
        """Whether a JVM finds all of them with `plugin.discovery=service_load`, which is the fast way."""
        return all(plugin.in_manifest for plugin in self.plugins)


def shown(path: Path) -> str:
    """A path as text that can be printed and sent: bytes that are not UTF-8 are replaced."""
    return str(path).encode(errors="surrogateescape").decode(errors="replace")
