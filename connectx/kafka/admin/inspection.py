"""Lists groups and transactions of a whole Kafka cluster, by kafka-python's admin client.

librdkafka's admin client lists no groups of type `connect` and no transactions. This module only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import kafka.errors as kafka_errors
from kafka.admin import KafkaAdminClient

from connectx.errors.kafka import KafkaPermissionError, KafkaRequestError, KafkaUnreachableError
from connectx.kafka.net import quiet_kafka_python
from connectx.model.ids import TopicPartition
from connectx.values import Value

T = TypeVar("T")

_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")


class OpenTransaction(Value):
    """A transaction that has not ended: when it began (Unix time), and when its coordinator aborts it."""

    transactional_id: str
    state: str
    producer_epoch: int
    started_ms: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]


class Inspection:
    """An inspection of a Kafka cluster; a context manager.

    Every call may raise KafkaUnreachableError, KafkaPermissionError or KafkaRequestError.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._servers = ",".join(config["bootstrap_servers"])
        quiet_kafka_python()
        self._admin = self._call("connect", lambda: KafkaAdminClient(**config))

    def groups(self, protocol_type: str) -> list[str]:
        """Ids of the groups of a protocol type, such as `connect`, sorted."""
        listed = self._call("list the groups", self._admin.list_groups)
        return sorted(group["group_id"] for group in listed if group["protocol_type"] == protocol_type)

    def open_transactions(self) -> list[OpenTransaction]:
        """All transactions that have not ended, by transactional id."""

        def ask() -> Mapping[str, Any]:
            listed = self._admin.list_transactions(state_filters=list(_OPEN))
            ids = sorted({one.transactional_id for found in listed.values() for one in found})
            described: Mapping[str, Any] = self._admin.describe_transactions(ids)
            return described

        return [
            OpenTransaction(
                transactional_id,
                one.state.value,
                one.producer_epoch,
                one.transaction_start_time_ms,
                one.transaction_timeout_ms,
                tuple(sorted(TopicPartition(at.topic, at.partition) for at in one.topic_partitions)),
            )
            for transactional_id, one in sorted(self._call("list the transactions", ask).items())
            if one.state.value in _OPEN  # it may have ended meanwhile
        ]

    def close(self) -> None:
        self._admin.close()

    def __enter__(self) -> Inspection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _call(self, what: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except kafka_errors.AuthorizationError as error:
            raise KafkaPermissionError(what, f"{error}") from error
        except kafka_errors.BrokerResponseError as error:
            raise KafkaRequestError(what, f"{error}") from error
        except kafka_errors.KafkaError as error:
            raise KafkaUnreachableError(self._servers, what, f"{error}") from error
