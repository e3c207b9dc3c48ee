"""Keys of a distributed worker, with their types, defaults and limits.

Mirrors the definitions in Kafka Connect's DistributedConfig, WorkerConfig and RestServerConfig (version 4.3). Every
`ssl.` and `sasl.` key of Kafka's clients is allowed besides, as text.
"""

from __future__ import annotations

import re
from typing import Any, Final

from connectx.model.configdef import ConfigDef, Validator
from connectx.model.validators import addresses, at_least, between, one_of

_MAX_INT: Final = 2**31 - 1
STORAGES: Final = ("config", "offset", "status")
"""Prefixes of the internal topics' keys."""

HMAC_ALGORITHMS: Final = ("HmacMD5", "HmacSHA1", "HmacSHA224", "HmacSHA256", "HmacSHA384", "HmacSHA512")
"""Algorithms for session keys and signatures, with Java's names; all are in Python's hashlib."""


def _known_algorithm(value: Any) -> str | None:
    names = value if isinstance(value, list) else [value]
    if not names:
        return "At least one signature verification algorithm must be provided"
    if all(name in HMAC_ALGORITHMS for name in names):
        return None
    return f"the algorithm is not supported by this worker; the supported algorithms are: {list(HMAC_ALGORITHMS)}"


def _protocol(value: Any) -> str | None:
    known = value is not None and value.lower() in ("eager", "compatible", "sessioned")
    return None if known else "Invalid Connect protocol compatibility"


def _broker_count(what: str) -> Validator:
    return Validator(
        lambda value: None if value == -1 or (value or 0) > 0 else f"{what}, or -1 to use the broker's default",
        "Positive number, or -1 to use the broker's default",
    )


PARTITIONS: Final = _broker_count("Number of partitions must be positive")
REPLICATION_FACTOR: Final = _broker_count(
    "Replication factor must be positive and not larger than the number of brokers in the Kafka cluster"
)


def _urls(value: Any) -> str | None:
    if value is not None and not value:
        return "at least one URL is expected, ex: http://localhost:8080,https://localhost:8443."
    return _admin_urls(value)


def _admin_urls(value: Any) -> str | None:
    bad = [url for url in value or () if not re.fullmatch(r"https?://[^/:]*:[0-9]+/?", url, re.IGNORECASE)]
    return f"a listener must look like http://localhost:8080, and {bad[0]!r} does not." if bad else None


def _group_keys(definition: ConfigDef) -> ConfigDef:
    """Keys of the group, its protocol and the signing of internal requests (KIP-415, KIP-507, KIP-618)."""
    hmac = Validator(_known_algorithm, f"one of {list(HMAC_ALGORITHMS)}")
    return (
        definition.define("group.id", importance="HIGH")
        .define("session.timeout.ms", int, 10_000, importance="HIGH")
        .define("heartbeat.interval.ms", int, 3_000, importance="HIGH")
        .define("rebalance.timeout.ms", int, 60_000, importance="HIGH")
        .define(
            "exactly.once.source.support",
            str,
            "disabled",
            importance="HIGH",
            validator=one_of("DISABLED", "ENABLED", "PREPARING", ignore_case=True),
        )
        .define("transactional.id", str, None, importance="LOW")  # KIP-618's own way to name the leader's producer
        .define(
            "connect.protocol",
            str,
            "sessioned",
            importance="LOW",
            validator=Validator(_protocol, "[eager, compatible, sessioned]"),
        )
        .define("scheduled.rebalance.max.delay.ms", int, 300_000, importance="LOW", validator=between(0, _MAX_INT))
        .define("worker.sync.timeout.ms", int, 3_000)
        .define("worker.unsync.backoff.ms", int, 300_000)
        .define("inter.worker.key.ttl.ms", int, 3_600_000, importance="LOW", validator=between(0, _MAX_INT))
        .define("inter.worker.key.generation.algorithm", str, "HmacSHA256", importance="LOW", validator=hmac)
        .define("inter.worker.key.size", int, None, importance="LOW")
        .define("inter.worker.signature.algorithm", str, "HmacSHA256", importance="LOW", validator=hmac)
        .define("inter.worker.verification.algorithms", list, ["HmacSHA256"], importance="LOW", validator=hmac)
    )


def _storage_keys(definition: ConfigDef) -> ConfigDef:
    """Keys of the three internal topics."""
    for storage, partitions in zip(STORAGES, (None, 25, 5), strict=True):
        definition.define(f"{storage}.storage.topic", importance="HIGH")
        definition.define(
            f"{storage}.storage.replication.factor", "SHORT", 3, importance="LOW", validator=REPLICATION_FACTOR
        )
        if partitions is not None:
            definition.define(f"{storage}.storage.partitions", int, partitions, importance="LOW", validator=PARTITIONS)
    return definition


