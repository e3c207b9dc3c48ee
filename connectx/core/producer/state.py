"""State of the producer's core."""

from __future__ import annotations

from dataclasses import dataclass, field

from connectx.core.clients.requests import RequestsInFlight, Retry
from connectx.core.producer import messages as msg
from connectx.core.producer.delivery import Delivery
from connectx.core.producer.messages import ProducerPhase as Phase
from connectx.core.state import FieldState
from connectx.core.stepping import Stepping
from connectx.model.ids import TopicPartition


@dataclass(slots=True)
class ProducerState(Stepping[msg.ProducerEffect], FieldState):
    """What changes in a producer, and what follows from it.

    Attributes:
        producer_id, epoch: -1 without; those of the open or next transaction.
        refusal: why the open transaction cannot commit.
        failure: why the producer has FAILED.
        protocol: of the open transaction.
        added: partitions that the transaction has, with protocol 1.
        may_be_open: Kafka may know of the transaction.
        is_ending: EndTxn was sent.
        may_have_ended: by an EndTxn whose outcome is unknown.
        may_arrive_late: a request of this epoch stayed unanswered.
        was_acknowledged: a batch of the open transaction was.
    """

    settings: msg.ProducerSettings
    delivery: Delivery = field(init=False)
    phase: Phase = Phase.NEW
    producer_id: int = -1
    epoch: int = -1
    refusal: msg.Failure | None = None
    failure: msg.Failure | None = None
    requests: RequestsInFlight[msg.Request] = field(default_factory=RequestsInFlight)
    purged: bool = False
    coordinator: int | None = None
    transaction_version: int = 0
    protocol: int = 1
    coordinator_retry: Retry = field(default_factory=Retry)
    metadata_retry: Retry = field(default_factory=Retry)
    added: set[TopicPartition] = field(default_factory=set)
    may_be_open: bool = False
    is_ending: bool = False
    may_have_ended: bool = False
    may_arrive_late: bool = False
    was_acknowledged: bool = False
    lent: tuple[TopicPartition, ...] = ()
    borrows: bool = False

    def __post_init__(self) -> None:
        self.delivery = Delivery(self.settings)

    @property
    def loan(self) -> msg.Loan | None:
        """What was lent, once borrowers may send; None before, and when nothing is lent."""
        added = self.protocol == 2 or self.added.issuperset(self.lent)
        if not self.lent or not added or self.phase is not Phase.OPEN:
            return None
        sequences = {target: self.delivery.next_sequence(target) for target in self.lent}
        return msg.Loan(self.producer_id, self.epoch, self.protocol, sequences)

    def next_time_ms(self) -> int | None:
        times = [self.coordinator_retry.due_ms, self.metadata_retry.due_ms, self.delivery.next_time_ms(self.now_ms)]
        return min((time for time in times if time is not None and time > self.now_ms), default=None)
