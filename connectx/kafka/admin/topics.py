"""Creates and validates the internal topics, and inspects the worker group from outside.

Decides when an internal topic is created, waited for or refused. Mirrors Kafka Connect's TopicAdmin and
KafkaTopicBasedBackingStore. It never reads or writes records.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from confluent_kafka import KafkaError

from connectx.errors.kafka import InternalTopicError, TopicMissingError
from connectx.kafka.admin.client import Admin, TopicSpec
from connectx.kafka.admin.groups import GroupClient, GroupDescription
from connectx.kafka.kafka_errors import is_permission_error, is_silence
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TopicPartition
from connectx.model.worker_config import StorageTopic, WorkerConfig

_log = logging.getLogger(__name__)

START_S: Final = 60.0
_TOO_FEW_BROKERS_S: Final = 15.0  # brokers that are still coming up
_NOT_ALLOWED_S: Final = 10.0  # another client may be creating it
_GROUP_CALL_S: Final = 10.0
_SOON: Final = frozenset({KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.NOT_CONTROLLER, KafkaError.LEADER_NOT_AVAILABLE})


def ensure_internal_topics(
    clients: ClientConfigs, worker: WorkerConfig, timeout_s: float = START_S, admin: Admin | None = None
) -> dict[str, int]:
    """Create the config, offsets and status topics where they are missing, and check those that exist.

    Returns the number of partitions of each by name.

    Raises:
        InternalTopicError: a topic is not compacted only, the config topic has several partitions, or it cannot be
            created with these settings.
        TopicMissingError: it is missing, and creating it is not allowed.
        KafkaUnreachableError, KafkaLoginError, KafkaPermissionError, KafkaRequestError
    """
    own = admin or Admin(clients.admin())
    try:
        storages = {"config": worker.config_topic, "offset": worker.offset_topic, "status": worker.status_topic}
        counts = _wait_for_topics(own, storages, time.monotonic() + timeout_s)
        _check(own, storages, counts)
        return counts
    finally:
        if admin is None:
            own.close()


def ensure_offsets_topic(admin: Admin, topic: str, worker: WorkerConfig, timeout_s: float = START_S) -> int:
    """Create a connector's own offsets topic with the worker's `offset.storage.*` settings if it is missing.

    Returns its number of partitions; raises as `ensure_internal_topics`.
    """
    storages = {"offset": replace(worker.offset_topic, name=topic)}
    counts = _wait_for_topics(admin, storages, time.monotonic() + timeout_s)
    _check_compacted(admin, storages)
    return counts[topic]


def ensure_schemas_topic(admin: Admin, topic: str, timeout_s: float = START_S) -> None:
    """Create the topic of a schema registry, with the broker's replication factor, if it is missing.

    Raises:
        InternalTopicError: it is not compacted, or has several partitions.
        Others as `ensure_internal_topics`.
    """
    counts = _wait_for_topics(admin, {"schema": StorageTopic(topic, 1, -1, {})}, time.monotonic() + timeout_s)
    policy = (admin.topic_settings([topic])[topic] or {}).get("cleanup.policy", "compact")
    if policy != "compact" or counts[topic] != 1:
        raise InternalTopicError(
            "topic of the schema registry",
            topic,
            f"it has {counts[topic]} partitions and the cleanup.policy {policy}, and must have one and compact",
            next_step="Name another topic, or change this one.",
        )


def _wait_for_topics(admin: Admin, storages: Mapping[str, StorageTopic], deadline_s: float) -> dict[str, int]:
    refused: dict[str, KafkaError] = {}
    refused_since_s: float | None = None
    pause_s = 0.02
    while True:
        now_s = time.monotonic()
        found = admin.partition_counts([t.name for t in storages.values()], max(1.0, deadline_s - now_s))
        missing = {storage: topic for storage, topic in storages.items() if not found[topic.name]}
        if not missing:
            return {topic: count for topic, count in found.items() if count is not None}
        asked = [t for t in missing.values() if not _is_forbidden(refused.get(t.name))]
        answers = admin.create_topics([_spec(t) for t in asked], max(1.0, deadline_s - now_s)) if asked else {}
        refused |= {topic: error for topic, error in answers.items() if error is not None}
        waits = [_patience_s(refused.get(t.name), admin, storage, t) for storage, t in missing.items()]
        refused_since_s = refused_since_s or now_s
        if now_s >= min(deadline_s, refused_since_s + min(waits)):
            raise _not_there(missing, refused)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.5)


def _spec(topic: StorageTopic) -> TopicSpec:
    settings = {**topic.settings, "cleanup.policy": "compact"}
    return TopicSpec(topic.name, topic.partitions, topic.replication_factor, settings)


def _is_forbidden(error: KafkaError | None) -> bool:
    """Whether not to retry: assume that it exists or that another client creates it."""
    return error is not None and (is_permission_error(error) or error.code() == KafkaError.UNSUPPORTED_VERSION)


def _patience_s(error: KafkaError | None, admin: Admin, storage: str, topic: StorageTopic) -> float:
    """How long to wait for a missing topic after this response; raises the errors that waiting cannot fix."""
    if error is None or error.code() in _SOON or is_silence(error):
        return START_S
    if _is_forbidden(error):
        return _NOT_ALLOWED_S
    if error.code() == KafkaError.INVALID_REPLICATION_FACTOR:
        return _TOO_FEW_BROKERS_S
    step = f"Correct the {storage}.storage.* settings of the worker, or create the topic yourself."
    raise admin.request_error(error, f"create the topic {topic.name} of the setting {storage}.storage.topic", step)


def _not_there(missing: Mapping[str, StorageTopic], refused: Mapping[str, KafkaError]) -> Exception:
    storage, topic = next(iter(missing.items()))
    error = refused.get(topic.name)
    if error is not None and error.code() == KafkaError.INVALID_REPLICATION_FACTOR:
        return InternalTopicError(
            f"{storage}.storage.topic",
            topic.name,
            f"it cannot be created with {topic.replication_factor} replicas ({error.str()})",
            next_step=f"Set {storage}.storage.replication.factor to at most the number of brokers, or start more.",
        )
    if error is not None and _is_forbidden(error):
        return TopicMissingError(
            topic.name,
            f"the worker may not create it ({error.str()})",
            next_step=f"Create it with cleanup.policy=compact, or allow it; {storage}.storage.topic is its setting.",
        )
    return TopicMissingError(
        topic.name,
        error.str() if error is not None else "its partitions did not become known in time",
        next_step=f"Check the brokers; the setting {storage}.storage.topic names the topic.",
    )


def _check(admin: Admin, storages: Mapping[str, StorageTopic], counts: Mapping[str, int]) -> None:
    _check_compacted(admin, storages)
    config = storages["config"]
    if counts[config.name] != 1:
        raise InternalTopicError(
            "config.storage.topic",
            config.name,
            f"it has {counts[config.name]} partitions and must have exactly one",
            next_step="Name another topic; its records need one order.",
        )


def _check_compacted(admin: Admin, storages: Mapping[str, StorageTopic]) -> None:
    settings = admin.topic_settings([topic.name for topic in storages.values()])
    for storage, topic in storages.items():
        known = settings[topic.name]
        if known is None:
            _log.info("The settings of topic %s cannot be read; it is taken as compacted.", topic.name)
            continue
        policy = known.get("cleanup.policy", "compact")
        if [word.strip() for word in policy.split(",")] != ["compact"]:
            raise InternalTopicError(
                f"{storage}.storage.topic",
                topic.name,
                f"its cleanup.policy is {policy!r} and must be exactly 'compact', or records that are needed get lost",
                next_step="Set cleanup.policy=compact on the topic, or name another topic.",
            )


def require_reachable(clients: ClientConfigs, timeout_s: float = _GROUP_CALL_S) -> None:
    """Ask the brokers for something harmless, through the client that knows why a login or a certificate is refused.

    Raises:
        KafkaUnreachableError, KafkaLoginError, ClientSettingError
    """
    with contextlib.closing(Admin(clients.admin())) as admin:
        admin.cluster_id(timeout_s)


def describe_group(clients: ClientConfigs, group_id: str, timeout_s: float = _GROUP_CALL_S) -> GroupDescription:
    """A group of the classic protocol of any type, also `connect`. Raises as GroupClient does."""
    return _group(clients, group_id, timeout_s).describe()


def delete_group_offsets(
    clients: ClientConfigs, group_id: str, partitions: Sequence[TopicPartition], timeout_s: float = _GROUP_CALL_S
) -> None:
    """Delete committed offsets of a consumer group for these partitions. Raises as GroupClient does."""
    _group(clients, group_id, timeout_s).delete_offsets(partitions)


def remove_members(
    clients: ClientConfigs, group_id: str, members: Sequence[str], reason: str, timeout_s: float = _GROUP_CALL_S
) -> None:
    """Remove members from a group that are certainly dead. Errors: see `GroupClient`."""
    _group(clients, group_id, timeout_s).remove(members, reason)


def _group(clients: ClientConfigs, group_id: str, timeout_s: float) -> GroupClient:
    return GroupClient(clients.kafka_python(f"{clients.worker.group_id}-group-admin"), group_id, timeout_s)
