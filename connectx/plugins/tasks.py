"""Base classes of tasks, for connector authors.

Mirror Kafka Connect's SourceTask and SinkTask, with one change: data moves in bounded slices, each a Spark DataFrame or
an Arrow table, never record by record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from connectx.model.ids import TopicPartition
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.plugins.contexts import SinkTaskContext, SourceTaskContext
from connectx.plugins.slices import BulkSlice, SinkBatch, Slice
from connectx.plugins.stored import Held
from connectx.views import Form, Shown, plugin_form

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class SourceTask(Shown):
    """Reads slices. One thread calls all methods, except that `poll` may be interrupted by interrupting Spark."""

    java_class: ClassVar[str | None] = None
    """Java class that it replaces, shown in its place. Subclasses do not inherit it."""

    partition: SourcePartition = MappingProxyType({})
    """Source partition of this task; set it in `start`. The offsets topic keeps one offset for it."""

    waits: str = ""
    """Why `poll` has nothing to return, if a user should know: "The file in.txt does not exist". Shown everywhere."""

    rows_may_change: bool = False
    """Whether rows can change after they were read, so that `reread` has other values than the records; or set it in
    `start`."""

    bulk_obstacle: str = ""
    """Why executors cannot read for this task; set it in `start`, or when the task finds out. Shown with its lane."""

    executor_classes: Sequence[type] = ()
    """Further classes than those of the configuration whose modules executors need; set it in `start`."""

    def start(self, config: Mapping[str, str], context: SourceTaskContext) -> None:
        """Take the task configuration; raise to fail the task."""
        self.settings = dict(config)
        self.context = context

    def poll(self, spark: SparkSession, offset: SourceOffset | None) -> Slice | None:
        """Return rows after `offset` (None: from the start), or None when there are none now.

        Must be repeatable: the same offset gives the same rows first. A RetriableError counts as None.
        """
        raise TypeError(f"{type(self).__name__} must define poll")

    def reread(
        self, spark: SparkSession, start: SourceOffset | None, end: SourceOffset | None
    ) -> Iterator[Slice] | None:
        """Return the rows between two committed offsets again, for `cluster.check` to compare with the topic.

        `start` None: from the beginning. `end` None: up to the present end of the source, nothing if it has no end.
        It must return exactly the rows of `poll`. Called on a separate started task, without `poll`. Default None: this
        source cannot be read again.
        """
        return None

    def partitions(self) -> Sequence[SourcePartition]:
        """Source partitions of a started task. Default: `partition` alone.

        A task with several names the partition in each of its slices, and reads its offsets from the context.
        """
        return (self.partition,)

    def reread_partition(
        self, spark: SparkSession, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset | None
    ) -> Iterator[Slice] | None:
        """As `reread`, for one of `partitions`. A task with several overrides it."""
        return self.reread(spark, start, end)

    def held(self, spark: SparkSession) -> Held | None:
        """Return the present rows of the source, for `cluster.check` to compare with the result of its records.

        For sources that send changes of rows and cannot be read again. Called on a separate started task, without
        `poll`. Default None: the source does not know, or its records do not result in its rows.
        """
        return None

    def explain(self, spark: SparkSession, error: Exception) -> Exception | None:
        """Spark could not evaluate the rows of the last poll: name the cause, or None when `error` is sufficient."""
        return None

    def waiting_bytes(self, offset: SourceOffset | None) -> int | None:
        """Return the size of the data after `offset`, which decides between `poll` and `poll_bulk`; must be quick.

        Default None: not known, so that `poll` reads everything.
        """
        return None

    def poll_bulk(self, spark: SparkSession, offset: SourceOffset | None, max_bytes: int) -> Slice | BulkSlice | None:
        """As `poll`, for about `max_bytes` that executors read: `rows` is a DataFrame that nothing has evaluated yet.

        Its partitions are in the order of the source, and each evaluation returns the same rows. A BulkSlice reads
        with a function instead. A task that defines this defines `waiting_bytes`, too.
        """
        raise TypeError(f"{type(self).__name__} must define poll_bulk")

    def bulk_ended(self) -> None:
        """The job of the slice that `poll_bulk` returned last has ended: release what executors needed for it."""

    def idle(self, offset: SourceOffset | None) -> None:
        """Wait after a poll without rows: return when there may be some, or after a short time.

        Use `self.context.wait(ms)` so that a stop is not delayed. Default: wait 100 ms.
        """
        self.context.wait(100)

    def committed(self, offset: SourceOffset) -> None:
        """Slices up to `offset` are durable in Kafka (Kafka Connect: SourceTask.commit).

        Called once per commit for each source partition whose offset changed.
        """

    def abandon(self) -> None:
        """In place of `stop` when the worker was killed: drop connections without finishing anything."""

    def stop(self) -> None:
        """Release what `start` took."""

    def _shown(self) -> Form:
        return plugin_form(self, "source task")


class SinkTask(Shown):
    """Writes batches, at least once: the runtime commits offsets after `flush` returned."""

    java_class: ClassVar[str | None] = None
    """Java class that it replaces, shown in its place. Subclasses do not inherit it."""

    exactly_once: ClassVar[bool] = False
    buffers: ClassVar[bool] = False
    """With `exactly_once`: `put` keeps rows in memory, and `flush` commits rows and offsets in one transaction."""
    reads_fields: ClassVar[bool] = False
    """Records without schemas are read as structs of the fields that they hold, where `value_type` is None."""
    puts_nothing: ClassVar[bool] = False
    """`put` is also called without records and ranges, as in Kafka Connect: once in offset.flush.interval.ms, before
    offsets are committed, unless records came meanwhile. For tasks that write by time what they have kept."""
    stages_rows: ClassVar[bool] = False
    """`plan` returns a pyarrow.Schema, `stage` gives tables with it, and `save` writes them as one DataFrame."""

    def start(self, config: Mapping[str, str], context: SinkTaskContext) -> None:
        """Take the task configuration; raise to fail the task."""
        self.settings = dict(config)
        self.context = context

    def mark(self) -> int | None:
        """Return where the target ends, after `start`, for `Stored.rows_before`: a check then knows older rows.

        Default None: a check takes all rows of the target for rows of the connector.
        """
        return None

    def value_type(self, topic: str) -> pa.DataType | None:
        """Arrow type that values of a topic should have, for converters without schemas. None: as in the record."""
        return None

    def key_type(self, topic: str) -> pa.DataType | None:
        """As `value_type`, of keys: a struct of the fields that `SinkConnector.key_fields` names."""
        return None

    def open(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Called when partitions were assigned. An exactly-once task returns the offsets in its target for them."""
        return {}

    def put(self, batch: SinkBatch) -> None:
        """Write a batch. With `exactly_once = True` rows and offsets become durable in one transaction.

        A task that buffers may commit its rows here, too. Then `committed` of a CommitRefusedError names every
        partition of which it drops rows.

        Raises:
            RetriableError: the same batch is put again later.
            CommitRefusedError: exactly-once only, the target's offsets do not match the batch's start.
        """
        raise TypeError(f"{type(self).__name__} must define put")

    def plan(self, token: str, topic: str) -> Any:
        """Before a job of Spark's executors: further data that `stage` needs there, in addition to the settings.

        The answer must be one that Python can pickle. Called after `flush`, if anything was put.

        Args:
            token: identifies the job uniquely, over all clusters.
            topic: whose records the job reads.

        Raises:
            NotStageableError: the next records must go through `put`.
        """
        return None

    def stage(self, plan: Any, token: str, batches: Iterator[SinkBatch]) -> Iterable[Any]:
        """On an executor: write batches to a place that readers do not see, and return messages for `commit`.

        Called on a task object that was made and started there with the same settings; `open` is not called. Batches
        are of one partition, and their ranges follow each other without gaps. A second attempt may stage the same
        records again: only the messages of one reach `commit`. Messages must be ones that Python can pickle.

        Raises:
            NotStageableError: the current batch must go through `put`; nothing of the job is committed.
        """
        raise TypeError(f"{type(self).__name__} must define stage")

    def save(self, token: str, ranges: Mapping[TopicPartition, tuple[int, int]], frame: DataFrame) -> None:
        """With `stages_rows`: let Spark write the rows of a job, so that they are durable when it returns.

        Called on the thread of the job, after all of its records were converted and before `commit`, which gets no
        messages. Not called if there are no rows, or if a bad record fails the task.
        """
        raise TypeError(f"{type(self).__name__} must define save")

    def commit(self, token: str, ranges: Mapping[TopicPartition, tuple[int, int]], messages: Sequence[Any]) -> None:
        """Make the staged rows of a job visible, with the offsets after its ranges: all or nothing, as `put` does.

        `messages` are those of `stage`, in the order of the ranges. Called again after a RetriableError. Staged data
        of the token that no message names can be removed.

        Raises:
            RetriableError: the same commit is tried again later.
            CommitRefusedError: the target's offsets do not match the start of the ranges.
            NotStageableError: nothing was committed, and the records must go through `put`, which finds the one that
                the target refuses.
        """
        raise TypeError(f"{type(self).__name__} must define commit")

    def discard(self, token: str, messages: Sequence[Any]) -> None:
        """Remove the staged data of a job; `messages` are those of its executors, none if the job was lost.

        Not called after a commit of the job has begun, unless the commit was refused.
        """

    def flush(self) -> None:
        """Make everything put so far durable; offsets are committed after this.

        Raises:
            RetriableError, OSError of a network or resource: records after the last commit are put again. Any other
                error fails the task.
        """

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """Called when partitions were revoked."""

    def cancel(self) -> None:
        """Called from another thread to end a blocked `put`: the task was cancelled or its worker killed."""

    def abandon(self) -> None:
        """In place of `close` and `stop` when the worker was killed: drop connections without finishing anything."""

    def stop(self) -> None:
        """Release what `start` took."""

    def _shown(self) -> Form:
        return plugin_form(self, "sink task")
