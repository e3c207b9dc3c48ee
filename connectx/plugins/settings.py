"""Typed settings of one connector, for the runners of its tasks.

Decides only what the keys mean; `connectx.plugins.validation` reports errors in them. Mirrors
Kafka Connect's SourceConnectorConfig, SinkConnectorConfig and NewTopicCreationGroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connectx.core.lanes import BulkMode, LaneSettings
from connectx.errors.plugins import ConfigError
from connectx.model.configdef import ConfigDef, invalid_value
from connectx.model.decoding import exceeds
from connectx.model.patterns import compiled, matches_any, problem_of
from connectx.model.states import TransactionBoundary
from connectx.model.worker_config import WorkerConfig, with_prefix
from connectx.plugins.keys import BULK_CONFIG, SINK_CONFIG, SOURCE_CONFIG, group_names, topic_creation_config
from connectx.values import Value

_GROUP_KEYS: Final = ("include", "exclude", "partitions", "replication.factor")


class ErrorSettings(Value):
    """`errors.*` of a connector; times in ms, `retry_timeout_ms` -1 is forever."""

    tolerate_all: bool
    retry_timeout_ms: int
    retry_delay_max_ms: int
    log_enable: bool
    log_include_messages: bool


class TopicGroup(Value):
    """Settings of topics to create; -1 for `partitions` or `replication_factor` is the broker's default."""

    name: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]

    def matches(self, topic: str) -> bool:
        """True when an `include` pattern matches the whole name and no `exclude` pattern does."""
        return matches_any(self.include, topic) and not matches_any(self.exclude, topic)


class SourceSettings(Value):
    """Settings that the runner of a source task uses. Overrides are without prefix.

    Attributes:
        exactly_once: the worker writes rows and offsets in transactions.
        boundary_interval_ms: for boundary INTERVAL; already the worker's value when the connector has none.
        offsets_topic: the connector's own offsets topic; None is the worker's.
        topic_groups: in order, `default` last; empty when the connector creates no topics.
    """

    connector: str
    tasks_max: int
    exactly_once: bool
    boundary: TransactionBoundary
    boundary_interval_ms: int
    offsets_topic: str | None
    errors: ErrorSettings
    topic_groups: tuple[TopicGroup, ...]
    producer_override: Mapping[str, str]
    consumer_override: Mapping[str, str]
    admin_override: Mapping[str, str]

    def topic_group(self, topic: str) -> TopicGroup | None:
        """Settings for creating a topic; None when topics are not created."""
        return next((group for group in self.topic_groups if group.matches(topic)), None)


class SinkSettings(Value):
    """Settings that the runner of a sink task uses. Overrides are without prefix; one of the topic fields is empty."""

    connector: str
    tasks_max: int
    topics: tuple[str, ...]
    topics_regex: str | None
    group_id: str
    errors: ErrorSettings
    dead_letter_topic: str | None
    dead_letter_replication_factor: int
    dead_letter_headers: bool
    producer_override: Mapping[str, str]
    consumer_override: Mapping[str, str]
    admin_override: Mapping[str, str]


def source_connector_settings(config: Mapping[str, str | None], worker: WorkerConfig) -> SourceSettings:
    """Settings of a source connector.

    Raises:
        ConfigError: lists every problem.
    """
    values = ConfigDef(SOURCE_CONFIG, _creation_of(config, worker)).parse(config)
    interval_ms = values["transaction.boundary.interval.ms"]
    return SourceSettings(
        connector=values["name"],
        tasks_max=values["tasks.max"],
        exactly_once=worker.exactly_once_source_enabled,
        boundary=TransactionBoundary(values["transaction.boundary"].lower()),
        boundary_interval_ms=worker.offset_flush_interval_ms if interval_ms is None else interval_ms,
        offsets_topic=values["offsets.storage.topic"],
        errors=_errors(values),
        topic_groups=_topic_groups(config, values),
        **_overrides(config),
    )


def sink_connector_settings(config: Mapping[str, str | None]) -> SinkSettings:
    """Settings of a sink connector.

    Raises:
        ConfigError: lists every problem.
    """
    values = SINK_CONFIG.parse(config)
    problems = [message for messages in sink_problems(config).values() for message in messages]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    overrides = _overrides(config)
    return SinkSettings(
        connector=values["name"],
        tasks_max=values["tasks.max"],
        topics=tuple(dict.fromkeys(topic for topic in values["topics"] if topic)),
        topics_regex=values["topics.regex"] or None,
        group_id=overrides["consumer_override"].get("group.id") or f"connect-{values['name']}",
        errors=_errors(values),
        dead_letter_topic=values["errors.deadletterqueue.topic.name"] or None,
        dead_letter_replication_factor=values["errors.deadletterqueue.topic.replication.factor"],
        dead_letter_headers=values["errors.deadletterqueue.context.headers.enable"],
        **overrides,
    )


def lane_settings(config: Mapping[str, str | None]) -> LaneSettings:
    """`bulk.*` of a source or sink.

    Raises:
        ConfigError: lists every problem.
    """
    values = BULK_CONFIG.parse(config)
    return LaneSettings(BulkMode(values["bulk.mode"]), values["bulk.min.bytes"])


