"""Base classes of connectors and tasks, for connector authors.

Mirrors Kafka Connect's SourceConnector, SourceTask, SinkConnector and SinkTask, with one change: data moves in bounded
slices, each a Spark DataFrame or an Arrow table, never record by record. A connector decides nothing about
transactions, fencing or ownership: the runtime does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from connectx.errors.base import ConnectxError
from connectx.extras import Extra, require
from connectx.model.configdef import ConfigDef
from connectx.model.ids import TaskId, TopicPartition
from connectx.model.places import Place
from connectx.model.source_offsets import SourceOffset, SourcePartition
from connectx.plugins.bulk_slice import BulkSlice
from connectx.views import Form, Shown, plugin_form

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class RetriableError(ConnectxError):
    """Raised by poll or put when the same call may succeed later (Kafka Connect: RetriableException)."""

    code = "retriable"
    retriable = True


class CommitRefusedError(ConnectxError):
    """The offset in an exactly-once target differs from the batch's start: an older or newer task wrote there.

    `committed` has, per partition, the offset in the target: the runtime continues from there if it still owns
    the partition.
    """

    code = "commit_refused"

    def __init__(self, message: str, committed: Mapping[TopicPartition, int], *, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.committed = dict(committed)


class NotStageableError(ConnectxError):
    """Raised by `plan`, `stage` and `commit`: these records must go through `put`, e.g. to change a table.

    The worker puts them, and executors continue with the next ones.
    """

    code = "not_stageable"


@dataclass(frozen=True, slots=True, repr=False)
class Slice(Shown):
    """Rows between two source offsets.

    `rows` has the columns of Spark's Kafka sink: `value` (any type), and if wanted `key` (any type), `topic` (string),
    `partition` (int), `timestamp` (timestamp) and `headers` (array of struct key, value: the text of the header in
    UTF-8, which `header.converter` makes bytes of). Rows without a column `value` are the value themselves, as a
    struct. An Arrow table stands for rows that the task read in the worker; a DataFrame is evaluated by Spark.
    Tables with different columns, as for several topics, come as a tuple: sent in order and committed together.

    `offset` is the source offset after the last row, `partition` the source partition it belongs to (None: the
    task's own), `topic` where rows go that have no column `topic`. `rows_read` is how many rows the source had there,
    if `rows` leaves some out on purpose: the difference is reported as skipped, because of `skip_reason`.
    `commits_offset` asks for a commit of `offset` even when no row is left; otherwise the offset goes with the next
    rows (KIP-910 has the same use).
    """

    rows: DataFrame | pa.Table | tuple[pa.Table, ...]
    offset: SourceOffset
    topic: str | None = None
    partition: SourcePartition | None = None
    rows_read: int | None = None
    commits_offset: bool = False
    skip_reason: str = "malformed"


@dataclass(frozen=True, slots=True, repr=False)
class SinkBatch(Shown):
    """Converted records of one put.

    `rows` is an Arrow table with the columns `topic`, `partition`, `offset`, `timestamp` (ms since 1970, int64, may be
    null), `key` and `value` as converters and transformations made them (a struct, string, binary, ...), and `headers`.
    All come from one topic, but a transformation may have put other names into `topic`. `ranges` gives per partition
    the first offset of the batch and the offset after its last one; offsets of skipped and filtered records and of
    transaction markers lie within.
    """

    rows: pa.Table
    ranges: Mapping[TopicPartition, tuple[int, int]]


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


class Connector(Shown):
    """Base of connectors. `config` describes the keys that users set; validation uses it."""

    config: ClassVar[ConfigDef]
    java_class: ClassVar[str | None] = None
    """Java class that it replaces: configurations may name it, and REST shows it. Subclasses do not inherit it."""
    other_names: ClassVar[tuple[str, ...]] = ()
    """Further values of `connector.class`, such as Java classes whose configurations it takes. Not inherited either."""
    version: ClassVar[str | None] = None
    requires: ClassVar[tuple[tuple[Extra, str], ...]] = ()
    """Optional modules that its tasks import, each after the extra of connectx that brings it."""

    def start(self, config: Mapping[str, str], context: ConnectorContext) -> None:
        """Take the validated configuration; raise to fail the connector."""
        self.settings = dict(config)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Divide the work into at most `max_tasks` task configurations. Default: one task with the whole config."""
        return [self.settings]

    def monitor_interval_ms(self) -> int | None:
        """How often the runtime calls `monitor` while the connector is started. Default None: never."""
        return None

    def monitor(self) -> None:
        """Inspect the outside system, and call `context.request_task_reconfiguration` when the tasks must change.

        Runs on the connector's thread, which stops the connector only after this call. An error fails the connector.
        """

    def stop(self) -> None:
        """Release what `start` took."""

    @classmethod
    def places(cls, config: Mapping[str, str | None], topics: Sequence[str] = ()) -> Sequence[Place] | None:
        """Return what a source reads or a sink writes outside Kafka, for the audit, which finds overlaps.

        Args:
            config: the configuration as it was given: secrets are masked, placeholders are not replaced.
            topics: those that a sink reads.

        Default None: unknown, and the audit goes by the keys of widely used connectors.
        """
        return None

    @classmethod
    def check_requirements(cls) -> None:
        """Raise MissingExtraError unless all that `requires` names is installed."""
        for extra, module in cls.requires:
            require(cls.__name__, extra, module)

    def _shown(self) -> Form:
        return plugin_form(self, "source connector" if isinstance(self, SourceConnector) else "sink connector")

    @classmethod
    def validate(cls, config: Mapping[str, str | None]) -> Mapping[str, Sequence[str]]:
        """Errors beyond the checks of `config`: key to messages. Must not change anything."""
        return {}


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


@dataclass(frozen=True, slots=True, repr=False)
class RowChange(Shown):
    """The change that a record of a source makes to the rows of its topic.

    Attributes:
        key: identifies the row; None: all fields identify it.
        before: the row that the change removes, if there is no key; None: it removes none.
        after: the row that the change adds; None: it adds none.
        kept: fields of the row whose values do not change, and that `after` does not have.
        clears: all rows of the topic are removed first.
        place: identifies the change in the log of the source, so that a record with the same one is a copy; None: no
            place is known.
        order: grows from change to change in a partition of a topic; None: it is not known.
    """

    key: Mapping[str, Any] | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    kept: tuple[str, ...] = ()
    clears: bool = False
    place: tuple[Any, ...] | None = None
    order: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Held(Shown):
    """The rows of a source at one moment.

    Attributes:
        slices: its rows, as the records that a task would send of them; read once.
        change: the change that a record with this key and value makes; None: it is not about rows.
        is_reached: after `slices` was read: whether all changes before its moment are in the topics, by the last source
            offset.
    """

    slices: Iterator[Slice] = field(repr=False)
    change: Callable[[Any, Any], RowChange | None]
    is_reached: Callable[[SourceOffset], bool]


class SourceConnector(Connector):
    """A source: reads an outside system into topics. Set `task_class` or nest a class called Task."""

    task_class: ClassVar[type[SourceTask]]
    exactly_once: ClassVar[bool | None] = None
    """Whether it is supported with any config; None: unknown."""

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str | None]) -> bool | None:
        """True: supported with this config, False: not, None: unknown (KIP-618, SourceConnector.exactlyOnceSupport)."""
        return cls.exactly_once

    @classmethod
    def check_offsets(
        cls, config: Mapping[str, str | None], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> None:
        """Refuse a user's offsets if the tasks could not continue from them; None resets a partition.

        Kafka Connect: SourceConnector.alterOffsets (KIP-875). Raises ValueError with the reason.
        """

    @classmethod
    def can_define_transaction_boundaries(cls, config: Mapping[str, str | None]) -> bool | None:
        """True: supported with this config, so that transaction.boundary=connector is allowed (KIP-618).

        Its tasks then use `context.transaction`. Kafka Connect: SourceConnector.canDefineTransactionBoundaries.
        """
        return False


class SinkTask(Shown):
    """Writes batches, at least once: the runtime commits offsets after `flush` returned."""

    java_class: ClassVar[str | None] = None
    """Java class that it replaces, shown in its place. Subclasses do not inherit it."""

    exactly_once: ClassVar[bool] = False
    buffers: ClassVar[bool] = False
    """With `exactly_once`: `put` keeps rows in memory, and `flush` commits rows and offsets in one transaction."""
    reads_fields: ClassVar[bool] = False
    """Records without schemas are read as structs of the fields that they hold, where `value_type` is None."""
    stages_rows: ClassVar[bool] = False
    """`plan` returns a pyarrow.Schema, `stage` gives tables with it, and `save` writes them as one DataFrame."""

    def start(self, config: Mapping[str, str], context: SinkTaskContext) -> None:
        """Take the task configuration; raise to fail the task."""
        self.settings = dict(config)
        self.context = context

    def value_type(self, topic: str) -> pa.DataType | None:
        """Arrow type that values of a topic should have, for converters without schemas. None: as in the record."""
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
        """Make everything put so far durable; offsets are committed after this."""

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


@dataclass(frozen=True, slots=True, repr=False)
class Stored(Shown):
    """The rows of a sink's target, for `cluster.check` to compare with the topics.

    Attributes:
        place: name of the target, as in `table flights`; topics that go to the same place are compared together.
        read: returns the rows as tables; can be called repeatedly.
        lines: rows are lines of text, in the first column; otherwise columns are fields of the records.
        ordered: the target keeps the order in which rows were written.
        key: fields that identify a row, if the target keeps one row for each; empty: every record is a row.
        key_in_record_key: these fields are the record's key.
        value_type: Arrow type that values should have, as the sink's tasks ask for it.
        change: turns key and value of a record into the row that it is about (None: it is about no row), and whether
            it deletes that row. None: each value is a row, and no record deletes one.
    """

    place: str
    read: Callable[[], Iterator[pa.Table]]
    lines: bool = False
    ordered: bool = False
    key: tuple[str, ...] = ()
    key_in_record_key: bool = False
    value_type: pa.DataType | None = None
    change: Callable[[Any, Any], tuple[Mapping[str, Any] | None, bool]] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Compaction(Shown):
    """What a compaction did: how many files a target consisted of before, and how many after."""

    place: str
    files_before: int
    files_after: int

    def _shown(self) -> Form:
        return Form(f"Compaction of {self.place}", {"files before": self.files_before, "after": self.files_after})

    def row(self) -> dict[str, object]:
        """One line of a table of compactions."""
        return {"target": self.place, "files before": self.files_before, "after": self.files_after}


class SinkConnector(Connector):
    """A sink: writes topics to an outside system. Set `task_class` or nest a class called Task."""

    task_class: ClassVar[type[SinkTask]]

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Default: every task gets the whole configuration, and the consumer group divides the partitions."""
        return [self.settings] * max_tasks

    @classmethod
    def stored(cls, config: Mapping[str, str | None], topic: str) -> Stored | None:
        """Return the rows of a topic's target. Default None: unknown."""
        return None

    @classmethod
    def compact(cls, config: Mapping[str, str | None], topic: str) -> Compaction | None:
        """Merge small files of the target of a topic, while tasks write to it. Default None: it has no such files.

        Raises:
            RetriableError: other writers changed the same files meanwhile.
        """
        return None

    @classmethod
    def bulk_obstacle(cls, config: Mapping[str, str | None]) -> str | None:
        """Why Spark's executors cannot stage records with this configuration. None: its task defines `stage`."""
        return f"{cls.__name__} writes in the worker only"

    @classmethod
    def bulk_classes(cls, config: Mapping[str, str | None]) -> Sequence[type]:
        """Classes whose modules executors need besides those of the connector, converters and transformations."""
        return ()

    @classmethod
    def flush_interval_ms(cls, config: Mapping[str, str | None]) -> int | None:
        """Time between flushes of a task. Default None: the worker's offset.flush.interval.ms."""
        return None
