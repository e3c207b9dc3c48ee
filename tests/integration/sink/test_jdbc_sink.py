"""JdbcSink on database servers: the contract of all databases, and what is special to one."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from connectx.errors.databases import (
    DatabasePermissionError,
    DatabaseUnavailableError,
    TableMismatchError,
    TableMissingError,
)
from tests.support.jdbc_sinks import (
    NAME,
    UPSERT,
    BulkSink,
    Contract,
    Place,
    flights,
    keyed,
    mariadb_place,
    postgres_place,
    staging_tables,
)
from tests.support.waiting import until

pytestmark = [pytest.mark.rule("always.8"), pytest.mark.rule("618.8.3")]


@pytest.fixture
def place(postgres: str) -> Iterator[Place]:
    with postgres_place(postgres) as made:
        yield made


@pytest.fixture
def mariadb_table(mariadb: str) -> Iterator[Place]:
    with mariadb_place(mariadb) as made:
        yield made


class TestPostgres(Contract):
    """PostgreSQL keeps the contract."""


class TestPostgresInBulk(Contract):
    """PostgreSQL keeps the contract where executors stage the rows."""

    @pytest.fixture
    def place(self, postgres: str) -> Iterator[Place]:
        with postgres_place(postgres, BulkSink) as made:
            yield made
            assert staging_tables(made) == []


class TestMariaDb(Contract):
    """MariaDB keeps the contract."""

    @pytest.fixture
    def place(self, mariadb_table: Place) -> Place:
        return mariadb_table


def test_a_table_without_transactions_is_refused(mariadb_table: Place) -> None:
    mariadb_table.sql(f"CREATE TABLE {mariadb_table.table} (id bigint PRIMARY KEY, name varchar(50)) ENGINE=MyISAM")
    with pytest.raises(TableMismatchError, match=r"engine MyISAM, which has no transactions.*ENGINE=InnoDB"):
        mariadb_table.task().put(mariadb_table.batch(0, flights(1)))


def test_a_blocked_put_ends_when_it_is_cancelled_and_commits_nothing(mariadb_table: Place) -> None:
    place = mariadb_table
    place.create()
    place.sql(f"INSERT INTO {place.table} VALUES (1, 'before')")
    task = place.task({**UPSERT, "lock.timeout.ms": "60000"})
    failed: list[Exception] = []

    def put() -> None:
        try:
            task.put(place.batch(0, [{"name": "after"}], NAME, keyed(1)))
        except Exception as error:
            failed.append(error)

    with mariadb_place(place.url) as other:
        other.sql("START TRANSACTION")
        other.sql(f"SELECT * FROM {place.table} FOR UPDATE")
        thread = threading.Thread(target=put)
        thread.start()
        waiting = "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'INSERT INTO `shop`%'"
        until(lambda: bool(place.sql(waiting)))
        task.cancel()
        thread.join(30)
        assert not thread.is_alive()
        assert len(failed) == 1
        other.sql("ROLLBACK")
    assert place.rows() == [(1, "before")]
    assert place.offset() is None


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [
        (("root@/shop", "nobody@/shop"), DatabasePermissionError, "Access denied"),
        (("/shop?", "/nodb?"), TableMissingError, "Unknown database 'nodb'"),
        (("/socket", "/nothing"), DatabaseUnavailableError, "Can't connect"),
    ],
)
def test_a_mariadb_that_cannot_be_used_is_named_without_secrets(
    mariadb_table: Place, change: tuple[str, str], kind: type[Exception], reason: str
) -> None:
    mariadb_table.url = mariadb_table.url.replace(*change)
    with pytest.raises(kind, match=reason) as failed:
        mariadb_table.task({"connection.password": "hidden"} if kind is DatabasePermissionError else {})
    assert "hidden" not in str(failed.value)


def test_names_without_quotes_are_found_again_in_the_case_that_the_database_keeps(place: Place) -> None:
    place.topic = place.topic.upper()
    task = place.task(auto_create="true", quote_sql_identifiers="never")
    kind = pa.struct([("Id", pa.int64())])
    task.put(place.batch(0, [{"Id": 1}], kind))
    task.put(place.batch(1, [{"Id": 2}], kind))
    assert place.sql(f"SELECT id FROM {place.topic} ORDER BY 1") == [(1,), (2,)]
