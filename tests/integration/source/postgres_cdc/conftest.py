"""A server whose changes are captured, and a database of it for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cdc import Captured
from tests.support.databases import postgres_server


@pytest.fixture(scope="package")
def logical_postgres(no_process_is_left: None) -> Iterator[str]:
    """The libpq URI of a PostgreSQL server with wal_level=logical."""
    with postgres_server(logical=True) as uri:
        yield uri


@pytest.fixture(params=["auto", "sql"])
def shop(logical_postgres: str, request: pytest.FixtureRequest) -> Iterator[Captured]:
    """A database for one test, by slot.read.mode."""
    made = Captured(logical_postgres, request.param)
    yield made
    made.close()
