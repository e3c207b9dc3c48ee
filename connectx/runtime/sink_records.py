"""Records that a sink task has fetched and not put yet: converted once, however often they are put.

It decides nothing but which records cannot be read. Mirrors the message batch of Kafka Connect's WorkerSinkTask.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.converters import SESSION_SETTINGS, decode
from connectx.data.headers import HEADERS
from connectx.data.transforms.chain import in_order
from connectx.errors import RecordConversionError
from connectx.model.ids import TopicPartition
from connectx.runtime.sink_setup import SinkSetup, keeps_values
from connectx.spark.backlog import backlog_error, backlog_frame
from connectx.spark.slices import TaskSpark, is_spark_error, spark_job_error

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

log = logging.getLogger(__name__)

Ranges = Mapping[TopicPartition, tuple[int, int]]


class RecordsAtHand:
    """What was fetched and may still have to be put.

    A fetch that comes while another is being put (its put is tried again) is kept beside it: the loop decides which
    of the two counts.
    """

    SPARK_SETTINGS: Final = SESSION_SETTINGS

    def __init__(self, setup: SinkSetup, spark: TaskSpark) -> None:
        self._setup = setup
        self._spark = spark
        self._number = 0
        self._put_number = 0
        self._fetches: dict[int, pa.Table] = {}
        self._by_topic: dict[str, TopicRecords] = {}

    def fetched(self, rows: pa.Table) -> int:
        """The consumer brought these; returns the number of the fetch."""
        self._number += 1
        kept = {number: rows for number, rows in self._fetches.items() if number == self._put_number}
        self._fetches = {**kept, self._number: rows}
        return self._number

    def read_backlog(self, ranges: Ranges) -> int:
        """Let Spark fetch these ranges; returns the number of the fetch.

        Raises:
            BacklogReadError: Spark could not, or the log does not have them any more.
        """
        try:
            rows = backlog_frame(self._spark.session(), self._setup.backlog_options, ranges).toArrow()
        except Exception as error:
            if not is_spark_error(error):
                raise
            raise backlog_error(error, ranges) from error
        return self.fetched(rows)

    def of(self, number: int, ranges: Ranges) -> TopicRecords:
        """Records of one topic's partitions, out of the fetch of that number."""
        if number != self._put_number:
            self._put_number = number
            self._fetches = {number: self._fetches[number]}
            self._by_topic = {}
        topic = next(iter(ranges)).topic
        known = self._by_topic.get(topic)
        if known is None or known.partitions != tuple(sorted(ranges)):
            rows = _of_partitions(self._fetches[number], topic, sorted(partition.partition for partition in ranges))
            known = TopicRecords(self._setup, self._spark, tuple(sorted(ranges)), rows)
            self._by_topic[topic] = known
        return known


class TopicRecords:
    """Records of some partitions of one topic.

    Attributes:
        partitions: where they come from, sorted.
        count: how many there are.
        filtered: how many a transformation dropped on purpose; known once they are read.
        reason: why the first one that cannot be read cannot be read; empty when all can.
    """

    def __init__(
        self, setup: SinkSetup, spark: TaskSpark, partitions: tuple[TopicPartition, ...], rows: pa.Table
    ) -> None:
        self._setup = setup
        self._spark = spark
        self._raw: pa.Table | None = rows
        self._readable: pa.Table | None = None
        self.partitions = partitions
        self.count: int = rows.num_rows
        self.filtered = 0
        self.reason = ""

    def readable(self, value_type: Callable[[str], DataType | None]) -> tuple[pa.Table, int]:
        """Converted and transformed rows, and how many were left out because they cannot be read or transformed.

        Raises:
            RecordConversionError: a record cannot be read, with errors.tolerance=none.
            SparkJobError: a Spark job failed.
            ConversionError, TransformError: one type cannot hold all values.
        """
        if self._readable is None:
            self._readable = self._convert(value_type)
            self._raw = None
        return self._readable, self.count - self.filtered - self._readable.num_rows

    def _convert(self, value_type: Callable[[str], DataType | None]) -> pa.Table:
        assert self._raw is not None, "converted once"
        setup, topic = self._setup, self.partitions[0].topic
        kind = value_type(topic) if keeps_values(setup.chain) else None
        types = {} if kind is None else {topic: kind}
        try:
            table = decode(self._raw, setup.key_converter, setup.value_converter, types, self._spark.session)
        except Exception as error:
            if not is_spark_error(error):
                raise
            raise spark_job_error(error, f"records for {setup.task} were converted") from error
        table = self._with_headers(table)
        good = table.drop_columns("error")
        if table["error"].null_count < table.num_rows:
            self._judge(table.filter(pc.is_valid(table["error"])))
            good = good.filter(pc.is_null(table["error"]))
        return self._transformed(good) if setup.chain else good

    def _with_headers(self, table: pa.Table) -> pa.Table:
        if self._setup.header_converter.as_is:
            return table
        headers, errors = self._setup.header_converter.read(table["headers"].cast(HEADERS))
        both = pc.coalesce(table["error"], errors)
        return table.drop_columns(["headers", "error"]).append_column("headers", headers).append_column("error", both)

    def _transformed(self, rows: pa.Table) -> pa.Table:
        made = self._setup.chain.apply(rows)
        self.filtered = made.filtered
        if made.failures:
            bad = rows.take([failure.row for failure in made.failures])
            causes = pa.array([failure.message for failure in made.failures], pa.string())
            self._judge(bad.append_column("error", causes))
        return in_order(made.parts) if made.parts else rows.slice(0, 0)

    def _judge(self, bad: pa.Table) -> None:
        """Fail at the first bad record, or note why it is skipped."""
        errors = self._setup.settings.errors
        first = bad.select(["topic", "partition", "offset", "error"]).slice(0, 1).to_pylist()[0]
        partition = TopicPartition(first["topic"], first["partition"])
        error = RecordConversionError(str(partition), first["offset"], first["error"])
        if not errors.tolerate_all:
            raise error
        self.reason = self.reason or error.message
        if errors.log_enable:
            log.warning("%s skips %d records, the first: %s", self._setup.task, bad.num_rows, error)


def _of_partitions(rows: pa.Table, topic: str, partitions: list[int]) -> pa.Table:
    """Rows of these partitions; the same table when it has no others."""
    if rows.num_rows == 0:
        return rows
    wanted = pc.and_(
        pc.equal(rows["topic"], topic), pc.is_in(rows["partition"], pa.array(partitions, rows["partition"].type))
    )
    return rows if pc.all(wanted).as_py() else rows.filter(wanted)
