"""Workers' Kafka adapters against a real broker: each test has a group, and so internal topics, of its own."""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from connectx.core.messages import Stimulus
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.group import GroupConnection
from connectx.kafka.internal.topics import InternalTopics
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.worker_config import WorkerConfig, embedded_config

T = TypeVar("T")
_groups = itertools.count(1)
LIMIT_S = 40.0


class Inbox:
    """Collects what an adapter posts, in order."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[Stimulus] = queue.SimpleQueue()
        self._kept: list[Stimulus] = []

    def until(self, kind: type[T], accept: Callable[[T], bool] = lambda stimulus: True) -> tuple[T, list[Stimulus]]:
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

    def _find(self, kind: type[T], accept: Callable[[T], bool]) -> tuple[T, list[Stimulus]]:
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


@pytest.fixture
def own_config() -> Callable[..., WorkerConfig]:
    """`own_config(bootstrap_servers, **settings)`: the notebook profile, in a group of its own."""

    def make(bootstrap_servers: str, settings: dict[str, Any] | None = None) -> WorkerConfig:
        given = {"bootstrap.servers": bootstrap_servers, "group.id": f"adapters-{next(_groups)}"}
        return WorkerConfig.parse(embedded_config(given | (settings or {})))

    return make


@pytest.fixture
def config(kafka: EmbeddedKafka, own_config: Callable[..., WorkerConfig]) -> WorkerConfig:
    """Settings of the workers of this test."""
    return own_config(kafka.bootstrap_servers)


@pytest.fixture
def adapters(kafka: EmbeddedKafka, config: WorkerConfig) -> Iterator[Callable[..., Adapters]]:
    """`adapters(name, config=, bootstrap_servers=)` makes the adapters of a worker; they are closed after the test."""
    made: list[Adapters] = []

    def make(name: str, given: WorkerConfig | None = None, bootstrap_servers: str | None = None) -> Adapters:
        made.append(Adapters(given or config, name, bootstrap_servers or kafka.worker_bootstrap_servers))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def wait_for() -> Callable[[Callable[[], object]], None]:
    """`wait_for(condition)`: wait until it is true."""

    def wait(condition: Callable[[], object]) -> None:
        end_s = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < end_s, "the condition was not reached"
            time.sleep(0.02)

    return wait
