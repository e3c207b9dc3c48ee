"""Keys of a distributed worker, each declared once: name, type, default, limits and description.

Mirrors the definitions in Kafka Connect's DistributedConfig, WorkerConfig and RestServerConfig (version 4.3). Every
`ssl.` and `sasl.` key of Kafka's clients is also allowed, as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar, overload

from connectx.model.configdef import REQUIRED, ConfigDef, ConfigKey, Validator
from connectx.model.group import ProtocolVersion
from connectx.model.header_rules import HEADER_RULES, HeaderRule, header_rules
from connectx.model.states import ExactlyOnceSupport
from connectx.model.validators import addresses, at_least, between, is_port, one_of

T = TypeVar("T")

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
    for url in value or ():
        match = re.fullmatch(r"https?://[^/:]*:([0-9]+)/?", url, re.IGNORECASE)
        if match is None:
            return f"a listener must look like http://localhost:8080, and {url!r} does not."
        if not is_port(match[1]):
            return f"the port of {url!r} is above 65535."
    return None


_PROTOCOLS: Final[Mapping[str, tuple[ProtocolVersion, ...]]] = {
    "eager": (ProtocolVersion.EAGER,),
    "compatible": (ProtocolVersion.COMPATIBLE, ProtocolVersion.EAGER),
    "sessioned": (ProtocolVersion.SESSIONED, ProtocolVersion.COMPATIBLE, ProtocolVersion.EAGER),
}
"""Protocols that a member offers, by preference (Kafka Connect: ConnectProtocolCompatibility)."""

_HMAC: Final = Validator(_known_algorithm, f"one of {list(HMAC_ALGORITHMS)}")
_URL_LIST: Final = "List of comma-separated URLs, ex: http://localhost:8080,https://localhost:8443."
_NOT_NEGATIVE: Final = at_least(0)


class WorkerKey(Generic[T]):
    """One key of a worker: read from the class it is the declaration, read from a configuration its typed value.

    The name of the attribute, with dots, is the key as users write it.

    Args:
        type, default, validator: as in `ConfigDef.define`.
        doc: what it sets, in one sentence.
        importance: Kafka Connect's.
        read: makes the value that code uses out of the parsed one.
    """

    def __init__(
        self,
        type: type | str = str,  # noqa: A002
        default: Any = REQUIRED,
        *,
        doc: str,
        importance: str = "LOW",
        validator: Validator | None = None,
        read: Callable[[Any], T] = lambda value: value,
    ) -> None:
        self._define = partial(
            ConfigDef().define, type=type, default=default, doc=doc, importance=importance, validator=validator
        )
        self._read = read

    def __set_name__(self, owner: type[WorkerKeys], attribute: str) -> None:
        self.name = attribute.replace("_", ".")
        self.definition: ConfigKey = self._define(self.name).keys[self.name]

    @property
    def default(self) -> T:
        """The value without a setting; the key must have one."""
        assert not self.definition.required
        return self._read(self.definition.default)

    def parse(self, settings: Mapping[str, Any]) -> T:
        """Return the value that `settings` give this key, or its default.

        Raises:
            ConfigError: the value does not fit, or the key is required and has none.
        """
        return self._read(ConfigDef.of([self.definition]).parse(settings)[self.name])

    @overload
    def __get__(self, config: None, owner: type[WorkerKeys]) -> Self: ...

    @overload
    def __get__(self, config: WorkerKeys, owner: type[WorkerKeys]) -> T: ...

    def __get__(self, config: WorkerKeys | None, owner: type[WorkerKeys]) -> Self | T:
        return self if config is None else self._read(config.values[self.name])


def _texts(value: list[str]) -> tuple[str, ...]:
    return tuple(value)


class WorkerKeys:
    """All keys of a distributed worker. Attributes are named after the keys; times are milliseconds.

    Attributes:
        values: parsed values by key.
    """

    __slots__ = ()

    values: Mapping[str, Any]

    # The group, its protocol and the signing of internal requests (KIP-415, KIP-507, KIP-618).

    group_id = WorkerKey[str](importance="HIGH", doc="Name of the worker group; one per cluster.")
    session_timeout_ms = WorkerKey[int](
        int,
        10_000,
        importance="HIGH",
        doc="The coordinator removes a worker from the group that has sent no heartbeat for this long.",
    )
    heartbeat_interval_ms = WorkerKey[int](
        int,
        3_000,
        importance="HIGH",
        doc="Time between two heartbeats of a worker; below session.timeout.ms, usually a third of it.",
    )
    rebalance_timeout_ms = WorkerKey[int](
        int,
        60_000,
        importance="HIGH",
        doc="How long each worker may take to join once a rebalance has begun, before it is removed.",
    )
    exactly_once_source_support = WorkerKey[ExactlyOnceSupport](
        str,
        "disabled",
        importance="HIGH",
        validator=one_of("DISABLED", "ENABLED", "PREPARING", ignore_case=True),
        read=lambda value: ExactlyOnceSupport(value.lower()),
        doc="Whether source tasks write records and offsets in transactions (KIP-618).",
    )
    transactional_id = WorkerKey[str | None](
        str,
        None,
        doc="Transactional id of the leader's producer for the config topic (KIP-618); by default made of group.id.",
    )
    connect_protocol = WorkerKey[tuple[ProtocolVersion, ...]](
        str,
        "sessioned",
        validator=Validator(_protocol, "[eager, compatible, sessioned]"),
        read=lambda value: _PROTOCOLS[value.lower()],
        doc="Newest rebalance protocol that the worker offers; the group uses one that all members offer.",
    )
    scheduled_rebalance_max_delay_ms = WorkerKey[int](
        int,
        300_000,
        validator=between(0, _MAX_INT),
        doc="How long the leader waits for a lost worker to return before it moves that worker's work (KIP-415).",
    )
    worker_sync_timeout_ms = WorkerKey[int](
        int,
        3_000,
        importance="MEDIUM",
        doc="How long a worker with an outdated configuration reads the config topic before it leaves the group.",
    )
    worker_unsync_backoff_ms = WorkerKey[int](
        int,
        300_000,
        importance="MEDIUM",
        doc="How long a worker that could not catch up stays out of the group.",
    )
    inter_worker_key_ttl_ms = WorkerKey[int](
        int,
        3_600_000,
        validator=between(0, _MAX_INT),
        doc="Lifetime of the session key that signs requests between workers; 0 is unlimited.",
    )
    inter_worker_key_generation_algorithm = WorkerKey[str](
        str,
        "HmacSHA256",
        validator=_HMAC,
        doc="Algorithm for which session keys are generated.",
    )
    inter_worker_key_size = WorkerKey[int | None](
        int, None, doc="Size of session keys in bits; by default the algorithm's."
    )
    inter_worker_signature_algorithm = WorkerKey[str](
        str,
        "HmacSHA256",
        validator=_HMAC,
        doc="Algorithm that signs requests between workers.",
    )
    inter_worker_verification_algorithms = WorkerKey[tuple[str, ...]](
        list,
        ["HmacSHA256"],
        validator=_HMAC,
        read=_texts,
        doc="Algorithms accepted for signatures of requests between workers.",
    )

    # The three internal topics. `config.storage.partitions` does not exist: the config topic has one partition.

    config_storage_topic = WorkerKey[str](importance="HIGH", doc="Topic of connector and task configurations.")
    config_storage_replication_factor = WorkerKey[int](
        "SHORT",
        3,
        validator=REPLICATION_FACTOR,
        doc="Replication factor of the config topic when a worker creates it.",
    )
    offset_storage_topic = WorkerKey[str](importance="HIGH", doc="Topic of source offsets.")
    offset_storage_replication_factor = WorkerKey[int](
        "SHORT",
        3,
        validator=REPLICATION_FACTOR,
        doc="Replication factor of the offsets topic when a worker creates it.",
    )
    offset_storage_partitions = WorkerKey[int](
        int,
        25,
        validator=PARTITIONS,
        doc="Partitions of the offsets topic when a worker creates it.",
    )
    status_storage_topic = WorkerKey[str](importance="HIGH", doc="Topic of connector and task statuses.")
    status_storage_replication_factor = WorkerKey[int](
        "SHORT",
        3,
        validator=REPLICATION_FACTOR,
        doc="Replication factor of the status topic when a worker creates it.",
    )
    status_storage_partitions = WorkerKey[int](
        int,
        5,
        validator=PARTITIONS,
        doc="Partitions of the status topic when a worker creates it.",
    )

    # Converters, plugins, commits and topics.

    key_converter = WorkerKey[str](
        "CLASS", importance="HIGH", doc="Converter of record keys where a connector sets none."
    )
    key_converter_plugin_version = WorkerKey[str | None](str, None, doc="Version of the key converter.")
    value_converter = WorkerKey[str](
        "CLASS", importance="HIGH", doc="Converter of record values where a connector sets none."
    )
    value_converter_plugin_version = WorkerKey[str | None](str, None, doc="Version of the value converter.")
    header_converter = WorkerKey[str](
        "CLASS",
        "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        doc="Converter of record headers where a connector sets none.",
    )
    header_converter_plugin_version = WorkerKey[str | None](str, None, doc="Version of the header converter.")
    task_shutdown_graceful_timeout_ms = WorkerKey[int](
        "LONG",
        5_000,
        doc="How long a task may take to stop before it is cancelled.",
    )
    offset_flush_interval_ms = WorkerKey[int]("LONG", 60_000, doc="Time between two commits of a task's offsets.")
    offset_flush_timeout_ms = WorkerKey[int](
        "LONG",
        5_000,
        doc="How long a commit of offsets may take before it is abandoned; the next commit tries again.",
    )
    plugin_path = WorkerKey[tuple[str, ...] | None](
        list, None, doc="Folders with a folder or a jar per Java plugin; those of connectx plugins without it."
    )
    plugin_discovery = WorkerKey[str](
        str,
        "hybrid_warn",
        validator=one_of("ONLY_SCAN", "SERVICE_LOAD", "HYBRID_WARN", "HYBRID_FAIL", ignore_case=True),
        doc="How Java plugins are found: by service manifests, by a scan of their class files, or by both.",
    )
    config_providers = WorkerKey[tuple[str, ...]](
        list, [], read=_texts, doc="Names of the providers that resolve placeholders in settings."
    )
    connector_client_config_override_policy = WorkerKey[str](
        str,
        "All",
        importance="MEDIUM",
        doc="Which client settings a connector may override: All, None, Principal or Allowlist.",
    )
    connector_client_config_override_allowlist = WorkerKey[tuple[str, ...]](
        list,
        [],
        importance="MEDIUM",
        read=_texts,
        doc="Client settings that a connector may override with the policy Allowlist.",
    )
    topic_creation_enable = WorkerKey[bool](
        bool, True, doc="Whether source connectors may have their topics created (KIP-158)."
    )
    topic_tracking_enable = WorkerKey[bool](
        bool, True, doc="Whether the topics that connectors use are recorded (KIP-558)."
    )
    topic_tracking_allow_reset = WorkerKey[bool](
        bool, True, doc="Whether users may reset the recorded topics (KIP-558)."
    )

    recording_max_bytes = WorkerKey[int](
        int,
        1024 * 1024,
        validator=at_least(0),
        doc="Size of the latest steps of the worker's core that are kept for `cluster.record`; 0 keeps none.",
    )

    # A default for connectors, connectx's own: Kafka Connect has a default for each connector alone.

    errors_deadletterqueue_topic_replication_factor = WorkerKey[int](
        "SHORT",
        3,
        validator=REPLICATION_FACTOR,
        doc="Replication factor of dead letter queues whose sinks do not set one.",
    )

    # The REST server (RestServerConfig). Logins and limits are connectx's own: Kafka Connect has extensions for them.

    listeners = WorkerKey[tuple[str, ...]](
        list,
        ["http://:8083"],
        validator=Validator(_urls, _URL_LIST),
        read=_texts,
        doc="URLs at which REST listens.",
    )
    admin_listeners = WorkerKey[tuple[str, ...] | None](
        list,
        None,
        validator=Validator(_admin_urls, _URL_LIST),
        read=lambda value: None if value is None else tuple(value),
        doc="URLs at which /admin is served; by default those of listeners, empty: nowhere.",
    )
    rest_advertised_host_name = WorkerKey[str | None](
        str, None, doc="Host that other workers and statuses use for this one."
    )
    rest_advertised_port = WorkerKey[int | None](
        int, None, doc="Port that other workers and statuses use for this one."
    )
    rest_advertised_listener = WorkerKey[str | None](str, None, doc="Which listener other workers use: http or https.")
    rest_extension_classes = WorkerKey[tuple[str, ...]](
        list,
        [],
        read=_texts,
        doc="Java classes; no effect: a worker has no Java.",
    )
    access_control_allow_origin = WorkerKey[str](str, "", doc="Origins that may call REST from a browser (CORS).")
    access_control_allow_methods = WorkerKey[str](
        str, "", doc="HTTP methods that such origins may use, separated by commas."
    )
    response_http_headers_config = WorkerKey[tuple[HeaderRule, ...]](
        str,
        "",
        validator=HEADER_RULES,
        read=header_rules,
        doc="Headers to add to or set in every REST response.",
    )
    rest_auth_basic_file = WorkerKey[str | None](str, None, doc="File of users and passwords that REST asks for.")
    rest_auth_bearer_file = WorkerKey[str | None](str, None, doc="File of bearer tokens that REST asks for.")
    rest_request_max_bytes = WorkerKey[int](
        int, 16 * 1024 * 1024, validator=at_least(1), doc="Largest REST request body."
    )
    rest_max_concurrent_requests = WorkerKey[int](
        int, 256, validator=at_least(1), doc="REST requests served at a time."
    )

    # The worker's own Kafka clients, and metrics.

    bootstrap_servers = WorkerKey[str](
        list,
        importance="HIGH",
        validator=addresses(),
        read=",".join,
        doc="host:port of some brokers, separated by commas.",
    )
    client_dns_lookup = WorkerKey[str](
        str,
        "use_all_dns_ips",
        validator=one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        doc="How clients resolve the names of brokers.",
    )
    client_id = WorkerKey[str](str, "", doc="Prefix of client ids, shown in the brokers' logs.")
    security_protocol = WorkerKey[str](
        str,
        "PLAINTEXT",
        validator=one_of("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", ignore_case=True),
        doc="How clients connect to brokers.",
    )
    metadata_max_age_ms = WorkerKey[int](
        "LONG", 300_000, validator=_NOT_NEGATIVE, doc="Age at which metadata is read again."
    )
    metadata_recovery_strategy = WorkerKey[str](
        str,
        "rebootstrap",
        validator=one_of("REBOOTSTRAP", "NONE", ignore_case=True),
        doc="What clients do when no known broker answers.",
    )
    metadata_recovery_rebootstrap_trigger_ms = WorkerKey[int](
        "LONG",
        300_000,
        validator=_NOT_NEGATIVE,
        doc="How long metadata may be missing before clients start again from bootstrap.servers.",
    )
    connections_max_idle_ms = WorkerKey[int]("LONG", 540_000, doc="Time after which clients close an idle connection.")
    request_timeout_ms = WorkerKey[int](
        int, 40_000, validator=_NOT_NEGATIVE, doc="How long clients wait for a broker's response."
    )
    retry_backoff_ms = WorkerKey[int](
        "LONG", 100, validator=_NOT_NEGATIVE, doc="First pause before a failed request is retried."
    )
    retry_backoff_max_ms = WorkerKey[int](
        "LONG", 1_000, validator=_NOT_NEGATIVE, doc="Longest such pause; it doubles each time."
    )
    reconnect_backoff_ms = WorkerKey[int](
        "LONG", 50, validator=_NOT_NEGATIVE, doc="First pause before a client reconnects."
    )
    reconnect_backoff_max_ms = WorkerKey[int](
        "LONG",
        1_000,
        validator=_NOT_NEGATIVE,
        doc="Longest such pause; it doubles each time.",
    )
    socket_connection_setup_timeout_ms = WorkerKey[int](
        "LONG",
        10_000,
        validator=_NOT_NEGATIVE,
        doc="How long a client waits at first for a connection to open.",
    )
    socket_connection_setup_timeout_max_ms = WorkerKey[int](
        "LONG",
        30_000,
        validator=_NOT_NEGATIVE,
        doc="Longest such wait; it doubles with each failure.",
    )
    send_buffer_bytes = WorkerKey[int](int, 131_072, validator=at_least(-1), doc="TCP send buffer; -1 is the system's.")
    receive_buffer_bytes = WorkerKey[int](
        int, 32_768, validator=at_least(-1), doc="TCP receive buffer; -1 is the system's."
    )
    metric_reporters = WorkerKey[tuple[str, ...]](
        list,
        ["org.apache.kafka.common.metrics.JmxReporter"],
        read=_texts,
        doc="Java classes; no effect: a worker has no Java.",
    )
    metrics_num_samples = WorkerKey[int](int, 2, validator=at_least(1), doc="Samples kept for a metric.")
    metrics_recording_level = WorkerKey[str](
        str, "INFO", validator=one_of("INFO", "DEBUG"), doc="Highest level of metrics kept."
    )
    metrics_sample_window_ms = WorkerKey[int]("LONG", 30_000, validator=_NOT_NEGATIVE, doc="Window of one sample.")


WORKER_CONFIG: Final = ConfigDef.of(key.definition for key in vars(WorkerKeys).values() if isinstance(key, WorkerKey))
"""Every key of a distributed worker; all `ssl.` and `sasl.` client keys are also allowed."""
