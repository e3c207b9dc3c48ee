"""JdbcSink on SQLite and DuckDB, whose databases are files; tests/integration/sink has the servers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from connectx.connectors.jdbc.sink import JdbcSink
from connectx.connectors.jdbc.source import JdbcSource
from connectx.errors.databases import DatabaseError, DatabaseUnavailableError
from tests.support.jdbc_sinks import Contract, Place, flights

pytestmark = pytest.mark.rule("always.8")


def sqlite_place(folder: Path) -> Place:
    def sql(statement: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(folder / "shop.db") as connection:
            return connection.execute(statement).fetchall()

    return Place(f"jdbc:sqlite:{folder / 'shop.db'}", sql)


def duckdb_place(folder: Path) -> Place:
    def sql(statement: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(folder / "shop.duckdb") as connection:
            return connection.execute(statement).fetchall()

    return Place(f"duckdb:{folder / 'shop.duckdb'}", sql)


@pytest.fixture(params=[sqlite_place, duckdb_place], ids=["sqlite", "duckdb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made: Place = request.param(tmp_path)
    yield made
    made.close()


class TestContract(Contract):
    """Holds for both."""


def test_a_file_that_another_connection_has_locked_is_tried_max_retries_times(tmp_path: Path) -> None:
    place = sqlite_place(tmp_path)
    place.create()
    task = place.task(lock_timeout_ms="10", max_retries="1")
    holder = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseUnavailableError, match="database is locked"):
        task.put(place.batch(0, flights(1)))
    with pytest.raises(DatabaseError, match=r"tried 2 times \(max.retries=1\).*raise max.retries"):
        task.put(place.batch(0, flights(1)))
    holder.execute("ROLLBACK")
    holder.close()
    task.put(place.batch(0, flights(1)))
    assert place.rows() == [(1, "flight 1")]
    place.close()


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"insert.mode": "upsert"}, "pk.mode"),
        ({"insert.mode": "update", "pk.mode": "kafka"}, "pk.mode"),
        ({"pk.mode": "kafka", "pk.fields": "a,b"}, "pk.fields"),
        ({"delete.enabled": "true", "pk.mode": "record_value"}, "delete.enabled"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, str], key: str) -> None:
    assert list(JdbcSink.validate(settings)) == [key]


def test_an_unknown_database_is_a_configuration_error() -> None:
    for connector in (JdbcSink, JdbcSource):
        found = {value.name: value.errors for value in connector.config.validate({"connection.url": "jdbc:oracle:x"})}
        assert "connection.url: it begins with none of" in found["connection.url"][0]
        assert "use SparkSource or SparkSink with format=jdbc" in found["connection.url"][0]
