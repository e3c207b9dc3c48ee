"""Workers' Kafka adapters against a real broker: each test has a group, and so internal topics, of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.worker_config import WorkerConfig, embedded_config
from tests.support.kafka_adapters import Adapters


@pytest.fixture
def own_config(numbers: Iterator[int]) -> Callable[..., WorkerConfig]:
    """`own_config(bootstrap_servers, **settings)`: the notebook profile, in a group of its own."""

    def make(bootstrap_servers: str, settings: dict[str, Any] | None = None) -> WorkerConfig:
        given = {"bootstrap.servers": bootstrap_servers, "group.id": f"adapters-{next(numbers)}"}
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
