"""Asks the leaders of partitions for offsets (ListOffsets).

librdkafka's `ListOffsets` crashes the process when metadata arrives while the calling thread looks up leaders: the main
thread of librdkafka completes and frees the lookup, which the caller still uses (seen with 2.16.0, in
rd_kafka_topic_partition_list_query_leaders_async). This module therefore uses kafka-python's connections.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import kafka.errors as kafka_errors
from kafka.protocol.consumer.offsets import ListOffsetsRequest, OffsetSpec

from connectx.errors.base import ConnectxError
from connectx.errors.kafka import ClientClosedError
from connectx.kafka.kafka_errors import typed_reply
from connectx.kafka.net import KafkaNet, error_name
from connectx.model.ids import TopicPartition

Offsets = dict[TopicPartition, int]

LATEST: Final = int(OffsetSpec.LATEST)
EARLIEST: Final = int(OffsetSpec.EARLIEST)


class OffsetsClient:
    """Requests for offsets of partitions, without waiting; the first one starts its network thread."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._net = KafkaNet(config)
        self._lock = threading.Lock()
        self._is_started = self._is_closed = False
        self._leaders: dict[TopicPartition, int] = {}  # on the network thread only

    def request(
        self,
        partitions: Sequence[TopicPartition],
        spec: int,
        on_found: Callable[[Offsets], object],
        on_failed: Callable[[ConnectxError], object],
        *,
        committed: bool,
        timeout_s: float,
    ) -> None:
        """Ask for the offsets that `spec` names: LATEST or EARLIEST. Leaders that move are looked up again.

        One of the callbacks is called once, on the network thread, or none after `close`. With `committed`, LATEST is
        the last stable offset.

        Raises:
            ClientClosedError: after `close`.
        """
        with self._lock:
            if self._is_closed:
                raise ClientClosedError("The worker has ended.")
            if not self._is_started:
                self._net.start()
                self._is_started = True
        deadline_s = time.monotonic() + timeout_s

        async def find() -> Offsets:
            return await self._find(partitions, spec, committed, deadline_s)

        async def answer() -> None:
            try:
                found = await self._net.retry(find, deadline_s)
            except Exception as error:  # whatever it is, the caller must not wait forever
                which = "end" if spec == LATEST else "start"
                topics = ", ".join(sorted({at.topic for at in partitions}))
                on_failed(typed_reply(error, f"ask for the {which} of topic {topics}", self._net.bootstrap_servers))
            else:
                on_found(found)

        try:
            self._net.spawn(answer)
        except ConnectionError as error:
            raise ClientClosedError("The worker has ended.") from error

    def close(self) -> None:
        """Drop connections and requests, and end the thread. A second call does nothing."""
        with self._lock:
            is_running = self._is_started and not self._is_closed
            self._is_closed = True
        if is_running:
            self._net.abandon()

    async def _find(
        self, partitions: Sequence[TopicPartition], spec: int, committed: bool, deadline_s: float
    ) -> Offsets:
        try:
            if unknown := {at.topic for at in partitions if at not in self._leaders}:
                await self._look_up_leaders(sorted(unknown), deadline_s)
            by_leader: dict[int, list[TopicPartition]] = {}
            for at in partitions:
                if at not in self._leaders:
                    raise kafka_errors.LeaderNotAvailableError(f"partition {at} has no leader")
                by_leader.setdefault(self._leaders[at], []).append(at)
            found: Offsets = {}
            for leader, led in by_leader.items():
                await self._net.connect(leader, deadline_s)
                reply = await self._net.send(_request(led, spec, committed), leader, _remaining_ms(deadline_s))
                for topic in reply.topics:
                    for answer in topic.partitions:
                        _raise_for(answer.error_code, f"partition {topic.name}-{answer.partition_index}")
                        found[TopicPartition(topic.name, answer.partition_index)] = answer.offset
            return found
        except (kafka_errors.KafkaError, OSError):
            self._leaders.clear()
            raise

    async def _look_up_leaders(self, topics: Sequence[str], deadline_s: float) -> None:
        reply = await self._net.metadata(topics, deadline_s)
        for topic in reply.topics:
            _raise_for(topic.error_code, f"topic {topic.name}")
            for partition in topic.partitions:
                if partition.leader_id >= 0:
                    self._leaders[TopicPartition(topic.name, partition.partition_index)] = partition.leader_id


def _request(partitions: Sequence[TopicPartition], spec: int, committed: bool) -> Any:
    topics: dict[str, list[Any]] = {}
    for at in partitions:
        topics.setdefault(at.topic, []).append(
            ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=at.partition, current_leader_epoch=-1, timestamp=spec
            )
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
        min_version=2,
        max_version=7,
    )


def _raise_for(error_code: int, what: str) -> None:
    if error_code != 0:
        raise kafka_errors.for_code(error_code)(f"{what}: {error_name(error_code)}")


def _remaining_ms(deadline_s: float) -> float:
    return max(1.0, (deadline_s - time.monotonic()) * 1000)
