"""A topic as a read_committed reader without a group sees it at one moment; it can be read repeatedly.

It decides where reading ends (the last stable offsets when the snapshot was taken) and reports what hides records: an
open transaction, retention, compaction. It never joins a group and commits nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Tp

from connectx.errors.base import ConnectxError
from connectx.errors.checks import TopicUnreadableError
from connectx.errors.kafka import TopicMissingError
from connectx.kafka.admin.client import Admin
from connectx.kafka.fetcher.ranges import read_ranges
from connectx.kafka.kafka_errors import typed
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TopicPartition
from connectx.values import Value

_CHUNK = 10_000
_CALL_S = 30.0
_QUIET_S = 30.0


class TopicSnapshot(Value):
    """What can be read of a topic.

    Attributes:
        starts, ends: the first offset of each partition, and its last stable offset.
        written: the offsets after the last record, in an open transaction or not.
        hidden: why a reader does not see all records that were ever written, as parts of sentences.
        waits: `hidden` is an open transaction, which ends some time.
    """

    topic: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    hidden: tuple[str, ...]
    waits: bool
    config: Mapping[str, Any]
    written: Mapping[int, int] = field(default_factory=dict)

    def without_later(self, written: Mapping[int, int]) -> TopicSnapshot:
        """This snapshot, without waiting for transactions that hide only records after these offsets."""
        if not self.waits or any(end > self.ends.get(partition, 0) for partition, end in written.items()):
            return self
        open_ = _open_transaction(self.topic)
        return replace(self, hidden=tuple(reason for reason in self.hidden if reason != open_), waits=False)

    @property
    def ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        """The first offset of each partition, and the offset after the last record that can be read."""
        return {TopicPartition(self.topic, number): (self.starts[number], end) for number, end in self.ends.items()}

    @property
    def consumer(self) -> dict[str, Any]:
        """Settings of a consumer that reads these ranges, in librdkafka's spelling."""
        return {**self.config, **_READING}

    @property
    def size(self) -> int:
        """About how many records there are; transaction markers count, too."""
        return sum(self.ends.values()) - sum(self.starts.values())

    def read(self) -> Iterator[pa.Table]:
        """All records, in order within each partition, in tables with the columns of FetchedRecords.

        Raises:
            TopicUnreadableError: Kafka refuses, or nothing comes for 30 s.
        """
        try:
            yield from read_ranges(self.consumer, self.ranges, max_records=_CHUNK, quiet_s=_QUIET_S)
        except ConnectxError as error:
            raise TopicUnreadableError(self.topic, error.message) from error


_READING: Mapping[str, Any] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.partition.eof": False,
    "auto.offset.reset": "error",
    "queued.max.messages.kbytes": 65_536,
}


def take_snapshot(clients: ClientConfigs, topic: str) -> TopicSnapshot:
    """Look where the topic begins and ends now.

    Raises:
        TopicMissingError: there is no such topic.
        KafkaUnreachableError, KafkaLoginError, KafkaPermissionError, KafkaRequestError
    """
    admin = Admin(clients.admin())
    try:
        count = admin.partition_counts([topic])[topic]
        if count is None:
            raise TopicMissingError(topic, "", next_step="Check the name of the topic.")
        partitions = [TopicPartition(topic, number) for number in range(count)]
        stable = admin.end_offsets(partitions, committed=True)
        written = admin.end_offsets(partitions)
        policy = (admin.topic_settings([topic])[topic] or {}).get("cleanup.policy", "delete")
    finally:
        admin.close()
    config = {**clients.internal_consumer(), "group.id": "connectx-check"}
    starts = _starts(config, clients, partitions)
    ends = {at.partition: max(stable[at], starts[at.partition]) for at in partitions}
    removed = sum(starts.values())
    waits = any(written[at] > stable[at] for at in partitions)
    hidden = [_open_transaction(topic)] if waits else []
    hidden += [f"the first {removed:,} offsets of topic {topic} were removed (retention)"] if removed else []
    hidden += [f"topic {topic} is compacted, so older records of a key are gone"] if "compact" in policy else []
    written_ends = {at.partition: end for at, end in written.items()}
    return TopicSnapshot(topic, starts, ends, tuple(hidden), waits, config, written_ends)


def _open_transaction(topic: str) -> str:
    return f"records after an open transaction in topic {topic} cannot be read yet"


def _starts(config: Mapping[str, Any], clients: ClientConfigs, partitions: list[TopicPartition]) -> dict[int, int]:
    consumer = Consumer({**config, **_READING})
    try:
        return {
            at.partition: consumer.get_watermark_offsets(Tp(at.topic, at.partition), timeout=_CALL_S)[0]
            for at in partitions
        }
    except KafkaException as error:
        raise typed(error.args[0], "look where a topic begins", clients.bootstrap_servers, None) from error
    finally:
        consumer.close()
