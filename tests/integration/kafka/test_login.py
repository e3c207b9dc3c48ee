"""All clients of a worker log in to a broker that asks for a password, from settings in Java's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from connectx.core.group_messages import CoordinatorFound, FindCoordinator
from connectx.core.messages import ClaimConfigWrites, ConfigWritesClaimed
from connectx.errors.kafka import KafkaLoginError
from connectx.kafka.admin.fencing import ProducerFencer
from connectx.kafka.broker.embedded import EmbeddedKafka

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """A broker whose listener for workers wants a login."""
    settings = {
        "listener.security.protocol.map": "DIRECT:PLAINTEXT,WORKERS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.workers.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.workers.plain.sasl.jaas.config": f'{MODULE} required user_alice="wonder land";',
    }
    with EmbeddedKafka(settings=settings) as one:
        yield one


def login(password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{MODULE} required username="alice" password="{password}";',
    }


def test_every_client_of_a_worker_logs_in(
    broker: EmbeddedKafka, adapters: Callable[..., Any], own_config: Callable[..., Any]
) -> None:
    config = own_config(broker.worker_bootstrap_servers, login("wonder land"))
    worker = adapters("w1", config, broker.worker_bootstrap_servers)
    worker.topics.start()
    assert worker.ask(ClaimConfigWrites, ConfigWritesClaimed).error is None
    assert worker.topics.offsets.read("c", [{}]) == [None]
    worker.group.start()
    while not isinstance(worker.ask(FindCoordinator, object), CoordinatorFound):
        pass
    ProducerFencer(worker.clients).fence("c", {}, ["id-0"])


def test_a_wrong_password_is_named_as_the_cause(
    broker: EmbeddedKafka, adapters: Callable[..., Any], own_config: Callable[..., Any]
) -> None:
    config = own_config(broker.worker_bootstrap_servers, login("wrong"))
    worker = adapters("w2", config, broker.worker_bootstrap_servers)
    with pytest.raises(KafkaLoginError) as raised:
        worker.topics.start(timeout_s=3.0)
    assert "wrong" not in str(raised.value)
