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
        readers: Spark tasks of the first stage; 0 while only Spark knows.
        senders: Spark tasks of the stage after it.
    """

    def __init__(self, spark: TaskSpark, name: str, number: int, readers: int = 0, senders: int = 0) -> None:
        self.readers = readers
        self._senders = senders
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
        if (seen := self._seen) is None:
            return {"job": self._number, "parts": self.readers + self._senders, "parts_done": None}
        parts = (self.readers or seen.first) + self._senders
        return {"job": self._number, "parts": max(parts, seen.done), "parts_done": seen.done}
