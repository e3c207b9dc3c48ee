"""Pending requests of the producer, and the earliest retry of each kind."""

from __future__ import annotations

from dataclasses import dataclass

from connectx.core.by_value import ByValue
from connectx.core.producer.delivery import backoff
from connectx.core.producer.messages import Produce, ProducerSettings, Request


@dataclass(frozen=True, slots=True)
class InFlight:
    """A request and the node that it was sent to; None: any."""

    node: int | None
    request: Request


class RequestsInFlight(ByValue):
    """Requests by their id."""

    def __init__(self) -> None:
        self._sent: dict[int, InFlight] = {}
        self._last_id = 0

    def add(self, node: int | None, request: Request) -> int:
        """Note a request; returns its id."""
        self._last_id += 1
        self._sent[self._last_id] = InFlight(node, request)
        return self._last_id

    def take(self, request_id: int) -> InFlight | None:
        """The request that is answered; None if it has been settled before."""
        return self._sent.pop(request_id, None)

    def clear(self) -> None:
        """Forget all: later answers change nothing."""
        self._sent.clear()

    def has(self, *kinds: type) -> bool:
        """Whether a request of these kinds waits for its answer."""
        return any(isinstance(sent.request, kinds) for sent in self._sent.values())

    def produce_requests(self) -> dict[int, int]:
        """How many Produce requests each node has to answer."""
        counts: dict[int, int] = {}
        for sent in self._sent.values():
            if isinstance(sent.request, Produce) and sent.node is not None:
                counts[sent.node] = counts.get(sent.node, 0) + 1
        return counts


@dataclass(slots=True)
class Retry:
    """Attempts of one kind of request, and when the next is due."""

    settings: ProducerSettings
    attempts: int = 0
    due_ms: int = 0

    def later(self, now_ms: int, backoff_ms: int | None = None) -> None:
        """An attempt failed: wait, longer with each attempt unless a backoff is given."""
        self.attempts += 1
        self.due_ms = now_ms + (backoff(self.settings, self.attempts) if backoff_ms is None else backoff_ms)

    def reset(self) -> None:
        """An attempt succeeded."""
        self.attempts = self.due_ms = 0
