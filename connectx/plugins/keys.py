"""Keys that every connector has, and those of every source and every sink connector.

Mirrors the definitions in Kafka Connect's ConnectorConfig, SourceConnectorConfig, SinkConnectorConfig and
TopicCreationConfig.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from connectx.model.configdef import ConfigDef, Validator
from connectx.model.patterns import problem_of
from connectx.model.states import ConnectorType
from connectx.model.validators import at_least, non_empty, one_of, unique_list, valid_regex
from connectx.model.worker_keys import PARTITIONS, REPLICATION_FACTOR

_COMMON: Final = "Common"
_ERRORS: Final = "Error Handling"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _name_problem(value: Any) -> str | None:
    if value == "":
        return "String may not be empty"
    found = _CONTROL.findall(value or "")
    if not found:
        return None
    codes = ", ".join(str(ord(character)) for character in found)
    return f"String may not contain control sequences but had the following ASCII chars: {codes}"


COMMON_CONFIG: Final = (
    ConfigDef()
    .group(_COMMON)
    .define(
        "name",
        str,
        doc="Name of the connector, unique in the cluster.",
        importance="HIGH",
        width="MEDIUM",
        display_name="Connector name",
        validator=Validator(_name_problem, "non-empty string without ISO control characters"),
    )
    .define(
        "connector.class",
        str,
        doc="Alias, Java class name or Python path of the connector.",
        importance="HIGH",
        width="LONG",
        display_name="Connector class",
    )
    .define(
        "tasks.max",
        int,
        1,
        doc="The most tasks that the connector may have.",
        importance="HIGH",
        width="SHORT",
        display_name="Tasks max",
        validator=at_least(1),
    )
    .define(
        "tasks.max.enforce",
        bool,
        True,
        doc="Whether more tasks than tasks.max are an error.",
        importance="LOW",
        width="SHORT",
        display_name="Enforce tasks max",
    )
    .define(
        "key.converter",
        "CLASS",
        None,
        doc="Converter of keys; the worker's without it.",
        importance="LOW",
        width="SHORT",
        display_name="Key converter class",
    )
    .define(
        "value.converter",
        "CLASS",
        None,
        doc="Converter of values; the worker's without it.",
        importance="LOW",
        width="SHORT",
        display_name="Value converter class",
    )
    .define(
        "header.converter",
        "CLASS",
        None,
        doc="Converter of headers; the worker's without it.",
        importance="LOW",
        width="SHORT",
        display_name="Header converter class",
    )
    .group("Transforms")
    .define(
        "transforms",
        list,
        [],
        doc="Aliases of transformations, in order.",
        importance="LOW",
        width="LONG",
        display_name="Transforms",
        validator=unique_list("transformation aliases"),
    )
    .group("Predicates")
    .define(
        "predicates",
        list,
        [],
        doc="Aliases of predicates that transformations use.",
        importance="LOW",
        width="LONG",
        display_name="Predicates",
        validator=unique_list("predicate aliases"),
    )
    .group(_COMMON)
    .define(
        "config.action.reload",
        str,
        "restart",
        doc="What to do when a config provider's value has expired.",
        importance="LOW",
        width="MEDIUM",
        display_name="Reload Action",
        validator=one_of("none", "restart"),
    )
    .group(_ERRORS)
    .define(
        "errors.retry.timeout",
        "LONG",
        0,
        doc="How long a failed operation is retried, in ms; 0 is never, -1 is forever.",
        width="MEDIUM",
        display_name="Retry Timeout for Errors",
    )
    .define(
        "errors.retry.delay.max.ms",
        "LONG",
        60_000,
        doc="The longest wait between two tries, in ms.",
        width="MEDIUM",
        display_name="Maximum Delay Between Retries for Errors",
    )
    .define(
        "errors.tolerance",
        str,
        "none",
        doc="none: the first bad record fails the task. all: bad records are skipped.",
        width="SHORT",
        display_name="Error Tolerance",
        validator=one_of("none", "all"),
    )
    .define("errors.log.enable", bool, False, doc="Log every error.", width="SHORT", display_name="Log Errors")
    .define(
        "errors.log.include.messages",
        bool,
        False,
        doc="Log the records of errors, too.",
        width="SHORT",
        display_name="Log Error Details",
    )
)

SOURCE_CONFIG: Final = (
    ConfigDef(COMMON_CONFIG)
    .group("Topic Creation")
    .define(
        "topic.creation.groups",
        list,
        [],
        doc="Names of groups of settings for topics that the connector creates.",
        importance="LOW",
        width="LONG",
        display_name="Topic Creation Groups",
        validator=unique_list("topic creation groups"),
    )
    .group("Exactly Once Support")
    .define(
        "exactly.once.support",
        str,
        "requested",
        doc="required: refuse the connector unless it reports that it can deliver exactly once.",
        width="SHORT",
        display_name="Exactly once support",
        validator=one_of("REQUIRED", "REQUESTED", ignore_case=True),
    )
    .define(
        "transaction.boundary",
        str,
        "poll",
        doc="When a transaction is committed: after each poll, at intervals, or where the connector decides.",
        width="SHORT",
        display_name="Transaction Boundary",
        validator=one_of("INTERVAL", "POLL", "CONNECTOR", ignore_case=True),
    )
    .define(
        "transaction.boundary.interval.ms",
        "LONG",
        None,
        doc="Interval for transaction.boundary=interval; the worker's offset.flush.interval.ms without it.",
        importance="LOW",
        width="SHORT",
        display_name="Transaction boundary interval",
        validator=Validator(lambda value: None if value is None else at_least(0).check(value), "[0,...]"),
    )
    .group("offsets.topic")
    .define(
        "offsets.storage.topic",
        str,
        None,
        doc="A separate topic for the connector's offsets. Without it, they are in the worker's.",
        importance="LOW",
        width="LONG",
        display_name="Offsets topic",
        validator=non_empty(),
    )
)

SINK_CONFIG: Final = (
    ConfigDef(COMMON_CONFIG)
    .group(_COMMON)
    .define(
        "topics",
        list,
        [],
        doc="Topics to consume, separated by commas.",
        importance="HIGH",
        width="LONG",
        order=4,
        display_name="Topics",
    )
    .define(
        "topics.regex",
        str,
        "",
        doc="Regular expression of topics to consume, instead of topics.",
        importance="HIGH",
        width="LONG",
        order=4,
        display_name="Topics regex",
        validator=valid_regex(),
    )
    .group(_ERRORS)
    .define(
        "errors.deadletterqueue.topic.name",
        str,
        "",
        doc="Topic for records that could not be read; empty is none.",
        width="MEDIUM",
        display_name="Dead Letter Queue Topic Name",
    )
    .define(
        "errors.deadletterqueue.topic.replication.factor",
        "SHORT",
        3,
        doc="Replication factor of that topic when it has to be created.",
        width="MEDIUM",
        display_name="Dead Letter Queue Topic Replication Factor",
    )
    .define(
        "errors.deadletterqueue.context.headers.enable",
        bool,
        False,
        doc="Whether records there get headers with the place and reason of the failure.",
        width="MEDIUM",
        display_name="Enable Error Context Headers",
    )
)


BULK_CONFIG: Final = (
    ConfigDef()
    .group("Bulk")
    .define(
        "bulk.mode",
        str,
        "auto",
        doc="When Spark's executors convert and write in place of the worker: auto for a large lag or slice if Spark "
        "has at least 4 cores, never, or always.",
        validator=one_of("auto", "never", "always"),
    )
    .define(
        "bulk.min.bytes",
        "LONG",
        64 << 20,
        doc="Bytes that wait before auto uses Spark's executors. They end when less than a quarter waits.",
        importance="LOW",
        validator=at_least(1),
    )
    .define(
        "bulk.modules",
        list,
        [],
        doc="Python packages and modules that executors need besides those of the connector's classes.",
        importance="LOW",
    )
)
"""Keys that Kafka Connect does not have."""

RESTART_CONFIG: Final = (
    ConfigDef()
    .define(
        "task.restart.max",
        int,
        0,
        doc="How often in a row a failed task is restarted; 0: never, -1: without a limit.",
        validator=at_least(-1),
    )
    .define(
        "task.restart.backoff.ms",
        int,
        10_000,
        doc="Pause before the first restart of a failed task; it doubles up to 5 minutes.",
        validator=at_least(1),
    )
)
"""Keys of all connectors that Kafka Connect does not have."""

LIMITS_CONFIG: Final = (
    ConfigDef()
    .define(
        "max.rows.per.second",
        float,
        0,
        doc="Most rows a second that the connector puts, on average, in equal shares for tasks.max tasks; 0: no limit. "
        "A put is not divided: lower consumer.override.max.poll.records for smaller ones.",
        validator=at_least(0),
    )
    .define(
        "max.bytes.per.second",
        float,
        0,
        doc="As max.rows.per.second, for the bytes of rows in memory.",
        validator=at_least(0),
    )
    .define(
        "max.connections",
        int,
        0,
        doc="Most connections to the target that the connector opens at a time, in equal shares for tasks.max tasks: "
        "each task has one, and Spark's executors have the others in the bulk lane; 0: no limit.",
        validator=at_least(0),
    )
    .define(
        "lag.alarm.records",
        "LONG",
        -1,
        doc="Lag of a task in records above which an event is recorded, if it lasts for lag.alarm.ms; -1: never.",
        validator=at_least(-1),
    )
    .define(
        "lag.alarm.ms", "LONG", 60_000, doc="How long the lag must stay above lag.alarm.records.", validator=at_least(0)
    )
)
"""Keys of sink connectors that limit the load on a target and report a target that is too slow."""

OWN_CONFIGS: Final = {
    ConnectorType.SOURCE: (BULK_CONFIG, RESTART_CONFIG),
    ConnectorType.SINK: (BULK_CONFIG, RESTART_CONFIG, LIMITS_CONFIG),
}
"""Keys that Kafka Connect does not have. A validation names them where a configuration does."""


def _regexes_problem(value: Any) -> str | None:
    for pattern in value or ():
        if problem := problem_of(pattern):
            return f"Syntax error in regular expression: {problem}"
    return None


def topic_creation_config(config: Mapping[str, str | None]) -> ConfigDef:
    """Keys of the topic creation groups that a configuration names; none when it creates no topics (KIP-158).

    Like Kafka Connect, the start of a connector and of its tasks checks them, and validation does not.
    """
    definition = ConfigDef()
    if not any(name.startswith("topic.creation.") for name in config):
        return definition
    regexes = Validator(_regexes_problem, "list of regular expressions")
    default = "topic.creation.default."
    definition.define(f"{default}partitions", int, importance="LOW", validator=PARTITIONS)
    definition.define(f"{default}replication.factor", "SHORT", importance="LOW", validator=REPLICATION_FACTOR)
    for group in group_names(config):
        prefix = f"topic.creation.{group}."
        definition.define(f"{prefix}include", list, [], importance="LOW", validator=regexes)
        definition.define(f"{prefix}exclude", list, [], importance="LOW", validator=regexes)
        definition.define(f"{prefix}partitions", int, -1, importance="LOW", validator=PARTITIONS)
        definition.define(f"{prefix}replication.factor", "SHORT", -1, importance="LOW", validator=REPLICATION_FACTOR)
    return definition


def group_names(config: Mapping[str, str | None]) -> list[str]:
    """Topic creation groups by name, without `default`, which every connector has."""
    names = [name.strip() for name in (config.get("topic.creation.groups") or "").split(",")]
    return [name for name in dict.fromkeys(names) if name and name != "default"]
