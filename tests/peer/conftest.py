"""Groups of Java and Python workers on the broker of all tests, and a source file that goes on growing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from connectx.kafka.broker.embedded import EmbeddedKafka
from tests.support.flows import GrowingFile
from tests.support.java_worker import peer_config
from tests.support.mixed_groups import Group
from tests.support.records import Reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def group(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, numbers: Iterator[int]
) -> Iterator[Callable[..., Group]]:
    """`group(**settings)` makes a group of its own; everything in it ends with the test."""
    made: list[Group] = []

    def make(**settings: str) -> Group:
        config = peer_config(kafka.bootstrap_servers, f"peer-{next(numbers)}", **settings)
        made.append(Group(config, tmp_path, spark))
        return made[-1]

    yield make
    with contextlib.ExitStack() as endings:
        for one in made:
            for worker in one.java:
                endings.callback(worker.kill)
            for cluster in one.python:
                endings.callback(cluster.close)
            endings.callback(one.endings.close)


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[GrowingFile]:
    file = GrowingFile(tmp_path / "growing.txt")
    yield file
    file.close()


@pytest.fixture
def read_committed(kafka: EmbeddedKafka) -> Iterator[Callable[[str], Callable[[], list[str]]]]:
    """`read_committed(topic)` gives a function that returns what was committed to partition 0 so far."""
    with contextlib.ExitStack() as endings:

        def open_reader(topic: str) -> Callable[[], list[str]]:
            reader = Reader(kafka.bootstrap_servers, topic)
            endings.callback(reader.close)
            return reader.poll  # while lines are written there is always one more

        yield open_reader
