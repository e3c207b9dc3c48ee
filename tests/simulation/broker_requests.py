"""Requests of transactional producers at a model broker: both transaction protocols, sequences, late markers.

Each request is answered at once, by the node that it arrived at; the caller adds latency, loss and late delivery.
Mirrors Kafka 4's TransactionCoordinator (epochs, retries of EndTxn, KIP-360, KIP-890) and ProducerStateManager
(sequences, epochs of partitions). Kafka answers EndTxn before the markers are written: `write_markers` writes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from connectx.core.clients.messages import FetchMetadata, Leader, MetadataFetched
from connectx.core.producer import messages as msg
from connectx.model.ids import TopicPartition
from tests.simulation.broker_logs import Log

COORDINATORS = (0, 1)
_REMEMBERED_BATCHES = 5


class TransactionState(Enum):
    """Where a transaction is, as the coordinator stores it."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_PREPARED = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
_COMPLETE = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


@dataclass(slots=True)
class Metadata:
    """What the coordinator stores of a transactional id; `last_epoch` is that of the request before (KIP-360)."""

    producer_id: int
    epoch: int = -1
    last_epoch: int = -1
    state: TransactionState = TransactionState.EMPTY
    bumps_epochs: bool = False  # protocol 2 ended the last transaction
    timeout_ms: int = 60_000
    since_ms: int = 0
    transaction: int = 0
    fences: int = 0  # how often the producers before were fenced, by another producer or by a time-out
    partitions: list[TopicPartition] = field(default_factory=list)

    @property
    def is_preparing(self) -> bool:
        """Whether markers are being written."""
        return self.state in _COMPLETE


