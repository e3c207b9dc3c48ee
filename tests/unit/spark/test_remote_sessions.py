"""Sessions on a Spark Connect server, as far as they need none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator

from connectx.spark.remote import RemoteSpark


def release_threads() -> ThreadPoolExecutor:
    """The threads in which all sessions release results. Spark 4.2 and later make them with the first result."""
    iterators: Any = ExecutePlanResponseReattachableIterator
    if hasattr(iterators, "_get_or_create_release_thread_pool"):
        made: ThreadPoolExecutor = iterators._get_or_create_release_thread_pool()
        return made
    if iterators._release_thread_pool_instance is None:
        iterators._release_thread_pool_instance = ThreadPoolExecutor(1)
    kept: ThreadPoolExecutor = iterators._release_thread_pool_instance
    return kept


def test_the_end_of_a_session_leaves_the_threads_of_others_running() -> None:
    threads = release_threads()
    spark = RemoteSpark(lambda session_id: None)
    spark.connect("sc://127.0.0.1:1")
    session = spark.task_session()
    client = cast(Any, session).client
    assert not client.is_closed
    cast(Any, session).__del__()  # as the garbage collector does, on whatever thread it runs
    assert client.is_closed
    assert threads.submit(int).result() == 0
    assert release_threads() is threads
