"""Stimuli and effects of the fetcher's core, and its settings.

Stimuli are calls of the application, answers to requests, requests that stayed without an answer, and time. Effects are
requests to send, and the handling of their responses. Record bytes never come here: the core knows the sizes and
offsets of a response.
"""

from __future__ import annotations

from collections.abc import Mapping

from connectx.core.clients.messages import (
    Answered,
    FetchMetadata,
    MetadataFetched,
    SendRequest,
    TimeReached,
    Unanswered,
)
from connectx.model.ids import TopicPartition
from connectx.values import Value


class FetcherSettings(Value):
    """Settings by their Kafka names, where they have one.

    Attributes:
        max_bytes: `fetch.max.bytes`, of one answer.
        partition_max_bytes: `max.partition.fetch.bytes`.
        buffer_bytes: nothing is fetched while as much is buffered (`queued.max.messages.kbytes`). So a fetcher holds
            that and one answer of each broker at most.
        replica_max_age_ms: how long a replica is read that a leader has named (`metadata.max.age.ms`, KIP-392).
    """

    max_bytes: int = 52_428_800
    partition_max_bytes: int = 1_048_576
    buffer_bytes: int = 16_777_216
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    replica_max_age_ms: int = 300_000


class FetchFrom(Value):
    """Fetch these partitions from these offsets. What is buffered or in flight of them does not count any more."""

    offsets: Mapping[TopicPartition, int]


class Forget(Value):
    """Fetch these partitions no longer. What is buffered or in flight of them does not count any more."""

    partitions: tuple[TopicPartition, ...]


class Pause(Value):
    """Fetch nothing of these until Resume. What is buffered or in flight of them is fetched again after it."""

    partitions: tuple[TopicPartition, ...]


class Resume(Value):
    """Fetch these again, from where the application took the last records."""

    partitions: tuple[TopicPartition, ...]


class Taken(Value):
    """The application took buffered records: the offset after them, and the bytes of the buffer that are free again."""

    taken: Mapping[TopicPartition, tuple[int, int]]


class PartitionFetch(Value):
    """One partition of a Fetch. `leader_epoch` and `fetched_epoch` are -1 if not known (KIP-320).

    `version` is the partition's in the fetcher: an answer to an earlier one does not count.
    """

    target: TopicPartition
    offset: int
    leader_epoch: int
    fetched_epoch: int
    version: int


class Fetch(Value):
    """Fetch, which waits in the broker until there is enough; brokers fill the first partitions first."""

    max_bytes: int
    partitions: tuple[PartitionFetch, ...]


Request = FetchMetadata | Fetch


class PartitionResult(Value):
    """Kafka's answer for one partition.

    Attributes:
        size_bytes: of whole record batches that can be read; 0 if there are none.
        next_offset: the offset after them.
        last_epoch: leader epoch of the last of them.
        diverging_offset: the log does not have the fetched epoch up to the position, but only up to here; -1 if it has.
        preferred_replica: node that is to be asked in place of the leader, -1 for none.
        bad_batch: why the batch after these cannot be read; empty if all can be.
    """

    error: str | None = None
    size_bytes: int = 0
    next_offset: int = -1
    last_epoch: int = -1
    diverging_offset: int = -1
    preferred_replica: int = -1
    bad_batch: str = ""


class Fetched(Value):
    """Answer to Fetch. `error` is one of the whole request."""

    results: Mapping[TopicPartition, PartitionResult]
    error: str | None = None


Answer = MetadataFetched | Fetched


FetcherStimulus = FetchFrom | Forget | Pause | Resume | Taken | TimeReached | Answered[Answer] | Unanswered


class BufferRecords(Value):
    """Keep the records that the answer just handled has of this partition, which begin at `offset`."""

    target: TopicPartition
    offset: int


class FetchFailed(Value):
    """The partition cannot be read at this offset. It is not fetched again before FetchFrom.

    `error` is Kafka's name of the error, LOG_TRUNCATION or UNREADABLE_BATCH. `message` has details, or is empty.
    """

    target: TopicPartition
    offset: int
    error: str
    message: str = ""


FetcherEffect = SendRequest[Request] | BufferRecords | FetchFailed
