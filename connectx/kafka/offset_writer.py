"""Writes source offsets on a user's behalf (KIP-875): set or reset while the connector is stopped.

Decides only how to write: with exactly-once in one transaction of task 0's producer, which the core has had fenced
before, otherwise with a plain producer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException, Producer

from connectx.errors import RestError
from connectx.kafka.clients import ClientConfigs
from connectx.model.ids import TaskId
from connectx.model.worker_config import WorkerConfig
from connectx.protocol.offsets_topic import encode_offset_key, encode_offset_value

_WRITE_S = 30.0


def write_source_offsets(
    clients: ClientConfigs,
    worker: WorkerConfig,
    connector: str,
    connector_config: Mapping[str, str | None],
    offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
) -> None:
    """Write pairs of source partition and source offset (None: tombstone). Blocks until Kafka has them.

    Raises:
        RestError: Kafka did not take them (500); nothing of an exactly-once write is visible then.
    """
    exactly_once = worker.exactly_once_source_enabled
    producer = Producer(clients.source_task_producer(TaskId(connector, 0), connector_config, exactly_once))
    try:
        if exactly_once:
            producer.init_transactions(_WRITE_S)
            producer.begin_transaction()
        for partition, offset in offsets:
            key, value = encode_offset_key(connector, partition), encode_offset_value(offset)
            producer.produce(worker.offset_topic.name, key=key, value=value)
        if exactly_once:
            producer.commit_transaction(_WRITE_S)
        elif producer.flush(_WRITE_S):
            raise RestError(f"The offsets of {connector} were not written within {_WRITE_S:g} s.", status=500)
    except KafkaException as error:
        raise RestError(
            f"The offsets of {connector} could not be written: {error.args[0].str()}", status=500
        ) from error
