"""The producer of a task against a real broker: partitions as Java chooses them, and what a table may name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from connectx.errors.kafka import ProducerError, ProducerFencedError, RecordRefusedError, RecordTooLargeError
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.producer.producer import KafkaProducer
from connectx.model.ids import TopicPartition
from tests.support.records import read_all

# murmur2 of Java's client (org.apache.kafka.common.utils.UtilsTest)
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.fixture
def producer(kafka: EmbeddedKafka) -> Any:
    made = KafkaProducer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all"}, checkpoint=lambda: None)
    made.init()
    yield made
    made.close()


def test_a_key_goes_to_the_partition_that_javas_client_chooses(
    kafka: EmbeddedKafka, topic: Callable[..., str], producer: KafkaProducer
) -> None:
    name = topic("keys", partitions=7)
    producer.send(pa.table({"key": list(MURMUR2), "value": list(MURMUR2)}), name)
    assert producer.flush(30)
    found = {message.key(): message.partition() for message in read_all(kafka.bootstrap_servers, name)}
    assert found == {key: (code & 0x7FFFFFFF) % 7 for key, code in MURMUR2.items()}


def test_rows_can_name_topic_partition_timestamp_and_headers(
    kafka: EmbeddedKafka, topic: Callable[..., str], producer: KafkaProducer
) -> None:
    one, two = topic("one", partitions=3), topic("two")
    rows = pa.table(
        {
            "value": [b"a", b"b", None],
            "key": [None, b"k", b"k"],
            "topic": [one, None, two],
            "partition": pa.array([2, None, None], pa.int32()),
            "timestamp": pa.array([1000, 2000, None], pa.int64()),
            "headers": pa.array([[{"key": "h", "value": b"v"}], None, None]),
        }
    )
    assert producer.send(rows, two) == 4
    assert producer.flush(30)
    (first,) = read_all(kafka.bootstrap_servers, one)
    assert (first.value(), first.partition(), first.timestamp()[1], first.headers()) == (b"a", 2, 1000, [("h", b"v")])
    second, third = read_all(kafka.bootstrap_servers, two)
    assert (second.value(), second.timestamp()[1]) == (b"b", 2000)
    assert (third.key(), third.value()) == (b"k", None)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_broker_takes_every_codec_and_librdkafka_reads_it(
    kafka: EmbeddedKafka, topic: Callable[..., str], codec: str
) -> None:
    """The broker decompresses what it takes, with Java's codecs."""
    name = topic(f"codec-{codec}")
    producer = KafkaProducer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec})
    producer.init()
    values = [b"%d " % number * 40 for number in range(5_000)]
    producer.send(pa.table({"value": values, "headers": [[{"key": "h", "value": b"v"}]] * len(values)}), name)
    assert producer.flush(30)
    producer.close()
    found = read_all(kafka.bootstrap_servers, name)
    assert [message.value() for message in found] == values
    assert {str(message.headers()) for message in found} == {"[('h', b'v')]"}


def test_a_batch_that_the_topic_finds_too_large_is_cut_until_it_fits(
    kafka: EmbeddedKafka, topic: Callable[..., str]
) -> None:
    name = topic("cut", max_message_bytes="2000")
    producer = KafkaProducer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"id-of-{name}"})
    producer.init()
    producer.begin()
    values = [b"%d" % number * 20 for number in range(1_000)]
    producer.send(pa.table({"value": values}), name)
    assert producer.commit(60)
    producer.close()
    assert [message.value() for message in read_all(kafka.bootstrap_servers, name)] == values


def test_explicit_partitions_are_kept_in_large_batches(
    kafka: EmbeddedKafka, topic: Callable[..., str], producer: KafkaProducer
) -> None:
    name = topic("parts", partitions=3)
    numbers = list(range(25_000))
    producer.send(
        pa.table({"value": [b"%d" % n for n in numbers], "partition": pa.array([n % 3 for n in numbers], pa.int32())}),
        name,
    )
    assert producer.flush(30)
    found = [(int(message.value()), message.partition()) for message in read_all(kafka.bootstrap_servers, name)]
    assert found == sorted(((n, n % 3) for n in numbers), key=lambda pair: (pair[1], pair[0]))


def test_a_partition_that_the_topic_does_not_have_is_refused(
    topic: Callable[..., str], producer: KafkaProducer
) -> None:
    name = topic("few")
    rows = pa.table({"value": [b"a"], "partition": pa.array([9], pa.int32())})
    producer.send(pa.table({"value": [b"a"]}), name)
    assert producer.flush(30)
    with pytest.raises(RecordRefusedError, match=name):
        producer.send(rows, name)


def test_no_tolerance_lets_a_refused_offset_go(kafka: EmbeddedKafka, topic: Callable[..., str]) -> None:
    name = topic("offsets", max_message_bytes="1000")
    tolerant = KafkaProducer(
        {"bootstrap.servers": kafka.bootstrap_servers}, checkpoint=lambda: None, tolerate_refused=True
    )
    tolerant.init()
    tolerant.send_records(name, [(b"key", b"x" * 5000)])
    with pytest.raises(RecordTooLargeError, match=name):
        tolerant.flush(30)
    assert tolerant.take_refused() == 0
    tolerant.abandon()


