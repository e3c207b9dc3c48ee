"""Records of topics, read by consumers that share nothing with connectx and belong to no group."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.support.profiles import dotted

QUIET_S = 60.0


def _consumer(bootstrap_servers: str, isolation: str, **more: Any) -> Consumer:
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "outside",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "reconnect.backoff.max.ms": 500,
    }
    return Consumer(settings | dotted(more))


def read_all(bootstrap_servers: str, topic: str, *, isolation: str = "read_committed") -> list[Any]:
    """Return every record of a topic up to its end now, partition by partition.

    Fails when nothing comes for `QUIET_S` before the end: a transaction is open.
    """
    consumer = _consumer(bootstrap_servers, isolation, enable_partition_eof=True)
    found: list[Message] = []
    try:
        left, moved_s = set(consumer.list_topics(topic, 30).topics[topic].partitions), time.monotonic()
        consumer.assign([TopicPartition(topic, number, 0) for number in sorted(left)])
        while left:
            for message in consumer.consume(10_000, 0.1):
                moved_s, error = time.monotonic(), message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
            open_s = time.monotonic() - moved_s
            assert open_s < QUIET_S, f"partitions {sorted(left)} of {topic} do not come to their end: open transaction"
    finally:
        consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


class Reader:
    """All records of a topic from its beginning, in order per partition, while it grows."""

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int = 1, isolation: str = "read_committed"
    ) -> None:
        self._consumer = _consumer(bootstrap_servers, isolation)
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.seen: list[tuple[int, str]] = []
        """Partition and value of each record up to now."""

    def values(self) -> list[str]:
        """Return all values once no more come. Where records never cease, use `poll`."""
        while self._consume():
            pass
        return [value for _, value in self.seen]

    def poll(self) -> list[str]:
        """Return all values up to now, after one more batch."""
        self._consume()
        return [value for _, value in self.seen]

    def close(self) -> None:
        self._consumer.close()

    def _consume(self) -> bool:
        messages = self._consumer.consume(10_000, 0.1)
        good = [message for message in messages if message.error() is None]
        self.seen += [(message.partition() or 0, (message.value() or b"").decode()) for message in good]
        return bool(messages)
