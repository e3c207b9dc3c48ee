"""A producer's client in virtual time: the real core, connections to a model broker, and the records of its batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from connectx.core.clients.messages import SendRequest, TimeReached
from connectx.core.producer import messages as msg
from connectx.core.producer.messages import ProducerPhase as Phase
from connectx.model.ids import TopicPartition
from connectx.recording.clients import PRODUCER
from tests.simulation.connections import Connection, Link, Network
from tests.simulation.invariants import broken

BATCH_BYTES = 100
HELD_MS = 50


class SimProducer:
    """One producer, until it fails or is abandoned.

    Args:
        owner: the task or application that it writes for.
        on_step: called after each step of the core.

    Attributes:
        fences: how often its transactional id had been fenced when its own InitProducerId was granted; None before.
        is_excused: Kafka refuses its abort although nothing has fenced it (see `producer_requests.arrive`).
        lost_epochs: epochs of batches that stayed unanswered.
        checks_rules: whether the core's rules are checked after each step. Mutants that data must show leave them out.
    """

    checks_rules = True

    def __init__(
        self,
        network: Network,
        link: Link,
        settings: msg.ProducerSettings,
        owner: Any,
        on_step: Callable[[], object],
    ) -> None:
        self.network = network
        self.link = link
        self.owner = owner
        self.recorded = network.cores.make(PRODUCER, settings.transactional_id or "producer", settings)
        self.core = self.recorded.core
        self.is_abandoned = False
        self.fences: int | None = None
        self.is_excused = False
        self.lost_epochs: set[int] = set()
        self._on_step = on_step
        self._connections: dict[int, Connection] = {}
        self._values: dict[int, list[Any]] = {}
        self._batches = 0
        self._held: list[msg.ProducerStimulus] = []
        self._wakes_ms: int | None = None

    @property
    def phase(self) -> Phase:
        return self.core.phase

    @property
    def is_over(self) -> bool:
        """True when it does nothing any more."""
        return self.is_abandoned or self.core.phase is Phase.FAILED

    @property
    def is_settled(self) -> bool:
        """True when each batch was delivered, refused or dropped."""
        return not self._values

    def abandon(self) -> None:
        """Close the connections as a killed process would: what was on its way may still arrive."""
        self.is_abandoned = True
        self.cut_all()

    def cut_all(self) -> None:
        """Lose all connections."""
        for connection in list(self._connections.values()):
            connection.cut()

    def append(self, *batches: tuple[TopicPartition, list[Any]]) -> None:
        """Queue one batch of values for each partition."""
        self.handle(msg.Append(tuple(self._batch(target, values) for target, values in batches)))

    def hear(self, stimulus: msg.ProducerStimulus) -> None:
        """Take what comes from connections and timers; the threads of a frozen machine take it later, in order."""
        if not self._held and not self.link.tasks_frozen:
            self.handle(stimulus)
            return
        self._held.append(stimulus)
        if len(self._held) == 1:
            self.network.at(HELD_MS, self._resume)

    def on_lost(self, request: msg.Request) -> None:
        """A request stays without an answer."""
        if isinstance(request, msg.Produce):
            self.lost_epochs.add(request.epoch)

    def handle(self, stimulus: msg.ProducerStimulus) -> None:
        if self.is_over:
            return
        before = self.core.marks()
        step = self.recorded.handle(stimulus, self.network.now_ms)
        if self.checks_rules and (found := self.core.check(before)):
            broken(10, f"{self.recorded.name}: {'; '.join(map(str, found))}")
        for effect in step.effects:
            match effect:
                case SendRequest(request_id, node, request):
                    self._send(request_id, node, request)
                case msg.BatchDelivered(number) | msg.BatchRefused(number) | msg.BatchDropped(number):
                    self._values.pop(number, None)
                case msg.SplitBatch():
                    raise AssertionError("the batches of this simulation are small")
        if step.wake_at_ms is not None and (self._wakes_ms is None or step.wake_at_ms < self._wakes_ms):
            self._wakes_ms = step.wake_at_ms
            self.network.at(step.wake_at_ms - self.network.now_ms, self._wake)
        self._on_step()

    def _wake(self) -> None:
        self._wakes_ms = None
        self.hear(TimeReached())

    def _resume(self) -> None:
        if self.link.tasks_frozen:
            self.network.at(HELD_MS, self._resume)
            return
        held, self._held = self._held, []
        for stimulus in held:
            self.handle(stimulus)

    def _batch(self, target: TopicPartition, values: list[Any]) -> msg.Batch:
        self._batches += 1
        self._values[self._batches] = values
        return msg.Batch(self._batches, target, len(values), BATCH_BYTES)

    def _send(self, request_id: int, node: int | None, request: msg.Request) -> None:
        to = 0 if node is None else node
        connection = self._connections.get(to)
        if connection is None or not connection.is_open:
            connection = self._connections[to] = Connection(self.network, to, self)
        values: dict[int, list[Any]] = {}
        if isinstance(request, msg.Produce):
            values = {batch.number: self._values[batch.number] for batch in request.batches}
        connection.send(request_id, request, values)
