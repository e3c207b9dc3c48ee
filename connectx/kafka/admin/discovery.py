"""Finds the group and the internal topics of a cluster from the REST address of a worker.

REST reports neither. The group is the one whose members have the worker's address. An internal topic is recognised by
the keys of its records; among several, the one that names this cluster's connectors is taken. It never guesses: if
several remain, it raises AttachError.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as Tp

from connectx.errors.clusters import AttachError
from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.group_view import STABLE, GroupView, group_view
from connectx.kafka.admin.groups import GroupClient
from connectx.kafka.admin.inspection import Inspection
from connectx.kafka.kafka_errors import typed
from connectx.kafka.settings.clients import ClientConfigs
from connectx.protocol import config_topic, status_topic

CONFIG, STATUS = "config", "status"
GROUP_CALL_S: Final = 5.0
_STABLE_S: Final = 15.0
_SAMPLE: Final = 2_000
_QUIET_S: Final = 0.5
_READ_S: Final = 30.0


def find_group(clients: ClientConfigs, worker_ids: Collection[str]) -> str:
    """The group of type `connect` that has a member with one of these addresses (host:port).

    Raises:
        AttachError: none has, or several.
        KafkaUnreachableError, KafkaPermissionError, KafkaRequestError
    """
    config = clients.kafka_python("connectx-attach")
    with Inspection(config) as inspection:
        listed = inspection.groups("connect")
    views = {group: _stable_view(GroupClient(config, group, GROUP_CALL_S)) for group in listed}
    found = [group for group, view in views.items() if view is not None and set(view.worker_ids) & set(worker_ids)]
    if len(found) == 1:
        return found[0]
    seen = f"there are {', '.join(listed)}" if listed else "there is none"
    raise AttachError(
        f"The worker group of {', '.join(sorted(worker_ids))} was not found in this Kafka: {seen}.",
        next_step="Name it with group_id= (the worker's group.id), or check bootstrap_servers=.",
    )


def _stable_view(client: GroupClient) -> GroupView | None:
    deadline_s = time.monotonic() + _STABLE_S
    while True:
        described = client.describe()
        if described.state == STABLE:
            return group_view(described.group_id, described.protocol, described.details)
        if not described.members or time.monotonic() > deadline_s:
            return None
        time.sleep(0.2)


def find_topics(clients: ClientConfigs, wanted: Collection[str], connectors: Collection[str]) -> dict[str, str]:
    """Names of the `config` and `status` topics, as far as `wanted`, of the cluster with these connectors.

    Raises:
        AttachError: there is none, or several that could be it.
        KafkaUnreachableError, KafkaLoginError, KafkaPermissionError, KafkaRequestError
    """
    admin = Admin(clients.admin())
    try:
        listed = [topic for topic in admin.topics() if not topic.startswith("__")]
        settings = admin.topic_settings(listed)
        compacted = [t for t in listed if (settings[t] or {}).get("cleanup.policy") in (None, "compact")]
        counts = admin.partition_counts(compacted)
    finally:
        admin.close()
    keys = _sampled(clients, {topic: count for topic, count in counts.items() if count})
    return {kind: _chosen(kind, keys, connectors) for kind in wanted}


def kind_of(keys: Collection[str]) -> str | None:
    """`config` or `status` for the keys of such a topic, else None."""
    if any(key.startswith((status_topic.CONNECTOR, status_topic.TASK)) for key in keys):
        return STATUS
    own = (config_topic.TASK_COUNT, config_topic.COMMIT, config_topic.CONNECTOR, config_topic.TARGET_STATE)
    return CONFIG if any(key == config_topic.SESSION_KEY or key.startswith(own) for key in keys) else None


def _chosen(kind: str, keys: Mapping[str, Collection[str]], connectors: Collection[str]) -> str:
    candidates = [topic for topic in sorted(keys) if kind_of(keys[topic]) == kind]
    prefix = config_topic.CONNECTOR if kind == CONFIG else status_topic.CONNECTOR
    named = {topic: sum(prefix + name in keys[topic] for name in connectors) for topic in candidates}
    best = [topic for topic in candidates if named[topic] == max(named.values())]
    if len(best) == 1:
        return best[0]
    setting = f"{kind}.storage.topic"
    seen = f"it could be {', '.join(best)}" if best else "no compacted topic has such records that may be read"
    raise AttachError(
        f"The {kind} topic of this cluster was not found: {seen}.",
        next_step=f'Name it: config={{"{setting}": ...}}; or --worker-config with a worker\'s properties.',
    )


def _sampled(clients: ClientConfigs, topics: Mapping[str, int]) -> dict[str, set[str]]:
    """Some keys of each topic, from the beginning of each of its partitions."""
    keys: dict[str, set[str]] = {topic: set() for topic in topics}
    if not topics:
        return keys
    consumer = Consumer({**clients.internal_consumer(), "group.id": "connectx-attach"})
    left = {(topic, number) for topic, count in topics.items() for number in range(count)}
    read = dict.fromkeys(left, 0)
    try:
        consumer.assign([Tp(topic, number, 0) for topic, number in sorted(left)])
        received_s = began_s = time.monotonic()
        while left and time.monotonic() - began_s < _READ_S:
            messages = consumer.consume(1_000, timeout=0.1)
            for message in messages:
                _note(message, keys, read, left)
            if messages:
                received_s = time.monotonic()
            elif time.monotonic() - received_s > _QUIET_S and any(keys.values()):
                break  # what is left holds nothing but markers
    except KafkaException as error:
        raise typed(error.args[0], "look for internal topics", clients.bootstrap_servers, None) from error
    finally:
        consumer.close()
    return keys


def _note(
    message: Message, keys: Mapping[str, set[str]], read: dict[tuple[str, int], int], left: set[tuple[str, int]]
) -> None:
    where = (str(message.topic()), int(message.partition() or 0))
    if message.error() is not None:  # the end of a partition, or nothing that may be read
        left.discard(where)
        return
    key = message.key()
    keys[where[0]].add(key.decode(errors="replace") if isinstance(key, bytes) else str(key or ""))
    read[where] += 1
    if read[where] >= _SAMPLE:
        left.discard(where)
