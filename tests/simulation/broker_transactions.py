"""Transactional producers of a model broker: epochs, fencing, time-outs, markers.

It decides who may write in which transaction, and what its client is told. Mirrors Kafka's TransactionCoordinator and,
where a client answers without asking the broker (an empty transaction, a producer that knows it is fenced), librdkafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.simulation.broker_logs import Log, Outcome

Partition = tuple[str, int]

TRANSACTION_TIMEOUT_MS = 60_000


class Client(Enum):
    """Where a producer stands; it may not know that it is fenced until it asks."""

    READY = "ready"
    BEGUN = "begun"  # nothing sent: the broker does not know of it
    SENT = "sent"
    DEAD = "dead"  # it was told that it is fenced


@dataclass(slots=True)
class Producer:
    """All producers of one transactional id. Only the one with `epoch` can write; the others are zombies."""

    epoch: int = -1
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    transaction: int | None = None  # that is open, as the coordinator knows it
    since_ms: int = 0
    partitions: list[Partition] = field(default_factory=list)
    clients: dict[int, Client] = field(default_factory=dict)  # by the epoch that they were given
    begun_ms: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Transactions:
    """The coordinator of all transactional ids, with the partitions that they write to."""

    logs: dict[Partition, Log] = field(default_factory=dict)
    producers: dict[str, Producer] = field(default_factory=dict)
    count: int = 0
    now_ms: int = 0

    def log(self, topic: str, partition: int) -> Log:
        return self.logs.setdefault((topic, partition), Log())

    def init(self, transactional_id: str, timeout_ms: int) -> int:
        """Fence the producers before and abort what they have open; returns the new producer epoch."""
        producer = self.producers.setdefault(transactional_id, Producer())
        self._fence_open(producer)
        producer.timeout_ms = timeout_ms
        producer.epoch += 1
        producer.clients[producer.epoch] = Client.READY
        return producer.epoch

    def begin(self, transactional_id: str, epoch: int) -> Outcome:
        """Only the client hears of it."""
        producer = self.producers[transactional_id]
        match producer.clients[epoch]:
            case Client.DEAD:
                return Outcome.FENCED
            case Client.READY:
                producer.clients[epoch] = Client.BEGUN
                producer.begun_ms[epoch] = self.now_ms
                return Outcome.OK
        return Outcome.INVALID_STATE

    def send(self, transactional_id: str, epoch: int, target: Partition, values: Iterable[Any]) -> Outcome:
        producer = self.producers[transactional_id]
        if producer.clients[epoch] is Client.READY:
            return Outcome.INVALID_STATE
        if (refusal := self._refusal(producer, epoch)) is not None:
            return refusal
        producer.clients[epoch] = Client.SENT
        if producer.transaction is None:
            self.count += 1
            producer.transaction, producer.since_ms = self.count, self.now_ms
        if target not in producer.partitions:
            producer.partitions.append(target)
        self.log(*target).append(values, producer.transaction)
        return Outcome.OK

    def end(self, transactional_id: str, epoch: int, *, commit: bool) -> Outcome:
        producer = self.producers[transactional_id]
        state = producer.clients[epoch]
        if state is Client.READY:
            return Outcome.INVALID_STATE
        if state is Client.BEGUN:  # nothing to end: the broker is not asked
            producer.clients[epoch] = Client.READY
            return Outcome.OK
        if (refusal := self._refusal(producer, epoch)) is not None:
            return refusal
        self._mark(producer, commit=commit)
        producer.clients[epoch] = Client.READY
        return Outcome.OK

    def expire(self) -> list[str]:
        """Abort what has been open for too long; its producer is fenced. Returns the transactional ids."""
        late = [
            transactional_id
            for transactional_id, producer in self.producers.items()
            if producer.transaction is not None and self.now_ms - producer.since_ms >= producer.timeout_ms
        ]
        for transactional_id in late:
            self._fence_open(self.producers[transactional_id])
        return late

    def _refusal(self, producer: Producer, epoch: int) -> Outcome | None:
        if epoch == producer.epoch:
            return None
        was_dead = producer.clients[epoch] is Client.DEAD
        producer.clients[epoch] = Client.DEAD
        open_ms = self.now_ms - producer.begun_ms.get(epoch, self.now_ms)
        return Outcome.EXPIRED if open_ms >= producer.timeout_ms and not was_dead else Outcome.FENCED

    def _fence_open(self, producer: Producer) -> None:
        """An open transaction is aborted with an epoch of its own."""
        if producer.transaction is not None:
            producer.epoch += 1
            self._mark(producer, commit=False)

    def _mark(self, producer: Producer, *, commit: bool) -> None:
        for target in producer.partitions:
            assert producer.transaction is not None
            self.logs[target].mark(producer.transaction, commit=commit)
        producer.transaction, producer.partitions = None, []
