"""Failures of Spark in connectx's words."""

from __future__ import annotations

import pytest

from connectx.spark.slices import bulk_job_error

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
