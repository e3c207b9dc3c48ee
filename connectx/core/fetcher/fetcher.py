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
from typing import assert_never

from connectx.core.clients import messages as clients
from connectx.core.clients.requests import InFlight
from connectx.core.fetcher import errors, invariants
from connectx.core.fetcher import messages as msg
from connectx.core.fetcher.state import FetcherState, Partition
from connectx.core.ignored import NotFetched, NotPending
from connectx.core.rules import BrokenRule, Marks
from connectx.model.ids import TopicPartition


class FetcherCore(FetcherState):
    """Partitions of one consumer."""

    __slots__ = ()

    def handle(self, stimulus: msg.FetcherStimulus, now_ms: int) -> clients.ClientStep[msg.FetcherEffect]:
        """Take in a stimulus; times only grow. The step shows `trouble`, empty if there is none."""
        step = self.take(stimulus, now_ms, self._on_stimulus)
        shown = self.trouble or ""
        return clients.ClientStep(step.transitions, step.effects, step.ignored, shown, self.next_time_ms())

    def check(self, before: Marks | None = None) -> tuple[BrokenRule, ...]:
        """Return the rules that do not hold between two steps; `before` are the `marks` from before the last one."""
        return invariants.broken_by(self, before)

    def marks(self) -> Marks:
        return invariants.marks_of(self)

    def _on_stimulus(self, stimulus: msg.FetcherStimulus) -> None:
        match stimulus:
            case msg.FetchFrom(offsets):
                for target, offset in offsets.items():
                    self._fetch_from(target, offset)
            case msg.Forget(partitions):
                self._known(partitions)
                for target in partitions:
                    self.partitions.pop(target, None)
                    self.leaders.pop(target, None)
            case msg.Pause(partitions):
                for partition in self._known(partitions):
                    partition.paused = True
                    partition.restart(partition.taken, self._new_version())
            case msg.Resume(partitions):
                for partition in self._known(partitions):
                    partition.paused = False
            case msg.Taken(taken):
                self._known(taken)
                for target, (next_offset, size_bytes) in taken.items():
                    if (at := self.partitions.get(target)) is not None:
                        at.taken = next_offset
                        at.buffered_bytes = max(0, at.buffered_bytes - size_bytes)
            case clients.Answered() | clients.Unanswered():
                self._on_settled(stimulus)
            case clients.TimeReached():
                pass
            case _ as never:
                assert_never(never)
        self._send()

    def _fetch_from(self, target: TopicPartition, offset: int) -> None:
        partition = self.partitions.get(target)
        if partition is None:
            self.partitions[target] = Partition(offset, offset, self._new_version())
        else:
            partition.retry.reset()
            partition.fetched_epoch = -1
            partition.restart(offset, self._new_version())

    def _known(self, partitions: Iterable[TopicPartition]) -> list[Partition]:
        """The partitions that are fetched; a call about none of them is ignored."""
        found = [self.partitions[target] for target in partitions if target in self.partitions]
        if not found:
            self.ignore(NotFetched(tuple(map(str, partitions))))
        return found

    def _new_version(self) -> int:
        self.last_version += 1
        return self.last_version

    def _on_settled(self, settled: clients.Answered[msg.Answer] | clients.Unanswered) -> None:
        sent = self.requests.take(settled.request_id)
        if sent is None:
            self.ignore(NotPending(settled.request_id))
        elif isinstance(settled, clients.Unanswered):
            self._on_unanswered(sent.request, settled.reason)
        else:
            self._on_answer(sent, settled.answer)

    def _on_answer(self, sent: InFlight[msg.Request], answer: msg.Answer) -> None:
        match sent.request, answer:
            case clients.FetchMetadata() as request, clients.MetadataFetched():
                self._on_metadata(request, answer)
            case msg.Fetch() as request, msg.Fetched(error=None):
                counts = [fetch for fetch in request.partitions if self._counts(fetch)]
                for fetch in counts:
                    if (result := answer.results.get(fetch.target)) is not None:
                        self._on_result(sent.node, fetch.target, self.partitions[fetch.target], result)
                if not counts:
                    self.ignore(NotFetched(tuple(str(fetch.target) for fetch in request.partitions)))
            case msg.Fetch() as request, msg.Fetched(error=str(error)):
                self._on_unanswered(request, error)
            case request, _:
                raise TypeError(f"{answer} is no answer to {request}")

    def _counts(self, fetch: msg.PartitionFetch) -> bool:
        """Whether the partition has been asked for nothing else since."""
        partition = self.partitions.get(fetch.target)
        return partition is not None and partition.version == fetch.version

    def _on_result(self, node: int | None, target: TopicPartition, at: Partition, result: msg.PartitionResult) -> None:
        if result.error is None and result.diverging_offset >= 0:
            message = f"its leader has those records only up to offset {result.diverging_offset}"
            self._fail(target, at, errors.TRUNCATED, message)
        elif result.error is None:
            self.trouble = None
            at.retry.attempts = 0
            if 0 <= result.preferred_replica != node:
                at.replica = result.preferred_replica
                at.replica_until_ms = self.now_ms + self.settings.replica_max_age_ms
            if result.size_bytes:
                self.emit(msg.BufferRecords(target, at.position))
                at.position, at.fetched_epoch = result.next_offset, result.last_epoch
                at.buffered_bytes += result.size_bytes
                self.partitions[target] = self.partitions.pop(target)  # the last in turn, so that none starves
            if result.bad_batch:
                self._fail(target, at, errors.BAD_BATCH, result.bad_batch)
        elif result.error == errors.OUT_OF_RANGE and at.replica is not None:
            at.replica = None  # a replica may lag its leader
            self._retry(target, at, result.error)
        elif result.error in errors.RETRIABLE:
            if result.error in errors.LOST_LEADER:
                self.leaders.pop(target, None)
                at.replica = None
            self._retry(target, at, result.error)
        else:
            self._fail(target, at, result.error)

    def _on_metadata(self, request: clients.FetchMetadata, answer: clients.MetadataFetched) -> None:
        for target, partition in self.partitions.items():
            if target in answer.leaders:
                self.leaders[target] = answer.leaders[target]
            elif (error := answer.errors.get(target.topic)) is not None and error not in errors.RETRIABLE:
                self._fail(target, partition, error)
        wanting = {target.topic for target in self.leaderless()}.intersection(request.topics)
        if not wanting:
            self.metadata_retry.reset()
            return
        self.trouble = min(f"{topic}: {answer.errors.get(topic, 'LEADER_NOT_AVAILABLE')}" for topic in wanting)
        self.metadata_retry.later(self.settings, self.now_ms)

    def _on_unanswered(self, request: msg.Request, reason: str) -> None:
        self.trouble = reason
        if isinstance(request, clients.FetchMetadata):
            self.metadata_retry.later(self.settings, self.now_ms)
            return
        for fetch in request.partitions:
            self.leaders.pop(fetch.target, None)
            partition = self.partitions.get(fetch.target)
            if partition is not None:
                partition.replica = None
                if partition.version == fetch.version:
                    self._retry(fetch.target, partition, reason)

    def _retry(self, target: TopicPartition, partition: Partition, reason: str) -> None:
        self.trouble = f"{target}: {reason}"
        partition.retry.later(self.settings, self.now_ms)

    def _fail(self, target: TopicPartition, partition: Partition, error: str, message: str = "") -> None:
        if not partition.failed:
            partition.failed = True
            self.emit(msg.FetchFailed(target, partition.position, error, message))

    def _send(self) -> None:
        topics = tuple(sorted({target.topic for target in self.leaderless()}))
        if topics and not self.requests.has(clients.FetchMetadata) and self.now_ms >= self.metadata_retry.due_ms:
            self._send_request(None, clients.FetchMetadata(topics))
        buffered_bytes = self.buffered_bytes
        if buffered_bytes >= self.settings.buffer_bytes:
            return
        pending = list(self.requests.of(msg.Fetch))
        busy = {node for node, _ in pending}
        asked = {(fetch.target, fetch.version) for _, request in pending for fetch in request.partitions}
        by_node: dict[int, list[msg.PartitionFetch]] = {}
        for target, partition in self.partitions.items():
            if partition.is_wanted and self.now_ms >= partition.retry.due_ms and target in self.leaders:
                node = self.node_of(target)
                if node not in busy and (target, partition.version) not in asked:
                    by_node.setdefault(node, []).append(self._fetch(target, partition))
        room_bytes = max(self.settings.buffer_bytes - buffered_bytes, self.settings.partition_max_bytes)
        for node, fetches in by_node.items():
            self._send_request(node, msg.Fetch(min(self.settings.max_bytes, room_bytes), tuple(fetches)))

    def _fetch(self, target: TopicPartition, at: Partition) -> msg.PartitionFetch:
        return msg.PartitionFetch(target, at.position, self.leaders[target].epoch, at.fetched_epoch, at.version)

    def _send_request(self, node: int | None, request: msg.Request) -> None:
        self.emit(clients.SendRequest(self.requests.add(node, request), node, request))
