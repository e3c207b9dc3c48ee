"""Classes of Kafka that make plugins, and that plugins may derive from: they are not in a plugin's own jars.

Names are internal ones, with slashes. tests/peer/test_java_plugins.py compares them with Kafka's jars.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from connectx.plugins.java.plugin import SERVICES, PluginKind

_PREFIX: Final = "org/apache/kafka/"
_BY_KIND: Final = {
    (PluginKind.CONFIG_PROVIDER,): (
        "common/config/provider/",
        "DirectoryConfigProvider EnvVarConfigProvider FileConfigProvider",
    ),
    (PluginKind.OVERRIDE_POLICY,): (
        "connect/connector/policy/",
        "AbstractConnectorClientConfigOverridePolicy AllConnectorClientConfigOverridePolicy "
        "AllowlistConnectorClientConfigOverridePolicy NoneConnectorClientConfigOverridePolicy "
        "PrincipalConnectorClientConfigOverridePolicy",
    ),
    (PluginKind.CONVERTER, PluginKind.HEADER_CONVERTER): (
        "connect/",
        "converters/BooleanConverter converters/ByteArrayConverter converters/DoubleConverter "
        "converters/FloatConverter converters/IntegerConverter converters/LongConverter "
        "converters/NumberConverter converters/ShortConverter "
        "json/JsonConverter storage/StringConverter",
    ),
    (PluginKind.HEADER_CONVERTER,): ("connect/storage/", "SimpleHeaderConverter"),
    (PluginKind.SINK,): ("connect/file/", "FileStreamSinkConnector"),
    (PluginKind.SOURCE,): (
        "connect/",
        "file/FileStreamSourceConnector mirror/MirrorCheckpointConnector mirror/MirrorHeartbeatConnector "
        "mirror/MirrorSourceConnector",
    ),
    (PluginKind.TRANSFORMATION,): (
        "connect/transforms/",
        "Cast DropHeaders ExtractField ExtractField$Key ExtractField$Value Filter Flatten Flatten$Key Flatten$Value "
        "HeaderFrom HeaderFrom$Key HeaderFrom$Value HoistField HoistField$Key HoistField$Value InsertField "
        "InsertField$Key InsertField$Value InsertHeader MaskField RegexRouter ReplaceField ReplaceField$Key "
        "ReplaceField$Value SetSchemaMetadata SetSchemaMetadata$Key SetSchemaMetadata$Value TimestampConverter "
        "TimestampConverter$Key TimestampConverter$Value TimestampRouter ValueToKey",
    ),
    (PluginKind.PREDICATE,): ("connect/transforms/predicates/", "HasHeaderKey RecordIsTombstone TopicNameMatches"),
}

KINDS: Final[Mapping[str, PluginKind]] = {service.replace(".", "/"): kind for kind, service in SERVICES.items()}
"""The class or interface of each kind."""

_OF_KIND: Final = {kind: name for name, kind in KINDS.items()}

KAFKA_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    f"{_PREFIX}{folder}{name}": tuple(_OF_KIND[kind] for kind in kinds)
    for kinds, (folder, names) in _BY_KIND.items()
    for name in names.split()
}
"""Classes that implement them, which all have Kafka's version, unless they leave it to those that derive from them."""
