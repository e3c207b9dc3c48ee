"""The runtime's interfaces for connectors and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from connectx.model.ids import TaskId, TopicPartition
from connectx.model.source_offsets import SourceOffset, SourcePartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ConnectorContext(Protocol):
    """The runtime's interface for a connector."""

    def request_task_reconfiguration(self) -> None:
        """Ask for new task configs."""

    def raise_error(self, error: BaseException) -> None:
        """Fail the connector; its tasks continue."""


class TransactionContext(Protocol):
    """Where a source task with `transaction.boundary=connector` puts the ends of its transactions (KIP-618).

    Rows of a transaction become visible together when it is committed. Aborted ones never do, but their source offsets
    are committed, in a separate transaction, so that they are not read again. To ask for both at the same place is
    an error that fails the task; so is a row that the slice does not have. Call from the methods of the task only.
    """

    def commit_transaction(self, row: int | None = None, offset: SourceOffset | None = None) -> None:
        """End the transaction after the slice that poll returns next or now, or after one row of it.

        `row` is the number of that row, from 0, in the order of `Slice.rows` (as Spark returns them, for a DataFrame).
        It counts also when the row is dropped afterwards, by a transformation or by errors.tolerance. `offset` is the
        source offset after that row, where the task continues if its worker dies then; only the last row needs none.
        Without a slice, everything that was sent before is committed.
        """

    def abort_transaction(self, row: int | None = None, offset: SourceOffset | None = None) -> None:
        """Drop everything since the last boundary, up to the end of the slice or up to and including `row`.

        Arguments as for `commit_transaction`. Nothing happens when nothing was sent since the last boundary.
        """


class SourceTaskContext(Protocol):
    """The runtime's interface for a source task."""

    @property
    def task(self) -> TaskId:
        """Id of the task."""

    @property
    def transaction(self) -> TransactionContext | None:
        """Boundaries of transactions; None unless the task is exactly-once with transaction.boundary=connector."""

    def offset(self, partition: SourcePartition) -> SourceOffset | None:
        """Position of a source partition: the last polled offset, at the start the committed one."""

    def offsets(self, partitions: Sequence[SourcePartition]) -> Sequence[SourceOffset | None]:
        """As `offset`, for many partitions: Kafka is asked once for all that are not known yet."""

    def wait(self, timeout_ms: int) -> bool:
        """Sleep until the task gets another order (True) or the time has passed (False)."""


class SinkTaskContext(Protocol):
    """The runtime's interface for a sink task."""

    @property
    def task(self) -> TaskId:
        """Id of the task."""

    @property
    def group_id(self) -> str:
        """The consumer group that assigns partitions; with topic and partition it names an offset in a target."""

    @property
    def assignment(self) -> Sequence[TopicPartition]:
        """Partitions that this task owns now."""

    def timeout(self, timeout_ms: int) -> None:
        """Within `put`, before it raises a RetriableError: put the batch again after this time."""

    def report(self, partition: TopicPartition, offset: int, error: Exception) -> None:
        """Within `put`: the target refuses this record permanently (KIP-610, ErrantRecordReporter).

        With errors.tolerance=all the record counts as skipped and `put` continues; otherwise raises `error`.
        """

    def spark(self) -> SparkSession:
        """The task's own session, in the worker; the first call waits for Spark's start."""
