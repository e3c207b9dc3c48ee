"""Sources that read by Spark or a PySpark data source, in a cluster whose workers are killed."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

import connectx as cx
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.worker_config import EMBEDDED_PROFILE
from connectx.spark.sessions import SparkProvider
from connectx.verify.check.verdict import Verdict
from tests.support.clusters import owner_of
from tests.support.profiles import JSON, QUICK
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S

ROWS: Final = 2_000
SMALL: Final = {"bulk.mode": "never", **JSON}


class Numbers(DataSource):
    """The numbers below `last`, a hundred at a time."""

    def schema(self) -> str:
        return "id INT, text STRING"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return NumbersReader(int(self.options["last"]))


class NumbersReader(SimpleDataSourceStreamReader):
    def __init__(self, last: int) -> None:
        self._last = last

    def initialOffset(self) -> dict[str, int]:
        return {"id": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        end = {"id": min(start["id"] + 100, self._last)}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[Any, ...]]:
        return ((number, f"row {number}") for number in range(start["id"], end["id"]))


@pytest.fixture
def cluster(kafka: EmbeddedKafka, spark_provider: SparkProvider, numbers: Iterator[int]) -> Iterator[cx.Cluster]:
    """Two workers on the broker and the Spark of all tests."""
    config = {**EMBEDDED_PROFILE, **QUICK, "group.id": f"spark-sources{next(numbers)}"}
    with cx.Cluster(2, config=config, bootstrap_servers=kafka.bootstrap_servers, faults=False) as made:
        yield made


def append(path: Path, first: int, end: int) -> None:
    with path.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows((number, f"row {number}") for number in range(first, end))


def log(path: Path, first: int, end: int) -> None:
    """Append lines to a log."""
    with path.open("a") as file:
        file.writelines(f'{{"id": {number}}}\n' for number in range(first, end))


def kill_owner(cluster: cx.Cluster, task: str) -> None:
    """Kill the worker of a task, and start another one."""
    owner_of(cluster, task).kill()
    cluster.add_worker(WAIT_S)


def found_in(verdict: Verdict) -> dict[str, int]:
    return {checked.place: checked.found for checked in verdict.checked}


def test_killed_workers_lose_and_double_no_row_of_a_file_of_a_rotated_log_and_of_a_data_source(
    cluster: cx.Cluster, tmp_path: Path
) -> None:
    path, group = tmp_path / "rows.csv", cluster.config.group_id
    names = ("log", "file", "numbers")
    logs, files, numbers = (create_topic(cluster.bootstrap_servers, f"{group}-{name}") for name in names)
    app = tmp_path / "app.log"
    log(app, 0, ROWS // 4)
    followed = {"connector.class": "FileStreamSource", "file": str(app), "topic": logs, "batch.size": "50"}
    cluster.create("log", {**followed, "rotated.files": "app.log.*", "rotated.wait.ms": "100"})
    append(path, 0, ROWS // 2)
    file = {"connector.class": "FileSource", "file": str(path), "schema": "id INT, text STRING", "slice.bytes": "2000"}
    cluster.create("file", {**file, "topic": files, **SMALL})
    source = f"{Numbers.__module__}.{Numbers.__qualname__}"
    given = {"connector.class": "DataSourceSource", "datasource.class": source, "datasource.options.last": str(ROWS)}
    cluster.create("numbers", {**given, "topic": numbers, **SMALL})
    for number, name in enumerate(names, start=1):
        cluster.wait_committed(name, 100, timeout=WAIT_S)
        app.rename(f"{app}.{number}")
        log(app, ROWS * number // 4, ROWS * (number + 1) // 4)
        kill_owner(cluster, f"{name}-0")
        owner_of(cluster, f"{name}-0")  # the next kill must not take the leader that fences for this task
    append(path, ROWS // 2, ROWS)
    for topic in (logs, files, numbers):
        read = cx.read_topic(topic, cluster.bootstrap_servers, at_least=ROWS, timeout=WAIT_S)
        assert [json.loads(value)["id"] for value in read["value"]] == list(range(ROWS)), topic
    verdict = cluster.check(timeout=WAIT_S)
    assert verdict.answer == "valid", verdict
    assert found_in(verdict) == {f"topic {topic}": ROWS for topic in (logs, files, numbers)}
