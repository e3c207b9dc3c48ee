"""Foreign transactions on a real broker: one that stays open, and one that hangs.

Of a hanging one a partition's log has a record, its coordinator no entry.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.errors import BrokerResponseError
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import ProduceRequest
from kafka.protocol.producer.transaction import InitProducerIdRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from connectx.kafka.net import KafkaNet
from tests.support.waiting import until

_TIMEOUT_MS = 30_000
_PRODUCE_VERSION = 11  # from 12 on, the broker itself adds the partition to the transaction (KIP-890)


class OpenTransaction:
    """A foreign transaction on a topic: a consumer of committed records cannot reach the topic's end."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "outside"})
        self._producer.init_transactions(30)
        self._producer.begin_transaction()
        self._producer.produce(topic, key="hanging", value=b"{}")
        self._producer.flush(30)

    def end(self) -> None:
        self._producer.abort_transaction(30)


def leave_hanging(bootstrap_servers: str, topic: str, partition: int) -> None:
    """Write a record of a transaction to which its partition was never added: it will never be ended there.

    As a broker before KIP-890 lets it happen: for this record, the broker does not ask the coordinator.
    """
    net = KafkaNet({"bootstrap_servers": [bootstrap_servers], "client_id": "hanging"})
    net.start()
    try:
        producer = until(lambda: _producer(net, f"hanging-{topic}"), "the coordinator of transactions")
        batch = DefaultRecordBatchBuilder(2, 0, True, producer.producer_id, producer.producer_epoch, 0, 1_000)
        batch.append(0, None, None, b"never decided", [])
        one = ProduceRequest.TopicProduceData
        part = one.PartitionProduceData(index=partition, records=bytes(batch.build()))
        request = ProduceRequest(
            transactional_id=f"hanging-{topic}", acks=-1, timeout_ms=_TIMEOUT_MS,
            topic_data=[one(name=topic, partition_data=[part])], max_version=_PRODUCE_VERSION,
        )  # fmt: skip
        with _unverified(bootstrap_servers):
            until(lambda: _is_written(net, request), "the broker to follow its new setting")
    finally:
        net.close()


def _producer(net: KafkaNet, transactional_id: str) -> Any:
    """Its producer id and epoch; None while the coordinator is not there yet."""
    begin = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=_TIMEOUT_MS, producer_id=-1, producer_epoch=-1
    )
    try:
        net.run(net.find_coordinator, CoordinatorType.TRANSACTION, transactional_id, _deadline_s())
        own = net.run(_send, net, begin)
    except BrokerResponseError:
        return None
    return own if own.error_code == 0 else None


def _is_written(net: KafkaNet, request: Any) -> bool:
    (answer,) = net.run(_send, net, request).responses
    return [partition.error_code for partition in answer.partition_responses] == [0]


async def _send(net: KafkaNet, request: Any) -> Any:
    """To the one broker that there is."""
    return await net.send(request, await net.any_node(_deadline_s()), _TIMEOUT_MS)


def _deadline_s() -> float:
    return time.monotonic() + _TIMEOUT_MS / 1000


@contextmanager
def _unverified(bootstrap_servers: str) -> Iterator[None]:
    """Meanwhile the broker takes a producer's word for it that a partition belongs to its transaction."""
    key, admin = "transaction.partition.verification.enable", AdminClient({"bootstrap.servers": bootstrap_servers})

    def alter(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(key, "false", incremental_operation=operation)
        of_broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        admin.incremental_alter_configs([of_broker])[of_broker].result(30)

    alter(AlterConfigOpType.SET)
    try:
        yield
    finally:
        alter(AlterConfigOpType.DELETE)
