"""Typed settings of one connector."""

from __future__ import annotations

import pytest

from connectx.core.lanes import BulkMode, LaneSettings
from connectx.errors.plugins import ConfigError
from connectx.model.states import TransactionBoundary
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.plugins.settings import (
    ErrorSettings,
    lane_settings,
    sink_connector_settings,
    source_connector_settings,
)

WORKER = WorkerConfig.parse(embedded_config({"bootstrap.servers": "x:1", "offset.flush.interval.ms": "7000"}))
BASE: dict[str, str | None] = {"name": "c", "connector.class": "X"}


def test_a_source_without_settings_has_connects_defaults() -> None:
    settings = source_connector_settings(BASE, WORKER)
    assert (settings.connector, settings.tasks_max, settings.exactly_once) == ("c", 1, True)
    assert (settings.boundary, settings.boundary_interval_ms) == (TransactionBoundary.POLL, 7000)
    assert settings.errors == ErrorSettings(False, 0, 60_000, False, False)
    assert settings.offsets_topic is None
    assert settings.topic_groups == ()
    assert settings.topic_group("any") is None


def test_a_sources_settings_are_typed() -> None:
    config = {
        **BASE,
        "transaction.boundary": "INTERVAL",
        "transaction.boundary.interval.ms": "0",
        "errors.tolerance": "all",
        "offsets.storage.topic": "mine",
        "producer.override.transaction.timeout.ms": "5000",
        "admin.override.client.id": "a",
    }
    settings = source_connector_settings(config, WORKER)
    assert (settings.boundary, settings.boundary_interval_ms) == (TransactionBoundary.INTERVAL, 0)
    assert settings.errors.tolerate_all
    assert settings.offsets_topic == "mine"
    assert settings.producer_override == {"transaction.timeout.ms": "5000"}
    assert settings.admin_override == {"client.id": "a"}


def test_the_first_topic_group_that_matches_the_whole_name_counts() -> None:
    config = {
        **BASE,
        "topic.creation.groups": "logs, big, default",
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "-1",
        "topic.creation.default.cleanup.policy": "compact",
        "topic.creation.logs.include": "log-.*",
        "topic.creation.logs.exclude": "log-x",
        "topic.creation.logs.retention.ms": "1000",
        "topic.creation.big.include": "log-.*, big",
        "topic.creation.big.partitions": "12",
    }
    settings = source_connector_settings(config, WORKER)
    chosen = {topic: settings.topic_group(topic) for topic in ("log-a", "log-x", "big", "bigger")}
    names = {topic: group and group.name for topic, group in chosen.items()}
    assert names == {"log-a": "logs", "log-x": "big", "big": "big", "bigger": "default"}
    logs, big, default = settings.topic_groups
    assert (logs.partitions, logs.replication_factor, logs.settings) == (3, -1, {"retention.ms": "1000"})
    assert big.partitions == 12
    assert default.settings == {"cleanup.policy": "compact"}


def test_topic_creation_can_be_switched_off_by_the_worker() -> None:
    off = WorkerConfig.parse(embedded_config({"bootstrap.servers": "x:1", "topic.creation.enable": "false"}))
    assert source_connector_settings({**BASE, "topic.creation.groups": "x"}, off).topic_groups == ()


def test_topic_creation_needs_its_default_group() -> None:
    with pytest.raises(ConfigError) as caught:
        source_connector_settings({**BASE, "topic.creation.groups": "big"}, WORKER)
    default = "topic.creation.default."
    assert [each.split('"')[1] for each in caught.value.problems] == [
        f"{default}partitions",
        f"{default}replication.factor",
    ]


def test_a_sinks_settings_are_typed() -> None:
    config = {
        **BASE,
        "topics": "a, b,a,",
        "errors.deadletterqueue.topic.name": "dlq",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "consumer.override.max.poll.records": "5",
    }
    settings = sink_connector_settings(config)
    assert (settings.topics, settings.topics_regex, settings.group_id) == (("a", "b"), None, "connect-c")
    assert (settings.dead_letter_topic, settings.dead_letter_replication_factor) == ("dlq", 1)
    assert settings.consumer_override == {"max.poll.records": "5"}
    regex = sink_connector_settings({**BASE, "topics.regex": "a.*", "consumer.override.group.id": "mine"})
    assert (regex.topics, regex.topics_regex, regex.group_id, regex.dead_letter_topic) == ((), "a.*", "mine", None)


def test_wrong_settings_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        source_connector_settings({"transaction.boundary": "x", "tasks.max": "0"}, WORKER)
    assert len(caught.value.problems) == 4
    with pytest.raises(ConfigError, match=r"Must configure one of topics or topics\.regex"):
        sink_connector_settings(BASE)


def test_bulk_settings_are_typed_and_auto_by_default() -> None:
    assert lane_settings(BASE) == LaneSettings(BulkMode.AUTO, 64 << 20)
    given = lane_settings({**BASE, "bulk.mode": "always", "bulk.min.bytes": "1000"})
    assert given == LaneSettings(BulkMode.ALWAYS, 1000)


def test_wrong_bulk_settings_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        lane_settings({**BASE, "bulk.mode": "often", "bulk.min.bytes": "0"})
    assert len(caught.value.problems) == 2
