"""A real Kafka Connect worker: `org.apache.kafka.connect.cli.ConnectDistributed` in a child process, on loopback.

What tests hold connectx against. Its jars come as Kafka's do, locked and verified; it dies with its owner.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from connectx.jvm import jars
from connectx.jvm.java import find_java
from connectx.jvm.process import ChildProcess
from connectx.kafka.broker import node
from tests.support.profiles import dotted
from tests.support.waiting import until

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
START_S = 90.0

_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_DISCOVERY = {"plugin.discovery": "service_load"}
_STRINGS = "org.apache.kafka.connect.storage.StringConverter"

_LOG4J = """
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


def peer_config(bootstrap_servers: str, group_id: str, **settings: str) -> dict[str, str]:
    """Worker settings that Java and Python workers of one group share; `settings` use _ for the dots of a key."""
    config = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group_id,
        "key.converter": _STRINGS,
        "value.converter": _STRINGS,
        "exactly.once.source.support": "enabled",
        "scheduled.rebalance.max.delay.ms": "0",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "500",
        "offset.flush.interval.ms": "1000",
    }
    for store in ("config", "offset", "status"):
        config[f"{store}.storage.topic"] = f"{group_id}-{store}"
        config[f"{store}.storage.replication.factor"] = "1"
    config |= {"offset.storage.partitions": "5", "status.storage.partitions": "1"}
    return {**config, **dotted(settings)}


class JavaWorker:
    """One worker of a Kafka Connect cluster, started when made; `wait_ready` waits until it serves connectors.

    Args:
        config: its settings; `listeners` and the advertised address are added.
        folder: for its properties and its log.
        options: of the JVM; by default they make it start fast.
    """

    def __init__(self, config: Mapping[str, str], folder: Path, options: Sequence[str] = _OPTIONS) -> None:
        java = find_java()
        (port,) = node.free_ports(1)
        self.worker_id = f"{node.HOST}:{port}"
        self.url = f"http://{self.worker_id}"
        own = {
            "listeners": f"HTTP://{self.worker_id}",
            "rest.advertised.host.name": node.HOST,
            "rest.advertised.port": str(port),
        }
        folder.mkdir(parents=True, exist_ok=True)
        properties = folder / "worker.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in {**_DISCOVERY, **config, **own}.items()))
        (folder / "log4j2.properties").write_text(_LOG4J)
        class_path = ":".join(str(path) for path in jars.fetch(jars.KAFKA_CONNECT, java))
        self.process = ChildProcess(
            [str(java.java), *options, f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
             "-cp", class_path, "org.apache.kafka.connect.cli.ConnectDistributed", str(properties)],
            folder / "log",
        )  # fmt: skip

    def wait_ready(self) -> JavaWorker:
        """Wait until it has joined the group and answers `GET /connectors`."""
        until(self._answers, f"the Java worker {self.worker_id} to join", START_S)
        return self

    def stop(self) -> None:
        """SIGTERM, as an operator does: it leaves the group."""
        self.process.stop(grace_s=30)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.signal(signal.SIGKILL)
        self.process.kill()

    def log(self) -> str:
        """All that it has logged."""
        return self.process.log.read_text(errors="replace")

    def _answers(self) -> bool:
        code = self.process.poll()
        assert code is None, f"the Java worker ended with {code}:\n{self.process.log_tail()}"
        try:
            return httpx.get(f"{self.url}/connectors", timeout=5).is_success
        except httpx.HTTPError:
            return False
