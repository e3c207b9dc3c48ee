"""Sinks of tables in files in a cluster whose workers freeze and die: every record is one row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from adbc_driver_postgresql import dbapi
from confluent_kafka import Producer
from deltalake import DeltaTable

import connectx as cx
from connectx.connectors.shared.storage import options
from connectx.errors.clusters import CompactionError
from tests.support.clusters import MakeCluster, owner_of
from tests.support.lake import delta_files, iceberg_files
from tests.support.profiles import JSON, QUICK
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S, until

PARTITIONS = 4
SINKS: Mapping[str, Mapping[str, str]] = {
    "parquet": {"connector.class": "ParquetSink", "path": "{folder}"},
    "partitioned": {"connector.class": "ParquetSink", "path": "{folder}", "partition.by": "kind"},
    "delta": {"connector.class": "DeltaSink", "path": "{folder}"},
    "iceberg": {
        "connector.class": "IcebergSink",
        "iceberg.catalog.type": "sql",
        "iceberg.catalog.uri": "sqlite:///{folder}/catalog.db",
        "iceberg.catalog.warehouse": "file://{folder}",
    },
}


def files_of(name: str, folder: Path, topic: str) -> Sequence[str]:
    """The data files of a topic's table."""
    if name == "parquet":
        return [str(path) for path in (folder / topic).glob("*.parquet")]
    if name == "partitioned":
        return [str(path) for path in (folder / topic).glob("kind=*/*.parquet")]
    if name == "delta":
        return delta_files(folder / topic)
    settings = {key: text.format(folder=folder) for key, text in SINKS[name].items()}
    return iceberg_files(options(settings, "iceberg.catalog."), f"default.{topic}")


def rows_of(name: str, folder: Path, topic: str, columns: str) -> list[tuple[Any, ...]]:
    """Rows of a table, as DuckDB reads its files."""
    files = files_of(name, folder, topic)
    if not files:
        return []
    return duckdb.execute(f"SELECT {columns} FROM read_parquet({files}) ORDER BY ALL").fetchall()


