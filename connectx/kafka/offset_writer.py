"""Writes source offsets on a user's behalf (KIP-875): set or reset while the connector is stopped.

Decides only how to write: with exactly-once in one transaction of task 0's producer, which the core has had fenced
before, otherwise with a plain producer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from connectx.errors import RestError
from connectx.kafka.clients import ClientConfigs
from connectx.model.ids import TaskId
from connectx.model.worker_config import WorkerConfig
from connectx.protocol.offsets_topic import encode_offset_key, encode_offset_value

_WRITE_S = 30.0
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
        RestError: Kafka did not take them (500); nothing of an exactly-once write is visible then.
        MalformedDataError: a partition or an offset is not a flat map of primitive values; nothing was written.
    """
    topic, exactly_once = worker.offset_topic.name, worker.exactly_once_source_enabled
    records = [(encode_offset_key(connector, partition), encode_offset_value(offset)) for partition, offset in offsets]
    producer = Producer(clients.source_task_producer(TaskId(connector, 0), connector_config, exactly_once))
    write = _write_in_transaction if exactly_once else _write_plainly
    try:
        write(producer, topic, records)
    except KafkaException as error:
        reason = error.args[0].str()
        raise RestError(f"The offsets of {connector} could not be written: {reason}", status=500) from error


def _write_in_transaction(producer: Producer, topic: str, records: Sequence[tuple[bytes, bytes | None]]) -> None:
    producer.init_transactions(_WRITE_S)
    producer.begin_transaction()
    try:
        for key, value in records:
            producer.produce(topic, value=value, key=key)
        producer.commit_transaction(_WRITE_S)
    except KafkaException as error:
        if error.args[0].txn_requires_abort() or error.args[0].retriable():
            producer.abort_transaction(_ABORT_S)  # open, it would hold back whoever reads the offsets
        raise


def _write_plainly(producer: Producer, topic: str, records: Sequence[tuple[bytes, bytes | None]]) -> None:
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
