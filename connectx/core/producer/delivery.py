"""Delivery of batches: order per partition, sequences, retries, leaders and deadlines.

After a failed attempt a partition sends one batch at a time until Kafka has taken one. So batches never overtake each
other, and a batch keeps its sequence in every attempt. Mirrors RecordAccumulator and the sequence part of
TransactionManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from connectx.core.clients.errors import UNKNOWN_TOPIC
from connectx.core.clients.messages import MetadataFetched
from connectx.core.clients.requests import backoff
from connectx.core.producer.errors import RETRIABLE
from connectx.core.producer.messages import FOREVER_MS, Batch, ProducerSettings
from connectx.model.ids import TopicPartition

SEQUENCES = 2**31
PER_PARTITION_IN_FLIGHT = 5  # Kafka remembers that many batches of a producer and partition


@dataclass(slots=True)
class Pending:
    """A batch that Kafka has neither taken nor refused. `sequence` is -1 until it is first sent.

    `place` orders the batches of a partition; parts of a batch share its beginning.
    `splitting`: it waits for BatchSplit.
    """

    batch: Batch
    place: tuple[int, ...]
    appended_ms: int
    sequence: int = -1
    attempts: int = 0
    splitting: bool = False


@dataclass(slots=True)
class PartitionQueue:
    """Batches of one partition, those that wait in the order of their places.

    `one_at_a_time`: always, so that no batch overtakes another while the leader moves (Java: guaranteeMessageOrder).
    `recovering`: one at a time until Kafka has taken one.
    """

    waiting: list[Pending] = field(default_factory=list)
    in_flight: list[Pending] = field(default_factory=list)
    one_at_a_time: bool = False
    recovering: bool = False
    retry_at_ms: int = 0
    missing_since_ms: int | None = None

    def is_sendable(self, now_ms: int) -> bool:
        """Whether the first waiting batch may be sent now, as far as this partition goes."""
        if not self.waiting or self.waiting[0].splitting or now_ms < self.retry_at_ms:
            return False
        return len(self.in_flight) < (1 if self.recovering or self.one_at_a_time else PER_PARTITION_IN_FLIGHT)

    def put_back(self, pending: Pending) -> None:
        """Let a batch wait in its old place again."""
        self.waiting.insert(sum(1 for other in self.waiting if other.place < pending.place), pending)
        self.recovering = True


@dataclass(slots=True)
class Delivery:
    """All batches of a producer. Methods that settle batches return their numbers.

    Attributes:
        leaders: nodes.
        sequences: of the next record of each partition.
        appended: how many batches were.
    """

    settings: ProducerSettings
    queues: dict[TopicPartition, PartitionQueue] = field(default_factory=dict)
    leaders: dict[TopicPartition, int] = field(default_factory=dict)
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    appended: int = 0

    def is_empty(self) -> bool:
        return not self.queues

    def find_in_flight(self, target: TopicPartition, number: int) -> Pending | None:
        """The batch, if a request with it may still be answered."""
        queue = self.queues.get(target)
        return next((p for p in queue.in_flight if p.batch.number == number), None) if queue is not None else None

    def has_in_flight(self) -> bool:
        """Whether a request with batches may still be answered."""
        return any(queue.in_flight for queue in self.queues.values())

    def waiting_partitions(self) -> list[TopicPartition]:
        """Partitions with batches to send, in the order in which they came."""
        return [target for target, queue in self.queues.items() if queue.waiting]

    def leaderless_topics(self) -> tuple[str, ...]:
        """Topics of waiting batches whose partition has no known leader."""
        return tuple(sorted({t.topic for t in self.waiting_partitions() if t not in self.leaders}))

    def next_time_ms(self, now_ms: int) -> int | None:
        """When a retry is due or a waiting batch expires."""
        times: list[int] = []
        for queue in self.queues.values():
            if queue.waiting:
                times += [queue.retry_at_ms] if queue.retry_at_ms > now_ms else []
                if self.settings.delivery_timeout_ms < FOREVER_MS:
                    times.append(queue.waiting[0].appended_ms + self.settings.delivery_timeout_ms)
        return min(times, default=None)

    def append(self, batches: Iterable[Batch], now_ms: int) -> None:
        for batch in batches:
            self.appended += 1
            pending = Pending(batch, (self.appended,), now_ms)
            if batch.target not in self.queues:
                self.queues[batch.target] = PartitionQueue(one_at_a_time=self.settings.max_in_flight == 1)
            self.queues[batch.target].waiting.append(pending)

    def next_requests(
        self, in_flight: Mapping[int, int], may_send: Callable[[TopicPartition], bool], now_ms: int
    ) -> Iterator[tuple[int, list[Pending]]]:
        """Take batches to send: node and at most one batch for each partition, below `max.request.size` in all.

        Args:
            in_flight: requests per node.
            may_send: whether the transaction knows the partition.
        """
        by_node: dict[int, list[TopicPartition]] = {}
        for target, queue in self.queues.items():
            if target in self.leaders and queue.is_sendable(now_ms) and may_send(target):
                by_node.setdefault(self.leaders[target], []).append(target)
        for node, targets in by_node.items():
            for _ in range(in_flight.get(node, 0), self.settings.max_in_flight):
                taken = self._take(targets, now_ms)
                if not taken:
                    break
                yield node, taken

    def _take(self, targets: list[TopicPartition], now_ms: int) -> list[Pending]:
        taken: list[Pending] = []
        size_bytes = 0
        for target in targets:
            queue = self.queues[target]
            if not queue.is_sendable(now_ms):
                continue
            pending = queue.waiting[0]
            if taken and size_bytes + pending.batch.size_bytes > self.settings.max_request_size_bytes:
                continue
            size_bytes += pending.batch.size_bytes
            queue.waiting.pop(0)
            queue.in_flight.append(pending)
            pending.attempts += 1
            if self.settings.idempotent and pending.sequence < 0:
                pending.sequence = self.sequences.get(target, 0)
                self.sequences[target] = (pending.sequence + pending.batch.records) % SEQUENCES
            taken.append(pending)
            self.queues[target] = self.queues.pop(target)  # the last in turn, so that no partition starves
        return taken

    def delivered(self, target: TopicPartition, number: int) -> None:
        if self._remove_in_flight(target, number) is not None:
            queue = self.queues[target]
            queue.recovering, queue.retry_at_ms = False, 0
            self._drop_if_empty(target)

    def refused(self, target: TopicPartition, number: int) -> None:
        if self._remove_in_flight(target, number) is not None:
            self._drop_if_empty(target)

    def retry(self, target: TopicPartition, number: int, now_ms: int, backoff_ms: int | None = None) -> None:
        """Send a batch again, in its old place, after a backoff that doubles with its attempts."""
        pending = self._remove_in_flight(target, number)
        if pending is None:
            return
        queue = self.queues[target]
        queue.put_back(pending)
        if backoff_ms is None:
            backoff_ms = backoff(self.settings, pending.attempts)
        queue.retry_at_ms = max(queue.retry_at_ms, now_ms + backoff_ms)

    def is_first(self, target: TopicPartition, number: int) -> bool:
        """Whether no earlier batch of the partition is unsettled: then a sequence error is not that one's doing."""
        pending = self.find_in_flight(target, number)
        queue = self.queues.get(target, PartitionQueue())
        return pending is None or all(other.place >= pending.place for other in (*queue.in_flight, *queue.waiting))

    def split(self, target: TopicPartition, number: int) -> None:
        """Hold the partition until the batch has been cut."""
        pending = self._remove_in_flight(target, number)
        if pending is not None:
            pending.splitting = True
            self.queues[target].put_back(pending)

    def replace(self, number: int, parts: Iterable[Batch]) -> bool:
        """Put the parts of a batch in its place; together they have its sequence numbers. False if it is gone."""
        for queue in self.queues.values():
            for position, whole in enumerate(queue.waiting):
                if whole.batch.number == number and whole.splitting:
                    del queue.waiting[position]
                    for piece in reversed(_pieces(whole, parts)):
                        queue.waiting.insert(position, piece)
                    return True
        return False

    def forget_leader(self, target: TopicPartition) -> None:
        """The leader may have moved: ask before the next attempt."""
        self.leaders.pop(target, None)

    def drop_waiting(self) -> list[int]:
        dropped: list[int] = []
        for target in list(self.queues):
            queue = self.queues[target]
            dropped += [pending.batch.number for pending in queue.waiting]
            queue.waiting.clear()
            self._drop_if_empty(target)
        return dropped

    def drop(self, target: TopicPartition, number: int) -> bool:
        """Drop a batch that was in flight; False if it was settled before."""
        if self._remove_in_flight(target, number) is None:
            return False
        self._drop_if_empty(target)
        return True

    def drop_all(self) -> list[int]:
        dropped = [p.batch.number for queue in self.queues.values() for p in (*queue.in_flight, *queue.waiting)]
        self.queues.clear()
        return dropped

    def expired(self, now_ms: int) -> list[Pending]:
        """Remove waiting batches that are older than `delivery.timeout.ms`."""
        if self.settings.delivery_timeout_ms >= FOREVER_MS:
            return []
        found: list[Pending] = []
        for target in list(self.queues):
            queue = self.queues[target]
            while queue.waiting and now_ms >= queue.waiting[0].appended_ms + self.settings.delivery_timeout_ms:
                found.append(queue.waiting.pop(0))
            self._drop_if_empty(target)
        return found

    def forget_sequences(self) -> None:
        """A new producer id or epoch: every partition begins at 0."""
        self.sequences.clear()
        for queue in self.queues.values():
            for pending in queue.waiting:
                pending.sequence = -1

    def next_sequence(self, target: TopicPartition) -> int:
        """Sequence of the next record of a partition."""
        return self.sequences.get(target, 0)

    def advance(self, target: TopicPartition, records: int) -> None:
        """Count records of a partition that were sent by another process, or before this one."""
        self.sequences[target] = (self.next_sequence(target) + records) % SEQUENCES

    def learn(self, metadata: MetadataFetched, now_ms: int) -> list[tuple[Pending, str]]:
        """Take in leaders; returns batches of topics that are missing for too long or not allowed, with the error."""
        self.leaders.update((target, leader.node) for target, leader in metadata.leaders.items())
        answered = {target.topic for target in (*metadata.leaders, *metadata.leaderless)}
        refused: list[tuple[Pending, str]] = []
        for target in self.waiting_partitions():
            queue = self.queues[target]
            if target in metadata.leaders:
                queue.missing_since_ms = None
                continue
            if target in metadata.leaderless:  # Kafka elects a leader: that may take any time
                queue.missing_since_ms = None
                self.leaders.pop(target, None)
                continue
            error = metadata.errors.get(target.topic, UNKNOWN_TOPIC)
            if target.topic not in metadata.errors and target.topic not in answered:
                continue  # not asked for
            self.leaders.pop(target, None)
            if queue.missing_since_ms is None:
                queue.missing_since_ms = now_ms
            is_missing = error == UNKNOWN_TOPIC and now_ms - queue.missing_since_ms >= self.settings.unknown_topic_ms
            if is_missing or error not in RETRIABLE:
                refused += [(pending, error) for pending in queue.waiting]
                queue.waiting.clear()
                self._drop_if_empty(target)
        return refused

    def _remove_in_flight(self, target: TopicPartition, number: int) -> Pending | None:
        pending = self.find_in_flight(target, number)
        if pending is not None:
            self.queues[target].in_flight.remove(pending)
        return pending

    def _drop_if_empty(self, target: TopicPartition) -> None:
        queue = self.queues[target]
        if not queue.waiting and not queue.in_flight:
            del self.queues[target]


def _pieces(whole: Pending, parts: Iterable[Batch]) -> list[Pending]:
    pieces: list[Pending] = []
    sequence = whole.sequence
    for index, part in enumerate(parts):
        pieces.append(Pending(part, (*whole.place, index), whole.appended_ms, sequence))
        sequence = (sequence + part.records) % SEQUENCES if sequence >= 0 else -1
    return pieces
