"""Settings of every Kafka client of a worker, by role.

Decides the layers of settings, which ones are forced, and the client ids. It never creates a client. Mirrors the
configuration parts of Kafka Connect's Worker, KafkaBasedLog users and ConnectUtils; the order of layers is that of
`Worker.baseProducerConfigs`, `baseConsumerConfigs` and `adminConfigs`.

Two things differ from Kafka Connect, both for convenience: the worker's own security settings are the lowest layer of
its producers and consumers too (there they have to be repeated under `producer.` and `consumer.`), and sink consumers
read committed records unless configured otherwise (librdkafka's default; Java's is read_uncommitted).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from connectx.kafka.settings.client_config import ClientConfig, kafka_python_config
from connectx.kafka.settings.client_keys import SECURITY_PREFIXES, Layer, to_librdkafka
from connectx.kafka.settings.librdkafka_log import LibrdkafkaLog
from connectx.kafka.settings.producer_options import OWN_KEYS
from connectx.model.ids import TaskId
from connectx.model.worker_config import WorkerConfig, with_prefix
from connectx.recording.recorder import Recorder

_log = logging.getLogger(__name__)

ConnectorConfig = Mapping[str, str | None]

_FOREVER: Final = str(2**31 - 1)
# Settings of the worker itself that are about connections; the rest of its keys are not for clients.
_CONNECTION_KEYS: Final = (
    "client.dns.lookup",
    "connections.max.idle.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "send.buffer.bytes",
    "receive.buffer.bytes",
    "metadata.max.age.ms",
)
_CONNECTION_PREFIXES: Final = (*SECURITY_PREFIXES, "socket.", "broker.address.")
# Readers of whole topics, assigned manually and never members of a group.
_READER: Final[Mapping[str, str]] = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "earliest",
    "enable.partition.eof": "true",
    "allow.auto.create.topics": "false",
    "queued.min.messages": "20000",
    "queued.max.messages.kbytes": "4096",
    "fetch.queue.backoff.ms": "10",
    "fetch.error.backoff.ms": "100",
}


class ClientConfigs:
    """Builds client settings for one worker.

    Args:
        worker: the worker's settings.
        client_prefix: the worker's name, without a slash. Client ids begin with it and a slash, by which the fault gate
            recognises a worker.
        bootstrap_override: bootstrap servers instead of the worker's own (the gate's address).
        process_token: part of the client ids of sink consumers, after the first slash, to distinguish members of their
            groups from those of any other process.
        recorder: keeps the latest steps of the cores of the worker's tasks and clients; None: they are not kept.

    Every method raises ClientSettingError for a setting that no client takes.
    """

    def __init__(
        self,
        worker: WorkerConfig,
        client_prefix: str,
        bootstrap_override: str | None = None,
        process_token: str = "",
        recorder: Recorder | None = None,
    ) -> None:
        if "/" in client_prefix:
            raise ValueError(f"a slash ends the prefix of a client id, so {client_prefix!r} cannot be one")
        self.worker = worker
        self.recorder = recorder or Recorder(0, None)
        self.bootstrap_servers = bootstrap_override or worker.bootstrap_servers
        self._prefix = client_prefix
        self._member_prefix = member_prefix(client_prefix, process_token)
        self._warned: set[str] = set()
        client_id = worker.originals.get("client.id", "")
        self._base = f"{worker.group_id}-{client_id}-" if client_id else f"{worker.group_id}-"

    def __repr__(self) -> str:
        return f"ClientConfigs({self._prefix!r}, bootstrap_servers={self.bootstrap_servers!r})"

    def source_task_producer(self, task: TaskId, connector_config: ConnectorConfig, exactly_once: bool) -> ClientConfig:
        """Producer of a source task; with `exactly_once` transactional, under `<group.id>-<connector>-<task>`."""
        config = self._task_producer(f"connector-producer-{task}", connector_config, exactly_once)
        if exactly_once:
            transactional_id = self.worker.task_transactional_id(task.connector, task.task)
            self._force(config, "enable.idempotence", "true", f"exactly-once source task {task}")
            self._force(config, "transactional.id", transactional_id, f"exactly-once source task {task}")
        return config

    def dead_letter_producer(self, task: TaskId, connector_config: ConnectorConfig) -> ClientConfig:
        """Producer of a sink task's dead letter queue."""
        return self._task_producer(f"connector-dlq-producer-{task}", connector_config, exactly_once=False)

    def sink_consumer(self, task: TaskId, connector_config: ConnectorConfig) -> ClientConfig:
        """Consumer of a sink task: group `connect-<connector>`, manual commits, from the earliest offset."""
        built_in = {
            "group.id": f"connect-{task.connector}",
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "partition.assignment.strategy": "range",
            "allow.auto.create.topics": "false",
            "queued.max.messages.kbytes": "16384",
            "fetch.queue.backoff.ms": "10",
            "fetch.error.backoff.ms": "100",
            "client.id": f"connector-consumer-{task}",
        }
        config = self._config(built_in, *self._consumer_layers(connector_config))
        self._force(config, "enable.auto.commit", "false", f"sink task {task}")
        config["client.id"] = config["client.id"].replace(f"{self._prefix}/", self._member_prefix, 1)
        return config

    def offsets_consumer(self, task: TaskId, connector_config: ConnectorConfig, exactly_once: bool) -> ClientConfig:
        """Consumer of a connector's own offsets topic; with `exactly_once` it reads only what is committed."""
        built_in = {
            **_READER,
            "group.id": f"connect-{task.connector}",
            "isolation.level": "read_committed",
            "client.id": f"connector-consumer-{task}",
        }
        config = self._config(built_in, *self._consumer_layers(connector_config))
        for key in ("enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset", "enable.partition.eof"):
            self._force(config, key, _READER[key], f"the offsets of connector {task.connector}")
        if exactly_once:
            who = f"the offsets of exactly-once connector {task.connector}"
            self._force(config, "isolation.level", "read_committed", who)
        return config

    def admin(
        self,
        connector: str | None = None,
        connector_config: ConnectorConfig | None = None,
        client_id: str | None = None,
    ) -> ClientConfig:
        """Admin client of a connector, or the worker's own.

        `client_id` is Connect's, `connector-adminclient-<connector>` if not given.
        """
        default = f"{self._base}shared-admin" if connector is None else f"connector-adminclient-{connector}"
        return self._config({"client.id": client_id or default}, *self._admin_layers(connector_config or {}))

    def internal_consumer(self) -> ClientConfig:
        """Consumer of the config, status and offsets topics; assigned manually, never a member of a group."""
        built_in = {
            **_READER,
            "group.id": self.worker.group_id,
            "isolation.level": self.worker.originals.get("isolation.level", "read_uncommitted"),
            "client.id": f"{self._base}configs",
        }
        config = self._config(built_in, self._connection_layer())
        if self.worker.exactly_once_source_enabled:
            given = self.worker.originals.get("isolation.level")
            if given is not None and given != "read_committed":
                self._warn_forced("isolation.level", given, "read_committed", "the worker's internal topics")
            config["isolation.level"] = "read_committed"
        return config

    def config_producer(self) -> ClientConfig:
        """Ordinary producer for the config topic; an operation has 30 s."""
        return self._internal_producer(f"{self._base}configs", 30_000)

    def status_producer(self) -> ClientConfig:
        """Producer for the status topic. Its timeout is short, because the writer decides whether to retry."""
        return self._internal_producer(f"{self._base}statuses", 5_000)

    def offsets_producer(self) -> ClientConfig:
        """The worker's own producer for its offsets topic: copies of those in separate topics."""
        return self._internal_producer(f"{self._base}offsets", 30_000)

    def leader_producer(self) -> ClientConfig:
        """The leader's transactional producer for the config topic."""
        config = self._internal_producer(f"{self._base}configs-leader", 30_000)
        config["max.in.flight.requests.per.connection"] = "5"
        config["enable.idempotence"] = "true"
        config["transactional.id"] = self.worker.config_transactional_id
        config["transaction.timeout.ms"] = "60000"
        return config

    def kafka_python(
        self, client_id: str, connector: str | None = None, connector_config: ConnectorConfig | None = None
    ) -> ClientConfig:
        """Keyword arguments of a kafka-python client with the settings of `admin`."""
        return kafka_python_config(
            self.admin(connector, connector_config, client_id),
            request_timeout_ms=self.worker.request_timeout_ms,
            connections_max_idle_ms=self.worker.connections_max_idle_ms,
            metadata_max_age_ms=self.worker.metadata_max_age_ms,
        )

    def _connection_layer(self) -> Layer:
        """The worker's own settings that are about connections, with where to connect."""
        originals = self.worker.originals
        own: dict[str, str | None] = {key: originals[key] for key in _CONNECTION_KEYS if key in originals}
        own |= {key: value for key, value in originals.items() if key.startswith(_CONNECTION_PREFIXES)}
        own["bootstrap.servers"] = self.bootstrap_servers
        return Layer("", own)

    def _producer_layers(self, connector_config: ConnectorConfig) -> tuple[Layer, ...]:
        return self._prefixed_layers("producer.", connector_config)

    def _consumer_layers(self, connector_config: ConnectorConfig) -> tuple[Layer, ...]:
        return self._prefixed_layers("consumer.", connector_config)

    def _admin_layers(self, connector_config: ConnectorConfig) -> tuple[Layer, ...]:
        return self._prefixed_layers("admin.", connector_config)

    def _prefixed_layers(self, prefix: str, connector_config: ConnectorConfig) -> tuple[Layer, ...]:
        override = f"{prefix}override."
        return (
            self._connection_layer(),
            Layer(prefix, self.worker.prefixed(prefix)),
            Layer(override, with_prefix(connector_config, override)),
        )

    def _task_producer(self, client_id: str, connector_config: ConnectorConfig, exactly_once: bool) -> ClientConfig:
        built_in = {
            "acks": "all",
            # With idempotence five keep the order too, and one would halve the speed.
            "max.in.flight.requests.per.connection": "5" if exactly_once else "1",
            "enable.idempotence": str(exactly_once).lower(),
            "partitioner": "murmur2_random",  # Java's: the same key goes to the same partition
            "client.id": client_id,
        }
        if not exactly_once:
            built_in["message.timeout.ms"] = _FOREVER
        return self._config(built_in, *self._producer_layers(connector_config), own_keys=OWN_KEYS)

    def _internal_producer(self, client_id: str, message_timeout_ms: int) -> ClientConfig:
        built_in = {
            "acks": "all",
            "max.in.flight.requests.per.connection": "1",
            "enable.idempotence": "false",
            "message.timeout.ms": str(message_timeout_ms),
            "linger.ms": "0",
            "queue.buffering.max.kbytes": "16384",
            "partitioner": "murmur2_random",
            "client.id": client_id,
        }
        return self._config(built_in, self._connection_layer())

    def _config(
        self, built_in: Mapping[str, str], *layers: Layer, own_keys: frozenset[str] = frozenset()
    ) -> ClientConfig:
        common = {
            "reconnect.backoff.ms": "50",
            "reconnect.backoff.max.ms": "1000",
            "socket.nagle.disable": "true",
            "log.connection.close": "false",
            "enable.metrics.push": "false",
        }
        translated = to_librdkafka([Layer("", {**common, **built_in}), *layers], self._warn_once, own_keys)
        if not any(layer.settings.get("client.id") for layer in layers[1:]):
            translated["client.id"] = built_in["client.id"]
        translated["client.id"] = f"{self._prefix}/{translated['client.id']}"
        return ClientConfig(translated, logger=LibrdkafkaLog())

    def _force(self, config: ClientConfig, key: str, value: str, who: str) -> None:
        given = str(config.get(key, value))
        same = given == value if key == "transactional.id" else given.lower() == value.lower()
        if not same:
            self._warn_forced(key, given, value, who)
        config[key] = value

    def _warn_forced(self, key: str, given: str, used: str, who: str) -> None:
        self._warn_once(f"{key}={given} is not used for {who}: it is always {used}.")

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            _log.warning(sentence)


def member_prefix(worker: str, process_token: str) -> str:
    """What client ids of a worker's sink consumers begin with."""
    return f"{worker}/{process_token}/" if process_token else f"{worker}/"
