"""Sessions on a Spark Connect server, as far as they need none."""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator

from connectx.spark.remote import RemoteSpark


def test_the_end_of_a_session_leaves_the_threads_of_others_running() -> None:
    release: Any = ExecutePlanResponseReattachableIterator
    threads = release._get_or_create_release_thread_pool()
    spark = RemoteSpark(lambda session_id: None)
    spark.connect("sc://127.0.0.1:1")
    session = spark.task_session()
    client = cast(Any, session).client
    assert not client.is_closed
    cast(Any, session).__del__()  # as the garbage collector does, on whatever thread it runs
    assert client.is_closed
    assert threads.submit(int).result() == 0
    assert release._get_or_create_release_thread_pool() is threads
