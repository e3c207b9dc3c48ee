"""What a leader writes with its own producer, and the producers that it fences, in virtual time.

The counterparts of `kafka.internal.leader_writer.LeaderProducer` and `kafka.admin.fencing.ProducerFencer`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from connectx.core.clients.messages import Answered, Unanswered
from connectx.core.messages import ClaimConfigWrites, ConfigRecordsWritten, ConfigWritesClaimed, WriteConfigRecords
from connectx.core.producer import messages as msg
from connectx.core.producer.messages import ProducerPhase as Phase
from connectx.model.ids import TopicPartition
from tests.simulation.broker import CONFIG_TOPIC
from tests.simulation.connections import Connection
from tests.simulation.invariants import broken
from tests.simulation.sim_producer import SimProducer

if TYPE_CHECKING:
    from tests.simulation.sim_worker import SimWorker

CLUSTER_ID = "connect-cluster-g"  # the leader's transactional id
ABANDONED = "Kafka did not answer before the order was abandoned"
FENCE_TIMEOUT_MS = 10_000
FENCE_AGAIN_MS = 20
CONFIGS = TopicPartition(CONFIG_TOPIC, 0)
Order = ClaimConfigWrites | WriteConfigRecords


class SimLeader:
    """The thread with the leader's producer: it carries out one order after the other."""

    def __init__(self, worker: SimWorker) -> None:
        self.worker = worker
        self.world = worker.world
        self.producer: SimProducer | None = None
        self._orders: deque[Order] = deque()
        self._abandoned: set[int] = set()
        self._is_writing = False

    def carry_out(self, order: Order) -> None:
        """Queue an order."""
        self._orders.append(order)
        if len(self._orders) == 1:
            self._begin(order)

    def abandon(self, request_id: int) -> None:
        """End an order that has not ended, without waiting for the broker."""
        self._abandoned.add(request_id)
        if self._orders and self._orders[0].request_id == request_id:
            self._end(self._orders[0], ABANDONED)

    def _begin(self, order: Order) -> None:
        if order.request_id in self._abandoned:
            self._end(order, ABANDONED)
        elif isinstance(order, ClaimConfigWrites):
            self._drop()
            self.producer = SimProducer(
                self.world, self.worker, msg.ProducerSettings(CLUSTER_ID, idempotent=True), self, self._after_step
            )
            self.worker.producers.append(self.producer)
            self.producer.handle(msg.Call.INITIALIZE)
        elif self.producer is None:
            broken(5, f"{self.worker.name} writes to the config topic as a leader, and has not claimed it")
        else:
            self._is_writing = False
            self._after_step()

    def _after_step(self) -> None:
        """The producer has made a step: go on with the order at hand."""
        producer = self.producer
        if producer is None or not self._orders:
            return
        order = self._orders[0]
        if producer.phase is Phase.FAILED:
            self.world.checks.on_producer_failed(producer)
            self._end(order, f"refused: {producer.core.failure}")
        elif producer.phase is not Phase.READY:
            return
        elif isinstance(order, ClaimConfigWrites) or self._is_writing:
            self._end(order, None)
        else:
            self._is_writing = True
            producer.handle(msg.Call.BEGIN)
            producer.append((CONFIGS, list(order.records)))
            producer.handle(msg.Call.COMMIT)

    def _end(self, order: Order, error: str | None) -> None:
        """Report; after an error the producer is not used again."""
        self._orders.popleft()
        self._is_writing = False
        if error is not None:
            self._drop()
        if isinstance(order, ClaimConfigWrites):
            self.worker.deliver(ConfigWritesClaimed(order.request_id, error), "leader")
        else:
            fenced = error is not None
            self.worker.deliver(ConfigRecordsWritten(order.request_id, error, fenced=fenced), "leader")
        if self._orders:
            self._begin(self._orders[0])

    def _drop(self) -> None:
        producer, self.producer = self.producer, None
        if producer is not None:
            producer.abandon()


class SimFencer:
    """One call that fences producers; each id is asked for until Kafka has granted it."""

    def __init__(self, worker: SimWorker, request_id: int, transactional_ids: tuple[str, ...]) -> None:
        self.link = worker
        self.world = worker.world
        self.request_id = request_id
        self.transactional_ids = transactional_ids
        self.left = set(transactional_ids)
        self.connection: Connection | None = None
        for number in range(len(transactional_ids)):
            self._send(number)

    def hear(self, stimulus: Answered[msg.Answer] | Unanswered) -> None:
        number = stimulus.request_id
        granted = isinstance(stimulus, Answered) and stimulus.answer.error is None  # type: ignore[union-attr]
        if not granted:
            self.world.at(FENCE_AGAIN_MS, lambda: self._send(number))
            return
        self.left.discard(self.transactional_ids[number])
        if not self.left:
            self.link.fenced(self.request_id, self.transactional_ids)

    def on_lost(self, request: msg.Request) -> None:
        """It is sent again."""

    def cut_all(self) -> None:
        """The connection is lost."""
        if self.connection is not None:
            self.connection.cut()

    def _send(self, number: int) -> None:
        if not self.link.alive:
            return
        node = self.world.broker.transactions.coordinator
        if self.connection is None or not self.connection.is_open or self.connection.node != node:
            self.connection = Connection(self.world, node, self)
        name = self.transactional_ids[number]
        self.connection.send(number, msg.InitProducerId(name, FENCE_TIMEOUT_MS, -1, -1), {})
