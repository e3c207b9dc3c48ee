"""A transactional producer without a network: each request is answered at once, and markers are written at once.

It speaks protocol 1 as librdkafka does: one epoch for the life of a producer, and what needs no broker (an empty
transaction, a producer that knows it is fenced) is decided by the client. All of it is a value, for the small world.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from connectx.core.producer import messages as msg
from connectx.model.ids import TopicPartition
from tests.simulation.broker_logs import Outcome
from tests.simulation.broker_requests import TransactionalBroker

TIMEOUT_MS = 60_000


class Stage(Enum):
    """Where a producer stands; it may not know that it is fenced until it asks."""

    READY = "ready"
    BEGUN = "begun"  # nothing sent: the broker does not know of it
    SENT = "sent"
    DEAD = "dead"  # it was told that it is fenced


@dataclass(slots=True)
class DirectProducer:
    """One producer. The broker is an argument of each call, so that a copied world has one broker."""

    transactional_id: str
    timeout_ms: int = TIMEOUT_MS
    producer_id: int = -1
    epoch: int = -1
    stage: Stage = Stage.READY
    begun_ms: int = 0
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    added: set[TopicPartition] = field(default_factory=set)

    def init(self, broker: TransactionalBroker) -> None:
        """Fence the producers before, and abort their open transaction."""
        request = msg.InitProducerId(self.transactional_id, self.timeout_ms, -1, -1)
        granted = _ask(broker, request)
        while granted.error is not None:
            broker.write_markers(self.transactional_id)
            granted = _ask(broker, request)
        self.producer_id, self.epoch = granted.producer_id, granted.epoch

    def begin(self, broker: TransactionalBroker) -> Outcome:
        """Only the client hears of it."""
        if self.stage is Stage.DEAD:
            return Outcome.FENCED
        if self.stage is not Stage.READY:
            return Outcome.INVALID_STATE
        self.stage, self.begun_ms = Stage.BEGUN, broker.now_ms
        return Outcome.OK

    def send(self, broker: TransactionalBroker, target: TopicPartition, values: Sequence[Any]) -> Outcome:
        """Add the partition and append, and await the acknowledgement."""
        if self.stage is Stage.READY:
            return Outcome.INVALID_STATE
        if self.stage is Stage.DEAD:
            return Outcome.FENCED
        name, key = self.transactional_id, (self.producer_id, self.epoch)
        if target not in self.added:
            if _ask(broker, msg.AddPartitions(name, *key, (target,))).errors[target] is not None:
                return self._die(broker)
            self.added.add(target)
            self.stage = Stage.SENT
        batch = msg.SequencedBatch(0, target, self.sequences.get(target, 0))
        produced = broker.handle(broker.leader(target), msg.Produce(name, *key, -1, 1, (batch,)), {0: values})
        assert isinstance(produced, msg.Produced)
        if produced.results[0].error is not None:
            return self._die(broker)
        self.sequences[target] = batch.base_sequence + len(values)
        return Outcome.OK

    def end(self, broker: TransactionalBroker, *, commit: bool) -> Outcome:
        """Commit or abort; markers are there when it returns."""
        match self.stage:
            case Stage.READY:
                return Outcome.INVALID_STATE
            case Stage.DEAD:
                return Outcome.FENCED
            case Stage.BEGUN:  # nothing to end: the broker is not asked
                self.stage = Stage.READY
                return Outcome.OK
        request = msg.EndTransaction(self.transactional_id, self.producer_id, self.epoch, commit, 1)
        if _ask(broker, request).error is not None:
            return self._die(broker)
        broker.write_markers(self.transactional_id)
        self.stage = Stage.READY
        self.added.clear()
        return Outcome.OK

    def _die(self, broker: TransactionalBroker) -> Outcome:
        self.stage = Stage.DEAD
        is_expired = broker.now_ms - self.begun_ms >= self.timeout_ms
        return Outcome.EXPIRED if is_expired else Outcome.FENCED


def _ask(broker: TransactionalBroker, request: msg.Request) -> Any:
    return broker.handle(broker.coordinator, request, {})
