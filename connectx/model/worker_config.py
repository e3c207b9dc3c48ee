"""Configuration of a worker: every key of Kafka Connect's distributed mode, typed.

Decides what the settings of one worker are and what the notebook profile adds to them. It never connects to anything
and never reads a file. Mirrors Kafka Connect's DistributedConfig, WorkerConfig and RestServerConfig (version 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from connectx.errors.plugins import ConfigError
from connectx.model.configdef import invalid_value
from connectx.model.spelling import misspelled
from connectx.model.states import ExactlyOnceSupport
from connectx.model.worker_keys import STORAGES, WORKER_CONFIG, WorkerKeys
from connectx.values import Value
from connectx.views import Form, Shown, masked

SPARK: Final = "spark."
"""Prefix of settings of the Spark that a worker starts for its tasks."""

_PREFIXES: Final = (
    "producer.",
    "consumer.",
    "admin.",
    "config.storage.",
    "offset.storage.",
    "status.storage.",
    "config.providers.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "listeners.https.",
    "admin.listeners.https.",
    "metrics.context.",
    "ssl.",
    "sasl.",
    "auto.include.jmx.",
    SPARK,
)

_SESSION_KEY_BITS: Final = 256

_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "rest.extension.classes": "there is no Java in a worker",
    "metric.reporters": "there is no Java in a worker",
}


class StorageTopic(Value, Shown):
    """One internal topic. -1 for `partitions` or `replication_factor` is the broker's default.

    `settings` are further topic settings of the user; `cleanup.policy` is always `compact` and not among them.
    """

    name: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, repr=False)
class WorkerConfig(WorkerKeys):
    """Settings of one worker: the values of all `WorkerKeys`, and where they come from.

    Attributes:
        originals: what was given, as text, with values in the place of placeholders.
        given: what was given, as text; what is shown, and handed to other processes.
        values: typed value of every key of WORKER_CONFIG.
        warnings: what was given and has no effect, one sentence each.
    """

    originals: Mapping[str, str]
    given: Mapping[str, str]
    values: Mapping[str, Any]
    warnings: tuple[str, ...]

    @classmethod
    def parse(
        cls, config: Mapping[str, Any], resolve: Callable[[Mapping[str, str]], Mapping[str, str]] | None = None
    ) -> WorkerConfig:
        """Settings from text (or typed) values by key; unknown keys stay in `originals` and give a warning.

        Args:
            config: values by key.
            resolve: puts values in the place of placeholders; without it they stay.

        Raises:
            ConfigError: with all problems, in Kafka's words.
        """
        given = {name: as_text(value) for name, value in config.items() if value is not None}
        originals = dict(resolve(given)) if resolve is not None else given
        values = WORKER_CONFIG.parse(originals)
        problems = _contradictions(values)
        if problems:
            raise ConfigError(problems)
        return cls(originals, given, values, _warnings(originals))

    @property
    def config_topic(self) -> StorageTopic:
        """The config topic, which always has one partition."""
        return self._storage_topic("config", self.config_storage_topic, 1, self.config_storage_replication_factor)

    @property
    def offset_topic(self) -> StorageTopic:
        """Where source offsets are, by `offset.storage.*`."""
        partitions, replication_factor = self.offset_storage_partitions, self.offset_storage_replication_factor
        return self._storage_topic("offset", self.offset_storage_topic, partitions, replication_factor)

    @property
    def status_topic(self) -> StorageTopic:
        """Where states are, by `status.storage.*`."""
        partitions, replication_factor = self.status_storage_partitions, self.status_storage_replication_factor
        return self._storage_topic("status", self.status_storage_topic, partitions, replication_factor)

    def _storage_topic(self, storage: str, name: str, partitions: int, replication_factor: int) -> StorageTopic:
        own = ("topic", "partitions", "replication.factor", "cleanup.policy")
        given = self.prefixed(f"{storage}.storage.")
        settings = {key: value for key, value in given.items() if key not in own}
        return StorageTopic(name, partitions, replication_factor, settings)

    @property
    def exactly_once_source_enabled(self) -> bool:
        """True when source tasks write in transactions."""
        return self.exactly_once_source_support is ExactlyOnceSupport.ENABLED

    @property
    def config_transactional_id(self) -> str:
        """Transactional id of the leader's producer for the config topic: Kafka Connect's, unless one is given."""
        return self.transactional_id or f"connect-cluster-{self.group_id}"

    @property
    def inter_worker_key_bytes(self) -> int:
        return (self.inter_worker_key_size or _SESSION_KEY_BITS) // 8

    def task_transactional_id(self, connector: str, task: int) -> str:
        """Transactional id of an exactly-once source task's producer."""
        return f"{self.group_id}-{connector}-{task}"

    def connected_to(self, bootstrap_servers: str) -> WorkerConfig:
        """Return these settings with the address that a broker has got; nothing else is read again."""
        name = WorkerKeys.bootstrap_servers.name
        given = {name: bootstrap_servers}
        return replace(
            self,
            originals={**self.originals, **given},
            given={**self.given, **given},
            values={**self.values, name: bootstrap_servers.split(",")},
        )

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Given settings that start with `prefix`, without it: `prefixed("producer.")`."""
        return with_prefix(self.originals, prefix)

    @property
    def spark_settings(self) -> dict[str, str]:
        """Given settings of Spark, with their whole keys."""
        return {name: value for name, value in self.originals.items() if name.startswith(SPARK)}

    def __deepcopy__(self, memo: dict[int, Any]) -> WorkerConfig:
        return self  # nothing changes in it

    def _repr_html_(self) -> str:
        return Form("WorkerConfig", masked(self.given), (), [(f"warning: {text}", text) for text in self.warnings]).html

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in masked(self.given).items())
        return f"WorkerConfig({shown})"


def with_prefix(config: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Settings whose key starts with `prefix`, without it."""
    return {name[len(prefix) :]: value for name, value in config.items() if name.startswith(prefix) and name != prefix}


