"""The context that a sink plugin gets from its runner (SinkTaskContext)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from connectx.model.class_names import path_of
from connectx.model.ids import TaskId, TopicPartition
from connectx.runtime.tasks.record_errors import RecordErrors, log_text
from connectx.runtime.tasks.sink.dead_letters import DeadLetter, DeadLetterQueue
from connectx.runtime.tasks.sink.records import TopicRecords
from connectx.runtime.tasks.sink.setup import SinkSetup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class SinkContext:
    """SinkTaskContext of one task. `skipped` and `reason` describe records reported within the current put.

    `records` are those of the current put, `counted` are the errors of the task, `spark` gives its session.
    """

    def __init__(
        self,
        setup: SinkSetup,
        group_id: str,
        dead_letters: DeadLetterQueue | None,
        counted: RecordErrors,
        spark: Callable[[], SparkSession],
    ) -> None:
        self.spark = spark
        self._setup = setup
        self._dead_letters = dead_letters
        self._counted = counted
        self.records: TopicRecords | None = None
        self._group_id = group_id
        self._assignment: list[TopicPartition] = []
        self.skipped = 0
        self.reason = ""
        self.retry_in_ms: int | None = None

    @property
    def task(self) -> TaskId:
        return self._setup.task

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def assignment(self) -> Sequence[TopicPartition]:
        return tuple(self._assignment)

    def timeout(self, timeout_ms: int) -> None:
        """Put the batch again after this time."""
        self.retry_in_ms = timeout_ms

    def report(self, partition: TopicPartition, offset: int, error: Exception) -> None:
        """Count a record that the target refuses, or raise `error`."""
        errors = self._setup.settings.errors
        self._counted.failed()
        if errors.log_enable:
            place = {"topic": partition.topic, "partition": partition.partition, "offset": offset}
            shown = log_text(error, place if errors.log_include_messages else None)
            log.error("Error encountered in task %s: offset %d of %s: %s", self.task, offset, partition, shown)
            self._counted.errors_logged += 1
        if not errors.tolerate_all:
            self._counted.record_errors += 1
        self._bury(partition, offset, error)
        if not errors.tolerate_all:
            raise error
        self.skipped += 1
        self.reason = str(error)

    def _bury(self, partition: TopicPartition, offset: int, error: Exception) -> None:
        """An exactly-once target commits within its put, so the report has to be safe before."""
        row = None if self.records is None else self.records.row_of(partition.partition, offset)
        if self._dead_letters is None or self.records is None or self.records.raw is None or row is None:
            return
        cls = type(self._setup.plugin)
        letter = DeadLetter(row, "TASK_PUT", path_of(cls), error)
        self._dead_letters.report(self.records.raw, [letter])
        if self._setup.plugin.exactly_once:
            self._dead_letters.flush()

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        self._assignment = sorted({*self._assignment, *partitions})

    def remove(self, partitions: Sequence[TopicPartition]) -> None:
        self._assignment = [partition for partition in self._assignment if partition not in partitions]
