"""The fetcher: which partitions to fetch from which node, and what an answer means.

`handle(stimulus, now_ms)` is the only entry. It never reads a clock, waits or does I/O. A driver carries out the
effects, and reports for every request its answer or that none will come.

Each broker has one Fetch to answer at a time. The next one leaves as soon as the answer is there, not when its records
were taken: so fetching continues while the application works, up to `buffer_bytes`. An answer to a position that has
changed meanwhile changes nothing.

Every Fetch carries the epoch of the last fetched record. A leader that was elected uncleanly and lacks fetched records
reports that. The partition fails then; otherwise other records would follow without notice (KIP-320, KIP-595).

Mirrors Fetcher, FetchCollector and SubscriptionState of Kafka's Java consumer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from connectx.core.by_value import ByValue
from connectx.core.fetcher import errors
from connectx.core.fetcher import messages as msg
from connectx.model.ids import TopicPartition


@dataclass(slots=True)
class _Partition:
    """A partition that is fetched.

    `taken` is the offset after the records that the application has, `position` the one after those that are buffered.
    `version` changes when what is in flight no longer counts.
    """

    position: int
    taken: int
    version: int
    fetched_epoch: int = -1
    buffered_bytes: int = 0
    paused: bool = False
    failed: bool = False
    attempts: int = 0
    retry_at_ms: int = 0
    replica: int | None = None
    replica_until_ms: int = 0

    def restart(self, offset: int, version: int) -> None:
        """Continue at an offset; forget what is buffered or in flight."""
        if offset != self.position:
            self.fetched_epoch = -1
        self.position = self.taken = offset
        self.version = version
        self.buffered_bytes = 0
        self.failed = False


class FetcherCore(ByValue):
    """Partitions of one consumer.

    Attributes:
        trouble: why the last attempt failed; None after one that succeeded.
    """

    def __init__(self, settings: msg.FetcherSettings) -> None:
        self.settings = settings
        self.trouble: str | None = None
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._leaders: dict[TopicPartition, msg.Leader] = {}
        self._in_flight: dict[int, tuple[int | None, msg.Request, dict[TopicPartition, int]]] = {}
        self._effects: list[msg.FetcherEffect] = []
        self._last_id = 0
        self._last_version = 0
        self._metadata_attempts = 0
        self._metadata_at_ms = 0

    def handle(self, stimulus: msg.FetcherStimulus, now_ms: int) -> msg.FetcherStep:
        """Take in a stimulus; times only grow."""
        match stimulus:
            case msg.FetchFrom(offsets):
                for target, offset in offsets.items():
                    self._fetch_from(target, offset)
            case msg.Forget(partitions):
                for target in partitions:
                    self._partitions.pop(target, None)
                    self._leaders.pop(target, None)
            case msg.Pause(partitions):
                for partition in self._known(partitions):
                    partition.paused = True
                    partition.restart(partition.taken, self._new_version())
            case msg.Resume(partitions):
                for partition in self._known(partitions):
                    partition.paused = False
            case msg.Taken(taken):
                for target, (next_offset, size_bytes) in taken.items():
                    for partition in self._known((target,)):
                        partition.taken = next_offset
                        partition.buffered_bytes = max(0, partition.buffered_bytes - size_bytes)
            case msg.Answered(request_id, answer):
                if (sent := self._in_flight.pop(request_id, None)) is not None:
                    self._on_answer(sent, answer, now_ms)
            case msg.Unanswered(request_id, reason):
                if (sent := self._in_flight.pop(request_id, None)) is not None:
                    self._on_unanswered(sent, reason, now_ms)
            case msg.TimeReached():
                pass
            case _ as never:
                assert_never(never)
        self._send(now_ms)
        effects, self._effects = tuple(self._effects), []
        return msg.FetcherStep(effects, self._next_time_ms(now_ms))

    def _fetch_from(self, target: TopicPartition, offset: int) -> None:
        partition = self._partitions.get(target)
        if partition is None:
            self._partitions[target] = _Partition(offset, offset, self._new_version())
        else:
            partition.attempts = partition.retry_at_ms = 0
            partition.fetched_epoch = -1
            partition.restart(offset, self._new_version())

    def _known(self, partitions: Iterable[TopicPartition]) -> list[_Partition]:
        return [self._partitions[target] for target in partitions if target in self._partitions]

    def _new_version(self) -> int:
        self._last_version += 1
        return self._last_version

    def _on_answer(
        self, sent: tuple[int | None, msg.Request, dict[TopicPartition, int]], answer: msg.Answer, now_ms: int
    ) -> None:
        node, request, versions = sent
        match request:
            case msg.FetchMetadata():
                assert isinstance(answer, msg.MetadataFetched), f"{answer} is no answer to {request}"
                self._on_metadata(request, answer, now_ms)
            case msg.Fetch():
                assert isinstance(answer, msg.Fetched), f"{answer} is no answer to {request}"
                if answer.error is not None:
                    self._on_unanswered(sent, answer.error, now_ms)
                    return
                for fetch in request.partitions:
                    partition = self._partitions.get(fetch.target)
                    result = answer.results.get(fetch.target)
                    if partition is not None and partition.version == versions[fetch.target] and result is not None:
                        self._on_result(node, fetch, partition, result, now_ms)
            case _:
                assert_never(request)

    def _on_result(
        self, node: int | None, fetch: msg.PartitionFetch, at: _Partition, result: msg.PartitionResult, now_ms: int
    ) -> None:
        target = fetch.target
        if result.error is None and result.diverging_offset >= 0:
            message = f"its leader has those records only up to offset {result.diverging_offset}"
            self._fail(target, at, errors.TRUNCATED, message)
        elif result.error is None:
            self.trouble = None
            at.attempts = 0
            if 0 <= result.preferred_replica != node:
                at.replica, at.replica_until_ms = result.preferred_replica, now_ms + self.settings.replica_max_age_ms
            if result.size_bytes:
                self._effects.append(msg.BufferRecords(target, at.position))
                at.position, at.fetched_epoch = result.next_offset, result.last_epoch
                at.buffered_bytes += result.size_bytes
                self._partitions[target] = self._partitions.pop(target)  # the last in turn, so that none starves
        elif result.error == errors.OUT_OF_RANGE and at.replica is not None:
            at.replica = None  # a replica may lag its leader
            self._retry(target, at, result.error, now_ms)
        elif result.error in errors.RETRIABLE:
            if result.error in errors.LOST_LEADER:
                self._leaders.pop(target, None)
                at.replica = None
            self._retry(target, at, result.error, now_ms)
        else:
            self._fail(target, at, result.error)

    def _on_metadata(self, request: msg.FetchMetadata, answer: msg.MetadataFetched, now_ms: int) -> None:
        for target, partition in self._partitions.items():
            if target in answer.leaders:
                self._leaders[target] = answer.leaders[target]
            elif (error := answer.errors.get(target.topic)) is not None and error not in errors.RETRIABLE:
                self._fail(target, partition, error)
        wanting = {target.topic for target in self._leaderless()}.intersection(request.topics)
        if not wanting:
            self._metadata_attempts = self._metadata_at_ms = 0
            return
        self.trouble = min(f"{topic}: {answer.errors.get(topic, 'LEADER_NOT_AVAILABLE')}" for topic in wanting)
        self._later(now_ms)

    def _on_unanswered(
        self, sent: tuple[int | None, msg.Request, dict[TopicPartition, int]], reason: str, now_ms: int
    ) -> None:
        _, request, versions = sent
        self.trouble = reason
        if isinstance(request, msg.FetchMetadata):
            self._later(now_ms)
            return
        for target, version in versions.items():
            self._leaders.pop(target, None)
            partition = self._partitions.get(target)
            if partition is not None:
                partition.replica = None
                if partition.version == version:
                    self._retry(target, partition, reason, now_ms)

    def _retry(self, target: TopicPartition, partition: _Partition, reason: str, now_ms: int) -> None:
        self.trouble = f"{target}: {reason}"
        partition.attempts += 1
        partition.retry_at_ms = now_ms + self._backoff_ms(partition.attempts)

    def _later(self, now_ms: int) -> None:
        self._metadata_attempts += 1
        self._metadata_at_ms = now_ms + self._backoff_ms(self._metadata_attempts)

    def _fail(self, target: TopicPartition, partition: _Partition, error: str, message: str = "") -> None:
        if not partition.failed:
            partition.failed = True
            self._effects.append(msg.FetchFailed(target, partition.position, error, message))

    def _backoff_ms(self, attempts: int) -> int:
        """`retry.backoff.ms`, doubled with each attempt up to `retry.backoff.max.ms` (KIP-580)."""
        return min(self.settings.retry_backoff_max_ms, self.settings.retry_backoff_ms << min(attempts - 1, 20))

    def _send(self, now_ms: int) -> None:
        topics = tuple(sorted({target.topic for target in self._leaderless()}))
        asks = any(isinstance(request, msg.FetchMetadata) for _, request, _ in self._in_flight.values())
        if topics and not asks and now_ms >= self._metadata_at_ms:
            self._send_request(None, msg.FetchMetadata(topics), {})
        buffered_bytes = sum(partition.buffered_bytes for partition in self._partitions.values())
        if buffered_bytes >= self.settings.buffer_bytes:
            return
        busy = {node for node, request, _ in self._in_flight.values() if isinstance(request, msg.Fetch)}
        asked = {item for _, _, versions in self._in_flight.values() for item in versions.items()}
        by_node: dict[int, list[TopicPartition]] = {}
        for target, partition in self._partitions.items():
            if self._is_wanted(partition) and now_ms >= partition.retry_at_ms and target in self._leaders:
                node = self._node(target, partition, now_ms)
                if node not in busy and (target, partition.version) not in asked:
                    by_node.setdefault(node, []).append(target)
        room_bytes = max(self.settings.buffer_bytes - buffered_bytes, self.settings.partition_max_bytes)
        for node, targets in by_node.items():
            fetches = tuple(
                msg.PartitionFetch(
                    target,
                    self._partitions[target].position,
                    self._leaders[target].epoch,
                    self._partitions[target].fetched_epoch,
                )
                for target in targets
            )
            versions = {target: self._partitions[target].version for target in targets}
            self._send_request(node, msg.Fetch(min(self.settings.max_bytes, room_bytes), fetches), versions)

    def _send_request(self, node: int | None, request: msg.Request, versions: dict[TopicPartition, int]) -> None:
        self._last_id += 1
        self._in_flight[self._last_id] = node, request, versions
        self._effects.append(msg.SendRequest(self._last_id, node, request))

    def _node(self, target: TopicPartition, partition: _Partition, now_ms: int) -> int:
        if partition.replica is not None and now_ms < partition.replica_until_ms:
            return partition.replica
        return self._leaders[target].node

    @staticmethod
    def _is_wanted(partition: _Partition) -> bool:
        return not partition.paused and not partition.failed

    def _leaderless(self) -> list[TopicPartition]:
        return [t for t, partition in self._partitions.items() if self._is_wanted(partition) and t not in self._leaders]

    def _next_time_ms(self, now_ms: int) -> int | None:
        times = [partition.retry_at_ms for partition in self._partitions.values() if self._is_wanted(partition)]
        times += [self._metadata_at_ms] if self._leaderless() else []
        return min((time_ms for time_ms in times if time_ms > now_ms), default=None)
