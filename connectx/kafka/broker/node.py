"""Set-up of one KRaft node: its settings, command line, formatted data folder and ports.

It keeps no state: the embedded broker decides when. Mirrors `bin/kafka-storage.sh format` and
`bin/kafka-server-start.sh`.
"""

from __future__ import annotations

import base64
import os
import random
import socket
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from connectx.errors.machine import BrokerError
from connectx.jvm import archive
from connectx.jvm.cache import cache_dir
from connectx.jvm.java import JavaHome

HOST = "127.0.0.1"

_FIRST_PORT = 15_000
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

# What differs from Kafka's defaults, and why: one node; groups settle fast; short sessions can be observed; a
# timed out transaction is aborted within a second; a broker that was killed may register again after 5 s; small
# buffers and few threads for a laptop.
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "DIRECT",
    "listener.security.protocol.map": "DIRECT:PLAINTEXT,WORKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "5000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
    "metric.reporters": "",
}

_JAVA_OPTIONS = [
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
]

# Of the file that `kafka-storage format` writes beside meta.properties: its name in the data folder, and the suffix of
# the copy in the cache. The first is of Kafka up to 4.3, the second of 4.4, which begins its metadata log with it.
_BOOTSTRAP_FILES = (
    ("bootstrap.checkpoint", "checkpoint"),
    ("__cluster_metadata-0/00000000000000000000-0000000000.checkpoint", "snapshot"),
)


def node_settings(
    data: Path, ports: tuple[int, int, int], gate_port: int | None, more: Mapping[str, str]
) -> dict[str, str]:
    """The settings of one node.

    Args:
        data: its data folder.
        ports: of the direct, the workers' and the controller's listener.
        gate_port: what the workers' listener advertises; None for no such listener.
        more: settings in addition to, or instead of, these.
    """
    direct, workers, controller = ports
    listeners = advertised = f"DIRECT://{HOST}:{direct}"
    if gate_port is not None:
        listeners += f",WORKERS://{HOST}:{workers}"
        advertised += f",WORKERS://{HOST}:{gate_port}"
    return {
        **_SETTINGS,
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": advertised,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "log.dirs": str(data),
        **more,
    }


def write_settings(path: Path, settings: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in sorted(settings.items())))


def broker_command(java: JavaHome, class_path: list[Path], options: list[str], settings: Path) -> list[str]:
    """The command line that runs a node with the settings file."""
    class_path_text = os.pathsep.join(map(str, class_path))
    return [str(java.java), *_JAVA_OPTIONS, *options, "-cp", class_path_text, "kafka.Kafka", str(settings)]


def archive_path(java: JavaHome, class_path: list[Path]) -> Path:
    """Where the broker's class archive for this Java and these jars is, or would be."""
    return archive.archive_path("kafka", java, class_path)


def format_data(
    java: JavaHome, class_path: list[Path], folder: Path, node_id: int = 1, cluster_id: str | None = None
) -> None:
    """Make `folder`/data as `kafka-storage format` does; nodes of one cluster share its `cluster_id`."""
    data = folder / "data"
    data.mkdir()
    name, content = _bootstrap_file(java, class_path, folder)
    (data / name).parent.mkdir(exist_ok=True)
    (data / name).write_bytes(content)
    (data / "meta.properties").write_text(
        f"version=1\nnode.id={node_id}\ncluster.id={cluster_id or kafka_uuid()}\ndirectory.id={kafka_uuid()}\n"
    )


def _bootstrap_file(java: JavaHome, class_path: list[Path], scratch: Path) -> tuple[str, bytes]:
    """Name and content of the file in a freshly formatted node: feature levels only, nothing of the node itself.

    Kafka's own StorageTool writes it, once for each version of the jars; then it is kept in the cache, because a
    second JVM at every start would cost a second.
    """
    jar_set = class_path[0].parent.name
    kept = [(name, cache_dir() / "kafka" / f"bootstrap-{jar_set}.{suffix}") for name, suffix in _BOOTSTRAP_FILES]
    for name, copy in kept:
        if copy.exists():
            return name, copy.read_bytes()
    sample = scratch / "format"
    write_settings(scratch / "format.properties", node_settings(sample, (1, 2, 3), None, {}))
    done = subprocess.run(
        [
            str(java.java),
            *_JAVA_OPTIONS,
            "-cp",
            os.pathsep.join(map(str, class_path)),
            "kafka.tools.StorageTool",
            "format",
            "-t",
            kafka_uuid(),
            "-c",
            str(scratch / "format.properties"),
        ],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise BrokerError("could not be formatted", done.stdout + done.stderr)
    for name, copy in kept:
        if (sample / name).exists():
            content = (sample / name).read_bytes()
            copy.parent.mkdir(parents=True, exist_ok=True)
            partial = copy.with_suffix(f".{os.getpid()}.partial")
            partial.write_bytes(content)
            partial.rename(copy)
            return name, content
    raise BrokerError("was formatted without feature levels", done.stdout + done.stderr)


def kafka_uuid() -> str:
    """A random id as Kafka writes it: 16 bytes in URL-safe base64; a leading dash would look like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def free_ports(count: int) -> list[int]:
    """Ports that are free now, and outside the range that the system assigns to port 0.

    A broker that was killed must find its ports free when it comes back. From the system's own range any program may
    get them meanwhile, and a client that tries to reach the broker may be given the very port that it tries: then it
    is connected to itself, and the broker cannot listen.
    """
    free: list[int] = []
    for port in random.SystemRandom().sample(range(_FIRST_PORT, _first_ephemeral_port()), 1000):
        if is_free(port):
            free.append(port)
        if len(free) == count:
            return free
    raise BrokerError(f"found no {count} free ports below {_first_ephemeral_port()}", "")


def _first_ephemeral_port() -> int:
    """Where the range begins from which the system takes ports: a setting of Linux, fixed elsewhere."""
    try:
        first = int(_PORT_RANGE.read_text().split()[0])
    except OSError:
        first = 49_152
    return max(first, _FIRST_PORT + 1000)


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def accepts(port: int) -> bool:
    """Whether something listens on `port`."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0
