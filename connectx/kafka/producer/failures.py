"""Typed errors for the failures that the producer's core reports.

A transaction that the broker aborted because it was open too long looks exactly like a fenced producer. The duration of
the transaction distinguishes the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import kafka.errors as kafka_errors

from connectx.core.producer import errors
from connectx.core.producer.messages import BatchResult, Failure
from connectx.errors.base import ConnectxError
from connectx.errors.kafka import (
    ProducerError,
    ProducerFencedError,
    RecordRefusedError,
    RecordTooLargeError,
    TransactionExpiredError,
)
from connectx.values import Value

_NAMED_ROWS = 5
_OWN_TEXTS = {
    errors.DELIVERY_TIMEOUT: "it was not acknowledged within delivery.timeout.ms",
    errors.PURGED: "the task was cancelled",
    "MESSAGE_TOO_LARGE": "MESSAGE_TOO_LARGE",
}


class Circumstances(Value):
    """What the producer was doing. `open_ms` is None if no transaction is open."""

    transactional_id: str | None
    transaction_timeout_ms: int
    max_request_size_bytes: int
    open_ms: int | None = None


def failure_error(failure: Failure, now: Circumstances) -> ConnectxError:
    """The error of a transaction that cannot commit, or of a producer that ended."""
    cause = describe(failure.error, failure.message)
    is_fence = failure.error in errors.FENCED | {"INVALID_PRODUCER_ID_MAPPING"}
    if now.transactional_id is not None and (is_fence or failure.error == errors.NOTHING_OPEN):
        if now.open_ms is not None and now.open_ms >= now.transaction_timeout_ms:
            return TransactionExpiredError(
                now.transactional_id, open_ms=now.open_ms, timeout_ms=now.transaction_timeout_ms, cause=cause
            )
        if is_fence:
            return ProducerFencedError(now.transactional_id, cause)
    if failure.error in errors.TOO_LARGE:
        return _too_large("A record", f"topic {failure.topic}", now)
    if failure.topic is not None or failure.error == errors.ABORTABLE:
        return RecordRefusedError(
            f"Kafka did not let the task {failure.doing}: {cause}.",
            next_step="Check the topics of the task and its permissions, then restart it; nothing was committed.",
        )
    return ProducerError(
        f"Kafka did not let the task {failure.doing}: {cause}.",
        next_step="Check the broker and the producer.* and producer.override.* settings, then restart the task.",
    )


def refused_rows(
    result: BatchResult, topic: str, rows: Sequence[int] | Any, size_bytes: int | None, now: Circumstances
) -> ConnectxError:
    """The error of records that Kafka does not take; `rows` are their numbers in the table that was sent."""
    error = str(result.error)
    if error in errors.TOO_LARGE:
        return _too_large(f"A record of {size_bytes} bytes", f"topic {topic}", now)
    causes = [describe(error, result.message)]
    named = [int(rows[index]) for index, _ in result.record_errors if index < len(rows)]
    causes += sorted({text for _, text in result.record_errors if text})[:1]
    return RecordRefusedError(
        f"Kafka refused {_which(named, len(rows))} for topic {topic}: {'; '.join(causes)}.",
        next_step="Check that the topic exists, has that partition and may be written to, then restart the task.",
    )


def describe(error: str, message: str | None = None) -> str:
    """Kafka's name of an error and what it means."""
    if error in _OWN_TEXTS:
        return _OWN_TEXTS[error]
    text = message or _description(error)
    return f"{error} ({text.strip().rstrip('.')})" if text else error


def _which(named: Sequence[int], count: int) -> str:
    if not named:
        return "a record" if count == 1 else f"a batch of {count} records"
    numbers = ", ".join(map(str, named[:_NAMED_ROWS]))
    more = f" and {len(named) - _NAMED_ROWS} more" if len(named) > _NAMED_ROWS else ""
    return f"row {numbers} of the slice" if len(named) == 1 else f"rows {numbers}{more} of the slice"


def _description(error: str) -> str:
    found = next((cls for cls in kafka_errors.BrokerResponseError.__subclasses__() if cls.message == error), None)
    return str(found.description or "") if found is not None else ""


def _too_large(record: str, topic: str, now: Circumstances) -> RecordTooLargeError:
    return RecordTooLargeError(
        f"{record} for {topic} is larger than Kafka takes: max.request.size of the producer is "
        f"{now.max_request_size_bytes} bytes, and max.message.bytes of the topic limits it too.",
        next_step="Raise producer.override.max.request.size and the topic's max.message.bytes; then restart the task.",
    )
