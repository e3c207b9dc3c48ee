"""Records that a sink task has fetched and not put yet: converted once, however often they are put.

It decides nothing but which records cannot be read. Mirrors the message batch of Kafka Connect's WorkerSinkTask.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set

import pyarrow as pa
import pyarrow.compute as pc

from connectx.data.chunks import rows_where
from connectx.errors.base import ConnectxError
from connectx.errors.plugins import RecordConversionError
from connectx.model.ids import TopicPartition
from connectx.plugins.tasks import SinkTask
from connectx.runtime.tasks.record_errors import RecordErrors, log_text
from connectx.runtime.tasks.sink.conversion import BadRecord
from connectx.runtime.tasks.sink.dead_letters import DeadLetter, DeadLetterQueue
from connectx.runtime.tasks.sink.setup import SinkSetup

log = logging.getLogger(__name__)

_PLACE = ["topic", "partition", "offset"]

Ranges = Mapping[TopicPartition, tuple[int, int]]


class FetchedRecords:
    """What was fetched and may still have to be put.

    A fetch that comes while another is being put (its put is tried again) is kept beside it: the loop decides which
    of the two counts.
    """

    def __init__(self, setup: SinkSetup, dead_letters: DeadLetterQueue | None, counted: RecordErrors) -> None:
        self._setup = setup
        self._dead_letters = dead_letters
        self._counted = counted
        self._number = 0
        self._put_number = 0
        self._fetches: dict[int, tuple[pa.Table, Set[TopicPartition]]] = {}
        self._by_topic: dict[str, TopicRecords] = {}

    def fetched(self, rows: pa.Table, partitions: Set[TopicPartition]) -> int:
        """The consumer brought these rows, all of these partitions; returns the number of the fetch."""
        self._number += 1
        kept = {number: fetch for number, fetch in self._fetches.items() if number == self._put_number}
        self._fetches = {**kept, self._number: (rows, partitions)}
        return self._number

    def of(self, number: int, ranges: Ranges) -> TopicRecords:
        """Records of one topic's partitions, out of the fetch of that number."""
        if number != self._put_number:
            self._put_number = number
            self._fetches = {number: self._fetches[number]}
            self._by_topic = {}
        topic = next(iter(ranges)).topic
        known = self._by_topic.get(topic)
        if known is None or known.partitions != tuple(sorted(ranges)):
            rows, partitions = self._fetches[number]
            if partitions != ranges.keys():
                rows = _of_partitions(rows, topic, sorted(partition.partition for partition in ranges))
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

    def readable(self, plugin: SinkTask) -> tuple[pa.Table, int]:
        """Converted and transformed rows, and how many were left out because they cannot be read or transformed.

        Those are safe in the dead letter queue, if there is one.

        Raises:
            RecordConversionError: a record cannot be read or transformed, with errors.tolerance=none.
            ConversionError, TransformError: one type cannot hold all values.
        """
        if self._readable is None:
            self._readable = self._convert(plugin)
            if self._dead_letters is None:
                self.raw = None
        return self._readable, self.count - self.filtered - self._readable.num_rows

    def row_of(self, partition: int, offset: int) -> int | None:
        """Row of `raw` with that record."""
        if self.raw is None:
            return None
        found = pc.and_(pc.equal(self.raw["partition"], partition), pc.equal(self.raw["offset"], offset))
        rows = rows_where(found)
        return rows[0].as_py() if len(rows) else None

    def _convert(self, plugin: SinkTask) -> pa.Table:
        assert self.raw is not None, "converted once"
        topic, conversion = self.partitions[0].topic, self._setup.conversion
        rows, self.filtered = conversion.read(self.raw, topic, conversion.wanted(plugin, topic), self._judge)
        return rows

    def _judge(self, bad: Sequence[BadRecord]) -> None:
        """Report bad records; fail at the first one, or note why they are skipped."""
        assert self.raw is not None, "there while records are read"
        wanted = bad if self._setup.settings.errors.tolerate_all else bad[:1]
        places = self.raw.select(_PLACE).take([row for row, *_ in wanted]).to_pylist()
        letters = [
            DeadLetter(row, stage, name, RecordConversionError(f"{at['topic']}-{at['partition']}", at["offset"], cause))
            for (row, stage, name, cause), at in zip(wanted, places, strict=True)
        ]
        report_bad(self._setup, self._dead_letters, self._counted, self.raw, letters)
        self.reason = self.reason or str(getattr(letters[0].error, "message", letters[0].error))


def report_bad(
    setup: SinkSetup,
    dead_letters: DeadLetterQueue | None,
    counted: RecordErrors,
    raw: pa.Table | None,
    letters: Sequence[DeadLetter],
) -> None:
    """Count and log bad records and send them to the dead letter queue, where they are safe when this returns.

    Args:
        raw: records as they were fetched, in which the letters name rows; None: there is no queue.

    Raises:
        The error of the first one, with errors.tolerance=none.
        ConnectxError: the queue does not take them.
    """
    errors = setup.settings.errors
    first = letters[0].error
    counted.failed(len(letters))
    if errors.log_enable:
        for letter in letters:
            place = raw.select(_PLACE).slice(letter.row, 1).to_pylist()[0] if raw is not None else None
            shown = log_text(letter.error, place if errors.log_include_messages else None)
            log.error("Error encountered in task %s: %s", setup.task, shown)
        counted.errors_logged += len(letters)
    if not errors.tolerate_all:
        counted.record_errors += 1
    try:
        if dead_letters is not None and raw is not None:
            dead_letters.report(raw, letters)
            dead_letters.flush()
    except ConnectxError as refused:
        raise (refused if errors.tolerate_all else first) from refused
    if not errors.tolerate_all:
        raise first


def _of_partitions(rows: pa.Table, topic: str, partitions: list[int]) -> pa.Table:
    wanted = pc.and_(
        pc.equal(rows["topic"], topic), pc.is_in(rows["partition"], pa.array(partitions, rows["partition"].type))
    )
    return rows.filter(wanted)
