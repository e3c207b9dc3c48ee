"""Batches of the producer's core: order, sequences, retries, limits."""

from __future__ import annotations

import pytest

from connectx.core.clients.messages import FetchMetadata, MetadataFetched
from connectx.core.producer import messages as msg
from connectx.core.producer.messages import ProducerPhase as Phase
from connectx.model.ids import TopicPartition
from tests.unit.core.producer.script import T0, T1, Script, led, transactional


def plain(**settings: int) -> Script:
    """A producer without idempotence."""
    script = Script(**settings)
    script.do(msg.Call.INITIALIZE, led({T0: 1, T1: 2}))
    return script


def opened(**settings: int) -> Script:
    script = transactional(**settings)
    script.do(msg.Call.BEGIN)
    return script


def test_a_producer_without_idempotence_needs_no_producer_id() -> None:
    script = plain()
    script.append(1)
    assert (script.core.phase, script.sequences()) == (Phase.READY, [(1, -1)])


def test_one_request_at_a_time_holds_the_order_of_a_node() -> None:
    script = plain(max_in_flight=1)
    script.append(1, 2)
    script.append(3, target=T1)
    produced = [(sent.node, sent.request) for sent in script.open.values() if isinstance(sent.request, msg.Produce)]
    assert [(node, [b.number for b in request.batches]) for node, request in produced] == [
        (1, [1]),
        (2, [3]),
    ]
    script.take_all()
    assert (2, -1) in script.sequences()


def test_a_request_carries_one_batch_of_each_partition_up_to_the_limit() -> None:
    script = opened(max_request_size_bytes=250)
    script.do(led({TopicPartition("t", n): 1 for n in range(4)}))
    script.do(msg.Append(tuple(msg.Batch(number, TopicPartition("t", number), 1, 100) for number in range(4))))
    assert [[b.number for b in request.batches] for request in script.requests()] == [[0, 1], [2, 3]]


def test_a_lost_request_is_sent_again_with_its_sequences_and_nothing_overtakes_it() -> None:
    script = opened()
    script.append(1, 2, 3)
    assert script.sequences() == [(1, 0), (2, 10), (3, 20)]
    for _ in range(3):
        script.lose(msg.Produce)
    assert script.requests() == [FetchMetadata(("t",))]
    script.answer(FetchMetadata, led({T0: 1}))
    script.wait()
    assert script.sequences() == [(1, 0)]
    script.take_all("DUPLICATE_SEQUENCE_NUMBER")
    assert script.settled == {1: "BatchDelivered"}
    assert script.sequences() == [(2, 10), (3, 20)]


def test_batches_behind_one_that_failed_come_back_and_keep_their_places() -> None:
    script = opened()
    script.append(1, 2, 3)
    script.take_all("NOT_ENOUGH_REPLICAS")
    script.take_all("OUT_OF_ORDER_SEQUENCE_NUMBER")
    script.take_all("OUT_OF_ORDER_SEQUENCE_NUMBER")
    script.append(4)
    script.wait()
    assert script.sequences() == [(1, 0)]
    script.take_all()
    assert script.sequences() == [(2, 10), (3, 20), (4, 30)]


def test_a_sequence_error_of_the_first_batch_is_no_ones_fault_but_its_own() -> None:
    script = opened()
    script.append(1)
    script.take_all("OUT_OF_ORDER_SEQUENCE_NUMBER")
    assert script.core.phase is Phase.REFUSED


def test_no_more_than_five_batches_of_a_partition_are_in_flight() -> None:
    script = transactional(max_request_size_bytes=1_000)
    script.core.settings = msg.ProducerSettings(transactional_id="x", idempotent=True, max_in_flight=9)
    script.do(msg.Call.BEGIN)
    script.append(*range(8))
    assert len(script.sequences()) == 5


def test_a_moved_leader_is_looked_up_before_the_next_attempt() -> None:
    script = opened()
    script.append(1)
    script.take_all("NOT_LEADER_OR_FOLLOWER")
    script.answer(FetchMetadata, led({T0: 2}))
    script.wait()
    assert [sent.node for sent in script.open.values()] == [2]


def test_a_topic_that_stays_missing_refuses_its_batches() -> None:
    script = Script(unknown_topic_ms=1_000)
    script.do(msg.Call.INITIALIZE)
    script.append(1)
    script.answer(FetchMetadata, MetadataFetched({}, {"t": "UNKNOWN_TOPIC_OR_PARTITION"}))
    assert script.settled == {}
    while not script.settled:
        script.wait()
        script.answer(FetchMetadata, MetadataFetched({}, {"t": "UNKNOWN_TOPIC_OR_PARTITION"}))
    assert script.now_ms >= 2_000
    assert script.settled == {1: "UNKNOWN_TOPIC_OR_PARTITION"}


def test_a_partition_that_has_no_leader_for_long_keeps_its_batches() -> None:
    script = Script(unknown_topic_ms=1_000)
    script.do(msg.Call.INITIALIZE)
    script.append(1)
    for _ in range(10):
        script.answer(FetchMetadata, led({T1: 1}, leaderless=frozenset({T0})))
        script.wait()
    assert script.now_ms > 3_000
    assert script.settled == {}
    script.answer(FetchMetadata, led({T0: 1}))
    script.take_all()
    assert script.settled == {1: "BatchDelivered"}


