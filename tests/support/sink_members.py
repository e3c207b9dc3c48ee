"""Members of consumer groups: a sink's consumer with its listener, which records its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from connectx.kafka.fetcher.fetcher import FetchedRecords
from connectx.kafka.settings.librdkafka_log import LibrdkafkaLog
from connectx.kafka.sink_consumer import CommitError, SinkConsumer
from connectx.model.ids import TopicPartition
from tests.support.waiting import until

SETTINGS = {
    "enable.auto.commit": False,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 300,
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "range",
    "fetch.queue.backoff.ms": 10,
}


class Member:
    """A consumer with its listener, which notes its calls."""

    def __init__(self, config: Mapping[str, Any], topics: Sequence[str]) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.owned: dict[TopicPartition, int] = {}
        self.on_assigned: Callable[[], None] = lambda: None
        self.on_revoked: Callable[[], None] = lambda: None
        self.consumer = SinkConsumer({"logger": LibrdkafkaLog(), **SETTINGS, **config}, self, checkpoint=lambda: None)
        self.consumer.join(topics)

    def assigned(self, positions: Mapping[TopicPartition, int]) -> None:
        self.heard.append(("assigned", dict(positions)))
        self.owned |= positions
        self.on_assigned()

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.heard.append(("revoked", list(partitions)))
        self.on_revoked()
        self._drop(partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.heard.append(("lost", list(partitions)))
        self._drop(partitions)

    def committed(self, sequence: int, error: CommitError | None) -> None:
        self.heard.append(("committed", (sequence, error)))

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self.owned.pop(partition, None)

    def read(self, wanted: Callable[[list[FetchedRecords]], bool], timeout_s: float = 30.0) -> list[FetchedRecords]:
        """Poll until `wanted` is true of what came."""
        got: list[FetchedRecords] = []

        def enough() -> bool:
            fetched = self.consumer.poll(0.1, 10_000)
            if fetched is not None:
                got.append(fetched)
            return wanted(got)

        until(enough, "the wanted records", timeout_s)
        return got
