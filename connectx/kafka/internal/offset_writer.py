"""Writes source offsets on a user's behalf (KIP-875): set or reset while the connector is stopped.

Decides only how to write: with exactly-once in one transaction of task 0's producer, which the core has had fenced
before, otherwise with a plain producer. Offsets of a connector with a separate topic are copied to the worker's
topic: deletions before, because a copy that is left there would be used as the offset again (KAFKA-15018), the rest
afterwards.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from connectx.errors.base import ConnectxError
from connectx.errors.kafka import InternalTopicError, RecordRefusedError, RecordTooLargeError, TopicMissingError
from connectx.errors.rest import RestError
from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.topics import ensure_offsets_topic
from connectx.kafka.internal.offset_topics import Records, offsets_topic
from connectx.kafka.producer.producer import KafkaProducer
from connectx.kafka.settings.client_config import ClientConfig
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TaskId
from connectx.model.worker_config import WorkerConfig
from connectx.protocol.offsets_topic import encode_offset_key, encode_offset_value

_log = logging.getLogger(__name__)

_WRITE_S = 30.0
_COMMIT_S = 5.0
_ABORT_S = 5.0

Offsets = Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]


def write_source_offsets(
    clients: ClientConfigs,
    worker: WorkerConfig,
    connector: str,
    connector_config: Mapping[str, str | None],
    offsets: Offsets,
) -> None:
    """Write pairs of source partition and source offset (None: tombstone). Blocks until Kafka has them.

    Raises:
        RestError: Kafka did not take them (500). Nothing of an exactly-once write is visible then, unless the error
            reports it as unknown; deletions from the worker's topic may be visible, too.
        MalformedDataError: a partition or an offset is not a flat map of primitive values; nothing was written.
        InternalTopicError, TopicMissingError: the connector's own topic cannot be used.
    """
    if not offsets:  # they are reset already
        return
    exactly_once = worker.exactly_once_source_enabled
    records = [(encode_offset_key(connector, partition), encode_offset_value(offset)) for partition, offset in offsets]
    topic, is_own = offsets_topic(clients, worker, connector_config)
    config = clients.source_task_producer(TaskId(connector, 0), connector_config, exactly_once)
    write = _write_in_transaction if exactly_once else _write_plainly
    try:
        if not is_own:
            write(_producer(config, clients), topic, records)
            return
        admin = Admin(clients.admin(connector, connector_config))
        try:
            ensure_offsets_topic(admin, topic, worker)
        finally:
            admin.close()
        copies = clients.offsets_producer()
        workers_topic = worker.offset_topic.name
        _write_plainly(_producer(copies, clients), workers_topic, [record for record in records if record[1] is None])
        write(_producer(config, clients), topic, records)
        _copy(_producer(copies, clients), workers_topic, [record for record in records if record[1] is not None])
    except (InternalTopicError, TopicMissingError, RestError):
        raise
    except (ConnectxError, _NoAnswerError) as error:
        reason = error.message if isinstance(error, ConnectxError) else str(error)
        raise RestError(f"The offsets of {connector} could not be written: {reason}", status=500) from error


def _producer(config: ClientConfig, clients: ClientConfigs) -> KafkaProducer:
    """A producer whose calls end after `_WRITE_S` seconds."""
    end_s = time.monotonic() + _WRITE_S

    def check() -> None:
        if time.monotonic() >= end_s:
            raise _NoAnswerError(f"Kafka did not answer within {_WRITE_S:g} s")

    return KafkaProducer(config, checkpoint=check, recorder=clients.recorder)


def _copy(producer: KafkaProducer, topic: str, records: Records) -> None:
    """What is committed is committed: a copy that fails is only logged."""
    try:
        _write_plainly(producer, topic, records)
    except (ConnectxError, _NoAnswerError) as error:
        _log.warning("Offsets that were set were not copied to topic %s: %s", topic, error)


def _write_in_transaction(producer: KafkaProducer, topic: str, records: Records) -> None:
    try:
        producer.init()
        producer.begin()
        try:
            producer.send_records(topic, records)
            _commit(producer, topic)
        except (RecordRefusedError, RecordTooLargeError, _NoAnswerError):
            _abort(producer)
            raise
    finally:
        producer.abandon()


def _abort(producer: KafkaProducer) -> None:
    """Abort, since an open transaction holds back all who read the offsets; what failed before is the news."""
    try:
        producer.abort(_ABORT_S)
    except ConnectxError as error:
        _log.warning("A transaction with source offsets stays open until transaction.timeout.ms: %s", error)


def _commit(producer: KafkaProducer, topic: str) -> None:
    """After a commit that was not answered in time the producer takes nothing but another commit."""
    try:
        while not producer.commit(_COMMIT_S):
            pass
    except _NoAnswerError as error:
        raise RestError(
            f"The source offsets may or may not have been written to topic {topic}: Kafka did not answer the commit in "
            "time.",
            status=500,
            next_step="Read the offsets to see, and write them again if they are not there.",
        ) from error


def _write_plainly(producer: KafkaProducer, topic: str, records: Records) -> None:
    if not records:
        return
    try:
        producer.init()
        producer.send_records(topic, records)
        while not producer.flush(_COMMIT_S):
            pass
    finally:
        producer.abandon()


class _NoAnswerError(Exception):
    """Kafka did not answer in time."""
