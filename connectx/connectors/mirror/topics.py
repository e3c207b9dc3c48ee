"""Keeps topics of the target in step with those of the source: same partitions, and settings when they are created."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError

from connectx.connectors.mirror.config import Naming
from connectx.errors.kafka import TopicNotCreatableError
from connectx.kafka.admin.client import Admin, TopicSpec

log = logging.getLogger(__name__)

_COPIED: Final[tuple[str, ...]] = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
)


class MirroredTopics:
    """Topics of a mirror; asks both clusters with each call.

    Args:
        source, target: clients of the clusters.
        naming: which topics, and their names.
        values: parsed keys of the connector.
    """

    def __init__(self, source: Admin, target: Admin, naming: Naming, values: Mapping[str, Any]) -> None:
        self._source = source
        self._target = target
        self._naming = naming
        self._copies_settings = values["sync.topic.configs.enabled"]
        self._replication_factor = values["replication.factor"]

    def sync(self, *, same_cluster: bool) -> dict[str, int]:
        """Create what the target lacks; returns the partitions of each mirrored topic by its name in the source.

        Raises:
            TopicNotCreatableError: the target refuses a topic or partitions.
            KafkaUnreachableError, KafkaLoginError, KafkaPermissionError, KafkaRequestError
        """
        wanted = [topic for topic in self._source.topics() if self._naming.takes(topic, same_cluster=same_cluster)]
        if not wanted:
            return {}
        counts = {topic: count for topic, count in self._source.partition_counts(wanted).items() if count}
        there = self._target.partition_counts([self._naming.target(topic) for topic in counts]) if counts else {}
        missing = {topic: count for topic, count in counts.items() if there[self._naming.target(topic)] is None}
        self._create(missing)
        for topic, count in counts.items():
            name, present = self._naming.target(topic), there[self._naming.target(topic)]
            if present is not None and present < count:
                error = self._target.create_partitions(name, count)
                if error is not None and error.code() != KafkaError.INVALID_PARTITIONS:  # another has added them
                    raise _refused(name, error)
                log.info("topic %s of the target has %d partitions now, as in the source", name, count)
        return dict(sorted(counts.items()))

    def _create(self, missing: Mapping[str, int]) -> None:
        if not missing:
            return
        settings = self._source.topic_settings(list(missing)) if self._copies_settings else {}
        specs = []
        for topic, count in missing.items():
            own = settings.get(topic) or {}
            copied = {name: own[name] for name in _COPIED if name in own}
            specs.append(TopicSpec(self._naming.target(topic), count, self._replication_factor, copied))
        for topic, error in self._target.create_topics(specs).items():
            if error is not None and error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _refused(topic, error)
            log.info("topic %s was created in the target", topic)


def _refused(topic: str, error: KafkaError) -> TopicNotCreatableError:
    return TopicNotCreatableError(
        f"The target refuses the topic {topic!r} or its partitions: {error.str().rstrip('.')}.",
        next_step="Correct replication.factor or the rights of target.cluster.*, or create the topic, and restart the "
        "connector.",
    )
