"""The fetcher's rows are those of librdkafka's consumer and of kafka-python's, whatever is in a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Tp
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaConsumer
from kafka import TopicPartition as Part

from connectx.errors.kafka import KafkaRequestError, OffsetOutOfRangeError
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.kafka.fetcher.ranges import read_ranges
from connectx.model.ids import TopicPartition
from tests.support.waiting import until

Read = Callable[..., list[dict[str, Any]]]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def read(kafka: EmbeddedKafka) -> Read:
    """`read(topic, start=0, end=None, **settings)`: rows of partition 0, by default all of them."""

    def ranges(topic: str, start: int = 0, end: int | None = None, **settings: Any) -> list[dict[str, Any]]:
        at = TopicPartition(topic, 0)
        config = {"bootstrap.servers": kafka.bootstrap_servers, **{k.replace("_", "."): v for k, v in settings.items()}}
        last = _end(kafka, topic) if end is None else end
        tables = list(read_ranges(config, {at: (start, last)}, quiet_s=20))
        return pa.concat_tables(tables).to_pylist() if tables else []

    return ranges


def _end(kafka: EmbeddedKafka, topic: str) -> int:
    with closing(Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "ends"})) as consumer:
        return int(consumer.get_watermark_offsets(Tp(topic, 0), timeout=30)[1])


def by_librdkafka(kafka: EmbeddedKafka, topic: str, isolation: str = "read_committed") -> list[dict[str, Any]]:
    """Rows of partition 0 as librdkafka's consumer reads them."""
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "other", "isolation.level": isolation}
    rows = []
    with closing(Consumer({**config, "enable.partition.eof": True})) as consumer:
        consumer.assign([Tp(topic, 0, 0)])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            headers: Any = message.headers()
            rows.append(
                {
                    "topic": message.topic(),
                    "partition": message.partition(),
                    "offset": message.offset(),
                    "timestamp": message.timestamp()[1],
                    "key": message.key(),
                    "value": message.value(),
                    "headers": [{"key": key, "value": value} for key, value in headers] if headers else None,
                }
            )
    return rows


def by_kafka_python(kafka: EmbeddedKafka, topic: str, isolation: str = "read_committed") -> list[tuple[Any, ...]]:
    """Offset, timestamp, key, value and headers of partition 0 as kafka-python's consumer reads them."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, isolation_level=isolation)
    part, end = Part(topic, 0), _end(kafka, topic)
    found: list[tuple[Any, ...]] = []
    try:
        consumer.assign([part])
        consumer.seek(part, 0)

        def at_the_end() -> bool:
            for records in consumer.poll(100).values():
                found.extend((r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records)
            return bool(consumer.position(part) >= end)

        until(at_the_end, f"kafka-python to read {topic}")
    finally:
        consumer.close()
    return found


def as_tuples(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (r["offset"], r["timestamp"], r["key"], r["value"], [(h["key"], h["value"]) for h in r["headers"] or ()])
        for r in rows
    ]


def produce(kafka: EmbeddedKafka, topic: str, first: int, count: int, **settings: Any) -> None:
    """Records with and without keys, values, headers and times, in batches of several."""
    own = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 50, "batch.num.messages": 7, **own})
    for number in range(first, first + count):
        headers: list[tuple[str, str | bytes | None]] = [("n", b"%d" % number), ("n", None)]
        key = None if number % 4 == 0 else b"k%d" % (number % 10)
        value = None if number % 5 == 0 else b"v%d-" % number * (number % 50 + 1)
        producer.produce(
            topic, value, key, timestamp=1_700_000_000_000 + number * 37 % 1000, headers=headers[: number % 3]
        )
    assert producer.flush(30) == 0


def in_transaction(kafka: EmbeddedKafka, topic: str, who: str, values: list[bytes], *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{topic}-{who}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def test_every_codec_header_key_and_tombstone_is_read_as_other_clients_read_it(
    kafka: EmbeddedKafka, topic: Callable[..., str], read: Read
) -> None:
    name = topic("codecs")
    for number, codec in enumerate(CODECS):
        produce(kafka, name, number * 100, 100, compression_type=codec)
    rows = read(name, max_partition_fetch_bytes=4096)
    assert rows == by_librdkafka(kafka, name)
    assert len(rows) == 500


def test_kafka_pythons_consumer_reads_the_same(kafka: EmbeddedKafka, topic: Callable[..., str], read: Read) -> None:
    name = topic("python")
    for number, codec in enumerate(["none", "gzip"]):  # for others it wants further packages
        produce(kafka, name, number * 100, 100, compression_type=codec)
    assert as_tuples(read(name)) == by_kafka_python(kafka, name)


def test_the_time_is_the_brokers_where_the_topic_says_so(
    kafka: EmbeddedKafka, topic: Callable[..., str], read: Read
) -> None:
    name = topic("times", message_timestamp_type="LogAppendTime")
    produce(kafka, name, 0, 30)
    assert read(name) == by_librdkafka(kafka, name)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_aborted_transactions_among_committed_ones_are_left_out_if_that_is_wanted(
    kafka: EmbeddedKafka, topic: Callable[..., str], read: Read, isolation: str
) -> None:
    name = topic("transactions")
    for number in range(6):
        in_transaction(kafka, name, f"{number % 2}", [b"%d-%d" % (number, n) for n in range(5)], commit=number % 3 > 0)
        produce(kafka, name, number * 10, 10)
    rows = read(name, isolation_level=isolation)
    assert rows == by_librdkafka(kafka, name, isolation)
    assert as_tuples(rows) == by_kafka_python(kafka, name, isolation)
    assert len(rows) == (80 if isolation == "read_committed" else 90)


def test_a_compacted_topic_has_gaps_that_are_no_rows(
    kafka: EmbeddedKafka, topic: Callable[..., str], read: Read
) -> None:
    name = topic("gaps", cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01")
    with eager_cleaner(kafka):
        produce(kafka, name, 1, 3, compression_type="zstd")  # numbers with a key
        for number in range(0, 200, 20):
            produce(kafka, name, number + 1, 3, compression_type=CODECS[number // 20 % 5])

        def has_gaps() -> bool:
            produce(kafka, name, 1, 1)
            rows = by_librdkafka(kafka, name)
            return len(rows) < _end(kafka, name) and rows[0]["offset"] > 0

        until(has_gaps, "the log cleaner")
    rows = read(name)
    assert [row["offset"] for row in rows] == [row["offset"] for row in by_librdkafka(kafka, name)]
    assert len(rows) < rows[-1]["offset"] + 1


@contextmanager
def eager_cleaner(kafka: EmbeddedKafka) -> Iterator[None]:
    """The broker's log cleaner looks for work ten times a second."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def set_backoff(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=operation)
        broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        admin.incremental_alter_configs([broker])[broker].result(30)

    set_backoff(AlterConfigOpType.SET)
    try:
        yield
    finally:
        set_backoff(AlterConfigOpType.DELETE)