def as_text(value: Any) -> str:
    """A typed setting as it is written in a properties file."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _contradictions(values: Mapping[str, Any]) -> list[str]:
    problems = []
    signature = WorkerKeys.inter_worker_signature_algorithm.name
    verification = WorkerKeys.inter_worker_verification_algorithms.name
    if values[signature] not in values[verification]:
        reason = f"Signature algorithm must be present in {verification} list"
        problems.append(invalid_value(signature, values[signature], reason))
    heartbeat, session = WorkerKeys.heartbeat_interval_ms.name, WorkerKeys.session_timeout_ms.name
    if values[heartbeat] >= values[session]:
        reason = f"Heartbeat must be set lower than the session timeout ({session})"
        problems.append(invalid_value(heartbeat, values[heartbeat], reason))
    return problems


def _warnings(originals: Mapping[str, str]) -> tuple[str, ...]:
    found, alike = [], dict(misspelled(originals, WORKER_CONFIG.keys))
    for name in sorted(originals):
        if name in ("internal.key.converter", "internal.value.converter", "rest.host.name", "rest.port"):
            found.append(f"{name} was removed from Kafka Connect and has no effect.")
        elif name == "config.storage.partitions":
            found.append("config.storage.partitions has no effect: the config topic always has one partition.")
        elif name in [f"{storage}.storage.cleanup.policy" for storage in STORAGES]:
            found.append(f"{name} has no effect: internal topics are always compacted.")
        elif name == "transactional.id":
            found.append(
                "transactional.id names the leader's producer (KIP-618): give it to every worker of the group, and do "
                "not change it while one runs; Kafka Connect's own workers always use connect-cluster-<group.id>."
            )
        elif name in _WITHOUT_EFFECT:
            found.append(f"{name} has no effect: {_WITHOUT_EFFECT[name]}.")
        elif name not in WORKER_CONFIG and not name.startswith(_PREFIXES):
            meant = f" Did you mean {alike[name]}?" if name in alike else ""
            found.append(f"{name} is not a key of a Kafka Connect worker and has no effect.{meant}")
    return tuple(found)


_EMBEDDED: Final = (
    ("group.id", "connectx", "a group needs a name"),
    ("session.timeout.ms", "3000", "a dead worker is noticed while one watches"),
    ("heartbeat.interval.ms", "500", "several heartbeats fit into the short session"),
    ("scheduled.rebalance.max.delay.ms", "3000", "work of a lost worker moves while one watches"),
    ("consumer.session.timeout.ms", "3000", "sink partitions move as fast as tasks do"),
    ("consumer.heartbeat.interval.ms", "300", "several heartbeats fit into the short session"),
    ("exactly.once.source.support", "enabled", "zombies are fenced and rows arrive once"),
    ("offset.flush.interval.ms", "5000", "commits can be seen without a long wait"),
    ("key.converter", "org.apache.kafka.connect.storage.StringConverter", "keys are readable text"),
    ("value.converter", "org.apache.kafka.connect.json.JsonConverter", "rows become JSON objects"),
    ("value.converter.schemas.enable", "false", "plain JSON, without Connect's schema around each value"),
    ("config.storage.replication.factor", "1", "the embedded Kafka has one broker"),
    ("offset.storage.replication.factor", "1", "the embedded Kafka has one broker"),
    ("status.storage.replication.factor", "1", "the embedded Kafka has one broker"),
    ("errors.deadletterqueue.topic.replication.factor", "1", "the embedded Kafka has one broker"),
    ("offset.storage.partitions", "5", "fewer partitions start faster"),
    ("listeners", "http://127.0.0.1:0", "REST stays on this machine, on a free port"),
)

EMBEDDED_PROFILE: Final[Mapping[str, str]] = {name: value for name, value, _ in _EMBEDDED}
"""What the embedded cluster sets where the user does not."""

EMBEDDED_REASONS: Final[Mapping[str, str]] = {name: reason for name, _, reason in _EMBEDDED}
"""Why, by key."""


NO_DELAY: Final[Mapping[str, str]] = {WorkerKeys.scheduled_rebalance_max_delay_ms.name: "0"}
"""What fast failover sets where the user does not: a worker that is dead for certain does not come back."""


def embedded_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` over EMBEDDED_PROFILE, with the internal topics named after the group (`<group.id>-configs`, ...).

    Kafka is on this machine, on a port that it chooses; see `WorkerConfig.connected_to`.
    """
    return _with_topics({WorkerKeys.bootstrap_servers.name: "127.0.0.1:0", **EMBEDDED_PROFILE, **config})


def own_kafka_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` over values for the keys that Kafka Connect requires; everything else keeps Connect's default.

    REST stays on this machine, on a free port for each worker.
    """
    required = ("group.id", "key.converter", "value.converter", "value.converter.schemas.enable", "listeners")
    return _with_topics({**{name: EMBEDDED_PROFILE[name] for name in required}, **config})


def _with_topics(config: dict[str, Any]) -> dict[str, Any]:
    topics = {f"{storage}.storage.topic": f"{config['group.id']}-{plural}" for storage, plural in _TOPIC_NAMES.items()}
    return topics | config


_TOPIC_NAMES: Final = {"config": "configs", "offset": "offsets", "status": "statuses"}
