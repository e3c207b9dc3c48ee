"""Sinks that write by Spark, a function or a PySpark data source, in a cluster whose workers are killed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

import connectx as cx
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.worker_config import EMBEDDED_PROFILE
from connectx.spark.sessions import SparkProvider
from tests.support.clusters import owner_of
from tests.support.profiles import JSON, QUICK
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S, until

ROWS: Final = 2_000
SMALL: Final = {"bulk.mode": "never", "flush.interval.ms": "200", **JSON}
KEPT: Final[dict[str, dict[int, dict[str, Any]]]] = {}
"""By sink, the rows of its target by their id: a repeated row changes nothing."""


def keep(frame: Any, ranges: Any, token: str) -> None:
    """A function for FunctionSink."""
    KEPT["function"] |= {row["id"]: row.asDict() for row in frame.collect()}


class Written(WriterCommitMessage):
    """Rows that a writer has staged."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows


class Kept(DataSource):
    """A target that keeps one row for each id."""

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return KeptWriter()


class KeptWriter(DataSourceWriter):
    def write(self, iterator: Iterator[Any]) -> Written:
        return Written([row.asDict() for row in iterator])

    def commit(self, messages: list[Any]) -> None:
        KEPT["datasource"] |= {row["id"]: row for message in messages for row in message.rows}


@pytest.fixture
def cluster(kafka: EmbeddedKafka, spark_provider: SparkProvider, numbers: Iterator[int]) -> Iterator[cx.Cluster]:
    """Two workers on the broker and the Spark of all tests."""
    config = {**EMBEDDED_PROFILE, **QUICK, "group.id": f"spark-sinks{next(numbers)}"}
    with cx.Cluster(2, config=config, bootstrap_servers=kafka.bootstrap_servers, faults=False) as made:
        yield made


def kill_owner(cluster: cx.Cluster, task: str) -> None:
    """Kill the worker of a task, and start another one."""
    owner_of(cluster, task).kill()
    cluster.add_worker(WAIT_S)


def has_all(sink: str) -> bool:
    return len(KEPT[sink]) == ROWS


def rows_of(sink: str) -> pa.Table:
    return pa.Table.from_pylist(list(KEPT[sink].values()))


def written(folder: Path) -> list[int]:
    """The numbers in the files that Spark has finished."""
    return [number for file in folder.glob("*.parquet") for number in pq.read_table(file)["id"].to_pylist()]


def test_killed_workers_lose_no_row_of_sinks_that_write_by_spark_a_function_or_a_data_source(
    cluster: cx.Cluster, tmp_path: Path
) -> None:
    KEPT.update({"function": {}, "datasource": {}})
    topic = create_topic(cluster.bootstrap_servers, f"{cluster.config.group_id}-rows", 2)
    cluster.create(
        "rows",
        {"connector.class": "Generator", "topic": topic, "fields": "id:long,name:string", "rate": "500", **SMALL}
        | {"max.rows": str(ROWS)},
    )
    sinks = {
        "spark": {"connector.class": "SparkSink", "format": "parquet", "format.options.path": str(tmp_path / "rows")},
        "function": {"connector.class": "FunctionSink", "function": f"{keep.__module__}.{keep.__qualname__}"},
        "datasource": {
            "connector.class": "DataSourceSink",
            "datasource.class": f"{Kept.__module__}.{Kept.__qualname__}",
        },
    }
    for name, config in sinks.items():
        cluster.create(name, {**config, "topics": topic, **SMALL})
    for name in sinks:
        cluster.wait_committed(name, 100, timeout=WAIT_S)
        kill_owner(cluster, f"{name}-0")
    for name in KEPT:
        until(partial(has_all, name), f"all rows of {name}", WAIT_S)
    until(lambda: set(written(tmp_path / "rows")) == set(range(ROWS)), "all rows of spark", WAIT_S)
    targets = {name: partial(rows_of, name) for name in KEPT}
    verdict = cluster.check(target=targets, key="id", timeout=WAIT_S)
    assert verdict.lost == 0, verdict
    rows = written(tmp_path / "rows")
    assert verdict.duplicated == len(rows) - ROWS, "only SparkSink writes rows again"
    assert (verdict.answer == "valid") == (len(rows) == ROWS), verdict