@dataclass(slots=True)
class ProducerEntry:
    """What a partition knows of a producer id; `batches` are sequence, records and offset of the last five."""

    epoch: int = -1
    transaction: int | None = None
    batches: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))

    def take_epoch(self, epoch: int) -> None:
        """Sequences begin again with a newer epoch."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


@dataclass(slots=True)
class TransactionalBroker:
    """A cluster of two nodes: partition `n` of a topic is led by node `n % 2`, and one node is the coordinator.

    Attributes:
        transaction_version: 2 allows protocol 2; protocol 1 is always allowed.
    """

    transaction_version: int = 2
    now_ms: int = 0
    coordinator: int = 0
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    ids: dict[str, Metadata] = field(default_factory=dict)
    _entries: dict[tuple[TopicPartition, int], ProducerEntry] = field(default_factory=dict)
    _transactions: int = 0

    def log(self, target: TopicPartition) -> Log:
        return self.logs.setdefault(target, Log())

    @property
    def epochs(self) -> dict[str, int]:
        """The newest producer epoch of each transactional id."""
        return {name: found.epoch for name, found in self.ids.items()}

    def leader(self, target: TopicPartition) -> int:
        return target.partition % len(COORDINATORS)

    def move_coordinator(self) -> None:
        """The other node loads what was stored; the old one refuses. Markers are written by the new one."""
        self.coordinator = (self.coordinator + 1) % len(COORDINATORS)

    def handle(self, node: int, request: msg.Request, values: Mapping[int, Sequence[Any]]) -> msg.Answer:
        """Answer a request that arrives at a node; `values` are the records of its batches, by number."""
        match request:
            case msg.FindCoordinator():
                return msg.CoordinatorFound(None, self.coordinator, self.transaction_version)
            case FetchMetadata(topics):
                return MetadataFetched({t: Leader(self.leader(t)) for t in self.logs if t.topic in topics})
            case msg.InitProducerId():
                if node != self.coordinator:
                    return msg.ProducerIdGranted("NOT_COORDINATOR")
                return self._init_producer_id(request)
            case msg.AddPartitions():
                error = self._add(request) if node == self.coordinator else "NOT_COORDINATOR"
                return msg.PartitionsAdded(dict.fromkeys(request.partitions, error))
            case msg.EndTransaction():
                if node != self.coordinator:
                    return msg.TransactionEnded("NOT_COORDINATOR")
                return self._end(request)
            case msg.Produce():
                return msg.Produced(
                    {
                        batch.number: msg.BatchResult(self._append(node, request, batch, values[batch.number]))
                        for batch in request.batches
                    }
                )

    def _init_producer_id(self, request: msg.InitProducerId) -> msg.ProducerIdGranted:
        assert request.transactional_id is not None
        found = self.ids.get(request.transactional_id)
        if found is None:
            found = self.ids[request.transactional_id] = Metadata(1_000 + len(self.ids))
        expects = request.producer_id >= 0
        if expects and found.epoch >= 0 and request.producer_id != found.producer_id:
            return msg.ProducerIdGranted("PRODUCER_FENCED")
        if found.is_preparing:
            return msg.ProducerIdGranted("CONCURRENT_TRANSACTIONS")
        if found.state is TransactionState.ONGOING:
            self._fence(found)  # Kafka does not compare the epoch here
            return msg.ProducerIdGranted("CONCURRENT_TRANSACTIONS")
        if expects and found.epoch >= 0 and request.epoch != found.epoch:
            if request.epoch != found.last_epoch:
                return msg.ProducerIdGranted("PRODUCER_FENCED")
        else:
            found.last_epoch = found.epoch if expects else -1
            found.epoch += 1
            found.fences += not expects
        found.state, found.timeout_ms = TransactionState.EMPTY, request.transaction_timeout_ms
        found.bumps_epochs = False
        return msg.ProducerIdGranted(None, found.producer_id, found.epoch)

    def _fence(self, found: Metadata) -> None:
        """Abort an open transaction with an epoch that no producer is given."""
        found.last_epoch, found.epoch = found.epoch, found.epoch + 1
        found.fences += 1
        found.state = TransactionState.PREPARE_ABORT

    def _add(self, request: msg.AddPartitions) -> str | None:
        return self._open(
            request.transactional_id, request.producer_id, request.epoch, request.partitions, bumps_epochs=False
        )

    def _open(
        self, name: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition], *, bumps_epochs: bool
    ) -> str | None:
        found = self.ids.get(name)
        if found is None or found.producer_id != producer_id:
            return "INVALID_PRODUCER_ID_MAPPING"
        if found.epoch != epoch:
            return "PRODUCER_FENCED"
        if found.is_preparing:
            return "CONCURRENT_TRANSACTIONS"
        if found.state is not TransactionState.ONGOING:
            self._transactions += 1
            found.state, found.since_ms, found.partitions = TransactionState.ONGOING, self.now_ms, []
            found.transaction, found.bumps_epochs = self._transactions, bumps_epochs
        found.partitions += [target for target in partitions if target not in found.partitions]
        return None

    def _end(self, request: msg.EndTransaction) -> msg.TransactionEnded:
        found = self.ids.get(request.transactional_id)
        if found is None or found.producer_id != request.producer_id:
            return msg.TransactionEnded("INVALID_PRODUCER_ID_MAPPING")
        if request.protocol == 2:
            return self._end_protocol_2(found, request.epoch, commit=request.commit)
        if request.epoch != found.epoch:
            return msg.TransactionEnded("PRODUCER_FENCED")
        if found.state is TransactionState.ONGOING:
            found.state = _PREPARED[request.commit]
            return msg.TransactionEnded(None)
        return msg.TransactionEnded(_answer_to_retry(found.state, commit=request.commit))

    def _end_protocol_2(self, found: Metadata, epoch: int, *, commit: bool) -> msg.TransactionEnded:
        """A retry is known by its epoch, one below the present one; an abort of nothing gets a new epoch, too."""
        is_retry = found.bumps_epochs and epoch == found.epoch - 1
        is_current = epoch == found.epoch
        if found.is_preparing:
            is_valid = is_retry if found.bumps_epochs else is_current
        elif found.state in _COMPLETE.values():
            is_valid = is_retry or is_current
        else:
            is_valid = is_current
        if not is_valid:
            return msg.TransactionEnded("PRODUCER_FENCED")
        has_ended = found.state in _COMPLETE or is_retry
        if found.state is not TransactionState.ONGOING and (has_ended or commit):
            error = _answer_to_retry(found.state, commit=commit) if has_ended else "INVALID_TXN_STATE"
            return msg.TransactionEnded(error) if error else msg.TransactionEnded(None, found.producer_id, found.epoch)
        if found.state is not TransactionState.ONGOING:
            found.partitions = []
        found.state, found.bumps_epochs = _PREPARED[commit], True
        found.last_epoch, found.epoch = found.epoch, found.epoch + 1
        return msg.TransactionEnded(None, found.producer_id, found.epoch)

    def write_markers(self, name: str) -> bool:
        """Write the markers of a transaction that was ended, with the epoch that holds now; whether there was one."""
        found = self.ids.get(name)
        if found is None or not found.is_preparing:
            return False
        commit = found.state is TransactionState.PREPARE_COMMIT
        for target in found.partitions:
            entry = self._entries.setdefault((target, found.producer_id), ProducerEntry())
            entry.take_epoch(found.epoch)
            entry.transaction = None
            self.log(target).mark(found.transaction, commit=commit)
        found.partitions = []
        found.state = _COMPLETE[found.state]
        return True

    def expire(self) -> list[str]:
        """Abort transactions that are open for longer than their time-out; returns their ids."""
        late = [
            name
            for name, found in self.ids.items()
            if found.state is TransactionState.ONGOING and self.now_ms - found.since_ms >= found.timeout_ms
        ]
        for name in late:
            self._fence(self.ids[name])
        return late

    def _append(self, node: int, request: msg.Produce, batch: msg.SequencedBatch, values: Sequence[Any]) -> str | None:
        if node != self.leader(batch.target):
            return "NOT_LEADER_OR_FOLLOWER"
        if request.transactional_id is None:  # without idempotence, as Kafka Connect's producers are by default
            self.log(batch.target).append(values)
            return None
        entry = self._entries.get((batch.target, request.producer_id), ProducerEntry())
        is_open = entry.transaction is not None and entry.epoch == request.epoch
        if not is_open and (refusal := self._verify(request, batch.target)) is not None:
            return refusal
        if request.epoch < entry.epoch:
            return "INVALID_PRODUCER_EPOCH"
        last = batch.base_sequence + len(values) - 1
        if request.epoch == entry.epoch and (batch.base_sequence, last) in entry.batches:
            return None  # Kafka answers with the offset of the first time
        if (error := _sequence_error(entry, request.epoch, batch.base_sequence)) is not None:
            return error
        entry = self._entries.setdefault((batch.target, request.producer_id), entry)
        entry.take_epoch(request.epoch)
        entry.batches.append((batch.base_sequence, last))
        entry.transaction = self.ids[request.transactional_id].transaction
        self.log(batch.target).append(values, entry.transaction)
        return None

    def _verify(self, request: msg.Produce, target: TopicPartition) -> str | None:
        """The leader asks the coordinator: protocol 2 adds the partition, protocol 1 has to have added it."""
        name = request.transactional_id
        assert name is not None
        if request.protocol == 2:
            error = self._open(name, request.producer_id, request.epoch, (target,), bumps_epochs=True)
            return "INVALID_PRODUCER_EPOCH" if error == "PRODUCER_FENCED" else error
        found = self.ids.get(name)
        if found is None or found.producer_id != request.producer_id:
            return "INVALID_PRODUCER_ID_MAPPING"
        if found.epoch != request.epoch:
            return "INVALID_PRODUCER_EPOCH"
        if found.is_preparing:
            return "NOT_ENOUGH_REPLICAS"  # for CONCURRENT_TRANSACTIONS, which older clients do not know here
        if found.state is not TransactionState.ONGOING or target not in found.partitions:
            return "TRANSACTION_ABORTABLE"
        return None


def _answer_to_retry(state: TransactionState, *, commit: bool) -> str | None:
    """EndTxn of a transaction that has ended, or is about to."""
    prepared = _PREPARED[commit]
    if state is prepared:
        return "CONCURRENT_TRANSACTIONS"
    return None if state is _COMPLETE[prepared] else "INVALID_TXN_STATE"


def _sequence_error(entry: ProducerEntry, epoch: int, sequence: int) -> str | None:
    if entry.epoch < 0:
        return None  # a producer that the partition does not know may begin anywhere
    expected = entry.batches[-1][1] + 1 if epoch == entry.epoch and entry.batches else 0
    return None if sequence == expected else "OUT_OF_ORDER_SEQUENCE_NUMBER"
