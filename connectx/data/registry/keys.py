"""Keys that all converters with a schema registry have, spelled as Confluent's converters spell them."""

from __future__ import annotations

from typing import Any, Final

from connectx.data.converter import CONVERTER_CONFIG
from connectx.errors.plugins import ConfigError
from connectx.model.configdef import REQUIRED, ConfigDef, ConfigType
from connectx.model.validators import one_of

_STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_PACKAGE: Final = "io.confluent.kafka.serializers.subject."
_ALLOWED: Final = (*_STRATEGIES, *(f"{_PACKAGE}{name}" for name in _STRATEGIES))
_ID_IN_HEADER: Final = ("key.schema.id.serializer", "value.schema.id.serializer")
_PREFIX_ID: Final = "PrefixSchemaIdSerializer"

REGISTRY_CONFIG: Final = (
    ConfigDef(CONVERTER_CONFIG)
    .group("Schema registry")
    .define(
        "schema.registry.url",
        list,
        REQUIRED,
        doc="URLs of the schema registry, separated by commas; they are tried in this order.",
        importance="HIGH",
    )
    .define(
        "auto.register.schemas",
        bool,
        True,
        doc="Whether the schema of what is written is registered. Otherwise it must be registered already.",
    )
    .define(
        "use.latest.version",
        bool,
        False,
        doc="With auto.register.schemas=false: write with the latest schema of the subject.",
        importance="LOW",
    )
    .define("normalize.schemas", bool, False, doc="Whether the registry compares schemas in their normal form.")
    .define(
        "ignore.default.for.nullables",
        bool,
        False,
        doc="Whether null stays null in fields that have a default. Otherwise the default is written.",
    )
    .define(
        "key.subject.name.strategy",
        str,
        f"{_PACKAGE}TopicNameStrategy",
        doc="Subject of keys: TopicNameStrategy, RecordNameStrategy or TopicRecordNameStrategy.",
        validator=one_of(*_ALLOWED),
    )
    .define(
        "value.subject.name.strategy",
        str,
        f"{_PACKAGE}TopicNameStrategy",
        doc="Subject of values: TopicNameStrategy, RecordNameStrategy or TopicRecordNameStrategy.",
        validator=one_of(*_ALLOWED),
    )
    .define("schemas.cache.config", int, 1000, doc="How many schemas are kept.", importance="LOW")
    .define(
        "basic.auth.credentials.source",
        str,
        "URL",
        doc="Where the login is: URL, in schema.registry.url, or USER_INFO, in basic.auth.user.info.",
        validator=one_of("URL", "USER_INFO"),
    )
    .define(
        "basic.auth.user.info",
        ConfigType.PASSWORD,
        None,
        doc="Login as user:password, with basic.auth.credentials.source=USER_INFO.",
    )
    .group("TLS of the schema registry")
    .define(
        "schema.registry.ssl.truststore.location",
        str,
        None,
        doc="PEM file with the certificates of authorities that are trusted.",
    )
    .define(
        "schema.registry.ssl.truststore.type",
        str,
        "PEM",
        doc="Only PEM is supported.",
        importance="LOW",
        validator=one_of("PEM", ignore_case=True),
    )
    .define(
        "schema.registry.ssl.keystore.location", str, None, doc="PEM file with the client's certificate and its key."
    )
    .define(
        "schema.registry.ssl.keystore.type",
        str,
        "PEM",
        doc="Only PEM is supported.",
        importance="LOW",
        validator=one_of("PEM", ignore_case=True),
    )
    .define("schema.registry.ssl.key.password", ConfigType.PASSWORD, None, doc="Password of the client's key.")
)


def check_supported(settings: Any) -> None:
    """Refuse what Confluent's converters know and this one does not.

    Raises:
        ConfigError: schema ids in record headers.
    """
    for key in _ID_IN_HEADER:
        if _PREFIX_ID not in settings.get(key, _PREFIX_ID):
            raise ConfigError(
                [f"{key}={settings[key]} is not supported: schema ids are written before the value, not in a header."]
            )


def strategy_of(settings: Any, *, is_key: bool) -> str:
    """Simple name of the strategy that gives subjects their names."""
    name = settings["key.subject.name.strategy" if is_key else "value.subject.name.strategy"]
    return str(name).removeprefix(_PACKAGE)


def subject_of(strategy: str, topic: str, record: str, *, is_key: bool) -> str:
    """Subject of a schema. `record` is the full name of the schema's record, which two strategies need."""
    if strategy == "RecordNameStrategy":
        return record
    if strategy == "TopicRecordNameStrategy":
        return f"{topic}-{record}"
    return f"{topic}-{'key' if is_key else 'value'}"
