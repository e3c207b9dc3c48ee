"""A task that waits for Spark's start can be ended before Spark is up."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from connectx.errors import SparkStartError
from connectx.spark.remote import RemoteSpark
from connectx.spark.sessions import SparkProvider
from connectx.spark.slices import SparkSessions, TaskSpark


class _NeverUp(SparkProvider):
    """A provider whose driver does not come."""

    def start(self) -> None:
        """Begin nothing."""


@pytest.mark.parametrize("sessions", [RemoteSpark(lambda session_id: None), _NeverUp()])
def test_a_cancelled_task_waits_for_spark_no_longer(sessions: SparkSessions) -> None:
    waits, works = TaskSpark(sessions, {}), threading.Event()

    def poll() -> None:
        works.set()
        waits.session()

    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(poll)
        works.wait()
        waits.interrupt()
        waits.interrupt()
        with pytest.raises(SparkStartError, match="the task was cancelled"):
            polled.result(30)
    assert not waits.used