def sql(uri: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement in PostgreSQL."""
    with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if statement.startswith("SELECT") else []


class Flow:
    """A topic of numbered rows, and a sink of each format."""

    def __init__(self, cluster: cx.Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.topic = create_topic(cluster.bootstrap_servers, "numbers", PARTITIONS)
        self.count = 0
        for name, settings in SINKS.items():
            (folder / name).mkdir()
            given = {key: text.format(folder=folder / name) for key, text in settings.items()}
            files_of(name, folder / name, self.topic)  # sets a new catalog up before several clients do
            more = {"topics": self.topic, "tasks.max": "2", "flush.interval.ms": "300", **JSON}
            cluster.create(name, {**given, **more})

    def produce(self, count: int) -> None:
        """Numbered rows, round-robin over the partitions."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers})
        for number in range(self.count, self.count + count):
            row = json.dumps({"id": number, "name": f"row {number}", "half": number / 2, "kind": f"k{number % 3}"})
            producer.produce(self.topic, row.encode(), partition=number % PARTITIONS)
        producer.flush(30)
        self.count += count

    def ids(self, name: str) -> list[int]:
        """The column id of a table, as DuckDB reads it."""
        return [row[0] for row in rows_of(name, self.folder / name, self.topic, "id")]

    def wait_written(self) -> None:
        """Until each table has as many rows as there are records."""
        until(lambda: all(len(self.ids(name)) >= self.count for name in SINKS), f"{self.count} rows in each table")


@pytest.fixture
def flow(make_cluster: MakeCluster, tmp_path: Path) -> Iterator[Flow]:
    with make_cluster(workers=2, config=QUICK) as cluster:
        yield Flow(cluster, tmp_path)


@pytest.mark.rule("618.8.3", "always.8")
def test_every_record_is_one_row_when_a_worker_freezes_wakes_up_as_a_zombie_and_another_is_killed(flow: Flow) -> None:
    cluster = flow.cluster
    flow.produce(1_000)
    flow.wait_written()
    frozen = owner_of(cluster, f"{next(iter(SINKS))}-0")
    flow.produce(1_000)
    frozen.pause()
    flow.produce(1_000)
    flow.wait_written()  # by the other worker
    frozen.resume()
    flow.produce(1_000)
    flow.wait_written()
    cluster.wait_stable(WAIT_S)
    frozen.kill()
    flow.produce(1_000)
    flow.wait_written()
    for name in SINKS:
        assert flow.ids(name) == list(range(flow.count)), name
    verdict = cluster.check(timeout=WAIT_S)
    assert verdict.answer == "valid", verdict
    assert {checked.found for checked in verdict.checked} == {flow.count}
    for name in ("delta", "iceberg"):
        (done,) = cluster.compact(name)
        assert done.files_after < done.files_before
    with pytest.raises(CompactionError, match=r"parquet .* has no files that can be merged"):
        cluster.compact("parquet")
    flow.produce(1_000)
    flow.wait_written()
    for name in SINKS:
        assert flow.ids(name) == list(range(flow.count)), name


@pytest.mark.rule("618.8.3", "always.8")
def test_each_key_has_its_last_row_or_none_when_a_worker_freezes_and_wakes_up_as_a_zombie(
    make_cluster: MakeCluster, tmp_path: Path, postgres: str
) -> None:
    sinks = ("delta", "iceberg")
    upsert = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id", "delete.enabled": "true"}
    keys = {"key.converter": "org.apache.kafka.connect.converters.LongConverter"}
    left: dict[int, int] = {}
    with make_cluster(workers=2, config=QUICK) as cluster:
        topic = create_topic(cluster.bootstrap_servers, "accounts", PARTITIONS)
        for name in sinks:
            (tmp_path / name).mkdir()
            given = {key: text.format(folder=tmp_path / name) for key, text in SINKS[name].items()}
            files_of(name, tmp_path / name, topic)
            more = {"topics": topic, "tasks.max": "2", "flush.interval.ms": "300", **JSON, **keys, **upsert}
            cluster.create(name, {**given, **more})
        database = {"connector.class": "PostgresSink", "connection.url": postgres, "auto.create": "true"}
        named = {"topics": topic, "table.name.format": "kept_accounts", **JSON, **keys, **upsert}
        cluster.create("postgres", {**database, **named})

        def change(first: int, end: int) -> None:
            """Each third change of 50 accounts closes one."""
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
            for number in range(first, end):
                account = number * 7 % 50
                value = None if number % 3 == 0 else json.dumps({"balance": number}).encode()
                left.update({account: number})
                if value is None:
                    del left[account]
                producer.produce(topic, value, account.to_bytes(8, "big"), partition=account % PARTITIONS)
            producer.flush(30)

        def is_written() -> bool:
            wanted = sorted(left.items())
            return all(rows_of(name, tmp_path / name, topic, "id, balance") == wanted for name in sinks)

        change(0, 500)
        until(is_written, "the first changes")
        frozen = owner_of(cluster, f"{sinks[0]}-0")
        change(500, 1_000)
        frozen.pause()
        change(1_000, 1_500)
        until(is_written, "changes by the other worker")
        frozen.resume()
        change(1_500, 2_000)
        until(is_written, "changes after the zombie woke up")
        cluster.wait_stable(WAIT_S)
        until(lambda: sql(postgres, "SELECT to_regclass('kept_accounts')") != [(None,)], "the table in PostgreSQL")
        kept = "SELECT id, balance FROM kept_accounts ORDER BY 1"
        until(lambda: sql(postgres, kept) == sorted(left.items()), "the same rows in PostgreSQL")
        verdict = cluster.check(timeout=WAIT_S)
        assert verdict.answer == "valid", verdict
        assert {checked.found for checked in verdict.checked} == {len(left)}

        lost = min(left)
        sql(postgres, f"DELETE FROM kept_accounts WHERE id = {lost}")
        DeltaTable(str(tmp_path / "delta" / topic)).delete(f"id = {lost}")
        verdict = cluster.check(timeout=WAIT_S)
        assert (verdict.answer, verdict.lost) == ("invalid", 2), verdict
        assert {finding.connectors for finding in verdict.findings if finding.count and finding.anomaly == "lost"} == {
            ("delta",),
            ("postgres",),
        }
        sql(postgres, "DROP TABLE kept_accounts")
