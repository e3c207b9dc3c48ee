"""Classifies Kafka's errors for a producer (Java: TransactionManager, Sender, Errors)."""

from __future__ import annotations

from typing import Final

from connectx.core.clients import errors as clients

DELIVERY_TIMEOUT: Final = "DELIVERY_TIMEOUT"
PURGED: Final = "PURGED"
OUT_OF_ORDER: Final = "OUT_OF_ORDER_SEQUENCE_NUMBER"
CONCURRENT: Final = "CONCURRENT_TRANSACTIONS"
NOTHING_OPEN: Final = "INVALID_TXN_STATE"
NOT_ATTEMPTED: Final = "OPERATION_NOT_ATTEMPTED"  # because of another partition in the request
AUTHENTICATION: Final = "SASL_AUTHENTICATION_FAILED"
LOAN_FAILED: Final = "LOAN_FAILED"  # a process that sent into the transaction of another has failed
ABORTABLE: Final = "TRANSACTION_ABORTABLE"

DELIVERED: Final = frozenset({None, "DUPLICATE_SEQUENCE_NUMBER"})
"""A duplicate is a batch that an earlier attempt delivered."""

FENCED: Final = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
"""The epoch is not valid any more.

A newer producer has the transactional id, Kafka has aborted a transaction that was open too long, or an InitProducerId
of this producer arrived late.
"""

FATAL: Final = FENCED | {
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "INVALID_PRODUCER_ID_MAPPING",
    clients.UNSUPPORTED,
}
"""Errors of a batch that end a transactional producer."""

RENEWING: Final = FENCED | {"UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_ID_MAPPING", OUT_OF_ORDER}
"""Errors after which an idempotent producer without transactions asks for a new producer id, and sends the batch again.

A batch is out of order after one that was refused: its sequence has a gap before it.
"""

TOO_LARGE: Final = frozenset({"MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})

COORDINATOR: Final = frozenset({"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"})
"""The coordinator has to be found again."""

RETRIABLE: Final = (
    clients.RETRIABLE
    | COORDINATOR
    | {
        CONCURRENT,
        "COORDINATOR_LOAD_IN_PROGRESS",
        "CORRUPT_MESSAGE",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    }
)