def test_a_fenced_producer_says_so_after_the_call_that_told_it_first(
    kafka: EmbeddedKafka, topic: Callable[..., str]
) -> None:
    name = topic("fenced")
    config = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"id-of-{name}"}
    older, newer = (KafkaProducer(config, checkpoint=lambda: None) for _ in range(2))
    older.init()
    older.begin()
    older.send(pa.table({"value": [b"a"]}), name)
    assert older.ending() is None
    newer.init()
    with pytest.raises(ProducerFencedError):
        older.commit(30)
    assert isinstance(older.ending(), ProducerFencedError)
    assert newer.ending() is None
    older.abandon()
    newer.close()


def test_an_abort_at_any_moment_behind_a_commit_leaves_a_producer_that_goes_on(
    kafka: EmbeddedKafka, topic: Callable[..., str]
) -> None:
    name = topic("aborted")
    config = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"id-of-{name}"}
    producer = KafkaProducer(config, checkpoint=lambda: None)
    producer.init()
    for moment_ms in range(20):
        producer.begin()
        producer.send(pa.table({"value": [b"kept"]}), name)
        assert producer.commit(30)
        producer.begin()
        producer.send(pa.table({"value": [b"dropped"]}), name)
        producer.flush(moment_ms / 1000)
        producer.abort(None)
    producer.close()
    assert [message.value() for message in read_all(kafka.bootstrap_servers, name)] == [b"kept"] * 20


def of_partition(number: int, *values: bytes) -> pa.Table:
    return pa.table({"value": list(values), "partition": pa.array([number] * len(values), pa.int32())})


def test_borrowers_send_into_a_transaction_that_only_its_lender_ends(
    kafka: EmbeddedKafka, topic: Callable[..., str]
) -> None:
    name = topic("lent", partitions=2)
    config = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"id-of-{name}"}
    lender = KafkaProducer(config)
    lender.init()
    for number in range(3):  # the second is aborted
        lender.begin()
        lender.send(of_partition(0, b"%d lender before" % number), name)
        loan = lender.lend([name])
        borrowers = [KafkaProducer(config) for _ in range(2)]
        for partition, borrower in enumerate(borrowers):
            borrower.init(loan)
            borrower.send(of_partition(partition, b"%d borrower" % number, b"%d again" % number), name)
            assert borrower.flush(30)
            borrower.close()
        lender.take_back(
            {TopicPartition(name, 0): 2, TopicPartition(name, 1): 2}, failed="test" if number == 1 else None
        )
        if number == 1:
            with pytest.raises(ProducerError, match="test"):
                lender.commit(30)
            lender.abort(None)
            continue
        lender.send(of_partition(0, b"%d lender after" % number), name)
        assert [m for m in read_all_uncommitted(kafka, name) if m.value() == b"%d borrower" % number]
        assert lender.commit(30)
    lender.close()
    values = [message.value().decode() for message in read_all(kafka.bootstrap_servers, name)]
    of_0 = ["lender before", "borrower", "again", "lender after"]
    assert values == [f"{n} {text}" for texts in (of_0, of_0[1:3]) for n in (0, 2) for text in texts]


def read_all_uncommitted(kafka: EmbeddedKafka, name: str) -> list[Any]:
    return read_all(kafka.bootstrap_servers, name, isolation="read_uncommitted")


def test_a_borrower_is_fenced_once_its_lender_has_aborted(kafka: EmbeddedKafka, topic: Callable[..., str]) -> None:
    name = topic("revoked")
    config = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"id-of-{name}"}
    lender, borrower = KafkaProducer(config), KafkaProducer(config)
    lender.init()
    lender.begin()
    borrower.init(lender.lend([name]))
    borrower.send(of_partition(0, b"in time"), name)
    assert borrower.flush(30)
    lender.take_back({}, failed="test")
    lender.abort(None)
    lender.begin()
    lender.send(of_partition(0, b"next"), name)
    assert lender.flush(30)  # Kafka answers an abort before it writes the markers: "next" is behind them
    borrower.send(of_partition(0, b"late"), name)
    with pytest.raises(ProducerFencedError):
        borrower.flush(30)
    assert lender.commit(30)
    borrower.abandon()
    lender.close()
    assert [message.value() for message in read_all(kafka.bootstrap_servers, name)] == [b"next"]


def test_settings_that_are_not_allowed_are_named() -> None:
    with pytest.raises(ProducerError, match="cannot be created"):
        KafkaProducer({"bootstrap.servers": "x", "acks": "many"}, checkpoint=lambda: None).init()


def test_a_closed_producer_says_so(producer: KafkaProducer) -> None:
    producer.close()
    with pytest.raises(ProducerError, match="closed"):
        producer.begin()
