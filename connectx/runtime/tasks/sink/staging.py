"""What one of Spark's executors does for a sink task: it reads ranges of offsets, converts them, and lets the plugin
stage them.

Consumer and plugin are made of settings there; converters and transformations are copies of the worker's. It needs the
packages that the plugin and connectx's fetcher import, and no Spark. Nothing that it does is visible in the target. Bad
records and messages of the plugin go back to the worker, which reports and commits.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.frames import in_schema
from connectx.errors.base import ConnectxError
from connectx.errors.plugins import RecordConversionError
from connectx.kafka.fetcher.chunks import SCHEMA
from connectx.kafka.fetcher.ranges import read_ranges
from connectx.model.class_names import path_of
from connectx.model.ids import TaskId, TopicPartition
from connectx.plugins.connectors import SinkConnector
from connectx.plugins.errors import NotStageableError
from connectx.plugins.registry import task_class
from connectx.plugins.slices import SinkBatch
from connectx.plugins.tasks import SinkTask
from connectx.runtime.tasks.sink.conversion import BadRecord, Conversion, Wanted
from connectx.values import Value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RESULT_SCHEMA: Final = "part int, result binary"
"""Columns of the frame that a job makes, in Spark's notation; with `row_schema` also `row`, one of both is null."""

_BATCH_RECORDS: Final = 100_000


class StagedRecordError(Value):
    """A record that was left out: `stage` is Kafka Connect's, `class_name` was at work."""

    partition: TopicPartition
    offset: int
    stage: str
    class_name: str
    error: Exception


@dataclass(slots=True)
class PartResult:
    """The outcome for one range.

    Attributes:
        records: how many were read.
        rows: how many were staged.
        filtered: how many a transformation dropped.
        bad: records that were left out, in the order in which they were found; with errors.tolerance=none the first.
        raw: those records as they were fetched, if dead letters need them.
        messages: what the plugin's `stage` gave.
        failure: why the range was not staged; None: it was, or see `bad`.
        tail_until: the offset after the records that only the worker can put; None: not known.
    """

    records: int = 0
    rows: int = 0
    filtered: int = 0
    bad: list[StagedRecordError] = field(default_factory=list)
    raw: pa.Table | None = None
    messages: list[Any] = field(default_factory=list)
    failure: str | None = None
    tail_until: int | None = None


class StagingOrder(Value):
    """Data that executors need; can be pickled.

    Attributes:
        connector: the connector's class; of a notebook, Spark pickles it by value.
        task_config: settings of the task.
        conversion: the worker's converters and transformations.
        consumer: settings of a consumer in librdkafka's spelling.
        parts: ranges of one topic; each is the work of one Spark task.
        wanted: the types that the plugin wants of keys and values.
        plan: what the plugin's `plan` gave.
        token: of the job.
        tolerate_all: errors.tolerance.
        keep_raw: bad records are wanted as they were fetched.
        row_schema: columns of the rows that the plugin's `stage` gives, as Spark takes them; None: it gives messages.
    """

    task: TaskId
    group_id: str
    connector: type[SinkConnector]
    task_config: Mapping[str, str]
    conversion: Conversion
    consumer: Mapping[str, Any]
    parts: Sequence[tuple[TopicPartition, tuple[int, int]]]
    wanted: Wanted
    plan: Any
    token: str
    tolerate_all: bool
    keep_raw: bool
    row_schema: pa.Schema | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """Stage the parts whose numbers are in the first column."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = _Staging(self, *self.parts[number]).run()
                tables, last = [], {}
                if self.row_schema is not None:
                    tables, result.messages = result.messages, []
                    last = {"row": pa.nulls(1, pa.struct(list(self.row_schema)))}
                for table in tables:
                    yield from _row_batches(number, in_schema(table, self.row_schema))
                columns = {"part": pa.array([number], pa.int32()), "result": [pickle.dumps(result)]}
                yield pa.RecordBatch.from_pydict(columns | last)


def _row_batches(number: int, table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Rows of a part in the column `row`."""
    for batch in table.to_batches():
        columns = {
            "part": pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows),
            "result": pa.nulls(batch.num_rows, pa.binary()),
            "row": pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)),
        }
        yield pa.RecordBatch.from_pydict(columns)


