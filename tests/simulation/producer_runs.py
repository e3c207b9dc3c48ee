"""A transactional producer, its successors and zombies, on connections that deliver late: one run by seed or trail.

What must hold: a read_committed reader sees all numbers in order and once, with each transaction's offset and never
without it; what was acknowledged is there; a producer only fails when another one or a time-out has fenced it; and the
data reaches its end when the faults have ended.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from connectx.core.producer import messages as msg
from tests.simulation.broker_requests import TransactionalBroker, TransactionState
from tests.simulation.chooser import Chooser, Replay, Seeded, one_of
from tests.simulation.connections import Connection, Packet
from tests.simulation.invariants import Broken, broken
from tests.simulation.runs import calmed
from tests.simulation.sim_producer import DATA, OFFSETS, TRANSACTIONAL_ID, SimProducer

CHAOS_MS = 20_000
CALM_MS = 60_000
LAST_NUMBERS = 12  # are sent after the faults have ended
MOST_EVENTS = 30_000
MARKERS_MS = (1, 15, 200)


class ProducerWorld:
    """One transactional id, its producers and a broker in virtual time."""

    def __init__(self, chooser: Chooser, protocol: int) -> None:
        self.chooser = chooser
        self.now_ms = 0
        self.goal = 1_000_000
        self.broker = TransactionalBroker(transaction_version=protocol)
        for target in (*DATA, OFFSETS):
            self.broker.log(target)
        self.max_in_flight = one_of(chooser, (1, 5))
        self.slow = one_of(chooser, (0, 20, 100))
        self.stuck = one_of(chooser, (0, 10, 40))
        self.lost_answers = one_of(chooser, (0, 10, 40))
        self.aborts = one_of(chooser, (0, 100, 400))
        self.transaction_timeout_ms = one_of(chooser, (60_000, 60_000, 4_000))
        self.history: list[tuple[int, str]] = []
        self.seen = [0] * len(DATA)  # how many numbers of each partition
        self.offset = self.acknowledged = 0
        self._read = dict.fromkeys((*DATA, OFFSETS), 0)
        self._has_fenced = False
        self._lost_epochs: set[int] = set()
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._scheduled = 0
        self.producers = [SimProducer(self, 1)]
        self.at(100, self._tick)

    def at(self, delay_ms: int, action: Callable[[], object]) -> None:
        self._scheduled += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._scheduled, action))

    def arrive(self, connection: Connection, packet: Packet, *, is_late: bool) -> msg.Answer:
        """A request reaches the broker, whoever waits for its answer."""
        self.broker.now_ms = self.now_ms
        answer = self.broker.handle(connection.node, packet.request, packet.values)
        late = ", late," if is_late else ""
        self.history.append((self.now_ms, f"producer {connection.owner}{late}: {packet.request} -> {answer}"))
        is_newest = bool(self.producers) and connection.owner == self.producers[-1].number
        if isinstance(packet.request, msg.InitProducerId) and (is_late or not is_newest):
            self._has_fenced = True
        if self._is_early_abort(packet.request, answer):
            self._has_fenced = True
        self._write_markers()
        return answer

    def on_lost(self, packet: Packet) -> None:
        """A request stayed without an answer."""
        if isinstance(packet.request, msg.Produce):
            self._lost_epochs.add(packet.request.epoch)

    def _is_early_abort(self, request: msg.Request, answer: msg.Answer) -> bool:
        """Kafka fences whoever aborts while the markers before are written, and records may or may not have arrived."""
        is_abort = isinstance(request, msg.EndTransaction) and not request.commit and request.protocol == 2
        is_refused = isinstance(answer, msg.TransactionEnded) and answer.error == "PRODUCER_FENCED"
        return is_abort and is_refused and request.epoch in self._lost_epochs  # type: ignore[union-attr]

    def on_acknowledged(self, end: int) -> None:
        self.acknowledged = max(self.acknowledged, end)

    def on_failed(self, producer: SimProducer) -> None:
        """Only a successor or a time-out may end a producer; the newest one is followed by another."""
        if producer is self.producers[-1]:
            if not self._has_fenced:
                broken(9, f"producer {producer.number} fails, which nothing has fenced: {producer.core.failure}")
            self.at(100, self.start_successor)

    def start_successor(self) -> None:
        self._has_fenced = False
        self.history.append((self.now_ms, f"producer {len(self.producers) + 1} starts"))
        self.producers.append(SimProducer(self, len(self.producers) + 1))

    # ----------------------------------------------------------------------------------------------------- faults

    def act(self) -> None:
        """One fault; nothing is the quiet choice."""
        newest = self.producers[-1]
        match self.chooser.pick(6):
            case 1:
                self.history.append((self.now_ms, "connections are cut"))
                newest.cut_all()
            case 2:
                self.history.append((self.now_ms, "the coordinator moves"))
                self.broker.move_coordinator()
            case 3 if not newest.is_over:
                self.history.append((self.now_ms, f"producer {newest.number} is killed"))
                newest.kill()
                self.start_successor()
            case 4 if not newest.is_over:
                self.start_successor()  # the older one is a zombie now

    def run(self) -> None:
        """Faults, then none, then all data."""
        while self.now_ms < CHAOS_MS:
            self.run_for(one_of(self.chooser, (900, 50, 333, 2_500)))
            self.act()
        self.slow = self.stuck = self.lost_answers = self.aborts = 0
        self.goal = self.producers[-1].end + LAST_NUMBERS
        end_ms = self.now_ms + CALM_MS
        while self.offset < self.goal or self._is_undecided():
            if self.now_ms > end_ms:
                broken(9, f"the data stands still at {self.offset} of {self.goal}")
            self.run_for(200)

    def run_for(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._events)
            if self._scheduled > MOST_EVENTS:
                broken(9, "there is no end of events")
            action()
        self.now_ms = end_ms

    def _tick(self) -> None:
        self.broker.now_ms = self.now_ms
        if self.broker.expire():
            self._has_fenced = True
            self.history.append((self.now_ms, "a transaction expires"))
            self._write_markers()
        self.at(100, self._tick)

    def _write_markers(self) -> None:
        found = self.broker.ids.get(TRANSACTIONAL_ID)
        if found is not None and found.is_preparing:
            self.at(one_of(self.chooser, MARKERS_MS) if self.slow else MARKERS_MS[0], self._written)

    def _written(self) -> None:
        if self.broker.write_markers(TRANSACTIONAL_ID):
            self.history.append((self.now_ms, f"markers: {self.broker.ids[TRANSACTIONAL_ID].state.value}"))
            self.look()

    # ----------------------------------------------------------------------------------------------------- checks

    def look(self) -> None:
        """Read on, as a read_committed reader does."""
        for partition, target in enumerate(DATA):
            for number in self._read_on(target):
                expected = self.seen[partition] * len(DATA) + partition
                if number != expected:
                    broken(2, f"{number} is there instead of {expected}")
                self.seen[partition] += 1
        for offset in self._read_on(OFFSETS):
            if offset <= self.offset:
                broken(3, f"the offset goes from {self.offset} to {offset}")
            self.offset = offset
        if not self._is_undecided():
            if sum(self.seen) != self.offset:
                broken(3, f"{sum(self.seen)} numbers are committed, and the offset {self.offset}")
            if self.offset < self.acknowledged:
                broken(2, f"{self.acknowledged} was acknowledged, and only {self.offset} is there")

    def _is_undecided(self) -> bool:
        found = self.broker.ids.get(TRANSACTIONAL_ID)
        return found is not None and (found.is_preparing or found.state is TransactionState.ONGOING)

    def _read_on(self, target: Any) -> list[int]:
        log = self.broker.log(target)
        first, self._read[target] = self._read[target], log.last_stable
        return [value for _, value in log.read(first)]


@dataclass
class ProducerRun:
    """What came out; `number` is that of the broken invariant, 0 for any other error, None when all held."""

    world: ProducerWorld | None
    error: Exception | None = None
    trail: list[int] = field(default_factory=list)

    @property
    def number(self) -> int | None:
        if self.error is None:
            return None
        return self.error.number if isinstance(self.error, Broken) else 0

    @property
    def kind(self) -> tuple[int | None, str]:
        return self.number, "" if isinstance(self.error, Broken) else type(self.error).__name__

    def story(self) -> str:
        """The end of what happened, for a failed test."""
        lines = [] if self.world is None else [f"{at_ms} ms: {text}" for at_ms, text in self.world.history[-60:]]
        return "\n".join([*lines, repr(self.error)])


def run(chooser: Chooser, protocol: int) -> ProducerRun:
    """Let a producer and its successors live through what the chooser picks."""
    world = None
    error: Exception | None = None
    try:
        world = ProducerWorld(chooser, protocol)
        world.run()
    except Exception as raised:
        error = raised
    return ProducerRun(world, error, calmed(chooser.trail))


def run_seed(seed: int, protocol: int) -> ProducerRun:
    return run(Seeded(seed), protocol)


def run_trail(trail: list[int], protocol: int) -> ProducerRun:
    return run(Replay(trail), protocol)