def test_a_range_has_its_start_and_not_its_end_and_ends_after_markers_too(
    kafka: EmbeddedKafka, topic: Callable[..., str], read: Read
) -> None:
    name = topic("ranges")
    produce(kafka, name, 0, 40)
    in_transaction(kafka, name, "t", [b"aborted"], commit=False)
    assert [row["offset"] for row in read(name, 13, 29)] == list(range(13, 29))
    assert [row["offset"] for row in read(name, 38, 42)] == [38, 39]
    assert read(name, 40, 42) == read(name, 7, 7) == []


def test_partitions_are_read_side_by_side_each_in_its_order(kafka: EmbeddedKafka, topic: Callable[..., str]) -> None:
    name = topic("many", partitions=3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(300):
        producer.produce(name, b"%d" % number, partition=number % 3)
    producer.flush(30)
    config = {"bootstrap.servers": kafka.bootstrap_servers}
    ranges = {TopicPartition(name, partition): (partition, 60 + partition) for partition in range(3)}
    rows = pa.concat_tables(read_ranges(config, ranges, max_records=7)).to_pylist()
    for at, (start, end) in ranges.items():
        own = [row for row in rows if row["partition"] == at.partition]
        assert [row["offset"] for row in own] == list(range(start, end))
        assert [int(row["value"]) for row in own] == [number * 3 + at.partition for number in range(start, end)]


def test_what_cannot_be_read_is_named(topic: Callable[..., str], kafka: EmbeddedKafka, read: Read) -> None:
    name = topic("short")
    produce(kafka, name, 0, 5)
    with pytest.raises(OffsetOutOfRangeError, match=f"{name}-0 has no offset 99"):
        read(name, 99, 100)
    config = {"bootstrap.servers": kafka.bootstrap_servers}
    with pytest.raises(KafkaRequestError, match="no-such-topic: UNKNOWN_TOPIC_OR_PARTITION"):
        list(read_ranges(config, {TopicPartition("no-such-topic", 0): (0, 1)}, quiet_s=1))
    with pytest.raises(KafkaRequestError, match="nothing came for 1 s"):
        list(read_ranges(config, {TopicPartition(name, 0): (5, 6)}, quiet_s=1))
