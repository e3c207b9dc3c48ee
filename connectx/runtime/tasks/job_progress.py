"""Progress of one job on Spark's executors, for the live numbers of its task."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from connectx.spark.slices import SparkTasks, TaskSpark

log = logging.getLogger(__name__)

_EVERY_S: Final = 2.0  # a question takes some 15 calls of Spark's driver


class JobProgress:
    """Asks Spark at most every two seconds; any thread may read.

    Args:
        spark: the task's session.
        name: of the job in `TaskSpark.job`.
        number: of the job in the task's loop.
        planned: Spark tasks that the job has at least.
    """

    def __init__(self, spark: TaskSpark, name: str, number: int, planned: int = 0) -> None:
        self.planned = planned
        self._spark = spark
        self._name = name
        self._number = number
        self._seen: SparkTasks | None = None
        self._due_s = 0.0

    def read(self) -> Mapping[str, object]:
        """`job` (its number), `parts` (Spark tasks) and `parts_done`, None before Spark has reported any."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + _EVERY_S  # before the question, so that one reader asks and the others do not wait
            try:
                self._seen = self._spark.tasks_of(self._name) or self._seen
            except Exception as error:  # Spark is ending: the result of the job reports it
                log.debug("Spark does not report the progress of %s: %s", self._name, error)
        seen = self._seen
        parts = self.planned if seen is None else max(self.planned, seen.known)
        return {"job": self._number, "parts": parts, "parts_done": None if seen is None else seen.done}
