"""Classifies Kafka's errors for a fetch (Java: FetchCollector, Errors)."""

from __future__ import annotations

from typing import Final

from connectx.core.clients import errors as clients

OUT_OF_RANGE: Final = "OFFSET_OUT_OF_RANGE"
TRUNCATED: Final = "LOG_TRUNCATION"
BAD_BATCH: Final = "UNREADABLE_BATCH"
LOST_LEADER: Final = clients.LOST_LEADER | {"OFFSET_NOT_AVAILABLE", "INCONSISTENT_TOPIC_ID"}

RETRIABLE: Final = (
    clients.RETRIABLE
    | LOST_LEADER
    | {
        clients.UNKNOWN,
        "INVALID_REPLICATION_FACTOR",  # metadata while brokers start
    }
)
