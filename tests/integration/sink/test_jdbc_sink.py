"""JdbcSink on database servers: the contract of all databases, and what is special to one."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.support.jdbc_sinks import Contract, Place, postgres_place

pytestmark = [pytest.mark.rule("always.8"), pytest.mark.rule("618.8.3")]


@pytest.fixture
def place(postgres: str) -> Iterator[Place]:
    with postgres_place(postgres) as made:
        yield made


class TestContract(Contract):
    """Holds for PostgreSQL."""


def test_names_without_quotes_are_found_again_in_the_case_that_the_database_keeps(place: Place) -> None:
    place.topic = place.topic.upper()
    task = place.task(auto_create="true", quote_sql_identifiers="never")
    kind = pa.struct([("Id", pa.int64())])
    task.put(place.batch(0, [{"Id": 1}], kind))
    task.put(place.batch(1, [{"Id": 2}], kind))
    assert place.sql(f"SELECT id FROM {place.topic} ORDER BY 1") == [(1,), (2,)]