def sink_problems(config: Mapping[str, str | None]) -> dict[str, list[str]]:
    """What is wrong with the topics of a sink, by key (Kafka Connect: SinkConnectorConfig.validate)."""
    topics, regex = (config.get(name) or "" for name in ("topics", "topics.regex"))
    dead_letters = (config.get("errors.deadletterqueue.topic.name") or "").strip()
    named = [topic for topic in dict.fromkeys(part.strip() for part in topics.split(",")) if topic]
    problems: dict[str, list[str]] = {"topics": [], "topics.regex": []}
    common = None
    if topics.strip() and regex.strip():
        common = "topics and topics.regex are mutually exclusive options, but both are set."
    elif not topics.strip() and not regex.strip():
        common = "Must configure one of topics or topics.regex"
    if common:
        problems = {"topics": [common], "topics.regex": [common]}
    if dead_letters and dead_letters in named:
        problems["topics"].append(
            f"The DLQ topic '{dead_letters}' may not be included in the list of topics "
            f"('topics=[{', '.join(named)}]') consumed by the connector"
        )
    if dead_letters and regex.strip() and problem_of(regex) is None and compiled(regex).matches(dead_letters):
        problems["topics.regex"].append(
            f"The DLQ topic '{dead_letters}' may not be matched by the regex for the topics "
            f"('topics.regex={regex}') consumed by the connector"
        )
    return problems


def limit_problems(config: Mapping[str, str | None]) -> dict[str, list[str]]:
    """What is wrong with the limits of a sink as a whole, by key; values that cannot be read are reported elsewhere."""
    try:
        most, tasks = int(config.get("max.connections") or 0), int(config.get("tasks.max") or 1)
    except ValueError:
        return {}
    if not 0 < most < tasks:
        return {}
    reason = f"each of the {tasks} tasks (tasks.max) has a connection; raise it, or lower tasks.max"
    return {"max.connections": [invalid_value("max.connections", most, reason)]}


def producer_problems(config: Mapping[str, str | None]) -> dict[str, str]:
    """Overrides that no idempotent producer takes, by key: what cannot be an exactly-once source's.

    Kafka Connect creates such a connector, and its tasks fail when they make their producers. Other values of
    `enable.idempotence` and `transactional.id` are not refused: both replace them, with a warning.
    """
    prefix, problems = "producer.override.", {}
    for name, text in with_prefix(config, prefix).items():
        value = (text or "").strip().lower()
        if name in ("acks", "request.required.acks") and value not in ("all", "-1"):
            wanted = "all, so that no committed record can be lost"
        elif name in ("max.in.flight.requests.per.connection", "max.in.flight") and exceeds(value, 5):
            wanted = "at most 5, or records can change their order"
        elif name in ("retries", "message.send.max.retries") and value == "0":
            wanted = "greater than 0, because a record that is lost on its way has to be sent again"
        else:
            continue
        reason = f"With exactly-once source support the producer is idempotent, and {name} must be {wanted}"
        problems[prefix + name] = invalid_value(prefix + name, text, reason)
    return problems


def _creation_of(config: Mapping[str, str | None], worker: WorkerConfig) -> ConfigDef:
    return topic_creation_config(config) if worker.topic_creation_enable else ConfigDef()


def _topic_groups(config: Mapping[str, str | None], values: Mapping[str, Any]) -> tuple[TopicGroup, ...]:
    if "topic.creation.default.partitions" not in values:
        return ()
    default = "topic.creation.default."
    inherited = {name: values[default + name] for name in ("partitions", "replication.factor")}
    groups = []
    for group in (*group_names(config), "default"):
        prefix = f"topic.creation.{group}."
        given = {name: text for name, text in with_prefix(config, prefix).items() if text is not None}
        counts = {name: values[prefix + name] if name in given else inherited[name] for name in inherited}
        groups.append(
            TopicGroup(
                name=group,
                include=(".*",) if group == "default" else tuple(values[prefix + "include"]),
                exclude=() if group == "default" else tuple(values[prefix + "exclude"]),
                partitions=counts["partitions"],
                replication_factor=counts["replication.factor"],
                settings={name: text for name, text in given.items() if name not in _GROUP_KEYS},
            )
        )
    return tuple(groups)


def _errors(values: Mapping[str, Any]) -> ErrorSettings:
    return ErrorSettings(
        tolerate_all=values["errors.tolerance"] == "all",
        retry_timeout_ms=values["errors.retry.timeout"],
        retry_delay_max_ms=values["errors.retry.delay.max.ms"],
        log_enable=values["errors.log.enable"],
        log_include_messages=values["errors.log.include.messages"],
    )


def _overrides(config: Mapping[str, str | None]) -> dict[str, dict[str, str]]:
    return {
        f"{client}_override": {
            name: text for name, text in with_prefix(config, f"{client}.override.").items() if text is not None
        }
        for client in ("producer", "consumer", "admin")
    }
