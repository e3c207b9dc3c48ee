"""MirrorSource between two brokers while a worker is killed, topics come, and groups move over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.support.clusters import MakeCluster, owner_of
from tests.support.profiles import QUICK
from tests.support.records import read_all
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S, until

HEADER = "source-offset"
GROUP = "mirrored-shop"


class Source:
    """A topic of the source, with records of all kinds."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.servers, self.topic = bootstrap_servers, topic
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": f"fill-{topic}"})
        self._producer.init_transactions(30)
        self._number, self._start_ms = 0, int(time.time() * 1000)

    def produce(self, count: int, partitions: Iterable[int] = range(3)) -> None:
        """A committed transaction, and an aborted one: gaps in the offsets."""
        for commits in (True, False):
            self._producer.begin_transaction()
            for _ in range(count if commits else 5):
                self._number += 1
                number, places = self._number, list(partitions)
                self._producer.produce(
                    self.topic,
                    None if number % 7 == 0 else b"\xff value %d" % number,
                    None if number % 5 == 0 else b"key %d" % number,
                    places[number % len(places)],
                    timestamp=self._start_ms + number,  # young enough for retention
                    headers=[("a", b"\xfe"), ("b", None)] if number % 3 == 0 else None,
                )
            self._producer.flush(30)
            if commits:
                self._producer.commit_transaction(30)
            else:
                self._producer.abort_transaction(30)

    def grow(self, partitions: int) -> None:
        """Add partitions, and wait until the producer knows them."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result(30)
        until(lambda: len(self._producer.list_topics(self.topic, 30).topics[self.topic].partitions) == partitions)

    def records(self) -> list[Any]:
        return read_all(self.servers, self.topic)


def content(record: Any) -> tuple[Any, ...]:
    headers = [header for header in record.headers() or [] if header[0] != HEADER]
    return record.partition(), record.key(), record.value(), record.timestamp(), headers


def wait_mirrored(servers: str, source: Source) -> list[Any]:
    """Until the target has as many records; they must be the same, in the same order."""
    expected, name = source.records(), f"source.{source.topic}"
    found = until(
        lambda: records if len(records := read_all(servers, name)) >= len(expected) else [],
        f"{len(expected)} records in {name}",
        WAIT_S,
    )
    assert [content(record) for record in found] == [content(record) for record in expected]
    return found


def commit(servers: str, offsets: dict[int, int], topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, at, offset) for at, offset in offsets.items()], asynchronous=False)
    consumer.close()


def committed(servers: str, topic: str, partitions: int) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    try:
        answers = consumer.committed([TopicPartition(topic, at) for at in range(partitions)], timeout=30)
        return {at.partition: at.offset for at in answers if at.offset >= 0}
    finally:
        consumer.close()


def test_a_mirror_has_every_record_once_finds_what_is_new_and_translates_offsets_of_groups(
    kafka: EmbeddedKafka, make_cluster: MakeCluster, topic: Callable[..., str]
) -> None:
    first = Source(kafka.bootstrap_servers, topic("mirrored", 3, retention_ms="123456789"))
    first.produce(120)
    records = [record for record in first.records() if record.partition() == 0]
    read = {0: records[30].offset(), 1: 0, 2: max(r.offset() for r in first.records() if r.partition() == 2) + 1}
    commit(kafka.bootstrap_servers, read, first.topic)
    with make_cluster(workers=2, config=QUICK) as cluster:
        cluster.create(
            "mirror",
            {
                "connector.class": "MirrorSource",
                "source.cluster.bootstrap.servers": kafka.bootstrap_servers,
                "target.cluster.bootstrap.servers": cluster.bootstrap_servers,
                "topics": f"{first.topic}.*",
                "key.converter": "ByteArrayConverter",
                "value.converter": "ByteArrayConverter",
                "refresh.topics.interval.seconds": "1",
                "source.offset.header": HEADER,
                "source.consumer.max.poll.records": "50",
                "sync.group.offsets.enabled": "true",
                "sync.group.offsets.interval.seconds": "1",
                "groups": GROUP,
                "tasks.max": "2",
            },
        )
        mirrored, name = wait_mirrored(cluster.bootstrap_servers, first), f"source.{first.topic}"
        offsets = {at: [record for record in mirrored if record.partition() == at] for at in range(3)}
        expected = {0: offsets[0][30].offset(), 1: offsets[1][0].offset(), 2: offsets[2][-1].offset() + 1}
        until(lambda: committed(cluster.bootstrap_servers, name, 3) == expected, f"offsets {expected}", WAIT_S)

        first.produce(120)
        owner_of(cluster, "mirror-0").kill()
        first.produce(120)
        wait_mirrored(cluster.bootstrap_servers, first)

        second = Source(kafka.bootstrap_servers, create_topic(kafka.bootstrap_servers, f"{first.topic}-new", 2))
        first.grow(4)
        second.produce(20, range(2))
        first.produce(20, [3])
        wait_mirrored(cluster.bootstrap_servers, first)
        wait_mirrored(cluster.bootstrap_servers, second)
        verdict = cluster.check(timeout=WAIT_S)
        assert verdict.answer == "valid", verdict
