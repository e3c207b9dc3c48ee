"""Writes source offsets on a user's behalf (KIP-875): set or reset while the connector is stopped.

Decides only how to write: with exactly-once in one transaction of task 0's producer, which the core has had fenced
before, otherwise with a plain producer. Offsets of a connector with a topic of its own are copied to the worker's
topic: deletions before, since a copy that is left there would be taken for the offset again (KAFKA-15018), the rest
afterwards.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from connectx.errors import RestError
from connectx.kafka.admin.client import Admin
from connectx.kafka.admin.topics import ensure_offsets_topic
from connectx.kafka.internal.offset_topics import Records, offsets_topic
from connectx.kafka.settings.clients import ClientConfigs
from connectx.model.ids import TaskId
from connectx.model.worker_config import WorkerConfig
from connectx.protocol.offsets_topic import encode_offset_key, encode_offset_value

_log = logging.getLogger(__name__)

_WRITE_S = 30.0
_COMMIT_S = 5.0
_ABORT_S = 5.0

Offsets = Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]


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
            says that nobody can tell; deletions from the worker's topic may be visible, too.
        MalformedDataError: a partition or an offset is not a flat map of primitive values; nothing was written.
        InternalTopicError, TopicMissingError: the connector's own topic cannot be used.
    """
    exactly_once = worker.exactly_once_source_enabled
    records = [(encode_offset_key(connector, partition), encode_offset_value(offset)) for partition, offset in offsets]
    topic, is_own = offsets_topic(clients, worker, connector_config)
    task = TaskId(connector, 0)
    producer = Producer(clients.source_task_producer(task, connector_config, exactly_once))
    write = _write_in_transaction if exactly_once else _write_plainly
    try:
        if not is_own:
            write(producer, topic, records)
            return
        admin = Admin(clients.admin(connector, connector_config))
        try:
            ensure_offsets_topic(admin, topic, worker)
        finally:
            admin.close()
        copier = Producer(clients.offsets_producer())
        _write_plainly(copier, worker.offset_topic.name, [record for record in records if record[1] is None])
        write(producer, topic, records)
        _copy(copier, worker.offset_topic.name, [record for record in records if record[1] is not None])
    except KafkaException as error:
        reason = error.args[0].str()
        raise RestError(f"The offsets of {connector} could not be written: {reason}", status=500) from error


def _copy(producer: Producer, topic: str, records: Records) -> None:
    """What is committed is committed: a copy that fails is only told."""
    try:
        _write_plainly(producer, topic, records)
    except KafkaException as error:
        _log.warning("Offsets that were set were not copied to topic %s: %s", topic, error)


def _write_in_transaction(producer: Producer, topic: str, records: Records) -> None:
    producer.init_transactions(_WRITE_S)
    producer.begin_transaction()
    try:
        for key, value in records:
            producer.produce(topic, value=value, key=key)
        _commit(producer, topic, time.monotonic() + _WRITE_S)
    except KafkaException as error:
        if error.args[0].txn_requires_abort():
            producer.abort_transaction(_ABORT_S)  # open, it would hold back whoever reads the offsets
        raise


def _commit(producer: Producer, topic: str, end_s: float) -> None:
    """After a commit that was not answered in time librdkafka takes nothing but another commit."""
    while True:
        try:
            producer.commit_transaction(_COMMIT_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            if time.monotonic() >= end_s:
                raise RestError(
                    f"The source offsets may or may not have been written to topic {topic}: Kafka did not answer the "
                    f"commit in time ({error.args[0].str()}).",
                    status=500,
                    next_step="Read the offsets to see, and write them again if they are not there.",
                ) from error
        else:
            return


def _write_plainly(producer: Producer, topic: str, records: Records) -> None:
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            refused.append(error)

    for key, value in records:
        producer.produce(topic, value=value, key=key, on_delivery=delivered)
    if producer.flush(_WRITE_S):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer within {_WRITE_S:g} s"))
    if refused:
        raise KafkaException(refused[0])
