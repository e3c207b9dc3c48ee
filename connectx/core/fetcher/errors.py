"""Classifies Kafka's errors for a fetch (Java: FetchCollector, Errors)."""

from __future__ import annotations

from typing import Final

OUT_OF_RANGE: Final = "OFFSET_OUT_OF_RANGE"
TRUNCATED: Final = "LOG_TRUNCATION"
UNKNOWN_TOPIC: Final = "UNKNOWN_TOPIC_OR_PARTITION"

LOST_LEADER: Final = frozenset(
    {
        "NOT_LEADER_FOR_PARTITION",
        "NOT_LEADER_OR_FOLLOWER",
        "LEADER_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "REPLICA_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
        "OFFSET_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
        UNKNOWN_TOPIC,
    }
)
"""The partition may have another leader, or none yet: ask for it, and fetch again."""

RETRIABLE: Final = LOST_LEADER | {
    "UNKNOWN_SERVER_ERROR",
    "REQUEST_TIMED_OUT",
    "THROTTLING_QUOTA_EXCEEDED",
    "INVALID_REPLICATION_FACTOR",  # metadata while brokers start
}
