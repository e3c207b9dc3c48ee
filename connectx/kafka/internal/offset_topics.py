"""Source offsets of a connector with a separate offsets topic (`offsets.storage.topic`, KIP-618).

Decides which topic is the primary one, that its offsets go before those of the worker's topic, and what is copied to
the worker's topic in which order. Mirrors Kafka Connect's ConnectorOffsetBackingStore. It never commits: the task's
own producer writes to the primary topic.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.topics import ensure_offsets_topic
from connectx.kafka.internal.offset_store import READ_S, OffsetStore
from connectx.kafka.internal.topic_tail import TopicTail, as_bytes
from connectx.kafka.settings.clients import ClientConfigs, ConnectorConfig
from connectx.model.ids import TaskId, TopicPartition
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.model.worker_config import WorkerConfig
from connectx.protocol.offsets_topic import encode_offset_key

_log = logging.getLogger(__name__)

_CLOSE_S: Final = 5.0

PartitionOffsets = list[tuple[SourcePartition, SourceOffset]]
Records = Sequence[tuple[bytes, bytes | None]]


class Reader(Protocol):
    def read(
        self, connector: str, partitions: list[SourcePartition], *, cancel: threading.Event | None = None
    ) -> list[SourceOffset | None]:
        """One offset for each partition, None where there is none."""


class OwnOffsets:
    """Offsets of a connector with a separate topic, beside the worker's topic that has copies of them.

    The topic is read once, from its beginning to its end, at the first request. Later commits are kept by
    the task itself. Blocks.

    Args:
        clients: builds the connector's clients.
        worker: the worker's settings, for a topic that has to be created.
        task: the task that asks; task 0 for questions about the connector.
        connector_config: its overrides are the clients'.
        topic: the primary topic.
        exactly_once: only committed offsets are read, regardless of overrides.
        workers: the offsets in the worker's topic.
    """

    def __init__(
        self,
        clients: ClientConfigs,
        worker: WorkerConfig,
        task: TaskId,
        connector_config: ConnectorConfig,
        *,
        topic: str,
        exactly_once: bool,
        workers: Reader,
    ) -> None:
        self._clients = clients
        self._worker = worker
        self._task = task
        self._config = connector_config
        self._topic = topic
        self._exactly_once = exactly_once
        self._workers = workers
        self._primary: OffsetStore | None = None

    def read(
        self, connector: str, partitions: list[SourcePartition], *, cancel: threading.Event | None = None
    ) -> list[SourceOffset | None]:
        """Look up; None where neither topic has an offset. A missing topic is created. Raises as OffsetStore.read."""
        workers = self._workers.read(connector, partitions, cancel=cancel)
        if self._primary is None:
            self._primary = self._load(cancel, create=True)
        own = self._primary.known(connector, partitions)
        return [theirs if mine is None else mine for mine, theirs in zip(own, workers, strict=True)]

    def connector_offsets(self, connector: str, workers: PartitionOffsets) -> PartitionOffsets:
        """All offsets of the connector, of which `workers` are in the worker's topic. Creates no topic."""
        found = {encode_offset_key(connector, partition): (partition, offset) for partition, offset in workers}
        own = self._load(None, create=False)
        for partition in own.partitions(connector):
            (offset,) = own.known(connector, [partition])
            if offset is not None:
                found[encode_offset_key(connector, partition)] = (partition, offset)
        return list(found.values())

    def _load(self, cancel: threading.Event | None, *, create: bool) -> OffsetStore:
        clients, task = self._clients, self._task
        admin = Admin(clients.admin(task.connector, self._config, f"connector-adminclient-{task}"))
        settings = clients.offsets_consumer(task, self._config, self._exactly_once)
        tail: TopicTail | None = None

        def take(message: Message) -> None:
            store.apply(as_bytes(message.key()), as_bytes(message.value()))

        try:
            if create:
                count = ensure_offsets_topic(admin, self._topic, self._worker)
            else:
                count = admin.partition_counts([self._topic])[self._topic] or 0
            tail = TopicTail(f"offsets-of-{task}", settings, admin, take, admin.serve, lambda error: None)
            store = OffsetStore(tail)
            if count:
                partitions = [TopicPartition(self._topic, number) for number in range(count)]
                store.use(partitions)
                tail.start(partitions)
                store.read(task.connector, [], timeout_s=READ_S, cancel=cancel)
            return store
        finally:
            if tail is not None and tail.partitions:
                tail.close()
            admin.close()


class OffsetCopier:
    """Copies what was committed to a connector's own topic into the worker's, without waiting; errors are logged.

    Args:
        clients: the worker's own producer is made of them.
        topic: the worker's topic.
        whose: for the log.
    """

    def __init__(self, clients: ClientConfigs, topic: str, whose: str) -> None:
        self._clients = clients
        self._topic = topic
        self._whose = whose
        self._producer: Producer | None = None
        self._cancelled = False

    def copy(self, records: Records) -> None:
        """Send, unless it was cancelled; never raises."""
        if self._cancelled:
            return
        try:
            if self._producer is None:
                self._producer = Producer({**self._clients.offsets_producer(), "on_delivery": self._delivered})
            for key, value in records:
                self._producer.produce(self._topic, value=value, key=key)
            self._producer.poll(0)
        except (KafkaException, BufferError) as error:
            self._warn(error)

    def close(self) -> None:
        """Wait a moment for what is under way."""
        if self._producer is not None:
            self._producer.flush(_CLOSE_S)
            self.abandon()

    def cancel(self) -> None:
        """From any thread: drop what is queued.

        No fence stops a copy, so a late one could overwrite what a user has set or deleted meanwhile.
        """
        self._cancelled = True
        if (producer := self._producer) is not None:
            producer.purge(blocking=False)

    def abandon(self) -> None:
        """Drop what is queued, and close without waiting."""
        self.cancel()
        self._producer = None

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        if error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self._warn(error)

    def _warn(self, cause: object) -> None:
        _log.warning("Committed offsets of %s were not copied to topic %s: %s", self._whose, self._topic, cause)


def offsets_topic(clients: ClientConfigs, worker: WorkerConfig, connector_config: ConnectorConfig) -> tuple[str, bool]:
    """The primary topic, and whether it is the connector's own: another one than the worker's, or on another Kafka.

    As in Kafka Connect, the bootstrap servers of the connector's producer identify a Kafka cluster.
    """
    topic = connector_config.get("offsets.storage.topic") or worker.offset_topic.name
    given = connector_config.get("producer.override.bootstrap.servers")
    servers = _servers(given or worker.prefixed("producer.").get("bootstrap.servers") or worker.bootstrap_servers)
    here = servers in (_servers(clients.bootstrap_servers), _servers(worker.bootstrap_servers))
    return topic, topic != worker.offset_topic.name or not here


def _servers(text: str) -> set[str]:
    return {server.strip() for server in text.split(",")}
