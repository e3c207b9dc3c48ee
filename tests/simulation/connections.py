"""Connections between clients and a model broker: in order, slow, cut, and late.

A request that was not answered when its connection was cut may arrive later all the same: never, once or twice, in the
order of its connection. Its client gets Unanswered, and no answer afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from connectx.core.clients.messages import Answered, FetchMetadata, Unanswered
from connectx.core.producer import messages as msg
from tests.simulation.chooser import Chooser, one_of
from tests.simulation.cores import RecordedCores

REQUEST_TIMEOUT_MS = 1_000
LATE_MS = (1, 30, 150, 600, 2_500)
DELIVERIES = (0, 1, 1, 2)
LOOKUPS = (msg.FindCoordinator, FetchMetadata)  # change nothing when they come late


class Network(Protocol):
    """What connections need of their world."""

    chooser: Chooser
    cores: RecordedCores
    now_ms: int
    broker_down: bool

    def at(self, delay_ms: int, action: Callable[[], object]) -> None: ...
    def latency_ms(self) -> int: ...
    def reply_ms(self) -> int: ...
    def is_stuck(self) -> bool: ...
    def loses_reply(self) -> bool: ...
    def deliveries(self) -> int: ...
    def arrive(self, connection: Connection, packet: Packet, *, is_late: bool) -> msg.Answer: ...


class Link(Protocol):
    """The machine of a client: which directions work, and whether its threads stand still."""

    sends: bool
    receives: bool
    tasks_frozen: bool


class Client(Protocol):
    """A sender of requests; it hears of each once."""

    @property
    def link(self) -> Link: ...
    def hear(self, stimulus: Answered[msg.Answer] | Unanswered) -> None: ...
    def on_lost(self, request: msg.Request) -> None: ...


@dataclass(eq=False, slots=True)
class Packet:
    """A request on its way, with the records of its batches by their number."""

    request_id: int
    request: msg.Request
    values: Mapping[int, Sequence[Any]]
    sent_ms: int


class Connection:
    """One connection to a node, until it is cut."""

    def __init__(self, network: Network, node: int, client: Client) -> None:
        self.network = network
        self.node = node
        self.client = client
        self.is_open = True
        self._hangs = False  # something was lost: what follows it does not arrive either
        self._unanswered: list[Packet] = []
        self._arrives_ms = self._answers_ms = 0
        self._watches = False

    def send(self, request_id: int, request: msg.Request, values: Mapping[int, Sequence[Any]]) -> None:
        network = self.network
        packet = Packet(request_id, request, values, network.now_ms)
        self._unanswered.append(packet)
        if network.is_stuck():
            self._arrives_ms = network.now_ms + 2 * REQUEST_TIMEOUT_MS
        self._arrives_ms = max(self._arrives_ms, network.now_ms + network.latency_ms())
        network.at(self._arrives_ms - network.now_ms, partial(self._arrive, packet))
        self._watch()

    def cut(self) -> None:
        """Both ends lose it; what was on its way may arrive later."""
        if not self.is_open:
            return
        self.is_open = False
        network, packets = self.network, self._unanswered
        self._unanswered = []
        changing = (packet for packet in packets if not isinstance(packet.request, LOOKUPS))
        deliver_late(network, *(partial(network.arrive, self, packet, is_late=True) for packet in changing))
        for packet in packets:
            self.client.on_lost(packet.request)
            self.client.hear(Unanswered(packet.request_id, sent=True, reason="the connection was cut"))

    def _watch(self) -> None:
        """Wait for the time-out of the oldest request."""
        if not self._watches and self._unanswered:
            self._watches = True
            until_ms = self._unanswered[0].sent_ms + REQUEST_TIMEOUT_MS
            self.network.at(until_ms - self.network.now_ms, self._time_out)

    def _time_out(self) -> None:
        self._watches = False
        if self._unanswered and self.network.now_ms - self._unanswered[0].sent_ms >= REQUEST_TIMEOUT_MS:
            self.cut()
        else:
            self._watch()

    def _arrive(self, packet: Packet) -> None:
        network = self.network
        self._hangs |= network.broker_down or not self.client.link.sends
        if not self.is_open or self._hangs:
            return
        answer = network.arrive(self, packet, is_late=False)
        if network.loses_reply():
            self.cut()
            return
        self._answers_ms = max(self._answers_ms, network.now_ms + network.reply_ms())
        network.at(self._answers_ms - network.now_ms, partial(self._answer, packet, answer))

    def _answer(self, packet: Packet, answer: msg.Answer) -> None:
        self._hangs |= not self.client.link.receives
        if self.is_open and not self._hangs:
            self._unanswered.remove(packet)
            self.client.hear(Answered(packet.request_id, answer))


def deliver_late(network: Network, *arrivals: Callable[[], object]) -> None:
    """Let requests arrive whose connection was cut: never, once or twice, in their order."""
    late_ms = 0
    for arrive in arrivals:
        for _ in range(network.deliveries()):
            late_ms += one_of(network.chooser, LATE_MS)
            network.at(late_ms, partial(_arrive_unless_down, network, arrive))


def _arrive_unless_down(network: Network, arrive: Callable[[], object]) -> None:
    if not network.broker_down:
        arrive()
