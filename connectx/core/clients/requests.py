"""Pending requests of a client, and the earliest retry of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from connectx.values import Value

RequestT = TypeVar("RequestT")
KindT = TypeVar("KindT")


class Backoff(Protocol):
    @property
    def retry_backoff_ms(self) -> int:
        """Milliseconds before the second attempt."""

    @property
    def retry_backoff_max_ms(self) -> int:
        """The longest time between two attempts."""


class InFlight(Value, Generic[RequestT]):
    """A request and the node that it was sent to; None: any."""

    node: int | None
    request: RequestT


@dataclass(slots=True)
class RequestsInFlight(Generic[RequestT]):
    sent: dict[int, InFlight[RequestT]] = field(default_factory=dict)
    last_id: int = 0

    def add(self, node: int | None, request: RequestT) -> int:
        """Note a request; returns its id."""
        self.last_id += 1
        self.sent[self.last_id] = InFlight(node, request)
        return self.last_id

    def take(self, request_id: int) -> InFlight[RequestT] | None:
        """The request that is answered; None if it has been settled before."""
        return self.sent.pop(request_id, None)

    def has(self, *kinds: type) -> bool:
        """Whether a request of these kinds waits for its answer."""
        return any(isinstance(sent.request, kinds) for sent in self.sent.values())

    def of(self, kind: type[KindT]) -> Iterator[tuple[int | None, KindT]]:
        """The pending requests of a kind, each with its node."""
        return ((sent.node, sent.request) for sent in self.sent.values() if isinstance(sent.request, kind))

    def per_node(self, kind: type[Any]) -> dict[int, int]:
        """How many requests of a kind each node has to answer."""
        counts: dict[int, int] = {}
        for node, _ in self.of(kind):
            if node is not None:
                counts[node] = counts.get(node, 0) + 1
        return counts


@dataclass(slots=True)
class Retry:
    """Attempts of one kind of request, and when the next is due."""

    attempts: int = 0
    due_ms: int = 0

    def later(self, settings: Backoff, now_ms: int, backoff_ms: int | None = None) -> None:
        """An attempt failed: wait, longer with each attempt unless a backoff is given."""
        self.attempts += 1
        self.due_ms = now_ms + (backoff(settings, self.attempts) if backoff_ms is None else backoff_ms)

    def reset(self) -> None:
        self.attempts = self.due_ms = 0


def backoff(settings: Backoff, attempts: int) -> int:
    """Milliseconds before the next attempt: `retry.backoff.ms`, doubled up to `retry.backoff.max.ms` (KIP-580)."""
    return min(settings.retry_backoff_max_ms, settings.retry_backoff_ms << min(max(0, attempts - 1), 20))
