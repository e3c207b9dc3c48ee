"""Stages: what a worker does at a moment, for requests that time out.

Mirrors Kafka Connect's Stage, with its sentences.
"""

from __future__ import annotations

from datetime import UTC, datetime

from connectx.values import Value


class Stage(Value):
    """A description that follows "the worker is currently", and when it began: ms since 1970."""

    description: str
    began_ms: int

    def summary(self) -> str:
        """The sentence of a time-out."""
        return f"The worker is currently {self.description}, which began at {_instant(self.began_ms)}."


def _instant(moment_ms: int) -> str:
    """Java's Instant.toString: UTC, without a fraction that is 0."""
    moment = datetime.fromtimestamp(moment_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{moment_ms % 1000:03d}Z" if moment_ms % 1000 else f"{moment}Z"
