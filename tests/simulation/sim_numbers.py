"""The application of a lone producer: numbers that follow each other, in transactions with their offset.

Number `n` goes to partition `n % 2` of the data topic; each transaction ends with the next number in the offsets topic.
A producer begins where the committed offset is, as a source task does.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from connectx.core.producer import messages as msg
from connectx.core.producer.messages import ProducerPhase as Phase
from connectx.model.ids import TopicPartition
from tests.simulation.chooser import happens, one_of
from tests.simulation.sim_producer import SimProducer

if TYPE_CHECKING:
    from tests.simulation.producer_runs import ProducerWorld

DATA = (TopicPartition("data", 0), TopicPartition("data", 1))
OFFSETS = TopicPartition("offsets", 0)
TRANSACTIONAL_ID = "g-a-0"
PAUSES_MS = (100, 0, 1, 10, 300)
Batches = list[tuple[TopicPartition, list[int]]]


class SimNumbers:
    """One producer with its application. `position` is the next number; None until the offset was read."""

    def __init__(self, world: ProducerWorld, number: int) -> None:
        self.world = world
        self.number = number
        self.position: int | None = None
        self.end = 0  # the first number after the open transaction
        self._is_committing = False
        self._is_reading = False
        settings = msg.ProducerSettings(
            TRANSACTIONAL_ID,
            idempotent=True,
            max_in_flight=world.max_in_flight,
            transaction_timeout_ms=world.transaction_timeout_ms,
        )
        self.producer = SimProducer(world, world, settings, self, self._go_on)
        self.producer.handle(msg.Call.INITIALIZE)

    @property
    def is_over(self) -> bool:
        return self.producer.is_over

    def _go_on(self) -> None:
        state = self.producer.phase
        if self._is_committing and state in (Phase.READY, Phase.RENEWING):
            self._is_committing = False
            self.position = self.end
            self.world.on_acknowledged(self.end)
        match state:
            case Phase.FAILED:
                self.world.on_failed(self)
            case Phase.REFUSED:
                self._is_committing = False
                self.producer.handle(msg.Call.ABORT)
            case Phase.READY if self.position is None:
                self._read_offset()
            case Phase.READY if self.position is not None and self.position < self.world.goal:
                self._begin(self.position)

    def _read_offset(self) -> None:
        """Wait until every transaction in the offsets topic has ended."""
        log = self.world.broker.log(OFFSETS)
        if log.last_stable == log.end:
            self.position = max((value for _, value in log.read(0)), default=0)
            self._go_on()
        elif not self._is_reading:
            self._is_reading = True
            self.world.at(50, self._read_again)

    def _read_again(self) -> None:
        self._is_reading = False
        if not self.is_over:
            self._go_on()

    def _begin(self, first: int) -> None:
        world = self.world
        self.end = min(world.goal, first + one_of(world.chooser, (4, 1, 2, 12)))
        aborts = happens(world.chooser, world.aborts)
        self._is_committing = False
        self.producer.handle(msg.Call.BEGIN)
        cuts = sorted({first, (first + self.end) // 2, self.end})
        steps = [_batches_of(low, high) for low, high in pairwise(cuts)]
        steps.append([(OFFSETS, [self.end])])
        self._perform(steps, aborts=aborts)

    def _perform(self, steps: list[Batches], *, aborts: bool) -> None:
        """Append one step after the other, with pauses, then end the transaction."""
        if self.is_over or self.producer.phase is not Phase.OPEN:
            return
        if steps:
            self.producer.append(*steps[0])
            delay_ms = one_of(self.world.chooser, PAUSES_MS)
            self.world.at(delay_ms, lambda: self._perform(steps[1:], aborts=aborts))
        else:
            self._is_committing = not aborts
            self.producer.handle(msg.Call.ABORT if aborts else msg.Call.COMMIT)


def _batches_of(first: int, end: int) -> Batches:
    by_partition: dict[TopicPartition, list[int]] = {}
    for number in range(first, end):
        by_partition.setdefault(DATA[number % len(DATA)], []).append(number)
    return list(by_partition.items())
