"""Stimuli and effects of the producer's core, and its settings.

Stimuli are calls of the application, answers to requests, requests that stayed without an answer, and time. Effects are
requests to send and the outcome of batches. Record bytes never come here: a batch is known by its number.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from connectx.core.clients.messages import (
    Answered,
    FetchMetadata,
    MetadataFetched,
    SendRequest,
    TimeReached,
    Unanswered,
)
from connectx.core.moves import Moves
from connectx.model.ids import TopicPartition
from connectx.values import Value

FOREVER_MS: Final = 2**31 - 1
"""A timeout of this length never ends (Kafka Connect's `delivery.timeout.ms`)."""


class ProducerSettings(Value):
    """Settings by their Kafka names.

    Attributes:
        transactional_id: None for a producer without transactions.
        idempotent: batches carry producer id, epoch and sequence; always so with transactions.
        unknown_topic_ms: how long a topic may be missing before its batches are refused (`max.block.ms`).
    """

    transactional_id: str | None = None
    idempotent: bool = False
    acks: int = -1
    max_in_flight: int = 1
    max_request_size_bytes: int = 1_048_576
    transaction_timeout_ms: int = 60_000
    delivery_timeout_ms: int = FOREVER_MS
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    unknown_topic_ms: int = 60_000


class ProducerPhase(StrEnum):
    NEW = "new"
    INITIALIZING = "initializing"
    READY = "ready"
    OPEN = "open"
    REFUSED = "refused"
    COMMITTING = "committing"
    ABORTING = "aborting"
    RENEWING = "renewing"
    FAILED = "failed"


PRODUCER_MOVES: Final[Moves[ProducerPhase]] = {
    # INITIALIZE; a producer without producer ids is ready with it. Borrow: the transaction of another one is open.
    ProducerPhase.NEW: frozenset({ProducerPhase.INITIALIZING, ProducerPhase.READY, ProducerPhase.OPEN}),
    # The producer id was granted.
    ProducerPhase.INITIALIZING: frozenset({ProducerPhase.READY, ProducerPhase.FAILED}),
    # BEGIN. RENEWING without transactions: a batch with a sequence was refused, which leaves a gap.
    ProducerPhase.READY: frozenset({ProducerPhase.OPEN, ProducerPhase.RENEWING, ProducerPhase.FAILED}),
    # REFUSED: a batch was, or the producer was purged.
    ProducerPhase.OPEN: frozenset(
        {ProducerPhase.COMMITTING, ProducerPhase.ABORTING, ProducerPhase.REFUSED, ProducerPhase.FAILED}
    ),
    ProducerPhase.REFUSED: frozenset({ProducerPhase.ABORTING, ProducerPhase.FAILED}),
    # REFUSED only before EndTxn was sent. RENEWING: protocol 1, and a request stayed unanswered or failed.
    ProducerPhase.COMMITTING: frozenset(
        {
            ProducerPhase.READY,
            ProducerPhase.RENEWING,
            ProducerPhase.REFUSED,
            ProducerPhase.ABORTING,
            ProducerPhase.FAILED,
        }
    ),
    # RENEWING: always with protocol 1, since a late batch could join the next transaction of the same epoch.
    ProducerPhase.ABORTING: frozenset({ProducerPhase.READY, ProducerPhase.RENEWING, ProducerPhase.FAILED}),
    ProducerPhase.RENEWING: frozenset({ProducerPhase.READY, ProducerPhase.FAILED}),
    # A new producer has to be made.
    ProducerPhase.FAILED: frozenset(),
}
"""States that may follow each other."""


class Failure(Value):
    """Why a transaction cannot commit, or why the producer ended.

    Attributes:
        error: Kafka's name of the error, or one of the core's own: DELIVERY_TIMEOUT, PURGED.
        doing: completes "Kafka did not let the task ...".
        topic: of the refused batch, if it was one.
    """

    error: str
    doing: str
    message: str | None = None
    topic: str | None = None


class Batch(Value):
    """Records for one partition: `number` is unique in a producer, `size_bytes` is that of the encoded batch."""

    number: int
    target: TopicPartition
    records: int
    size_bytes: int


class Loan(Value):
    """What another process needs to send into a producer's open transaction.

    Attributes:
        producer_id, epoch, protocol: of the transaction.
        sequences: partitions that it may send to, each with the sequence of its next record.
    """

    producer_id: int
    epoch: int
    protocol: int
    sequences: Mapping[TopicPartition, int]


class Call(StrEnum):
    """A call of the application that carries nothing else."""

    INITIALIZE = "initialize"
    """Get a producer id. With a transactional id this fences every older producer of it. In NEW only."""
    BEGIN = "begin"
    """Open a transaction. In READY only; Kafka learns of it with the first batch."""
    COMMIT = "commit"
    """Commit once every batch is acknowledged. In OPEN only; again while COMMITTING it changes nothing."""
    ABORT = "abort"
    """Drop what is queued, and abort once no request is in flight. In OPEN, REFUSED, or COMMITTING before EndTxn."""
    PURGE = "purge"
    """Drop what is queued and retry nothing; an open transaction can only be aborted afterwards."""


class Append(Value):
    """Queue batches, in order per partition. Outside OPEN, or READY without transactions, they are dropped."""

    batches: tuple[Batch, ...]


class Refuse(Value):
    """Records were refused before they became batches: an open transaction can only be aborted afterwards."""

    failure: Failure


class Lend(Value):
    """Let other processes send to these partitions in the open transaction.

    In OPEN only, with every batch settled. The loan is there once the `loan` of a step is; until Returned, nothing may
    be appended and only an abort ends the transaction.
    """

    targets: tuple[TopicPartition, ...]


class Returned(Value):
    """The borrowers of a loan have ended.

    Attributes:
        records: how many Kafka has taken of each partition, as far as that is known.
        may_arrive_late: a request of theirs stayed unanswered.
        failure: why the transaction can only be aborted; then borrowers may still be sending.
    """

    records: Mapping[TopicPartition, int]
    may_arrive_late: bool = False
    failure: Failure | None = None


class Borrow(Value):
    """Send with the loan of another producer. In NEW only, instead of INITIALIZE.

    The transaction is open afterwards. A borrower neither begins nor ends one.
    """

    loan: Loan


class BatchSplit(Value):
    """A batch was cut into smaller ones with the same records, as SplitBatch asked."""

    number: int
    parts: tuple[Batch, ...]


class FindCoordinator(Value):
    """Ask any broker for the coordinator, and that node for the cluster's finalized `transaction.version`."""

    transactional_id: str


class InitProducerId(Value):
    """InitProducerId; with `producer_id` and `epoch` (v3, KIP-360) it raises the epoch of that producer only."""

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    epoch: int


class AddPartitions(Value):
    """AddPartitionsToTxn v3; only protocol 1 needs it."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]


class SequencedBatch(Value):
    """A batch in a request; `base_sequence` is -1 without idempotence."""

    number: int
    target: TopicPartition
    base_sequence: int


class Produce(Value):
    """Produce: v12 with protocol 2, which adds partitions to the transaction; up to v11 with protocol 1."""

    transactional_id: str | None
    producer_id: int
    epoch: int
    acks: int
    protocol: int
    batches: tuple[SequencedBatch, ...]


class EndTransaction(Value):
    """EndTxn: v5 with protocol 2, whose answer has the next producer id and epoch; up to v4 with protocol 1."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    protocol: int


Request = FindCoordinator | FetchMetadata | InitProducerId | AddPartitions | Produce | EndTransaction


class CoordinatorFound(Value):
    """Answer to FindCoordinator; `transaction_version` is 0 if the cluster has not finalized that feature."""

    error: str | None
    node: int = -1
    transaction_version: int = 0


class ProducerIdGranted(Value):
    error: str | None
    producer_id: int = -1
    epoch: int = -1


class PartitionsAdded(Value):
    """Answer to AddPartitions: Kafka's error of each partition, None for success."""

    errors: Mapping[TopicPartition, str | None]


class BatchResult(Value):
    """Kafka's answer to one batch; `record_errors` names records by their index in the batch (KIP-467)."""

    error: str | None = None
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()


class Produced(Value):
    """Answer to Produce, by batch number. With acks=0 there is none: the driver answers for Kafka."""

    results: Mapping[int, BatchResult]


class TransactionEnded(Value):
    """Answer to EndTransaction; with protocol 2 it has the producer id and epoch of the next transaction."""

    error: str | None
    producer_id: int = -1
    epoch: int = -1


Answer = CoordinatorFound | MetadataFetched | ProducerIdGranted | PartitionsAdded | Produced | TransactionEnded


class AuthenticationFailed(Value):
    """A broker does not accept the credentials: the producer ends (Java: AuthenticationException)."""

    reason: str


ProducerStimulus = (
    Call
    | Append
    | Refuse
    | Lend
    | Returned
    | Borrow
    | BatchSplit
    | TimeReached
    | Answered[Answer]
    | Unanswered
    | AuthenticationFailed
    | MetadataFetched
)


class BatchDelivered(Value):
    """Kafka has the batch. Its bytes are not needed any more."""

    number: int


class BatchRefused(Value):
    """Kafka does not take the batch. Its bytes are not needed any more."""

    number: int
    result: BatchResult


class BatchDropped(Value):
    """The batch is not sent any more: its transaction is aborted, or the producer was purged or has ended."""

    number: int


class SplitBatch(Value):
    """The batch is larger than Kafka takes and has several records: cut it, and answer with BatchSplit."""

    number: int


ProducerEffect = SendRequest[Request] | BatchDelivered | BatchRefused | BatchDropped | SplitBatch


class ProducerView(Value):
    """What a driver may know of its producer.

    Attributes:
        epoch: of the open or next transaction; -1 without.
        refusal: why the open transaction cannot commit.
        failure: why the producer has FAILED.
        loan: what was lent, once borrowers may send; None before, and when nothing is lent.
        may_arrive_late: whether a request of this epoch stayed unanswered.
    """

    phase: ProducerPhase = ProducerPhase.NEW
    epoch: int = -1
    refusal: Failure | None = None
    failure: Failure | None = None
    loan: Loan | None = None
    may_arrive_late: bool = False
