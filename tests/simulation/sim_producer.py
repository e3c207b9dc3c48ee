"""A task's producer in virtual time: the real core, connections to a model broker, numbers that follow each other.

Number `n` goes to partition `n % 2` of the data topic; each transaction ends with the next number in the offsets topic.
A producer begins where the committed offset is, as a source task does.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from connectx.core.producer import messages as msg
from connectx.core.producer.messages import ProducerState as State
from connectx.core.producer.producer import ProducerCore
from connectx.model.ids import TopicPartition
from tests.simulation.chooser import happens, one_of
from tests.simulation.connections import Connection, Packet

if TYPE_CHECKING:
    from tests.simulation.producer_runs import ProducerWorld

DATA = (TopicPartition("data", 0), TopicPartition("data", 1))
OFFSETS = TopicPartition("offsets", 0)
TRANSACTIONAL_ID = "g-a-0"
PAUSES_MS = (0, 1, 10, 300)


class SimProducer:
    """One producer, until it fails or is killed. `position` is the next number; None until the offset was read."""

    def __init__(self, world: ProducerWorld, number: int) -> None:
        self.world = world
        self.number = number
        self.is_killed = False
        self.position: int | None = None
        self.end = 0  # the first number after the open transaction
        self.core = ProducerCore(
            msg.ProducerSettings(
                TRANSACTIONAL_ID,
                idempotent=True,
                max_in_flight=world.max_in_flight,
                transaction_timeout_ms=world.transaction_timeout_ms,
            )
        )
        self._connections: dict[int, Connection] = {}
        self._values: dict[int, list[Any]] = {}
        self._batches = 0
        self._is_reading = False
        self.handle(msg.Initialize())

    @property
    def is_over(self) -> bool:
        return self.is_killed or self.core.state is State.FAILED

    def kill(self) -> None:
        self.is_killed = True
        self.cut_all()

    def cut_all(self) -> None:
        for connection in list(self._connections.values()):
            connection.cut()

    def handle(self, stimulus: msg.ProducerStimulus) -> None:
        if self.is_over:
            return
        was_committing = self.core.state is State.COMMITTING
        step = self.core.handle(stimulus, self.world.now_ms)
        for effect in step.effects:
            match effect:
                case msg.SendRequest(request_id, node, request):
                    self._send(request_id, node, request)
                case msg.SplitBatch():
                    raise AssertionError("the batches of this simulation are small")
        if step.wake_at_ms is not None:
            self.world.at(step.wake_at_ms - self.world.now_ms, lambda: self.handle(msg.TimeReached()))
        if was_committing and self.core.state in (State.READY, State.RENEWING):
            self.position = self.end
            self.world.on_acknowledged(self.end)
        self._go_on()

    def _send(self, request_id: int, node: int | None, request: msg.Request) -> None:
        to = 0 if node is None else node
        connection = self._connections.get(to)
        if connection is None or not connection.is_open:
            connection = self._connections[to] = Connection(self.world, to, self.number, self.handle)
        values: dict[int, list[Any]] = {}
        if isinstance(request, msg.Produce):
            values = {batch.number: self._values[batch.number] for batch in request.batches}
        connection.send(Packet(request_id, request, values))

    # ------------------------------------------------------------------------------------------------ application

    def _go_on(self) -> None:
        match self.core.state:
            case State.FAILED:
                self.world.on_failed(self)
            case State.REFUSED:
                self.handle(msg.AbortTransaction())
            case State.READY if self.position is None:
                self._read_offset()
            case State.READY if self.position is not None and self.position < self.world.goal:
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
        self.handle(msg.BeginTransaction())
        cuts = sorted({first, (first + self.end) // 2, self.end})
        steps: list[tuple[msg.Batch, ...]] = [self._batches_of(low, high) for low, high in pairwise(cuts)]
        steps.append((self._batch(OFFSETS, [self.end]),))
        self._perform(steps, aborts=aborts)

    def _perform(self, steps: list[tuple[msg.Batch, ...]], *, aborts: bool) -> None:
        """Append one step after the other, with pauses, then end the transaction."""
        if self.is_over or self.core.state is not State.OPEN:
            return
        if steps:
            self.handle(msg.Append(steps[0]))
            delay_ms = one_of(self.world.chooser, PAUSES_MS)
            self.world.at(delay_ms, lambda: self._perform(steps[1:], aborts=aborts))
        else:
            self.handle(msg.AbortTransaction() if aborts else msg.CommitTransaction())

    def _batches_of(self, first: int, end: int) -> tuple[msg.Batch, ...]:
        by_partition: dict[TopicPartition, list[Any]] = {}
        for number in range(first, end):
            by_partition.setdefault(DATA[number % len(DATA)], []).append(number)
        return tuple(self._batch(target, numbers) for target, numbers in by_partition.items())

    def _batch(self, target: TopicPartition, values: list[Any]) -> msg.Batch:
        self._batches += 1
        self._values[self._batches] = values
        return msg.Batch(self._batches, target, len(values), 100)
