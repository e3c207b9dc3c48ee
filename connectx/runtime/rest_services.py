"""Services of a worker for REST beside its core: plugins, validation, and offsets in Kafka.

The core decides when offsets may be changed (ModifyOffsets). Mirrors
the parts of Kafka Connect's Worker and AbstractHerder that serve GET, PATCH and DELETE of offsets (KIP-875).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from connectx.core.replies import Expanded
from connectx.errors.base import ConnectxError
from connectx.errors.plugins import ConfigError, ConfigProviderError, PluginNotFoundError
from connectx.errors.rest import RestError
from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.topics import delete_group_offsets, describe_group
from connectx.kafka.internal.offset_topics import OwnOffsets, offsets_topic
from connectx.kafka.internal.offset_writer import Offsets, write_source_offsets
from connectx.kafka.internal.topics import InternalTopics
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.clock import Clock
from connectx.model.configdef import ConfigInfos, ConfigKeyInfo
from connectx.model.events import Transition
from connectx.model.ids import TaskId, TopicPartition
from connectx.model.payloads import OffsetsAltered
from connectx.model.placeholders import has_placeholder
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.model.states import ConnectorType
from connectx.model.worker_config import WorkerConfig
from connectx.plugins.config_providers import ConfigProviders
from connectx.plugins.connectors import SourceConnector
from connectx.plugins.description import PluginDescription
from connectx.plugins.registry import Plugins
from connectx.plugins.validation import validate_connector
from connectx.rest.bodies import CommittedOffset, NewOffset, Plugin, Root, bad_request
from connectx.rest.loggers import WorkerLoggers
from connectx.rest.services import API_VERSION
from connectx.rest.stages import Stage
from connectx.runtime.metrics import WorkerMetrics
from connectx.runtime.tasks.java.jvm import WorkerJvm

_LEAVE_S = 5.0
_LOOK_S = 0.1
_LATE_HEARTBEATS = 3
"""Heartbeat intervals without an answer after which the group is out of touch."""


class RestServices:
    def __init__(
        self,
        config: WorkerConfig,
        clients: ClientConfigs,
        plugins: Plugins,
        topics: InternalTopics,
        view: Callable[[], Mapping[str, Any]],
        record: Callable[[Transition], object],
        providers: ConfigProviders,
        metrics: WorkerMetrics,
        loggers: WorkerLoggers,
        jvm: WorkerJvm,
        *,
        stage: Callable[[], Stage],
        heartbeat_ms: Callable[[], int | None],
        clock: Clock,
    ) -> None:
        self._jvm = jvm
        self._stage = stage
        self._heartbeat_ms = heartbeat_ms
        self._clock = clock
        self._metrics = metrics
        self.loggers = loggers
        self._providers = providers
        self.masked = providers.masked
        self._config = config
        self._clients = clients
        self._plugins = plugins
        self._topics = topics
        self._view = view
        self._record = record
        self._admin = Admin(clients.admin())

    def close(self) -> None:
        """Let Kafka go: the worker has ended."""
        self._admin.close()

    def ready(self) -> bool:
        """True once the worker has joined the group for the first time."""
        return self._view().get("generation") is not None

    def in_touch(self) -> bool:
        """True in a settled group that has answered a heartbeat lately, or none was due yet."""
        if self._view().get("state") == "joining":
            return False
        answered_ms, interval_ms = self._heartbeat_ms(), self._config.heartbeat_interval_ms
        return answered_ms is None or self._clock() - answered_ms <= _LATE_HEARTBEATS * interval_ms

    def stage(self) -> Stage:
        return self._stage()

    def root(self) -> Root:
        """Version, commit and id of the Kafka cluster, which is known once Kafka has answered, and then without it."""
        cluster_id = self._topics.kafka_cluster_id or self._admin.cluster_id()
        return {"version": API_VERSION, "commit": "connectx", "kafka_cluster_id": cluster_id}

    def metrics(self, connectors: Mapping[str, Expanded]) -> bytes:
        """What was counted, in Prometheus's text format."""
        return self._metrics.exposition(connectors)

    def plugins(self, connectors_only: bool) -> list[Plugin]:
        described = self._plugins.describe(connectors_only=connectors_only)
        return [_plugin(plugin) for plugin in described]

    def plugin_config(self, plugin: str) -> list[ConfigKeyInfo]:
        if self._plugins.java.connector(plugin) is not None:
            keys: list[ConfigKeyInfo] = self._jvm.ask("PluginConfig", plugin=plugin)
            return keys
        try:
            definition = self._plugins.config_of(plugin)
        except PluginNotFoundError as error:
            raise RestError(error.message, status=404, next_step=error.next_step) from error
        except ConnectxError as error:
            raise RestError(error.message, status=400, next_step=error.next_step) from error
        return [key.to_json() for key in definition.keys.values()]

    def validate(self, config: Mapping[str, str | None]) -> ConfigInfos:
        """Every key with its errors. Placeholders are resolved, and shown as they were given."""
        try:
            resolved = self._providers.resolve(config)
            if self._plugins.java.runs(config):
                found: ConfigInfos = self._jvm.ask("Validate", config=resolved)
            else:
                found = validate_connector(self._plugins, resolved, self._config)
        except (ConfigError, ConfigProviderError, PluginNotFoundError) as error:
            raise RestError(str(error), status=400) from error
        for info in found["configs"]:
            value = info["value"]
            value["errors"] = [self.masked(problem) for problem in value["errors"]]
            given = config.get(value["name"])
            if given is not None and has_placeholder(given):
                value["value"] = given
        return found

    def read_offsets(
        self, connector: str, kind: ConnectorType, config: Mapping[str, str | None]
    ) -> list[CommittedOffset]:
        """Committed offsets of a source's partitions, or of a sink's consumer group."""
        config = self._providers.resolve(config)
        if kind is ConnectorType.SOURCE:
            known = self._source_offsets(connector, config)
            return [{"partition": partition, "offset": offset} for partition, offset in known]
        group = self._sink_group(connector, config)
        return [
            {
                "partition": {"kafka_topic": where.topic, "kafka_partition": where.partition},
                "offset": {"kafka_offset": offset},
            }
            for where, offset in self._admin.group_offsets(group).items()
        ]

    def alter_offsets(
        self, connector: str, kind: ConnectorType, config: Mapping[str, str | None], offsets: Sequence[NewOffset]
    ) -> str:
        """Set offsets; a null offset resets that partition."""
        config = self._providers.resolve(config)
        altered = tuple({"partition": one.partition, "offset": one.offset} for one in offsets)
        if self._plugins.java.runs(config):
            return self._modified_by_java(connector, config, altered)
        if kind is ConnectorType.SOURCE:
            pairs = [(one.partition, one.offset) for one in offsets]
            self._check_offsets(config, pairs)
            write_source_offsets(self._clients, self._config, connector, config, pairs)
        else:
            wanted = {_kafka_partition(one.partition): _kafka_offset(one.offset) for one in offsets}
            group = self._group_without_members(connector, config, "alter")
            kept = {where: offset for where, offset in wanted.items() if offset is not None}
            if kept:
                self._admin.alter_group_offsets(group, kept)
            dropped = [where for where in wanted if where not in kept]
            if dropped:
                delete_group_offsets(self._clients, group, dropped)
        self._record(Transition(OffsetsAltered(altered), connector))
        return self._changed(config, "altered")

    def reset_offsets(self, connector: str, kind: ConnectorType, config: Mapping[str, str | None]) -> str:
        config = self._providers.resolve(config)
        if self._plugins.java.runs(config):
            return self._modified_by_java(connector, config, None)
        if kind is ConnectorType.SOURCE:
            pairs: Offsets = [(partition, None) for partition, _ in self._source_offsets(connector, config)]
            write_source_offsets(self._clients, self._config, connector, config, pairs)
        else:
            self._admin.delete_group(self._group_without_members(connector, config, "reset"))
        self._record(Transition(OffsetsAltered(None), connector))
        return self._changed(config, "reset")

    def _modified_by_java(
        self,
        connector: str,
        config: Mapping[str, str | None],
        offsets: tuple[Mapping[str, Any], ...] | None,
    ) -> str:
        """Let the plugin see offsets before they are changed, as Kafka Connect's Worker does; None resets all."""
        message: str = self._jvm.ask(
            "ModifyOffsets", connector=connector, config={"name": connector, **config}, offsets=offsets
        )
        self._record(Transition(OffsetsAltered(offsets), connector))
        return message

    def _changed(self, config: Mapping[str, str | None], how: Literal["altered", "reset"]) -> str:
        """Kafka Connect's message about offsets that were altered or reset."""
        if self._plugins.connector_class(config.get("connector.class") or "").offsets_in_kafka:
            return f"The offsets for this connector have been {how} successfully"
        return (
            f"The Connect framework-managed offsets for this connector have been {how} successfully. However, if this "
            f"connector manages offsets externally, they will need to be manually {how} in the system that the "
            "connector uses."
        )

    def _check_offsets(self, config: Mapping[str, str | None], offsets: Offsets) -> None:
        """Let the connector refuse offsets. It sees no partition that is null: any may be reset, and none set."""
        cls = self._plugins.connector_class(config.get("connector.class") or "")
        if not issubclass(cls, SourceConnector):
            return
        if any(partition is None and offset is not None for partition, offset in offsets):
            raise RestError("Partition objects cannot be null", status=400)
        named = [(partition, offset) for partition, offset in offsets if partition is not None]
        try:
            cls.check_offsets(config, named)
        except ValueError as error:
            raise RestError(str(error), status=400) from error

    def _source_offsets(
        self, connector: str, config: Mapping[str, str | None]
    ) -> list[tuple[SourcePartition, SourceOffset]]:
        """From the connector's own topic and the worker's, or from the latter alone."""
        topic, is_own = offsets_topic(self._clients, self._config, config)
        known = self._topics.offsets.connector_offsets(connector)
        if not is_own:
            return known
        own = OwnOffsets(
            self._clients,
            self._config,
            TaskId(connector, 0),
            config,
            topic=topic,
            exactly_once=self._config.exactly_once_source_enabled,
            workers=self._topics.offsets,
        )
        return own.connector_offsets(connector, known)

    def _group_without_members(
        self, connector: str, config: Mapping[str, str | None], what: Literal["alter", "reset"]
    ) -> str:
        """A sink's group, once its tasks have left it: a stopped connector is STOPPED a moment before they have."""
        group = self._sink_group(connector, config)
        limit_s = self._config.task_shutdown_graceful_timeout_ms / 1000 + _LEAVE_S
        deadline_s = time.monotonic() + limit_s
        while describe_group(self._clients, group).members:
            if time.monotonic() >= deadline_s:
                raise RestError(
                    f"Failed to {what} consumer group offsets for connector {connector} either because its tasks "
                    "haven't stopped completely yet or the connector was resumed before the request to "
                    f"{what} its offsets could be successfully completed. If the connector is in a stopped state, this "
                    "operation can be safely retried. If it doesn't eventually succeed, the Connect cluster may need "
                    "to be restarted to get rid of the zombie sink tasks.",
                    status=500,
                )
            time.sleep(_LOOK_S)
        return group

    def _sink_group(self, connector: str, config: Mapping[str, str | None]) -> str:
        return str(self._clients.sink_consumer(TaskId(connector, 0), config)["group.id"])


