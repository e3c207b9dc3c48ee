"""Stages: what a worker does at a moment, for requests that time out.

Mirrors Kafka Connect's Stage, with its sentences.
"""

from __future__ import annotations

from datetime import UTC, datetime

from connectx.values import Value


class Stage(Value):
    """A description that follows "the worker is currently", and when it began and was completed: ms since 1970."""

    description: str
    began_ms: int
    completed_ms: int | None = None

    def summary(self) -> str:
        """The sentence of a time-out."""
        began = f"{self.description}, which began at {_instant(self.began_ms)}"
        if self.completed_ms is None:
            return f"The worker is currently {began}."
        return f"The last operation the worker completed was {began} and completed at {_instant(self.completed_ms)}."


def _instant(moment_ms: int) -> str:
    """Java's Instant.toString: UTC, without a fraction that is 0."""
    moment = datetime.fromtimestamp(moment_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{moment_ms % 1000:03d}Z" if moment_ms % 1000 else f"{moment}Z"
