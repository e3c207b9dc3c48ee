"""What tests share: one broker, Spark driver, PostgreSQL, Java worker and JupyterLab, each started when asked for."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
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
from tests.support.databases import mariadb_server, postgres_server
from tests.support.options import (
    EMBEDDED,
    LOCAL,
    pytest_addoption,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_terminal_summary,
)
from tests.support.spark_server import spark_server
from tests.support.topics import create_topic

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from pyspark.sql import SparkSession

    from tests.support.java_worker import JavaWorker
    from tests.support.lab import Book, Lab

__all__ = [
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_terminal_summary",
]

# jsonschema compiles 38 grammars at its import, for two seconds of each process, to check formats that no test has.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

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
def numbers() -> Iterator[int]:
    """Numbers that make names unique: 1, 2, ..."""
    return itertools.count(1)


@pytest.fixture
def topic(kafka: EmbeddedKafka, numbers: Iterator[int]) -> Callable[..., str]:
    """`topic(prefix="t", partitions=1, **settings)` makes a topic with a new name and returns the name."""

    def make(prefix: str = "t", partitions: int = 1, **settings: str) -> str:
        return create_topic(kafka.bootstrap_servers, f"{prefix}-{next(numbers)}", partitions, **settings)

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
    with postgres_server() as uri:
        yield uri


@pytest.fixture(scope="session")
def mariadb(no_process_is_left: None) -> Iterator[str]:
    """The URL of a real MariaDB server; it is gone, with its data, after the last test."""
    with mariadb_server() as url:
        yield url


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests that look at pages."""
    from tests.support.lab import chromium

    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One JupyterLab for all tests that open notebooks."""
    from tests.support.lab import Lab

    made = Lab(tmp_path_factory.mktemp("lab"))
    made.wait()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def make_book(browser: Browser, lab: Lab) -> Iterator[Callable[..., Book]]:
    """`make_book(name, cells, copy_of=None)`: a new notebook in a new page, for the tests of a file."""
    from tests.support.lab import SHOTS, Book

    pages: list[Page] = []

    def make(name: str, cells: list[str], copy_of: Path | None = None) -> Book:
        lab.write(name, cells, copy_of)
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        pages.append(page)
        return Book(page, lab, name)

    yield make
    for number, page in enumerate(pages):
        page.screenshot(path=str(SHOTS / f"last-{number}.png"))
        page.close()