def _plugin(plugin: PluginDescription) -> Plugin:
    shown: Plugin = {"class": plugin.name, "type": plugin.type}
    if plugin.version:
        shown["version"] = plugin.version
    return shown


def _kafka_partition(partition: Mapping[str, Any] | None) -> TopicPartition:
    """A sink's partition; RestError 400 with Kafka Connect's text (SinkUtils.parseSinkConnectorOffsets)."""
    if partition is None:
        raise bad_request("The partition for a sink connector offset cannot be null or missing")
    if not {"kafka_topic", "kafka_partition"} <= partition.keys():
        raise bad_request(
            "The partition for a sink connector offset must contain the keys 'kafka_topic' and 'kafka_partition'"
        )
    topic, number = partition["kafka_topic"], partition["kafka_partition"]
    if topic is None:
        raise bad_request("Kafka topic names must be valid strings and may not be null")
    if number is None:
        raise bad_request("Kafka partitions must be valid numbers and may not be null")
    parsed = _integer(number, bits=32)
    if parsed is None:
        raise bad_request(
            f"Failed to parse the following Kafka partition value in the provided offsets: '{number}'. "
            "Partition values for sink connectors need to be integers."
        )
    return TopicPartition(str(topic), parsed)


def _kafka_offset(offset: Mapping[str, Any] | None) -> int | None:
    """A sink's offset, None to reset; RestError 400 with Kafka Connect's text."""
    if offset is None:
        return None
    if "kafka_offset" not in offset:
        raise bad_request("The offset for a sink connector should either be null or contain the key 'kafka_offset'")
    parsed = _integer(offset["kafka_offset"], bits=64)
    if parsed is None:
        raise bad_request(
            f"Failed to parse the following Kafka offset value in the provided offsets: '{offset['kafka_offset']}'. "
            "Offset values for sink connectors need to be integers."
        )
    if parsed < 0:
        raise bad_request(f"Invalid negative offset: {parsed}")
    return parsed


def _integer(value: object, bits: int) -> int | None:
    """A JSON number or its text as Integer.parseInt and Long.parseLong take it; None for others."""
    text = str(value)
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        return None
    return number if -(1 << bits - 1) <= (number := int(text)) < 1 << bits - 1 else None
