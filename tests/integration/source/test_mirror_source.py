"""MirrorSource's tasks on a real broker whose topics are deleted and created again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from connectx.connectors.mirror.errors import MirrorTopicRecreatedError
from connectx.connectors.mirror.source import MirrorSource
from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.support.jdbc import Context
from tests.support.topics import create_topic
from tests.support.waiting import until

NO_SPARK: Any = None


class Mirror:
    """A task that keeps its context over restarts."""

    def __init__(self, servers: str, topic: str, **settings: str) -> None:
        clusters = {f"{side}.cluster.bootstrap.servers": servers for side in ("source", "target")}
        reset = {f"source.consumer.{name}".replace("_", "."): text for name, text in settings.items()}
        self._config = {**clusters, **reset, "topics": topic, "task.assigned.partitions": f"{topic}-0"}
        self.context = Context()
        self.start()

    def start(self) -> None:
        self._task = MirrorSource.Task()
        self._task.start(self._config, self.context)

    def values(self, count: int) -> list[bytes]:
        """The next values, at least so many."""
        found: list[bytes] = []

        def grown() -> bool:
            if (piece := self._task.poll(NO_SPARK, None)) is not None:
                self.context.remember(piece)
                assert isinstance(piece.rows, pa.Table)
                found.extend(piece.rows["value"].to_pylist())
            return len(found) >= count

        until(grown, f"{count} records")
        return found

    def stop(self) -> None:
        self._task.stop()


@pytest.fixture
def mirror(kafka: EmbeddedKafka, topic: Callable[..., str]) -> Iterator[Callable[..., Mirror]]:
    made: list[Mirror] = []

    def make(name: str, **settings: str) -> Mirror:
        made.append(Mirror(kafka.bootstrap_servers, name, **settings))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def fill(servers: str, topic: str, *values: bytes) -> list[bytes]:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    return list(values)


def create_again(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(30)
    until(lambda: topic not in admin.list_topics(timeout=30).topics, f"{topic} is gone")
    create_topic(servers, topic)


def test_a_topic_that_was_created_again_is_refused_or_read_from_its_start(
    kafka: EmbeddedKafka, topic: Callable[..., str], mirror: Callable[..., Mirror]
) -> None:
    servers, name = kafka.bootstrap_servers, topic("again")
    refusing, reading = mirror(name), mirror(name, auto_offset_reset="earliest")
    old = fill(servers, name, b"a", b"b")
    for one in (refusing, reading):
        assert one.values(2) == old
        one.stop()
    create_again(servers, name)
    new = fill(servers, name, b"c", b"d", b"e", b"f")
    refusing.start()
    with pytest.raises(MirrorTopicRecreatedError, match=rf"{name}-0 in the source was deleted and created again"):
        refusing.values(1)
    reading.start()
    assert reading.values(4) == new
    reading.stop()
    last = fill(servers, name, b"g")
    reading.start()
    assert reading.values(1) == last


@pytest.mark.parametrize("more", [0, 3], ids=["not longer", "longer"])
def test_a_topic_that_is_created_again_while_it_is_mirrored_is_noticed(
    kafka: EmbeddedKafka, topic: Callable[..., str], mirror: Callable[..., Mirror], more: int
) -> None:
    servers, name = kafka.bootstrap_servers, topic("live")
    reading = mirror(name, auto_offset_reset="earliest")
    old = fill(servers, name, b"a", b"b")
    assert reading.values(2) == old
    create_again(servers, name)
    new = fill(servers, name, b"c", *(b"more %d" % number for number in range(more)))
    assert reading.values(len(new)) == new
    last = fill(servers, name, b"last")
    assert reading.values(1) == last
