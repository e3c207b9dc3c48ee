"""Lag of a sink and size of topics, computed from offsets in Kafka, also while no task runs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.topic_snapshot import take_snapshot
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TopicPartition
from connectx.model.worker_config import WorkerConfig
from connectx.plugins.settings import sink_connector_settings
from connectx.rest.client import RestClient


def backlog(client: RestClient, config: WorkerConfig, connector: str) -> int:
    """Offsets from what a sink has committed, or from the beginning, to the ends of its topics.

    Raises:
        TopicMissingError, KafkaUnreachableError and other errors of Kafka; ConfigError: it is no sink.
    """
    clients = ClientConfigs(config, "backlog", config.bootstrap_servers)
    settings = sink_connector_settings(client.config(connector))
    topics = settings.topics or _matching(clients, settings.topics_regex or "")
    committed = {
        (entry["partition"]["kafka_topic"], int(entry["partition"]["kafka_partition"])): int(
            entry["offset"]["kafka_offset"]
        )
        for entry in client.offsets(connector)
    }
    waiting = 0
    for topic in topics:
        snapshot = take_snapshot(clients, topic)
        for partition, end in snapshot.ends.items():
            waiting += max(0, end - max(snapshot.starts[partition], committed.get((topic, partition), 0)))
    return waiting


def topic_sizes(config: WorkerConfig, topics: Sequence[str]) -> dict[str, int]:
    """About how many records each existing topic holds; markers of transactions count, too.

    Raises:
        KafkaUnreachableError and other errors of Kafka.
    """
    admin = Admin(ClientConfigs(config, "sizes", config.bootstrap_servers).admin())
    try:
        counts = admin.partition_counts(topics) if topics else {}
        partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count or 0)]
        starts = admin.start_offsets(partitions) if partitions else {}
        ends = admin.end_offsets(partitions, committed=True) if partitions else {}
    finally:
        admin.close()
    return {
        topic: sum(ends[at] - starts[at] for at in partitions if at.topic == topic)
        for topic, count in counts.items()
        if count is not None
    }


def _matching(clients: ClientConfigs, regex: str) -> list[str]:
    admin = Admin(clients.admin())
    try:
        return [topic for topic in admin.topics() if re.fullmatch(regex, topic)]
    finally:
        admin.close()
