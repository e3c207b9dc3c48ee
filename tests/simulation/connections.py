"""Connections between producers and a model broker: in order, slow, cut, and late.

A request that was not answered when its connection was cut may arrive later all the same: never, once or twice, in the
order of its connection. Its producer gets Unanswered, and no answer afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from connectx.core.producer import messages as msg
from tests.simulation.chooser import Chooser, happens, one_of

LATENCY_MS = 2
REQUEST_TIMEOUT_MS = 1_000
LATE_MS = (1, 30, 150, 600, 2_500)
DELIVERIES = (0, 1, 1, 2)


class Network(Protocol):
    """What connections need of their world; shares are per mille of requests."""

    chooser: Chooser
    slow: int
    stuck: int
    lost_answers: int

    def at(self, delay_ms: int, action: Callable[[], object]) -> None: ...
    def arrive(self, connection: Connection, packet: Packet, *, is_late: bool) -> msg.Answer: ...
    def on_lost(self, packet: Packet) -> None: ...
    @property
    def now_ms(self) -> int: ...


@dataclass(eq=False, slots=True)
class Packet:
    """A request on its way, with the records of its batches by their number."""

    request_id: int
    request: msg.Request
    values: Mapping[int, Sequence[Any]]


class Connection:
    """One connection to a node, until it is cut. `owner` numbers its producer; `report` takes what it hears."""

    def __init__(self, network: Network, node: int, owner: int, report: Callable[[msg.ProducerStimulus], None]) -> None:
        self.network = network
        self.node = node
        self.owner = owner
        self.is_open = True
        self._report = report
        self._unanswered: list[Packet] = []
        self._arrives_ms = self._answers_ms = 0

    def send(self, packet: Packet) -> None:
        network = self.network
        self._unanswered.append(packet)
        if happens(network.chooser, network.stuck):
            self._arrives_ms = network.now_ms + 2 * REQUEST_TIMEOUT_MS
        self._arrives_ms = max(self._arrives_ms, network.now_ms + self._latency_ms())
        network.at(self._arrives_ms - network.now_ms, lambda: self._arrive(packet))
        network.at(REQUEST_TIMEOUT_MS, lambda: self._time_out(packet))

    def cut(self) -> None:
        """Both ends lose it; what was on its way may arrive later."""
        if not self.is_open:
            return
        self.is_open = False
        network, packets = self.network, self._unanswered
        self._unanswered = []
        late_ms = 0
        for packet in packets:
            for _ in range(one_of(network.chooser, DELIVERIES)):
                late_ms += one_of(network.chooser, LATE_MS)
                network.at(late_ms, partial(network.arrive, self, packet, is_late=True))
        for packet in packets:
            network.on_lost(packet)
            self._report(msg.Unanswered(packet.request_id, sent=True, reason="the connection was cut"))

    def _latency_ms(self) -> int:
        network = self.network
        return one_of(network.chooser, (20, 200, 700)) if happens(network.chooser, network.slow) else LATENCY_MS

    def _time_out(self, packet: Packet) -> None:
        if packet in self._unanswered:
            self.cut()

    def _arrive(self, packet: Packet) -> None:
        if not self.is_open:
            return
        network = self.network
        answer = network.arrive(self, packet, is_late=False)
        if happens(network.chooser, network.lost_answers):
            self.cut()
            return
        self._answers_ms = max(self._answers_ms, network.now_ms + self._latency_ms())
        network.at(self._answers_ms - network.now_ms, lambda: self._answer(packet, answer))

    def _answer(self, packet: Packet, answer: msg.Answer) -> None:
        if self.is_open:
            self._unanswered.remove(packet)
            self._report(msg.Answered(packet.request_id, answer))
