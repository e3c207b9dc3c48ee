"""Internal topics as they are created and refused, and offsets of groups, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from connectx.errors.kafka import InternalTopicError, KafkaRequestError, KafkaUnreachableError
from connectx.kafka.admin.client import Admin, TopicSpec
from connectx.kafka.admin.topics import delete_group_offsets, describe_group, ensure_internal_topics
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TopicPartition
from connectx.model.worker_config import WorkerConfig
from tests.support.profiles import dotted


@pytest.fixture
def ensure(kafka: EmbeddedKafka, own_config: Callable[..., WorkerConfig]) -> Callable[..., dict[str, int]]:
    def run(timeout_s: float = 30.0, **settings: Any) -> dict[str, int]:
        config = own_config(kafka.bootstrap_servers, dotted(settings))
        return ensure_internal_topics(ClientConfigs(config, "w-admin"), config, timeout_s)

    return run


@pytest.fixture
def admin(config: WorkerConfig) -> Iterator[Admin]:
    one = Admin(ClientConfigs(config, "w-admin").admin())
    yield one
    one.close()


def test_missing_topics_are_created_compacted_with_the_workers_settings(
    config: WorkerConfig, admin: Admin, own_config: Callable[..., WorkerConfig]
) -> None:
    extra = {"status.storage.segment.bytes": "2000000", "config.storage.cleanup.policy": "delete"}
    given = own_config(config.bootstrap_servers, extra | {"offset.storage.partitions": "7"})
    clients = ClientConfigs(given, "w-admin")
    for _ in range(2):
        counts = ensure_internal_topics(clients, given)
        assert counts == {given.config_topic.name: 1, given.offset_topic.name: 7, given.status_topic.name: 5}
    settings = admin.topic_settings(list(counts))
    assert {topic: (s or {})["cleanup.policy"] for topic, s in settings.items()} == dict.fromkeys(counts, "compact")
    assert (settings[given.status_topic.name] or {})["segment.bytes"] == "2000000"


@pytest.mark.parametrize("storage", ["config", "offset", "status"])
def test_a_topic_that_is_not_exactly_compacted_is_refused(
    storage: str, admin: Admin, ensure: Callable[..., Any], config: WorkerConfig
) -> None:
    name = f"{config.group_id}-both"
    admin.create_topics([TopicSpec(name, 1, 1, {"cleanup.policy": "compact,delete"})])
    with pytest.raises(InternalTopicError, match=rf"{storage}\.storage\.topic.*compact,delete"):
        ensure(**{f"{storage}.storage.topic": name})


def test_a_config_topic_with_several_partitions_is_refused(
    admin: Admin, ensure: Callable[..., Any], config: WorkerConfig
) -> None:
    name = f"{config.group_id}-three"
    admin.create_topics([TopicSpec(name, 3, 1, {"cleanup.policy": "compact"})])
    with pytest.raises(InternalTopicError, match="3 partitions"):
        ensure(**{"config.storage.topic": name})


def test_more_replicas_than_brokers_are_waited_for_and_then_named(ensure: Callable[..., Any]) -> None:
    with pytest.raises(InternalTopicError, match="3 replicas") as raised:
        ensure(timeout_s=1.0, **{"status.storage.replication.factor": "3"})
    assert "status.storage.replication.factor" in raised.value.next_step


def test_topic_settings_that_kafka_refuses_are_not_waited_for(ensure: Callable[..., Any]) -> None:
    with pytest.raises(KafkaRequestError, match=r"offset\.storage\.topic"):
        ensure(**{"offset.storage.segment.bytes": "many"})


def test_a_kafka_that_is_not_there_is_named(ensure: Callable[..., Any], own_config: Callable[..., Any]) -> None:
    with pytest.raises(KafkaUnreachableError, match=r"127\.0\.0\.1:1 "):
        ensure(timeout_s=1.0, **{"bootstrap.servers": "127.0.0.1:1"})
    clients = ClientConfigs(own_config("127.0.0.1:1"), "w-admin")
    with pytest.raises(KafkaUnreachableError, match="describe group"):
        describe_group(clients, "g", timeout_s=1.0)


def test_ends_of_partitions_and_the_clusters_id(admin: Admin, topic: Callable[..., str]) -> None:
    name = topic(partitions=2)
    ends = admin.end_offsets([TopicPartition(name, 0), TopicPartition(name, 1)])
    assert ends == {TopicPartition(name, 0): 0, TopicPartition(name, 1): 0}
    assert admin.partition_counts([name, "no-such-topic"]) == {name: 2, "no-such-topic": None}
    assert admin.cluster_id()
    with pytest.raises(KafkaRequestError, match="no-such-topic"):
        admin.end_offsets([TopicPartition("no-such-topic", 0)])


def test_offsets_of_a_group_are_set_read_and_deleted(
    admin: Admin, config: WorkerConfig, topic: Callable[..., str]
) -> None:
    name, group = topic(partitions=2), f"connect-{config.group_id}"
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    assert admin.group_offsets(group) == {}
    admin.alter_group_offsets(group, {first: 5, second: 7})
    assert admin.group_offsets(group) == {first: 5, second: 7}
    delete_group_offsets(ClientConfigs(config, "w-admin"), group, [first])
    assert admin.group_offsets(group) == {second: 7}
    admin.delete_group(group)
    admin.delete_group(group)
    assert admin.group_offsets(group) == {}
    with pytest.raises(KafkaRequestError, match="set offsets"):
        admin.alter_group_offsets(group, {TopicPartition("no-such-topic", 0): 1})


def test_a_group_that_nobody_knows_has_no_members(config: WorkerConfig) -> None:
    assert describe_group(ClientConfigs(config, "w-admin"), config.group_id).members == ()
