"""The brokers of the scripts: that of all tests, and one that a test may restart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.conformance.brokers import Broker


@pytest.fixture(scope="package")
def shared(kafka: EmbeddedKafka) -> Iterator[Broker]:
    """The broker of all tests: nobody restarts it."""
    broker = Broker(kafka)
    yield broker
    broker.clients.close()


@pytest.fixture(scope="package")
def own(no_process_is_left: None) -> Iterator[Broker]:
    """A broker that may be restarted, and whose log cleaner does not rest."""
    with EmbeddedKafka(gate=False, settings={"log.cleaner.backoff.ms": "100"}) as kafka:
        broker = Broker(kafka)
        yield broker
        broker.clients.close()
