"""Topics that a source task writes to: found or created once each, by the rules of KIP-158.

A topic without a matching `topic.creation.` key is created with the broker's defaults, where Kafka Connect relies on
the broker's auto-creation. With the worker's `topic.creation.enable` = false, topics are left to the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError

from connectx.errors.base import ConnectxError
from connectx.errors.kafka import KafkaUnreachableError, OwnOffsetsTopicError, TopicNotCreatableError
from connectx.kafka.admin.client import Admin, TopicSpec
from connectx.plugins.settings import SourceSettings

_CALL_S = 5.0


class SourceTopics:
    """Checks the topics of one task.

    Args:
        settings: the connector's topic creation groups.
        create: False leaves missing topics to the broker.
        offsets_topic: where the task's own offsets go; records must not.
        admin: makes an admin client of the connector; one is made and closed each time that topics are new.
        checkpoint: called between tries while the broker does not answer.
        used: called with each topic once (KIP-558).
    """

    def __init__(
        self,
        settings: SourceSettings,
        *,
        create: bool,
        offsets_topic: str,
        admin: Callable[[], Admin],
        checkpoint: Callable[[], None],
        used: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._creates = create
        self._offsets_topic = offsets_topic
        self._new_admin = admin
        self._checkpoint = checkpoint
        self._used = used
        self._known: set[str] = set()

    @property
    def known(self) -> tuple[str, ...]:
        """Topics that were found or created before, sorted."""
        return tuple(sorted(self._known))

    def ensure(self, topics: Sequence[str]) -> None:
        """Make sure that these topics are there before records are sent.

        Raises:
            OwnOffsetsTopicError: one of them is the task's own offsets topic.
            TopicNotCreatableError: a topic is missing and Kafka did not create it.
        """
        new = [topic for topic in topics if topic not in self._known]
        if self._offsets_topic in new:
            raise OwnOffsetsTopicError(self._offsets_topic)
        if not new:
            return
        admin = self._new_admin()
        try:
            for topic in new:
                if self._creates:
                    self._create_if_missing(admin, topic)
                self._known.add(topic)
                self._used(topic)
        finally:
            admin.close()

    def _create_if_missing(self, admin: Admin, topic: str) -> None:
        """Ask again for as long as no broker answers: a lost broker comes back."""
        while True:
            self._checkpoint()
            try:
                if admin.partition_counts([topic], _CALL_S)[topic] is None:
                    self._create(admin, topic)
            except KafkaUnreachableError:
                continue
            except ConnectxError as error:
                raise _not_creatable(topic, str(error)) from error
            return

    def _create(self, admin: Admin, topic: str) -> None:
        group = self._settings.topic_group(topic)
        spec = TopicSpec(topic)
        if group is not None:
            spec = TopicSpec(topic, group.partitions, group.replication_factor, group.settings)
        error = admin.create_topics([spec], _CALL_S)[topic]
        if error is not None and error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise _not_creatable(topic, error.str())


def _not_creatable(topic: str, cause: str) -> TopicNotCreatableError:
    return TopicNotCreatableError(
        f"The topic {topic!r} is missing and could not be created: {cause.rstrip('.')}.",
        next_step="Create it, or correct topic.creation.default.partitions and .replication.factor or the permissions "
        "of the connector's admin client; then restart the task.",
    )
