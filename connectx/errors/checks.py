"""Errors of checks and peeks."""

from __future__ import annotations

from connectx.errors.base import ConnectxError


class PeekError(ConnectxError):
    """Data cannot be shown: a target cannot report its rows, or a sink has no dead letter queue."""


class CheckError(ConnectxError):
    """A check got arguments that it cannot use."""


class TopicUnreadableError(CheckError):
    """A topic cannot be read to its end."""

    def __init__(self, topic: str, cause: str) -> None:
        super().__init__(
            f"The topic {topic} could not be read to its end: {cause}.",
            next_step="Check the brokers and the permission to read the topic, then check again.",
        )


class NotValidError(ConnectxError):
    """A run that should be valid is invalid or unknown. `verdict` has all findings."""

    def __init__(self, sentence: str, verdict: object) -> None:
        super().__init__(sentence, next_step="See the findings and reasons of its verdict.")
        self.verdict = verdict
