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
from tests.simulation import producer_requests
from tests.simulation.broker_requests import TransactionalBroker, TransactionState
from tests.simulation.chooser import Chooser, Replay, Seeded, happens, one_of
from tests.simulation.connections import DELIVERIES, Connection, Packet
from tests.simulation.cores import RecordedCores
from tests.simulation.invariants import Broken, broken
from tests.simulation.runs import calmed
from tests.simulation.sim_numbers import DATA, OFFSETS, TRANSACTIONAL_ID, SimNumbers
from tests.simulation.sim_producer import SimProducer

CHAOS_MS = 20_000
CALM_MS = 60_000
LAST_NUMBERS = 12  # are sent after the faults have ended
MOST_EVENTS = 30_000
MARKERS_MS = (1, 15, 200)
LATENCY_MS = 2
Happening = str | tuple[int, bool, msg.Request, msg.Answer]
"""In words, or what came of a request: number of the producer, whether it came late, request and answer."""


class ProducerWorld:
    """One transactional id, its producers and a broker in virtual time."""

    recording_bytes = 0  # of each core; `tests.simulation.trails` sets it

    def __init__(self, chooser: Chooser, protocol: int) -> None:
        self.chooser = chooser
        self.cores = RecordedCores(self.recording_bytes)
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
        self.history: list[tuple[int, Happening]] = []
        self.seen = [0] * len(DATA)  # how many numbers of each partition
        self.offset = self.acknowledged = 0
        self._read = dict.fromkeys((*DATA, OFFSETS), 0)
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._scheduled = 0
        self.newest = SimNumbers(self, 1)
        self.at(100, self._tick)

    def at(self, delay_ms: int, action: Callable[[], object]) -> None:
        self._scheduled += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._scheduled, action))

    sends = receives = True
    broker_down = tasks_frozen = False

    def latency_ms(self) -> int:
        return one_of(self.chooser, (20, 200, 700)) if happens(self.chooser, self.slow) else LATENCY_MS

    def reply_ms(self) -> int:
        return self.latency_ms()

    def is_stuck(self) -> bool:
        return happens(self.chooser, self.stuck)

    def loses_reply(self) -> bool:
        return happens(self.chooser, self.lost_answers)

    def deliveries(self) -> int:
        return one_of(self.chooser, DELIVERIES)

    def arrive(self, connection: Connection, packet: Packet, *, is_late: bool) -> msg.Answer:
        """A request reaches the broker, on time or late."""
        self.broker.now_ms = self.now_ms
        arrival = producer_requests.arrive(self.broker, connection, packet, is_late=is_late)
        assert isinstance(connection.client, SimProducer)
        self.history.append((self.now_ms, (connection.client.owner.number, is_late, packet.request, arrival.answer)))
        if arrival.ended is not None:
            self._await_markers()
        return arrival.answer

    def on_acknowledged(self, end: int) -> None:
        self.acknowledged = max(self.acknowledged, end)

    def on_failed(self, numbers: SimNumbers) -> None:
        """Only a successor or a time-out may end a producer; the newest one is followed by another."""
        if numbers is self.newest:
            producer = numbers.producer
            if not producer.is_excused and not producer_requests.is_fenced(self.broker, producer):
                broken(9, f"producer {numbers.number} fails, which nothing has fenced: {producer.core.failure}")
            self.at(100, self.start_successor)

    def start_successor(self) -> None:
        self.history.append((self.now_ms, f"producer {self.newest.number + 1} starts"))
        self.newest = SimNumbers(self, self.newest.number + 1)

    def act(self) -> None:
        """One fault; nothing is the quiet choice."""
        newest = self.newest
        match self.chooser.pick(6):
            case 1:
                self.history.append((self.now_ms, "connections are cut"))
                newest.producer.cut_all()
            case 2:
                self.history.append((self.now_ms, "the coordinator moves"))
                self.broker.move_coordinator()
            case 3 if not newest.is_over:
                self.history.append((self.now_ms, f"producer {newest.number} is killed"))
                newest.producer.abandon()
                self.start_successor()
            case 4 if not newest.is_over:
                self.start_successor()  # the older one is a zombie now

    def run(self) -> None:
        """Faults, then none, then all data."""
        while self.now_ms < CHAOS_MS:
            self.run_for(one_of(self.chooser, (900, 50, 333, 2_500)))
            self.act()
        self.slow = self.stuck = self.lost_answers = self.aborts = 0
        self.goal = self.newest.end + LAST_NUMBERS
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
            self.history.append((self.now_ms, "a transaction expires"))
            self._await_markers()
        self.at(100, self._tick)

    def _await_markers(self) -> None:
        self.at(one_of(self.chooser, MARKERS_MS) if self.slow else MARKERS_MS[0], self._written)

    def _written(self) -> None:
        if self.broker.write_markers(TRANSACTIONAL_ID):
            self.history.append((self.now_ms, f"markers: {self.broker.ids[TRANSACTIONAL_ID].state.value}"))
            self.look()

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
        happened = [] if self.world is None else self.world.history[-60:]
        return "\n".join([*(f"{at_ms} ms: {_told(what)}" for at_ms, what in happened), repr(self.error)])


def _told(what: Happening) -> str:
    if isinstance(what, str):
        return what
    number, is_late, request, answer = what
    return f"producer {number}{', late' if is_late else ''}: {request} -> {answer}"


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
