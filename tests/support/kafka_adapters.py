"""The Kafka adapters of one worker, outside of it: effects in, stimuli out."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable
from typing import Any, TypeVar

from connectx.core.messages import Posted
from connectx.kafka.group import GroupConnection
from connectx.kafka.internal.topics import InternalTopics
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.worker_config import WorkerConfig

T = TypeVar("T")
LIMIT_S = 40.0


class Inbox:
    """Collects what an adapter posts, in order."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[Posted] = queue.SimpleQueue()
        self._kept: list[Posted] = []

    def until(self, kind: type[T], accept: Callable[[T], bool] = lambda stimulus: True) -> tuple[T, list[Posted]]:
        """The first stimulus of this kind that is accepted, and what came before it, which is used up too."""
        found, before = self._find(kind, accept)
        self._kept = self._kept[len(before) :]
        return found, before

    def answer(self, kind: type[T], request_id: int) -> T:
        """The answer to a request; what came before it stays for later."""
        return self._find(kind, lambda stimulus: getattr(stimulus, "request_id", None) == request_id)[0]

    def empty(self) -> bool:
        """True when nothing is left."""
        return not self._kept and self.queue.empty()

    def _find(self, kind: type[T], accept: Callable[[T], bool]) -> tuple[T, list[Posted]]:
        position = 0
        while True:
            if position == len(self._kept):
                self._kept.append(self.queue.get(timeout=LIMIT_S))
            stimulus = self._kept[position]
            if isinstance(stimulus, kind) and accept(stimulus):
                del self._kept[position]
                return stimulus, self._kept[:position]
            position += 1


class Adapters:
    """The adapters of one worker."""

    def __init__(self, config: WorkerConfig, name: str, bootstrap_servers: str) -> None:
        self.config = config
        self.clients = ClientConfigs(config, name, bootstrap_servers)
        self.inbox = Inbox()
        self.topics = InternalTopics(config, self.clients, self.inbox.queue.put)
        self.group = GroupConnection(config, self.clients, self.inbox.queue.put)
        self._ids = itertools.count(1)

    def ask(self, kind: Any, answer: type[T], *args: Any) -> T:
        """Execute an effect that has a request id, and wait for its answer."""
        return self.inbox.answer(answer, self.send(kind, *args))

    def send(self, kind: Any, *args: Any) -> int:
        """Execute an effect that has a request id."""
        effect = kind(next(self._ids), *args)
        adapter: Any = self.topics if "Config" in kind.__name__ else self.group
        adapter.execute(effect)
        return int(effect.request_id)

    def end(self) -> None:
        """Close both."""
        self.group.close()
        self.topics.close()
