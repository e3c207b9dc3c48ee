"""JdbcSink on four databases in a cluster whose workers freeze and die: every record is one row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import connectx as cx
from connectx.connectors.jdbc.sink import table_of
from connectx.errors import ConnectxError
from tests.support.clusters import MakeCluster, owner_of
from tests.support.profiles import JSON, QUICK
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S, until

PARTITIONS = 4


class Flow:
    """A topic of numbered rows, and a sink for each database."""

    def __init__(self, cluster: cx.Cluster, urls: dict[str, str]) -> None:
        self.cluster, self.urls = cluster, urls
        self.topic = create_topic(cluster.bootstrap_servers, "numbers", PARTITIONS)
        self.count = 0
        self.produce(100)
        for name, url in urls.items():
            given = {"connector.class": "JdbcSink", "connection.url": url, "auto.create": "true", "max.retries": "-1"}
            cluster.create(name, {**given, "topics": self.topic, "tasks.max": "2", **JSON})

    def produce(self, count: int) -> None:
        """Numbered rows, round-robin over the partitions."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers})
        for number in range(self.count, self.count + count):
            row = json.dumps({"id": number, "name": f"row {number}", "half": number + 0.5})
            producer.produce(self.topic, row.encode(), partition=number % PARTITIONS)
        producer.flush(30)
        self.count += count

    def ids(self, name: str) -> list[int]:
        """The column id of a table, as a source reads it."""
        try:
            rows = list(table_of(self.urls[name], self.topic).read())
        except ConnectxError:  # not created yet, or the file is in use
            return []
        return sorted(number for table in rows for number in table["id"].to_pylist())

    def wait_written(self) -> None:
        """Until each table has as many rows as there are records."""
        until(lambda: all(len(self.ids(name)) >= self.count for name in self.urls), f"{self.count} rows in each table")


@pytest.fixture
def flow(make_cluster: MakeCluster, tmp_path: Path, postgres: str, mariadb: str) -> Iterator[Flow]:
    urls = {"postgres": postgres, "mariadb": mariadb}
    urls |= {"sqlite": f"sqlite:{tmp_path / 'shop.db'}", "duckdb": f"duckdb:{tmp_path / 'shop.duckdb'}"}
    with make_cluster(workers=2, config=QUICK) as cluster:
        yield Flow(cluster, urls)


@pytest.mark.rule("618.8.3", "always.8")
def test_every_record_is_one_row_when_a_worker_freezes_wakes_up_as_a_zombie_and_another_is_killed(flow: Flow) -> None:
    cluster = flow.cluster
    flow.wait_written()
    frozen = owner_of(cluster, "postgres-0")
    steps: list[Callable[[], object]] = [frozen.pause, frozen.resume, lambda: cluster.wait_stable(WAIT_S), frozen.kill]
    for step in steps:
        flow.produce(500)
        step()
        flow.produce(500)
        flow.wait_written()
    for name in flow.urls:
        assert flow.ids(name) == list(range(flow.count)), name
    verdict = cluster.check(timeout=WAIT_S)
    assert verdict.answer == "valid", verdict
    assert {checked.found for checked in verdict.checked} == {flow.count}