@pytest.mark.parametrize("idempotent", [False, True])
def test_one_request_at_a_time_holds_the_order_of_a_partition_whose_leader_moves(idempotent: bool) -> None:
    script = Script(idempotent=idempotent, max_in_flight=1)
    script.do(msg.Call.INITIALIZE, led({T0: 1}))
    if idempotent:
        script.answer(msg.InitProducerId, msg.ProducerIdGranted(None, 5, 0))
    script.append(1, 2)
    script.do(led({T0: 2}))
    assert [number for number, _ in script.sequences()] == [1]
    script.take_all()
    assert [number for number, _ in script.sequences()] == [2]


def test_a_topic_that_may_not_be_seen_refuses_its_batches_at_once() -> None:
    script = Script()
    script.do(msg.Call.INITIALIZE)
    script.append(1)
    script.answer(FetchMetadata, MetadataFetched({}, {"t": "TOPIC_AUTHORIZATION_FAILED"}))
    assert script.settled == {1: "TOPIC_AUTHORIZATION_FAILED"}


def test_a_batch_that_waits_longer_than_the_delivery_timeout_is_refused() -> None:
    script = Script(delivery_timeout_ms=500)
    script.do(msg.Call.INITIALIZE)
    script.append(1)
    script.lose(FetchMetadata)
    while not script.settled:
        script.wait()
        if script.requests(FetchMetadata):
            script.lose(FetchMetadata)
    assert (script.now_ms, script.settled) == (1_500, {1: "DELIVERY_TIMEOUT"})


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_refused_batch_leaves_the_others_of_a_producer_without_transactions(idempotent: bool) -> None:
    script = Script(idempotent=idempotent, max_in_flight=5)
    script.do(msg.Call.INITIALIZE, led({T0: 1}))
    if idempotent:
        script.answer(msg.InitProducerId, msg.ProducerIdGranted(None, 5, 0))
    script.append(1, 2, records=1)
    script.take_all("INVALID_RECORD")
    if idempotent:  # the sequence of batch 1 is missing: a new producer id begins at 0
        script.lose(msg.Produce)
        while not script.requests(msg.InitProducerId):
            script.wait()
        assert script.requests(msg.InitProducerId) == [msg.InitProducerId(None, 60_000, -1, -1)]
        script.answer(msg.InitProducerId, msg.ProducerIdGranted(None, 6, 0))
        while not script.sequences():
            if script.requests(FetchMetadata):
                script.answer(FetchMetadata, led({T0: 1}))
            else:
                script.wait()
        assert script.sequences() == [(2, 0)]
    script.take_all()
    assert script.settled == {1: "INVALID_RECORD", 2: "BatchDelivered"}


def test_batches_after_a_refused_one_are_sent_again_with_a_new_producer_id() -> None:
    script = Script(idempotent=True, max_in_flight=5)
    script.do(msg.Call.INITIALIZE, led({T0: 1}))
    script.answer(msg.InitProducerId, msg.ProducerIdGranted(None, 5, 0))
    script.append(1, 2, 3, records=1)
    script.take_all("INVALID_RECORD")
    script.take_all("OUT_OF_ORDER_SEQUENCE_NUMBER")
    script.take_all("OUT_OF_ORDER_SEQUENCE_NUMBER")
    assert script.settled == {1: "INVALID_RECORD"}
    script.answer(msg.InitProducerId, msg.ProducerIdGranted(None, 6, 0))
    while len(script.settled) < 3:
        if script.requests(msg.Produce):
            script.take_all()
        else:
            script.wait()
    assert script.settled == {1: "INVALID_RECORD", 2: "BatchDelivered", 3: "BatchDelivered"}


def test_a_batch_that_is_too_large_is_cut_and_keeps_its_place_and_sequences() -> None:
    script = opened()
    script.append(1, 2)
    script.take_all("MESSAGE_TOO_LARGE")
    assert script.splits == [1]
    script.take_all("OUT_OF_ORDER_SEQUENCE_NUMBER")
    assert script.sequences() == []
    script.do(msg.BatchSplit(1, (msg.Batch(8, T0, 4, 50), msg.Batch(9, T0, 6, 60))))
    assert script.sequences() == [(8, 0)]
    script.take_all()
    assert script.sequences() == [(9, 4), (2, 10)]


def test_batches_that_are_too_large_at_the_same_time_keep_their_order() -> None:
    script = opened()
    script.append(1, 2, 3)
    script.take_all("MESSAGE_TOO_LARGE")
    script.do(msg.BatchSplit(1, (msg.Batch(11, T0, 4, 50), msg.Batch(12, T0, 6, 60))))
    script.take_all("MESSAGE_TOO_LARGE")
    script.take_all("OUT_OF_ORDER_SEQUENCE_NUMBER")
    script.do(msg.BatchSplit(2, (msg.Batch(21, T0, 5, 50), msg.Batch(22, T0, 5, 60))))
    delivered = []
    while script.requests(msg.Produce):
        delivered += [pair for pair in script.sequences() if pair not in delivered]
        script.take_all()
    assert delivered == [(11, 0), (12, 4), (21, 10), (22, 15), (3, 20)]


def test_sequences_begin_again_after_the_largest() -> None:
    script = opened()
    script.append(0, records=2**31 - 4)
    script.take_all()
    script.append(1, 2)
    assert script.sequences() == [(1, 2**31 - 4), (2, 6)]


def test_partitions_take_turns() -> None:
    script = plain(max_in_flight=1, max_request_size_bytes=100)
    script.do(led({T1: 1}))
    script.append(1, 2, 4)
    script.append(3, target=T1)
    served = []
    while script.requests(msg.Produce):
        served += [number for number, _ in script.sequences()]
        script.take_all()
    assert served == [1, 2, 3, 4]
