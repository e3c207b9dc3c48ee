"""JdbcSink on four databases in a cluster whose workers freeze and die: every record is one row, or changes one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from adbc_driver_postgresql import dbapi
from confluent_kafka import Producer

import connectx as cx
from connectx.connectors.jdbc.sink import table_of
from connectx.errors.base import ConnectxError
from tests.support.clusters import MakeCluster, owner_of
from tests.support.profiles import JSON, QUICK
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S, until

PARTITIONS = 4
ACCOUNTS = 50
SLOTS = 100  # a multiple of PARTITIONS: records of a slot are in one partition
UPDATES = {
    **{"table.name.format": "slots", "insert.mode": "update", "pk.mode": "record_value", "pk.fields": "slot"},
    **{"fields.whitelist": "slot,id"},
}
KEYED = {
    **{"insert.mode": "upsert", "delete.enabled": "true", "pk.mode": "record_key", "pk.fields": "id"},
    **{"key.converter": "org.apache.kafka.connect.converters.LongConverter"},
}


class Flow:
    """A topic of numbered rows, one of changes of accounts, and for each database a sink of both.

    In PostgreSQL there is also a table with a row for each slot, which keeps the last number.
    """

    def __init__(self, cluster: cx.Cluster, urls: dict[str, str]) -> None:
        self.cluster, self.urls = cluster, urls
        self.numbers = create_topic(cluster.bootstrap_servers, "numbers", PARTITIONS)
        self.accounts = create_topic(cluster.bootstrap_servers, "accounts", PARTITIONS)
        self.count = 0
        self.left: dict[int, int] = {}
        self.produce(100)
        for name, url in urls.items():
            retried = {"max.retries": "-1", "retry.backoff.ms": "200"}
            given = {"connector.class": "JdbcSink", "connection.url": url, "auto.create": "true", **retried}
            cluster.create(name, {**given, "topics": self.numbers, "tasks.max": "2", **JSON})
            cluster.create(f"{name}-keyed", {**given, "topics": self.accounts, **JSON, **KEYED})
            if name == "postgres":
                cluster.create("slots", {**given, "topics": self.numbers, "tasks.max": "2", **JSON, **UPDATES})

    def produce(self, count: int) -> None:
        """Numbered rows, round-robin over the partitions, and as many changes: each third closes an account."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers})
        for number in range(self.count, self.count + count):
            row = json.dumps({"id": number, "name": f"row {number}", "half": number + 0.5, "slot": number % SLOTS})
            producer.produce(self.numbers, row.encode(), partition=number % PARTITIONS)
            account = number * 7 % ACCOUNTS
            self.left[account] = number
            change = None if number % 3 == 0 else json.dumps({"balance": number}).encode()
            if change is None:
                del self.left[account]
            producer.produce(self.accounts, change, account.to_bytes(8, "big"), partition=account % PARTITIONS)
        producer.flush(30)
        self.count += count

    def rows(self, name: str, topic: str, *columns: str) -> list[tuple[Any, ...]]:
        """Columns of a table, as a source reads it."""
        try:
            found = [table.select(columns).to_pylist() for table in table_of(self.urls[name], topic).read()]
        except ConnectxError:  # not created yet, or the file is in use
            return []
        return sorted(tuple(row.values()) for rows in found for row in rows)

    def ids(self, name: str) -> list[int]:
        """The column id of the numbered rows."""
        return [number for (number,) in self.rows(name, self.numbers, "id")]

    def wait_written(self) -> None:
        """Until each database has all numbered rows, and each account and slot is as it was left."""
        until(lambda: all(len(self.ids(name)) >= self.count for name in self.urls), f"{self.count} rows in each table")
        wanted = dict.fromkeys(self.urls, sorted(self.left.items()))
        until(lambda: {name: self.rows(name, self.accounts, "id", "balance") for name in wanted} == wanted, "accounts")
        numbers = sorted((number % SLOTS, number) for number in range(self.count - SLOTS, self.count))
        until(lambda: self.rows("postgres", "slots", "slot", "id") == numbers, "the last number in each slot")


@pytest.fixture
def flow(make_cluster: MakeCluster, tmp_path: Path, postgres: str, mariadb: str) -> Iterator[Flow]:
    urls = {"postgres": postgres, "mariadb": mariadb}
    urls |= {"sqlite": f"sqlite:{tmp_path / 'shop.db'}", "duckdb": f"duckdb:{tmp_path / 'shop.duckdb'}"}
    with dbapi.connect(postgres, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE slots (slot bigint PRIMARY KEY, id bigint)")
        cursor.execute(f"INSERT INTO slots SELECT generate_series(0, {SLOTS - 1})")
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
    found = {checked.connectors[0]: checked.found for checked in verdict.checked}
    changed = {f"{name}-keyed": len(flow.left) for name in flow.urls} | {"slots": SLOTS}
    assert found == dict.fromkeys(flow.urls, flow.count) | changed
