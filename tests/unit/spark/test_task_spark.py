"""A task that waits for Spark's start can be ended before Spark is up."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from connectx.errors.spark import SparkNotAwaitedError, SparkStartError
from connectx.spark.remote import RemoteSpark
from connectx.spark.sessions import SparkProvider
from connectx.spark.slices import SparkSessions, TaskSpark


class _NeverUp(SparkProvider):
    """A provider whose driver does not come."""

    def start(self) -> None:
        """Begin nothing."""


@pytest.mark.parametrize("sessions", [RemoteSpark(lambda session_id: None), _NeverUp()])
def test_a_task_that_is_to_stop_waits_for_spark_no_longer(sessions: SparkSessions) -> None:
    stopping: Future[None] = Future()
    spark, works = TaskSpark(sessions, {}, stopping), threading.Event()

    def poll() -> None:
        works.set()
        spark.session()

    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(poll)
        works.wait()
        stopping.set_result(None)
        with pytest.raises(SparkNotAwaitedError):
            polled.result(30)
    assert spark.abandoned
    assert not spark.used


def test_a_worker_process_reports_why_the_clusters_spark_did_not_start() -> None:
    sessions = RemoteSpark(lambda session_id: None)
    sessions.fail("The local Spark driver ended with exit code 1.")
    with pytest.raises(SparkStartError) as failed:
        sessions.task_session()
    reason = "The Spark of this worker's cluster did not start: The local Spark driver ended with exit code 1."
    assert failed.value.message == reason
    assert "spark=" not in failed.value.next_step
