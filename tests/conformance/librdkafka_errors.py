"""What an error of librdkafka means for the task whose producer met it.

A transaction that the broker aborted because it was open too long looks exactly like a fenced producer
(`_FENCED`, fatal): the time that it was open tells the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import KafkaError

from connectx.errors.base import ConnectxError
from connectx.errors.kafka import (
    ProducerError,
    ProducerFencedError,
    RecordRefusedError,
    RecordTooLargeError,
    TransactionExpiredError,
)

_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
FENCED = (
    KafkaError._FENCED,
    KafkaError._FATAL,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the producer was doing. `open_ms` is None when no transaction is open."""

    transactional_id: str | None
    transaction_timeout_ms: int
    max_request_size_bytes: int
    open_ms: int | None = None


def producer_error(error: KafkaError, what: str, now: Circumstances) -> ConnectxError:
    """The typed error for a failed call; `what` completes "Kafka did not let the task ..."."""
    ended = error.fatal() or error.txn_requires_abort() or error.code() in FENCED
    if now.transactional_id is not None and ended:
        if now.open_ms is not None and now.open_ms >= now.transaction_timeout_ms:
            return TransactionExpiredError(
                now.transactional_id, open_ms=now.open_ms, timeout_ms=now.transaction_timeout_ms, cause=error.str()
            )
        if error.code() in FENCED:
            return ProducerFencedError(now.transactional_id, error.str())
    if error.code() in _TOO_LARGE:
        return _too_large("A record", "a topic of the task", now)
    if error.txn_requires_abort():
        return RecordRefusedError(
            f"Kafka did not let the task {what}: {error.str()}.",
            next_step="Check the topics of the task and its permissions, then restart it; nothing was committed.",
        )
    return ProducerError(
        f"Kafka did not let the task {what}: {error.str()}.",
        next_step="Check the broker and the producer.* and producer.override.* settings, then restart the task.",
    )


def refusal(error: KafkaError, topic: str, size_bytes: int, now: Circumstances) -> ConnectxError:
    """The typed error for one record that Kafka does not take."""
    if error.fatal() or error.code() in FENCED:
        return producer_error(error, f"send records to {topic}", now)
    if error.code() in _TOO_LARGE:
        return _too_large(f"A record of {size_bytes} bytes", f"topic {topic}", now)
    return RecordRefusedError(
        f"Kafka refused a record for topic {topic}: {error.str()}.",
        next_step="Check that the topic exists, has that partition and may be written to, then restart the task.",
    )


def _too_large(record: str, topic: str, now: Circumstances) -> RecordTooLargeError:
    return RecordTooLargeError(
        f"{record} for {topic}, or the batch that it was in, is larger than Kafka takes: max.request.size of the "
        f"producer is {now.max_request_size_bytes} bytes, and max.message.bytes of the topic limits it too.",
        next_step="Raise producer.override.max.request.size and the topic's max.message.bytes, or lower "
        "producer.override.batch.size below the latter; then restart the task.",
    )
