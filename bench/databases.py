"""Rates of JdbcSource and JdbcSink with each database that they have a dialect for."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import connectx as cx
from bench.flows import JSON, committed_rate, create_topic, fill, postgres
from tests.support.databases import mariadb_server

COLUMNS: Final = "id BIGINT PRIMARY KEY, name VARCHAR(40) NOT NULL, amount DOUBLE PRECISION NOT NULL"
_NARROW: Final = "INSERT INTO orders SELECT {n}, {name}, {n} + 0.5 FROM {numbers}"


def dialects() -> tuple[str, ...]:
    """Databases that can be started here. MariaDB needs Debian's package mariadb-server."""
    optional = ("mariadb",) if shutil.which("mariadbd", path="/usr/sbin:/usr/bin:/usr/local/bin") else ()
    return ("sqlite", "duckdb", "postgresql", *optional)


@contextmanager
def database(dialect: str) -> Iterator[str]:
    """A connection.url of an empty database that is gone afterwards."""
    with ExitStack() as stack:
        if dialect == "postgresql":
            yield stack.enter_context(postgres())
        elif dialect == "mariadb":
            yield stack.enter_context(mariadb_server())
        else:
            yield f"{dialect}:{stack.enter_context(tempfile.TemporaryDirectory())}/orders.db"


def fill_orders(dialect: str, url: str, count: int) -> None:
    """Make the table `orders` with narrow rows."""
    statements = [f"CREATE TABLE orders ({COLUMNS})"]
    if dialect == "postgresql":
        import adbc_driver_postgresql.dbapi as adbc

        numbers = {"n": "n", "name": "'name-' || n", "numbers": f"generate_series(1, {count}) n"}
        with adbc.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            for statement in (*statements, _NARROW.format(**numbers)):
                cursor.execute(statement)
    elif dialect == "mariadb":
        import pymysql

        numbers = {"n": "seq", "name": "concat('name-', seq)", "numbers": f"seq_1_to_{count}"}
        socket = url.partition("unix_socket=")[2]
        with (
            pymysql.connect(unix_socket=socket, user="root", database="shop", autocommit=True) as server,
            server.cursor() as session,
        ):
            for statement in (*statements, _NARROW.format(**numbers)):
                session.execute(statement)
    elif dialect == "duckdb":
        import duckdb

        numbers = {"n": "n", "name": "'name-' || n", "numbers": f"range(1, {count + 1}) r(n)"}
        with duckdb.connect(url.partition(":")[2]) as orders:
            for statement in (*statements, _NARROW.format(**numbers)):
                orders.execute(statement)
    else:
        with sqlite3.connect(url.partition(":")[2]) as file:
            file.execute(statements[0].replace("BIGINT", "INTEGER"))
            rows = ((n, f"name-{n}", n + 0.5) for n in range(1, count + 1))
            file.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
        file.close()


def measure_jdbc_source(count: int) -> Iterator[dict[str, object]]:
    """JdbcSource, exactly-once, one table of narrow rows as JSON, from its creation to the last commit."""
    for dialect in dialects():
        with database(dialect) as url, cx.Cluster(workers=1, faults=False) as cluster:
            fill_orders(dialect, url, count)
            create_topic(cluster, f"{dialect}-orders")
            config = {
                "connector.class": "JdbcSource",
                "connection.url": url,
                "mode": "incrementing",
                "incrementing.column.name": "id",
                "table.whitelist": "orders",
                "topic.prefix": f"{dialect}-",
                **JSON,
            }
            rate = committed_rate(cluster, dialect, config, count)
            yield {"measure": "jdbc_source", "dialect": dialect, "rows": count, "rows_per_s": round(rate)}


def measure_jdbc_sink(count: int) -> Iterator[dict[str, object]]:
    """JdbcSink, exactly-once, upserts of narrow rows from 4 partitions, from its creation to the last commit."""
    with cx.Cluster(workers=1, faults=False) as cluster:
        create_topic(cluster, "rows", 4)
        fill(cluster, "rows", (b'{"id":%d,"name":"name-%d","amount":%d.5}' % (i, i, i) for i in range(count)), 4)
        for dialect in dialects():
            with database(dialect) as url:
                config = {
                    "connector.class": "JdbcSink",
                    "connection.url": url,
                    "topics": "rows",
                    "insert.mode": "upsert",
                    "pk.mode": "record_value",
                    "pk.fields": "id",
                    "auto.create": "true",
                    "bulk.mode": "never",
                    **JSON,
                }
                rate = committed_rate(cluster, dialect, config, count)
            yield {"measure": "jdbc_sink", "dialect": dialect, "rows": count, "rows_per_s": round(rate)}
