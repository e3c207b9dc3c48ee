"""The leader's producer over real sockets: orders in turn, and the end of one that Kafka does not answer."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from functools import partial

import pytest

from connectx.kafka.internal.leader_writer import LeaderProducer
from connectx.kafka.settings.client_config import ClientConfig
from tests.support.waiting import WAIT_S, until
from tests.unit.kafka.loopback import LoopbackBroker

ABANDONED = "Kafka did not answer before the order was abandoned"
NOT_CLAIMED = "the right to write to the config topic was lost, or was never claimed"


class Leader:
    """A leader's producer, and the outcomes of its orders in the order in which they came."""

    def __init__(self, broker: LoopbackBroker) -> None:
        config = {"bootstrap.servers": broker.address, "transactional.id": "x", "retry.backoff.ms": 1}
        self.crashes: list[BaseException] = []
        self.producer = LeaderProducer("leader", lambda: ClientConfig(config), "configs", self.crashes.append)
        self.outcomes: queue.SimpleQueue[tuple[int, str | None]] = queue.SimpleQueue()
        self.producer.start()

    def claim(self, number: int) -> None:
        self.producer.claim(number, lambda error: self.outcomes.put((number, error)))

    def write(self, number: int) -> None:
        records = [(f"key-{number}", b"value-%d" % number)]
        self.producer.write(number, records, lambda error: self.outcomes.put((number, error)))

    def next_outcome(self) -> tuple[int, str | None]:
        return self.outcomes.get(timeout=WAIT_S)


@pytest.fixture
def broker() -> Iterator[LoopbackBroker]:
    with LoopbackBroker(2, {"configs": 1}) as made:
        yield made


@pytest.fixture
def leader(broker: LoopbackBroker) -> Iterator[Leader]:
    """A leader that has claimed the topic with order 1."""
    made = Leader(broker)
    made.claim(1)
    assert made.next_outcome() == (1, None)
    yield made
    made.producer.close()
    assert made.crashes == []


def commits_are_lost(broker: LoopbackBroker) -> None:
    """Those of the producer that has claimed the topic, also the ones that are read after the next claim."""
    epoch = broker.transactions["x"].epoch
    broker.lose = lambda request: type(request).__name__ == "EndTxnRequest" and request.producer_epoch == epoch


def a_request_is_unanswered(broker: LoopbackBroker) -> None:
    until(partial(len, broker.lost), "a request without an answer")


def test_orders_are_carried_out_in_turn(broker: LoopbackBroker, leader: Leader) -> None:
    leader.write(2)
    leader.write(3)
    assert [leader.next_outcome(), leader.next_outcome()] == [(2, None), (3, None)]
    assert broker.committed["configs", 0] == [b"value-2", b"value-3"]


def test_a_write_without_an_answer_ends_when_it_is_abandoned_and_the_next_needs_a_claim(
    broker: LoopbackBroker, leader: Leader
) -> None:
    commits_are_lost(broker)
    leader.write(2)
    leader.write(3)
    a_request_is_unanswered(broker)
    assert leader.outcomes.empty()
    leader.producer.abandon_order(2)
    assert [leader.next_outcome(), leader.next_outcome()] == [(2, ABANDONED), (3, NOT_CLAIMED)]
    leader.claim(4)
    leader.write(5)
    assert [leader.next_outcome(), leader.next_outcome()] == [(4, None), (5, None)]
    assert broker.committed["configs", 0] == [b"value-5"]


def test_a_claim_without_an_answer_ends_when_it_is_abandoned(broker: LoopbackBroker, leader: Leader) -> None:
    broker.lose = lambda request: type(request).__name__ == "InitProducerIdRequest"
    leader.claim(2)
    a_request_is_unanswered(broker)
    leader.producer.abandon_order(2)
    assert leader.next_outcome() == (2, ABANDONED)


def test_an_order_that_is_abandoned_before_its_turn_sends_nothing(broker: LoopbackBroker, leader: Leader) -> None:
    commits_are_lost(broker)
    leader.write(2)
    leader.write(3)
    leader.claim(4)
    a_request_is_unanswered(broker)
    leader.producer.abandon_order(4)
    leader.producer.abandon_order(2)
    assert [leader.next_outcome() for _ in range(3)] == [(2, ABANDONED), (3, NOT_CLAIMED), (4, ABANDONED)]
    assert [type(request).__name__ for request in broker.requests].count("InitProducerIdRequest") == 1


def test_to_abandon_an_order_that_has_ended_does_nothing(broker: LoopbackBroker, leader: Leader) -> None:
    leader.write(2)
    assert leader.next_outcome() == (2, None)
    leader.producer.abandon_order(2)
    leader.write(3)
    assert leader.next_outcome() == (3, None)
    assert broker.committed["configs", 0] == [b"value-2", b"value-3"]
