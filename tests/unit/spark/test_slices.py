"""Failures of Spark in connectx's words, and the progress that Spark Connect reports."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql.connect.shell.progress import Progress, StageInfo

from connectx.spark.slices import SparkTasks, TaskSpark, bulk_job_error

OF_PYTHON = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "job.py", line 1, in encode
    raise Refused("no")
job.Refused: The value 3
does not fit.

\tat org.apache.spark.Task.run(Task.java:1)
Caused by: java.io.IOException: closed
"""
OF_THE_JVM = """org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Task.run(Task.java:1)
Caused by: java.io.FileNotFoundException: /in.csv
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (OF_PYTHON, "job.Refused: The value 3"),
        (OF_THE_JVM, "Caused by: java.io.FileNotFoundException: /in.csv"),
        (
            "Could not serialize object: TypeError: cannot pickle a lock",
            "Could not serialize object: TypeError: cannot",
        ),
    ],
)
def test_a_failed_job_names_its_cause(text: str, cause: str) -> None:
    assert f"A bulk job on Spark's executors failed: {cause}" in bulk_job_error(RuntimeError(text)).message


class ConnectSession:
    """Handlers of progress as Spark Connect's session keeps them."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self) -> None:
        self.handlers: list[Any] = []
        self.registerProgressHandler = self.handlers.append
        self.removeProgressHandler = self.handlers.remove


def test_what_spark_connect_reports_while_a_job_runs_is_its_progress() -> None:
    spark, session = TaskSpark(cast(Any, None), {}), ConnectSession()
    spark._session = cast(Any, session)
    with spark.job("first"), Progress(handlers=session.handlers) as reported:
        reported.update_ticks([], 0)
        assert spark.tasks_of("first") is None
        stages = [StageInfo(2, 4, 1, 0, False), StageInfo(0, 8, 8, 0, True), StageInfo(1, 8, 0, 0, False)]
        reported.update_ticks(stages, 3)
        assert (spark.tasks_of("first"), spark.tasks_of("other")) == (SparkTasks(8, 9), None)
    assert (spark.tasks_of("first"), session.handlers) == (None, [])
