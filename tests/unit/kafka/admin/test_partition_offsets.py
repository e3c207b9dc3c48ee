"""Offsets of partitions, asked of their leaders over real sockets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from kafka.protocol.consumer.offsets import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from connectx.errors.kafka import ClientClosedError, KafkaRequestError, KafkaUnreachableError
from connectx.kafka.admin.partition_offsets import EARLIEST, LATEST, Offsets, OffsetsClient
from connectx.model.ids import TopicPartition
from tests.support.waiting import until
from tests.unit.kafka.loopback import NOT_LEADER, LoopbackBroker, Transaction

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def broker() -> Iterator[LoopbackBroker]:
    with LoopbackBroker(2, {"t": 2}) as made:
        yield made


@pytest.fixture
def client(broker: LoopbackBroker) -> Iterator[OffsetsClient]:
    made = OffsetsClient({"bootstrap_servers": [broker.address], "client_id": "offsets"})
    yield made
    made.close()


def begin(
    client: OffsetsClient,
    partitions: Sequence[TopicPartition],
    spec: int = LATEST,
    timeout_s: float = 30,
    **options: Any,
) -> Future[Offsets]:
    answer: Future[Offsets] = Future()
    committed = options.get("committed", False)
    client.request(partitions, spec, answer.set_result, answer.set_exception, committed=committed, timeout_s=timeout_s)
    return answer


def ask(client: OffsetsClient, partitions: Sequence[TopicPartition], spec: int = LATEST, **options: Any) -> Offsets:
    return begin(client, partitions, spec, **options).result(60)


def asked(broker: LoopbackBroker, kind: type) -> int:
    return sum(isinstance(request, kind) for request in broker.requests)


def test_the_end_is_the_next_offset_or_the_last_stable_one(broker: LoopbackBroker, client: OffsetsClient) -> None:
    broker.committed["t", 0] = [b"a", b"b"]
    broker.transactions["tx"] = Transaction(open={("t", 0): [b"c"]})
    assert ask(client, [FIRST, SECOND]) == {FIRST: 3, SECOND: 0}
    assert ask(client, [FIRST, SECOND], committed=True) == {FIRST: 2, SECOND: 0}
    assert ask(client, [FIRST], EARLIEST) == {FIRST: 0}
    assert asked(broker, ListOffsetsRequest) == 3


def test_leaders_are_looked_up_once_and_again_after_an_error(broker: LoopbackBroker, client: OffsetsClient) -> None:
    ask(client, [FIRST])
    before = asked(broker, MetadataRequest)
    ask(client, [FIRST])
    assert asked(broker, MetadataRequest) == before
    broker.errors["ListOffsetsRequest"] = [NOT_LEADER]
    assert ask(client, [FIRST, SECOND]) == {FIRST: 0, SECOND: 0}
    assert asked(broker, MetadataRequest) == before + 1


def test_a_partition_without_a_leader_is_waited_for(broker: LoopbackBroker, client: OffsetsClient) -> None:
    broker.leaderless.add(("t", 1))
    answer = begin(client, [FIRST, SECOND])
    until(lambda: asked(broker, MetadataRequest) > 3, "further questions for the leader")
    assert asked(broker, ListOffsetsRequest) == 0
    broker.leaderless.clear()
    assert answer.result(60) == {FIRST: 0, SECOND: 0}


def test_a_request_whose_connection_is_cut_is_sent_again(broker: LoopbackBroker, client: OffsetsClient) -> None:
    broker.lose = lambda request: isinstance(request, ListOffsetsRequest) and not broker.lost
    assert ask(client, [FIRST]) == {FIRST: 0}
    assert len(broker.lost) == 1


def test_an_unknown_topic_is_named(client: OffsetsClient) -> None:
    with pytest.raises(KafkaRequestError, match=r"ask for the start of topic gone.*UNKNOWN_TOPIC_OR_PARTITION"):
        ask(client, [TopicPartition("gone", 0)], EARLIEST, timeout_s=0.3)


def test_a_kafka_that_is_not_there_is_named() -> None:
    client = OffsetsClient({"bootstrap_servers": ["127.0.0.1:1"], "client_id": "offsets"})
    with pytest.raises(KafkaUnreachableError, match=r"127\.0\.0\.1:1 .* ask for the end of topic t"):
        ask(client, [FIRST], timeout_s=0.3)
    client.close()


def test_a_closed_client_refuses_requests(client: OffsetsClient) -> None:
    ask(client, [FIRST])
    client.close()
    client.close()
    with pytest.raises(ClientClosedError):
        begin(client, [FIRST])
