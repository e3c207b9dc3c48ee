"""Classes of Kafka's errors that all clients share (Java: Errors)."""

from __future__ import annotations

from typing import Final

UNKNOWN_TOPIC: Final = "UNKNOWN_TOPIC_OR_PARTITION"
UNKNOWN: Final = "UNKNOWN_SERVER_ERROR"
UNSUPPORTED: Final = "UNSUPPORTED_VERSION"

LOST_LEADER: Final = frozenset(
    {
        "NOT_LEADER_FOR_PARTITION",
        "NOT_LEADER_OR_FOLLOWER",
        "LEADER_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "REPLICA_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
        "NETWORK_EXCEPTION",
        "UNKNOWN_TOPIC_ID",
        UNKNOWN_TOPIC,
    }
)
"""The partition may have another leader, or none yet: ask for it before the next attempt."""

RETRIABLE: Final = LOST_LEADER | {"REQUEST_TIMED_OUT", "THROTTLING_QUOTA_EXCEEDED"}
