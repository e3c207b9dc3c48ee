"""Records that a sink task has fetched and not put yet: converted once, however often they are put.

It decides nothing but which records cannot be read. Mirrors the message batch of Kafka Connect's WorkerSinkTask.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.converters import SESSION_SETTINGS, decode
from connectx.data.headers import HEADERS
from connectx.data.transforms.chain import in_order
from connectx.errors import ConnectxError, RecordConversionError
from connectx.model.ids import TopicPartition
from connectx.runtime.tasks.plugin_names import name_of
from connectx.runtime.tasks.record_errors import RecordErrors
from connectx.runtime.tasks.sink.dead_letters import DeadLetter, DeadLetterQueue
from connectx.runtime.tasks.sink.setup import SinkSetup, keeps_values
from connectx.spark.backlog import backlog_error, backlog_frame
from connectx.spark.slices import TaskSpark, is_spark_error

log = logging.getLogger(__name__)

Ranges = Mapping[TopicPartition, tuple[int, int]]


class RecordsAtHand:
    """What was fetched and may still have to be put.

    A fetch that comes while another is being put (its put is tried again) is kept beside it: the loop decides which
    of the two counts.
    """

    SPARK_SETTINGS: Final = SESSION_SETTINGS

    def __init__(
        self, setup: SinkSetup, spark: TaskSpark, dead_letters: DeadLetterQueue | None, counted: RecordErrors
    ) -> None:
        self._setup = setup
        self._spark = spark
        self._dead_letters = dead_letters
        self._counted = counted
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
            known = TopicRecords(self._setup, self._dead_letters, self._counted, tuple(sorted(ranges)), rows)
            self._by_topic[topic] = known
        return known


class TopicRecords:
    """Records of some partitions of one topic.

    Attributes:
        partitions: where they come from, sorted.
        raw: the records as they were fetched; None once they are read, unless dead letters need them.
        count: how many there are.
        filtered: how many a transformation dropped on purpose; known once they are read.
        reason: why the first one that cannot be read cannot be read; empty when all can.
    """

    def __init__(
        self,
        setup: SinkSetup,
        dead_letters: DeadLetterQueue | None,
        counted: RecordErrors,
        partitions: tuple[TopicPartition, ...],
        rows: pa.Table,
    ) -> None:
        self._setup = setup
        self._dead_letters = dead_letters
        self._counted = counted
        self.raw: pa.Table | None = rows
        self._readable: pa.Table | None = None
        self.partitions = partitions
        self.count: int = rows.num_rows
        self.filtered = 0
        self.reason = ""

    def readable(self, value_type: Callable[[str], pa.DataType | None]) -> tuple[pa.Table, int]:
        """Converted and transformed rows, and how many were left out because they cannot be read or transformed.

        Those are safe in the dead letter queue, if there is one.

        Raises:
            RecordConversionError: a record cannot be read or transformed, with errors.tolerance=none.
            ConversionError, TransformError: one type cannot hold all values.
        """
        if self._readable is None:
            self._readable = self._convert(value_type)
            if self._dead_letters is None:
                self.raw = None
        return self._readable, self.count - self.filtered - self._readable.num_rows

    def row_of(self, partition: int, offset: int) -> int | None:
        """Row of `raw` with that record."""
        if self.raw is None:
            return None
        found = pc.and_(pc.equal(self.raw["partition"], partition), pc.equal(self.raw["offset"], offset))
        rows = pc.indices_nonzero(found)
        return rows[0].as_py() if len(rows) else None

    def _convert(self, value_type: Callable[[str], pa.DataType | None]) -> pa.Table:
        assert self.raw is not None, "converted once"
        setup, topic = self._setup, self.partitions[0].topic
        kind = value_type(topic) if keeps_values(setup.chain) else None
        types = {} if kind is None else {topic: kind}
        table = self._with_headers(decode(self.raw, setup.key_converter, setup.value_converter, types))
        good = table.drop_columns("error")
        kept = None
        if table["error"].null_count < table.num_rows:
            bad = pc.indices_nonzero(pc.is_valid(table["error"])).to_pylist()
            causes = table["error"].take(bad).to_pylist()
            self._judge([(row, *self._stage(cause), cause) for row, cause in zip(bad, causes, strict=True)])
            kept = pc.indices_nonzero(pc.is_null(table["error"])).to_pylist()
            good = good.take(pa.array(kept, pa.int64()))
        return self._transformed(good, kept) if setup.chain else good

    def _with_headers(self, table: pa.Table) -> pa.Table:
        if self._setup.header_converter.as_is:
            return table
        headers, errors = self._setup.header_converter.read(table["headers"].cast(HEADERS))
        both = pc.coalesce(table["error"], errors)
        return table.drop_columns(["headers", "error"]).append_column("headers", headers).append_column("error", both)

    def _transformed(self, rows: pa.Table, numbers: Sequence[int] | None) -> pa.Table:
        """Rows through the chain; `numbers` are those of rows in `raw`, None: the same."""
        made = self._setup.chain.apply(rows)
        self.filtered = made.filtered
        if made.failures:
            self._judge(
                [
                    (
                        failure.row if numbers is None else numbers[failure.row],
                        "TRANSFORMATION",
                        name_of(failure.transform),
                        failure.message,
                    )
                    for failure in made.failures
                ]
            )
        return in_order(made.parts) if made.parts else rows.slice(0, 0)

    def _stage(self, cause: str) -> tuple[str, str]:
        """Kafka Connect's stage of a converter's error, and the class at work."""
        if cause.startswith("Converting the key"):
            return "KEY_CONVERTER", name_of(type(self._setup.key_converter))
        if cause.startswith("Converting the value"):
            return "VALUE_CONVERTER", name_of(type(self._setup.value_converter))
        return "HEADER_CONVERTER", self._setup.header_converter.name

    def _judge(self, bad: Sequence[tuple[int, str, str, str]]) -> None:
        """Report bad records (row, stage, class, cause); fail at the first one, or note why they are skipped."""
        assert self.raw is not None, "there while records are read"
        errors = self._setup.settings.errors
        wanted = bad if errors.tolerate_all else bad[:1]
        places = self.raw.select(["topic", "partition", "offset"]).take([row for row, *_ in wanted]).to_pylist()
        letters = [
            DeadLetter(row, stage, name, RecordConversionError(f"{at['topic']}-{at['partition']}", at["offset"], cause))
            for (row, stage, name, cause), at in zip(wanted, places, strict=True)
        ]
        first = letters[0].error
        self._counted.failed(len(letters))
        if errors.log_enable:
            for letter, at in zip(letters, places, strict=True):
                shown = self._setup.masked(str(letter.error))
                record = f", where consumed record is {at}" if errors.log_include_messages else ""
                log.error("Error encountered in task %s: %s%s", self._setup.task, shown, record)
            self._counted.errors_logged += len(letters)
        if not errors.tolerate_all:
            self._counted.record_errors += 1
        try:
            if self._dead_letters is not None:
                self._dead_letters.report(self.raw, letters)
                self._dead_letters.flush()
        except ConnectxError as refused:
            raise (refused if errors.tolerate_all else first) from refused
        if not errors.tolerate_all:
            raise first
        self.reason = self.reason or str(getattr(first, "message", first))


def _of_partitions(rows: pa.Table, topic: str, partitions: list[int]) -> pa.Table:
    """Rows of these partitions; the same table when it has no others."""
    if rows.num_rows == 0:
        return rows
    wanted = pc.and_(
        pc.equal(rows["topic"], topic), pc.is_in(rows["partition"], pa.array(partitions, rows["partition"].type))
    )
    return rows if pc.all(wanted).as_py() else rows.filter(wanted)
