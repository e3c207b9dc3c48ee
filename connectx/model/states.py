"""States that users see. The spelling is Kafka Connect's, in REST, in the status topic and here."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """State of a connector or task (Kafka Connect: AbstractStatus.State)."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"
    DESTROYED = "DESTROYED"


LOST: Final = "LOST"
"""What connectx shows for work of a dead worker until another takes it over; Kafka Connect shows RUNNING."""


class TargetState(StrEnum):
    """What the user asked a connector to be (Kafka Connect: TargetState; STOPPED is KIP-875)."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class ConnectorType(StrEnum):
    """Direction of a connector, as REST spells it."""

    SOURCE = "source"
    SINK = "sink"
    UNKNOWN = "unknown"


class ExactlyOnceSupport(StrEnum):
    """Worker setting `exactly.once.source.support` (KIP-618)."""

    DISABLED = "disabled"
    PREPARING = "preparing"
    ENABLED = "enabled"

    @property
    def leader_is_transactional(self) -> bool:
        """True when the leader writes to the config topic in transactions."""
        return self is not ExactlyOnceSupport.DISABLED


class TransactionBoundary(StrEnum):
    """Connector setting `transaction.boundary` (KIP-618)."""

    POLL = "poll"
    INTERVAL = "interval"
    CONNECTOR = "connector"
