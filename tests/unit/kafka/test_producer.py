"""The producer over real sockets, to a broker in the test's process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest

from connectx.core.producer.messages import ProducerPhase as Phase
from connectx.errors.base import ConnectxError
from connectx.errors.kafka import (
    ProducerError,
    ProducerFencedError,
    RecordRefusedError,
    RecordTooLargeError,
    TransactionExpiredError,
)
from connectx.kafka.net import KafkaNet
from connectx.kafka.producer.producer import KafkaProducer
from tests.support.profiles import dotted
from tests.unit.kafka.loopback import LoopbackBroker

Make = Callable[..., KafkaProducer]


@pytest.fixture(params=[2, 1])
def broker(request: pytest.FixtureRequest) -> Iterator[LoopbackBroker]:
    with LoopbackBroker(request.param, {"t": 1, "many": 4}) as made:
        yield made


@pytest.fixture
def make(broker: LoopbackBroker) -> Iterator[Make]:
    with ExitStack() as stack:

        def start(transactional_id: str | None = None, **settings: Any) -> KafkaProducer:
            config = dotted(settings)
            if transactional_id is not None:
                config["transactional.id"] = transactional_id
            tolerate = bool(config.pop("tolerate", False))
            checkpoint = config.pop("checkpoint", lambda: None)
            config = {"bootstrap.servers": broker.address, "retry.backoff.ms": 1, **config}
            producer = KafkaProducer(config, checkpoint=checkpoint, tolerate_refused=tolerate)
            stack.callback(producer.abandon)
            producer.init()
            return producer

        yield start


def rows(*values: bytes) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.binary())})


def of(kind: str) -> Callable[[Any], bool]:
    """True for the first request of a kind."""
    seen: list[Any] = []

    def first(request: Any) -> bool:
        if type(request).__name__ != kind or seen:
            return False
        seen.append(request)
        return True

    return first


def test_a_transaction_is_visible_after_its_commit_and_not_after_its_abort(broker: LoopbackBroker, make: Make) -> None:
    producer = make("x")
    for number in range(3):
        producer.begin()
        producer.send(rows(b"%d" % number, b"more"), "t")
        assert ("t", 0) not in broker.committed or len(broker.committed["t", 0]) == 2 * number
        assert producer.commit(10)
    producer.begin()
    producer.send(rows(b"no"), "t")
    producer.abort(10)
    producer.begin()
    assert producer.commit(10)
    assert broker.committed["t", 0] == [b"0", b"more", b"1", b"more", b"2", b"more"]


@pytest.mark.parametrize("kind", ["EndTxnRequest", "ProduceRequest", "AddPartitionsToTxnRequest"])
def test_a_late_packet_changes_nothing_that_is_committed(broker: LoopbackBroker, make: Make, kind: str) -> None:
    if kind == "AddPartitionsToTxnRequest" and broker.version == 2:
        return
    producer = make("x")
    broker.lose = of(kind)
    producer.begin()
    producer.send(rows(b"1"), "t")
    assert producer.commit(10)
    assert broker.lost
    producer.begin()
    producer.send(rows(b"2"), "t")
    producer._wait(lambda: not producer._unsettled, 10)
    broker.deliver_late()
    producer.send(rows(b"3"), "t")
    producer.abort(10)
    producer.begin()
    producer.send(rows(b"4"), "t")
    assert producer.commit(10)
    assert broker.committed["t", 0] == [b"1", b"4"]


def test_a_producer_that_was_cancelled_before_it_began_commits_nothing(broker: LoopbackBroker, make: Make) -> None:
    producer = make("x")
    producer.cancel()
    producer.begin()
    with pytest.raises(ConnectxError):
        producer.send(rows(b"a"), "t")
    with pytest.raises(ConnectxError):
        producer.commit(10)
    producer.abort(10)
    assert not broker.committed["t", 0]


@pytest.mark.parametrize("how", ["send", "send_records", "missing"])
def test_a_record_that_was_refused_before_it_left_leaves_only_the_abort(
    broker: LoopbackBroker, make: Make, how: str
) -> None:
    producer = make("x", message_max_bytes=1000, max_block_ms=1)
    producer.begin()
    producer.send(rows(b"a"), "t")
    refused: dict[str, Callable[[], object]] = {
        "send": lambda: producer.send(rows(b"x" * 2000), "t"),
        "send_records": lambda: producer.send_records("t", [(b"k", b"x" * 2000)]),
        "missing": lambda: producer.send_records("missing", [(b"k", b"v")]),
    }
    with pytest.raises((RecordTooLargeError, RecordRefusedError)):
        refused[how]()
    for _ in range(2):
        with pytest.raises((RecordTooLargeError, RecordRefusedError)):
            producer.commit(10)
    producer.abort(10)
    assert not broker.committed["t", 0]
    producer.begin()
    producer.send(rows(b"b"), "t")
    assert producer.commit(10)
    assert broker.committed["t", 0] == [b"b"]


def test_a_newer_producer_fences_the_older_one(make: Make) -> None:
    older, newer = make("x"), make("x")
    older.begin()
    older.send(rows(b"a"), "t")
    with pytest.raises(ProducerFencedError, match="x"):
        older.commit(10)
    assert isinstance(older.ending(), ProducerFencedError)
    assert newer.ending() is None
    with pytest.raises(ProducerFencedError):
        older.begin()


def test_an_end_that_kafka_answers_with_an_unknown_error_is_a_fence_if_there_is_a_newer_producer(
    broker: LoopbackBroker, make: Make
) -> None:
    unknown = [-1] * 20
    older = make("x")
    older.begin()
    older.send(rows(b"a"), "t")
    broker.errors["EndTxnRequest"] = unknown[:3]
    assert older.commit(10), "no newer producer"
    older.begin()
    older.send(rows(b"b"), "t")
    assert older.flush(10)
    make("x")
    broker.errors["EndTxnRequest"] = unknown[:]
    with pytest.raises(ProducerFencedError):
        older.commit(10)
    assert len(broker.errors["EndTxnRequest"]) == len(unknown) - 2
    assert broker.committed["t", 0] == [b"a"]


def test_a_fence_after_the_transaction_timeout_is_an_expired_transaction(make: Make) -> None:
    producer = make("x", transaction_timeout_ms=1)
    producer.begin()
    producer.send(rows(b"a"), "t")
    producer._wait(lambda: producer._circumstances().open_ms > 1, 10)  # type: ignore[operator]
    make("x")
    with pytest.raises(TransactionExpiredError):
        producer.commit(10)


def test_a_commit_without_an_answer_is_undecided_and_decided_later(broker: LoopbackBroker, make: Make) -> None:
    producer = make("x")
    broker.lose = lambda request: type(request).__name__ == "EndTxnRequest"
    producer.begin()
    producer.send(rows(b"a"), "t")
    assert not producer.commit(0.05)
    broker.lose = lambda request: False
    while not producer.commit(0.05):
        pass
    assert broker.committed["t", 0] == [b"a"]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_end_that_is_reached_between_two_calls_is_reported_by_the_second(
    broker: LoopbackBroker, make: Make, end: str
) -> None:
    producer = make("x")
    producer.begin()
    producer.send(rows(b"a"), "t")
    assert producer.flush(10)
    broker.lose = lambda request: type(request).__name__ == "EndTxnRequest"
    if end == "commit":
        assert not producer.commit(0.05)
    else:
        with pytest.raises(ProducerError, match="did not answer the abort"):
            producer.abort(0.05)
    broker.lose = lambda request: False
    assert producer._wait(lambda: producer._view.phase is Phase.READY, 10)
    assert producer.commit(0) if end == "commit" else producer.abort(0) is None  # type: ignore[func-returns-value]
    assert broker.committed["t", 0] == ([b"a"] if end == "commit" else [])
    with pytest.raises(ProducerError, match="the producer is ready"):
        producer.commit(0)


def test_an_abort_of_a_commit_that_was_sent_is_an_error_and_the_commit_is_decided_later(
    broker: LoopbackBroker, make: Make
) -> None:
    producer = make("x")
    producer.begin()
    producer.send(rows(b"a"), "t")
    assert producer.flush(10)
    broker.lose = lambda request: type(request).__name__ == "EndTxnRequest"
    assert not producer.commit(0.05)
    with pytest.raises(ProducerError, match="cannot be aborted"):
        producer.abort(10)
    broker.lose = lambda request: False
    assert producer._wait(lambda: producer._view.phase is Phase.READY, 10)
    for _ in range(2):
        with pytest.raises(ProducerError, match="abort the transaction: the producer is ready"):
            producer.abort(10)
    assert producer.commit(0)
    assert broker.committed["t", 0] == [b"a"]


def test_records_outside_a_transaction_are_an_error(make: Make) -> None:
    producer = make("x")
    with pytest.raises(ProducerError, match="send records: the producer is ready"):
        producer.send(rows(b"a"), "t")
    producer.begin()
    producer.send(rows(b"a"), "t")
    assert producer.commit(10)


def test_without_transactions_records_are_flushed_in_order(broker: LoopbackBroker, make: Make) -> None:
    producer = make(batch_size=400)
    values = [b"%d" % number for number in range(1000)]
    assert producer.send(rows(*values), "t") == sum(map(len, values))
    assert producer.flush(10)
    assert producer.unacknowledged == 0
    assert broker.committed["t", 0] == values


def test_memory_is_bounded_and_a_full_buffer_waits(broker: LoopbackBroker, make: Make) -> None:
    producer = make(batch_size=1000, queue_buffering_max_kbytes=4)
    largest = 0
    settled = producer._settle

    def spy(number: int) -> Any:
        nonlocal largest
        largest = max(largest, producer._unsettled_bytes)
        return settled(number)

    producer._settle = spy  # type: ignore[method-assign]
    producer.send(rows(*[b"x" * 100] * 1000), "t")
    assert producer.flush(10)
    assert 0 < largest <= 4096
    assert len(broker.committed["t", 0]) == 1000


def test_keys_partitions_and_topics_of_rows_are_kept(broker: LoopbackBroker, make: Make) -> None:
    table = pa.table(
        {
            "key": [b"21", b"abc", None, b"k"],
            "value": [b"a", b"b", b"c", b"d"],
            "topic": ["many", None, None, "t"],
            "partition": pa.array([None, None, 3, None], pa.int32()),
        }
    )
    producer = make()
    producer.send(table, "many")
    assert producer.flush(10)
    places = {key: value for key, value in broker.committed.items() if value}
    expected = {b"a": (-973932308 & 0x7FFFFFFF) % 4, b"b": 479470107 % 4, b"c": 3}
    found = {value: partition for (topic, partition), values in places.items() for value in values if topic == "many"}
    assert found == expected
    assert places["t", 0] == [b"d"]


def test_a_partition_that_does_not_exist_is_refused(make: Make) -> None:
    table = pa.table({"value": [b"a"], "partition": pa.array([9], pa.int32())})
    with pytest.raises(RecordRefusedError, match="topic t: UNKNOWN_TOPIC_OR_PARTITION"):
        make().send(table, "t")


def test_a_topic_that_stays_missing_is_refused(make: Make) -> None:
    with pytest.raises(RecordRefusedError, match="topic missing"):
        make(max_block_ms=1).send(rows(b"a"), "missing")


def test_a_record_that_is_larger_than_a_request_is_refused_before_it_leaves(make: Make) -> None:
    with pytest.raises(RecordTooLargeError, match="A record of 2000 bytes for topic t is larger than Kafka takes"):
        make(message_max_bytes=1000).send(rows(b"x" * 2000), "t")


def test_tolerance_counts_refused_records_and_goes_on(broker: LoopbackBroker, make: Make) -> None:
    producer = make(tolerate=True, message_max_bytes=1000, batch_size=1000)
    broker.errors["ProduceRequest"] = [87]
    producer.send(rows(b"refused"), "t")
    assert producer.flush(10)
    producer.send(rows(b"x" * 2000, b"fine"), "t")
    assert producer.flush(10)
    assert broker.committed["t", 0] == [b"fine"]
    assert (producer.take_refused(), producer.take_refused(), producer.refusals) == (2, 0, 2)
    broker.errors["ProduceRequest"] = [87]

    def write_an_offset() -> None:
        producer.send_records("t", [(b"k", b"an offset")])
        producer.flush(10)

    with pytest.raises(RecordRefusedError, match="INVALID_RECORD"):
        write_an_offset()


def test_a_topic_that_stays_missing_is_not_tolerated(make: Make) -> None:
    producer = make(tolerate=True, max_block_ms=1)
    with pytest.raises(RecordRefusedError, match="topic missing"):
        producer.send(rows(b"a"), "missing")
    assert producer.take_refused() == 0


def test_a_partition_without_a_leader_is_waited_for(broker: LoopbackBroker, make: Make) -> None:
    producer = make(tolerate=True, max_block_ms=1, metadata_max_age_ms=1)
    broker.leaderless.add(("many", 3))
    producer.send(pa.table({"value": [b"a"], "partition": pa.array([3], pa.int32())}), "many")
    asked = len(broker.requests)
    assert producer._wait(lambda: len(broker.requests) > asked + 5, 10)
    broker.leaderless.clear()
    assert producer.flush(10)
    assert broker.committed["many", 3] == [b"a"]


def test_a_batch_that_is_too_large_for_the_topic_is_cut(broker: LoopbackBroker, make: Make) -> None:
    producer = make()
    broker.errors["ProduceRequest"] = [10, 10]
    values = [b"%d" % number for number in range(10)]
    producer.send(rows(*values), "t")
    assert producer.flush(10)
    assert broker.committed["t", 0] == values


def test_a_lost_broker_is_waited_for(broker: LoopbackBroker, make: Make) -> None:
    producer = make("x")
    lost = iter(range(6))
    broker.lose = lambda request: next(lost, None) is not None
    producer.begin()
    producer.send(rows(b"a"), "many")
    producer.send_records("t", [(b"k", b"v"), (b"k2", None)])
    while not producer.commit(0.05):
        pass
    assert broker.committed["t", 0] == [b"v", None]
    assert sum(len(values) for (topic, _), values in broker.committed.items() if topic == "many") == 1


def test_a_broker_that_throttles_is_only_slower(broker: LoopbackBroker, make: Make) -> None:
    producer = make("x", batch_size=100)
    broker.throttle_ms = 50
    for number in range(3):
        producer.begin()
        producer.send(rows(*[b"%d" % number] * 20), "t")
        assert producer.commit(30)
    assert broker.committed["t", 0] == [b"%d" % number for number in range(3) for _ in range(20)]
    assert broker.transactions["x"].epoch == (3 if broker.version == 2 else 0)


def test_a_cancelled_producer_drops_what_is_queued_and_still_aborts(broker: LoopbackBroker, make: Make) -> None:
    producer = make("x")
    producer.begin()
    producer.send(rows(b"a"), "t")
    producer.cancel()
    with pytest.raises(ConnectxError):
        producer.commit(10)
    producer.abort(10)
    assert not broker.committed["t", 0]


def test_a_cancelled_producer_without_transactions_reports_no_flush(broker: LoopbackBroker, make: Make) -> None:
    producer = make()
    broker.lose = lambda request: type(request).__name__ == "ProduceRequest"
    producer.send(rows(b"a"), "t")
    producer.cancel()
    with pytest.raises(ProducerError, match="cancelled"):
        producer.flush(10)


def test_an_error_on_the_network_thread_reaches_the_call_that_waits(make: Make) -> None:
    def broken(number: int) -> Any:
        raise ZeroDivisionError

    producer = make("x")
    producer.begin()
    producer._settle = broken  # type: ignore[method-assign]
    producer.send(rows(b"a"), "t")
    with pytest.raises(ProducerError, match="ZeroDivisionError"):
        producer.commit(10)


def test_a_checkpoint_ends_a_call_that_waits(make: Make, broker: LoopbackBroker) -> None:
    class Gone(BaseException):
        pass

    def gone() -> None:
        raise Gone

    producer = make("x")
    broker.lose = lambda request: True
    producer.begin()
    producer._checkpoint = gone
    with pytest.raises(Gone):
        producer.send(rows(b"a"), "many")


@pytest.mark.parametrize("transactional_id", ["x", None])
def test_wrong_credentials_end_the_producer(make: Make, transactional_id: str | None) -> None:
    def use() -> None:
        producer = make(
            transactional_id,
            checkpoint=_limit(10),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="u",
            sasl_password="wrong",
        )
        producer.send(rows(b"a"), "t")

    with pytest.raises(ProducerError, match=r"connect: SASL_AUTHENTICATION_FAILED .*invalid credentials") as found:
        use()
    assert "wrong" not in str(found.value)


def test_a_coordinator_on_a_broker_that_joined_is_found(broker: LoopbackBroker, make: Make) -> None:
    broker.coordinator = 2
    producer = make("x", checkpoint=_limit(10))
    producer.begin()
    producer.send(rows(b"a"), "t")
    assert producer.commit(10)


def test_requests_without_an_answer_are_logged_once(
    broker: LoopbackBroker, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    producer = make("x")
    lost = iter(range(4))
    broker.lose = lambda request: next(lost, None) is not None
    producer.begin()
    producer.send(rows(b"a"), "many")
    while not producer.commit(0.05):
        pass
    assert len([record for record in caplog.records if "did not answer a producer" in record.message]) == 1


def _limit(seconds: float) -> Callable[[], None]:
    """A checkpoint that ends a call that would wait forever."""
    end_s = time.monotonic() + seconds

    def check() -> None:
        assert time.monotonic() < end_s

    return check


def test_an_abandon_while_init_starts_the_network_leaves_no_thread(
    broker: LoopbackBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = KafkaProducer({"bootstrap.servers": broker.address}, checkpoint=_limit(0.1))
    start = KafkaNet.start
    nets: list[KafkaNet] = []
    abandoning = threading.Thread(target=producer.abandon)

    def start_late(net: KafkaNet) -> None:
        nets.append(net)
        abandoning.start()
        abandoning.join(0.2)  # it ends here only if it found nothing to stop
        start(net)

    monkeypatch.setattr(KafkaNet, "start", start_late)
    with contextlib.suppress(ConnectxError, AssertionError):
        producer.init()
    abandoning.join()
    assert nets[0]._client._net._closed


@pytest.mark.parametrize(
    "setting",
    [
        {"acks": "many"},
        {"compression.type": "brotli"},
        {"batch.size": "big"},
        {"enable.idempotence": "true", "acks": "1"},
    ],
)
def test_settings_that_are_not_allowed_are_named(setting: dict[str, str]) -> None:
    with pytest.raises(ProducerError, match=f"cannot be created.*{next(iter(setting.values()))}|acks=all"):
        KafkaProducer({"bootstrap.servers": "127.0.0.1:9", **setting}).init()


def test_a_closed_producer_says_so(make: Make) -> None:
    producer = make("x")
    producer.close()
    with pytest.raises(ProducerError, match="closed"):
        producer.begin()