class _Staging:
    """One range on one executor; also the SinkTaskContext of the plugin there."""

    def __init__(self, order: StagingOrder, partition: TopicPartition, offsets: tuple[int, int]) -> None:
        self._order = order
        self._partition = partition
        self._position, self._end = offsets
        self._batch_end = self._position
        self._raw: pa.Table = SCHEMA.empty_table()
        self._bad_rows: list[int] = []
        self._kept: list[pa.Table] = []
        self._result = PartResult()
        self._class_name = ""
        self.task = order.task
        self.group_id = order.group_id
        self.assignment = (partition,)

    def timeout(self, timeout_ms: int) -> None:
        """Nothing is put here, so nothing is put again."""

    def run(self) -> PartResult:
        """Read and stage; failures are part of the result, so that Spark does not repeat what cannot succeed."""
        result = self._result
        try:
            self._run()
        except Exception as error:
            is_record = bool(result.bad) and not self._order.tolerate_all
            if not is_record:
                result.failure = str(error) if isinstance(error, ConnectxError) else f"{type(error).__name__}: {error}"
                result.tail_until = self._batch_end if isinstance(error, NotStageableError) else None
        self._keep()
        if self._kept:
            result.raw = pa.concat_tables(self._kept)
        return result

    def _run(self) -> None:
        order = self._order
        order.connector.check_requirements()
        plugin = task_class(order.connector)()
        assert isinstance(plugin, SinkTask), "of a sink connector"
        self._class_name = path_of(type(plugin))
        plugin.start(order.task_config, self)
        try:
            self._result.messages += plugin.stage(order.plan, order.token, self._batches(order.conversion))
        finally:
            plugin.stop()

    def _batches(self, conversion: Conversion) -> Iterator[SinkBatch]:
        """Batches whose ranges follow each other and cover all of the part, also where there are no records."""
        ranges = {self._partition: (self._position, self._end)}
        for raw in read_ranges(self._order.consumer, ranges, max_records=_BATCH_RECORDS):
            self._keep()
            self._raw, self._batch_end = raw, raw["offset"][-1].as_py() + 1
            rows, filtered = conversion.read(raw, self._partition.topic, self._order.wanted, self._judge)
            self._result.records += raw.num_rows
            self._result.filtered += filtered
            bad_before = len(self._result.bad)
            ranges = {self._partition: (self._position, self._batch_end)}
            yield SinkBatch(rows, ranges, not conversion.value_converter.has_schemas)
            self._result.rows += rows.num_rows - (len(self._result.bad) - bad_before)
            self._position = self._batch_end
        if self._position < self._end:
            yield SinkBatch(SCHEMA.empty_table(), {self._partition: (self._position, self._end)})

    def _judge(self, bad: Sequence[BadRecord]) -> None:
        for record in bad:
            offset = self._raw["offset"][record.row].as_py()
            error = RecordConversionError(str(self._partition), offset, record.cause)
            self._leave_out(record.row, offset, record.stage, record.class_name, error)

    def spark(self) -> SparkSession:
        """Executors have none."""
        raise TypeError("stage has no Spark session")

    def report(self, partition: TopicPartition, offset: int, error: Exception) -> None:
        """The target refuses a record; see SinkTaskContext."""
        row = pc.index(self._raw["offset"], offset).as_py()
        self._leave_out(row, offset, "TASK_PUT", self._class_name, error)

    def _keep(self) -> None:
        """Copy the bad records of a batch, because a slice would hold, and be pickled with, all of its records."""
        if self._bad_rows:
            self._kept.append(self._raw.take(self._bad_rows))
            self._bad_rows = []

    def _leave_out(self, row: int, offset: int, stage: str, class_name: str, error: Exception) -> None:
        self._result.bad.append(StagedRecordError(self._partition, offset, stage, class_name, error))
        if self._order.keep_raw:
            self._bad_rows.append(row)
        if not self._order.tolerate_all:
            raise error
