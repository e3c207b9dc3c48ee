"""Errors that tasks raise for the runtime to act on."""

from __future__ import annotations

from collections.abc import Mapping

from connectx.errors.base import ConnectxError
from connectx.model.ids import TopicPartition


class RetriableError(ConnectxError):
    """Raised by poll or put when the same call may succeed later (Kafka Connect: RetriableException)."""

    retriable = True


class CommitRefusedError(ConnectxError):
    """The offset in an exactly-once target differs from the batch's start: an older or newer task wrote there.

    `committed` has, per partition, the offset in the target: the runtime continues from there if it still owns
    the partition.
    """

    def __init__(self, message: str, committed: Mapping[TopicPartition, int], *, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.committed = dict(committed)


class NotStageableError(ConnectxError):
    """Raised by `plan`, `stage` and `commit`: these records must go through `put`, e.g. to change a table.

    The worker puts them, and executors continue with the next ones.
    """
