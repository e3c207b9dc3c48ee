"""Debezium's PostgreSQL connector in a cluster of connectx: its configuration as it is, and kills of its workers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import connectx as cx
from bench.debezium import POSTGRES_SOURCE, postgres_on_loopback, postgres_source
from bench.plugins import plugin_folder
from connectx.kafka.broker import node
from tests.support.clusters import MakeCluster, owner_of
from tests.support.java_plugins import jvm_of
from tests.support.profiles import EOS, JSON
from tests.support.records import Reader
from tests.support.waiting import WAIT_S, until

JAVA_S = 3 * WAIT_S
"""A JVM starts, on a busy machine."""


@pytest.fixture(scope="module")
def port(no_process_is_left: None) -> Iterator[int]:
    with postgres_on_loopback("wal_level=logical", "fsync=off") as found:
        yield found


@pytest.fixture(scope="module")
def cluster(port: int, make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cx.Cluster]:
    """Two workers with Debezium on their plugin path."""
    plugins = plugin_folder(tmp_path_factory.mktemp("debezium"), POSTGRES_SOURCE)
    with make_cluster(workers=2, config={**EOS, "plugin.path": str(plugins)}) as made:
        yield made


def test_debezium_loses_and_repeats_nothing_when_workers_and_its_jvm_are_killed(
    cluster: cx.Cluster, port: int, tmp_path: Path
) -> None:
    from adbc_driver_postgresql import dbapi

    with closing(dbapi.connect(f"postgresql://postgres@{node.HOST}:{port}/postgres", autocommit=True)) as connection:
        sql = connection.cursor()
        count = 0

        def insert(more: int) -> None:
            nonlocal count
            sql.execute(
                f"INSERT INTO orders SELECT n, 'order ' || n FROM generate_series({count}, {count + more - 1}) n"
            )
            count += more

        sql.execute("CREATE TABLE orders (id int PRIMARY KEY, name text)")
        insert(500)
        config = {
            **postgres_source(port, "shop"),
            "transforms": "unwrap",
            "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
            **JSON,
        }
        connector = cluster.create("orders", config).wait("RUNNING", JAVA_S)
        target = tmp_path / "out.txt"
        cluster.create(
            "orders-out", {"connector.class": "FileStreamSink", "file": str(target), "topics": "shop.public.orders"}
        )
        with closing(Reader(cluster.bootstrap_servers, "shop.public.orders")) as reader:

            def ids() -> list[int]:
                return [json.loads(value)["id"] for value in reader.values()]

            until(lambda: len(ids()) == count, "the snapshot", JAVA_S)
            insert(2000)
            worker = owner_of(cluster, "orders-0")
            cluster.kill(worker.name)
            insert(2000)
            until(lambda: len(ids()) >= count, "what came while a worker was killed", JAVA_S)
            successor = owner_of(cluster, "orders-0")
            assert successor.name != worker.name
            jvm = jvm_of(cluster, successor.name)
            assert jvm is not None
            insert(2000)
            os.kill(jvm, signal.SIGKILL)
            until(lambda: connector.status()["tasks"][0]["state"] == "FAILED", "the task to fail", JAVA_S)
            connector.restart(include_tasks=True)
            until(lambda: len(ids()) >= count, "what came while its JVM was killed", JAVA_S)
            insert(1)
            until(lambda: len(ids()) >= count, "the last row", JAVA_S)
            assert ids() == list(range(count)), "each row once, in order"
        until(lambda: len(target.read_text().splitlines()) == count, "each row in the sink's file")