def _runtime_keys(definition: ConfigDef) -> ConfigDef:
    """Keys of converters, plugins, commits and topics."""
    modes = ("ONLY_SCAN", "SERVICE_LOAD", "HYBRID_WARN", "HYBRID_FAIL")
    for side in ("key", "value"):
        definition.define(f"{side}.converter", "CLASS", importance="HIGH")
        definition.define(f"{side}.converter.plugin.version", str, None, importance="LOW")
    return (
        definition.define(
            "header.converter", "CLASS", "org.apache.kafka.connect.storage.SimpleHeaderConverter", importance="LOW"
        )
        .define("header.converter.plugin.version", str, None, importance="LOW")
        .define("task.shutdown.graceful.timeout.ms", "LONG", 5_000, importance="LOW")
        .define("offset.flush.interval.ms", "LONG", 60_000, importance="LOW")
        .define("offset.flush.timeout.ms", "LONG", 5_000, importance="LOW")
        .define("plugin.path", list, None, importance="LOW")
        .define("plugin.discovery", str, "hybrid_warn", importance="LOW", validator=one_of(*modes, ignore_case=True))
        .define("config.providers", list, [], importance="LOW")
        .define("connector.client.config.override.policy", str, "All")
        .define("connector.client.config.override.allowlist", list, [])
        .define("topic.creation.enable", bool, True, importance="LOW")
        .define("topic.tracking.enable", bool, True, importance="LOW")
        .define("topic.tracking.allow.reset", bool, True, importance="LOW")
    )


def _rest_keys(definition: ConfigDef) -> ConfigDef:
    """Keys of the REST server (RestServerConfig)."""
    text = "List of comma-separated URLs, ex: http://localhost:8080,https://localhost:8443."
    return (
        definition.define("listeners", list, ["http://:8083"], importance="LOW", validator=Validator(_urls, text))
        .define("admin.listeners", list, None, importance="LOW", validator=Validator(_admin_urls, text))
        .define("rest.advertised.host.name", str, None, importance="LOW")
        .define("rest.advertised.port", int, None, importance="LOW")
        .define("rest.advertised.listener", str, None, importance="LOW")
        .define("rest.extension.classes", list, [], importance="LOW")
        .define("access.control.allow.origin", str, "", importance="LOW")
        .define("access.control.allow.methods", str, "", importance="LOW")
        .define("response.http.headers.config", str, "", importance="LOW")
        # connectx's own: Kafka Connect leaves logins to REST extensions, and has no limits.
        .define("rest.auth.basic.file", str, None, importance="LOW")
        .define("rest.auth.bearer.file", str, None, importance="LOW")
        .define("rest.request.max.bytes", int, 16 * 1024 * 1024, importance="LOW", validator=at_least(1))
        .define("rest.max.concurrent.requests", int, 256, importance="LOW", validator=at_least(1))
    )


def _client_keys(definition: ConfigDef) -> ConfigDef:
    """Keys of the worker's own Kafka clients and of metrics."""
    protocols = ("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT")
    lookups = ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
    not_negative = at_least(0)
    definition.define("bootstrap.servers", list, importance="HIGH", validator=addresses())
    for name, config_type, default, validator in (
        ("client.dns.lookup", "STRING", "use_all_dns_ips", one_of(*lookups)),
        ("client.id", "STRING", "", None),
        ("security.protocol", "STRING", "PLAINTEXT", one_of(*protocols, ignore_case=True)),
        ("metadata.max.age.ms", "LONG", 300_000, not_negative),
        ("metadata.recovery.strategy", "STRING", "rebootstrap", one_of("REBOOTSTRAP", "NONE", ignore_case=True)),
        ("metadata.recovery.rebootstrap.trigger.ms", "LONG", 300_000, not_negative),
        ("connections.max.idle.ms", "LONG", 540_000, None),
        ("request.timeout.ms", "INT", 40_000, not_negative),
        ("retry.backoff.ms", "LONG", 100, not_negative),
        ("retry.backoff.max.ms", "LONG", 1_000, not_negative),
        ("reconnect.backoff.ms", "LONG", 50, not_negative),
        ("reconnect.backoff.max.ms", "LONG", 1_000, not_negative),
        ("socket.connection.setup.timeout.ms", "LONG", 10_000, not_negative),
        ("socket.connection.setup.timeout.max.ms", "LONG", 30_000, not_negative),
        ("send.buffer.bytes", "INT", 131_072, at_least(-1)),
        ("receive.buffer.bytes", "INT", 32_768, at_least(-1)),
        ("metric.reporters", "LIST", ["org.apache.kafka.common.metrics.JmxReporter"], None),
        ("metrics.num.samples", "INT", 2, at_least(1)),
        ("metrics.recording.level", "STRING", "INFO", one_of("INFO", "DEBUG")),
        ("metrics.sample.window.ms", "LONG", 30_000, not_negative),
    ):
        definition.define(name, config_type, default, importance="LOW", validator=validator)
    return definition


WORKER_CONFIG: Final = _client_keys(_rest_keys(_runtime_keys(_storage_keys(_group_keys(ConfigDef())))))
"""Every key of a distributed worker; all `ssl.` and `sasl.` client keys are allowed besides."""
