"""The config, status and offsets topics of one worker: carries out the core's effects on them.

Reads all three with one consumer and posts config and status records in order; source offsets go to the offset store.
It decides no state: what a record means is the core's. Mirrors Kafka Connect's KafkaConfigBackingStore,
KafkaStatusBackingStore and KafkaOffsetBackingStore over KafkaBasedLog.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, assert_never

from confluent_kafka import Message

from connectx.core.messages import (
    AbandonConfigWrites,
    ClaimConfigWrites,
    ConfigReadToEnd,
    ConfigRecordRead,
    ConfigRecordsWritten,
    ConfigWritesClaimed,
    InternalTopicsFailed,
    Posted,
    ReadConfigToEnd,
    StatusRecordRead,
    WriteConfigRecords,
    WriteStatus,
)
from connectx.errors.base import ConnectxError
from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.topics import START_S, ensure_internal_topics
from connectx.kafka.internal.config_writer import ConfigProducer
from connectx.kafka.internal.leader_writer import LeaderProducer
from connectx.kafka.internal.offset_store import OffsetStore
from connectx.kafka.internal.status_writer import StatusWriter
from connectx.kafka.internal.topic_tail import TopicTail, as_bytes
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TopicPartition
from connectx.model.status_records import TopicStatusRecord
from connectx.model.worker_config import WorkerConfig
from connectx.protocol.config_topic import decode_config_record, encode_config_record
from connectx.protocol.status_topic import decode_status_record

_log = logging.getLogger(__name__)

_FLUSH_S: Final = 2.0

InternalEffect = ReadConfigToEnd | ClaimConfigWrites | AbandonConfigWrites | WriteConfigRecords | WriteStatus


_READ_S: Final = 180.0
"""Longer than the transaction of a killed task stays open: transaction.timeout.ms, a minute by default, and up to ten
seconds until Kafka notices."""


class InternalTopics:
    """Threads and clients of a worker's internal topics.

    Args:
        config: the worker's settings.
        clients: builds client settings.
        post: takes stimuli; called from several threads, must not block.
    """

    def __init__(self, config: WorkerConfig, clients: ClientConfigs, post: Callable[[Posted], None]) -> None:
        self._config = config
        self._clients = clients
        self._post = post
        self._transactional = config.exactly_once_source_support.leader_is_transactional
        self._ended = False
        self.kafka_cluster_id: str | None = None  # known once it has started
        self._admin = Admin(clients.admin())
        name, config_topic = config.group_id, config.config_topic.name
        self._tail = TopicTail(
            f"{name}-internal-topics",
            clients.internal_consumer(),
            self._admin,
            self._on_record,
            self._turn,
            self._crashed,
        )
        self._leader = LeaderProducer(
            f"{name}-leader", clients.leader_producer, config_topic, self._crashed, clients.recorder
        )
        self._writer = ConfigProducer(clients.config_producer, config_topic)
        self._statuses = StatusWriter(
            f"{name}-statuses", clients.status_producer(), config.status_topic.name, self._crashed
        )
        self._offsets = OffsetStore(self._tail)
        self._readers: dict[str, Callable[[Message], None]] = {
            config_topic: self._on_config_record,
            config.status_topic.name: self._on_status_record,
            config.offset_topic.name: self._on_offset_record,
        }

    @property
    def offsets(self) -> OffsetStore:
        return self._offsets

    def start(self, timeout_s: float = START_S) -> None:
        """Create missing topics, check the others, read to the present end and post the records, then continue reading.

        Args:
            timeout_s: for the topics. Reading has three minutes, since open transactions hold it back.

        Raises:
            ReadToEndError: the end was not reached in time.
            InternalTopicError, TopicMissingError: a topic cannot be used, or cannot be created.
            KafkaUnreachableError, KafkaLoginError, KafkaPermissionError, KafkaRequestError, ClientSettingError
        """
        counts = ensure_internal_topics(self._clients, self._config, timeout_s, self._admin)
        self.kafka_cluster_id = self._admin.cluster_id(timeout_s)
        partitions = [TopicPartition(topic, n) for topic in self._readers for n in range(counts[topic])]
        self._offsets.use([p for p in partitions if p.topic == self._config.offset_topic.name])
        at_end = threading.Event()
        failures: list[ConnectxError] = []

        def done(error: ConnectxError | None) -> None:
            if error is not None:
                failures.append(error)
            at_end.set()

        self._statuses.start()
        self._leader.start()
        self._tail.start(partitions)
        self._tail.read_to_end(partitions, _READ_S, done)
        at_end.wait()
        if failures:
            self.close()
            raise failures[0]

    def execute(self, effect: InternalEffect) -> None:
        """Carry out an effect without waiting; the answer is posted. From one thread."""
        if self._ended:
            return
        match effect:
            case ReadConfigToEnd():
                self._read_config_to_end(effect)
            case ClaimConfigWrites():
                self._claim(effect.request_id)
            case AbandonConfigWrites():
                self._leader.abandon_order(effect.request_id)
            case WriteConfigRecords():
                self._write_config(effect)
            case WriteStatus():
                self._statuses.write(effect.record)
            case _:
                assert_never(effect)

    def close(self) -> None:
        """Send what is queued, as far as a moment allows, and close. A second call does nothing."""
        if self._ended:
            return
        self._ended = True
        self._statuses.close()
        self._leader.close()
        self._tail.close()
        self._writer.close(_FLUSH_S)
        self._admin.close()

    def abandon(self) -> None:
        """A killed worker: commit, abort and send nothing more; threads and clients end by themselves."""
        self._ended = True
        self._tail.abandon()
        self._leader.abandon()
        self._statuses.abandon()
        self._writer.abandon()
        self._admin.close()

    def _read_config_to_end(self, effect: ReadConfigToEnd) -> None:
        def done(error: ConnectxError | None) -> None:
            self._report(ConfigReadToEnd(effect.request_id, None if error is None else str(error)))

        timeout_s = None if effect.timeout_ms is None else effect.timeout_ms / 1000
        where = [TopicPartition(self._config.config_topic.name, 0)]
        read_id = self._tail.expect_read(where, timeout_s, done)
        self._writer.after_writes(lambda: self._tail.begin_read(read_id))

    def _claim(self, request_id: int) -> None:
        if not self._transactional:
            self._report(ConfigWritesClaimed(request_id))
            return
        self._leader.claim(request_id, lambda error: self._report(ConfigWritesClaimed(request_id, error)))

    def _write_config(self, effect: WriteConfigRecords) -> None:
        records = [encode_config_record(record) for record in effect.records]
        request_id = effect.request_id
        if effect.privileged and self._transactional:
            # Whatever went wrong: the producer is gone, and only a new claim shows who leads (KIP-618).
            self._leader.write(
                request_id,
                records,
                lambda error: self._report(ConfigRecordsWritten(request_id, error, fenced=error is not None)),
            )
        else:
            self._writer.write(records, lambda error: self._report(ConfigRecordsWritten(request_id, error)))

    def _report(self, stimulus: Posted) -> None:
        if not self._ended:
            self._post(stimulus)

    def _turn(self) -> None:
        self._admin.serve()
        self._writer.serve()

    def _on_record(self, message: Message) -> None:
        self._readers[str(message.topic())](message)

    def _on_config_record(self, message: Message) -> None:
        key, value = as_bytes(message.key()), as_bytes(message.value())
        record = decode_config_record.value("a record of the config topic", key, value)
        self._report(ConfigRecordRead(int(message.offset() or 0), record))

    def _on_status_record(self, message: Message) -> None:
        key, value = as_bytes(message.key()), as_bytes(message.value())
        record = decode_status_record.value("a record of the status topic", key, value)
        if not isinstance(record, TopicStatusRecord):
            self._statuses.saw((key or b"").decode(errors="replace"), record.status)
        self._report(StatusRecordRead(record, int(message.timestamp()[1])))

    def _on_offset_record(self, message: Message) -> None:
        self._offsets.apply(as_bytes(message.key()), as_bytes(message.value()))

    def _crashed(self, error: BaseException) -> None:
        self._report(InternalTopicsFailed(f"{type(error).__name__}: {error}"))
