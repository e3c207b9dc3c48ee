"""The embedded broker: Apache Kafka itself, one KRaft node, as a child process of this one.

It decides ports, settings and files of that node, and tells why it died. It never outlives its owner, listens on
127.0.0.1 only, and leaves nothing behind. Mirrors `bin/kafka-storage.sh format` and `bin/kafka-server-start.sh`.

It listens twice: `bootstrap_servers` is for any client; `worker_bootstrap_servers` leads through the gate, because
the broker advertises the gate's port on the second listener.
"""

from __future__ import annotations

import base64
import logging
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from connectx.errors import BrokerError, ConnectxError, DiskFullError, PortTakenError
from connectx.jvm import archive, jars
from connectx.jvm.cache import OwnedDir, cache_dir, is_disk_full, require_free
from connectx.jvm.java import JavaHome, find_java
from connectx.jvm.process import ChildProcess
from connectx.jvm.progress import Progress, silent
from connectx.kafka.gate import Gate

HOST = "127.0.0.1"
NEEDED_BYTES = 200 << 20
START_TIMEOUT_S = 60.0
START_TRIES = 3

log = logging.getLogger(__name__)

# What differs from Kafka's defaults, and why: one node; a group settles at once; short sessions can be watched; a
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


class EmbeddedKafka:
    """One Kafka broker in a child process.

    Args:
        port: port of the direct listener; a free one by default.
        gate: whether workers go through a gate that can cut them off.
        settings: broker settings in addition to, or instead of, the embedded ones.
        parent_dir: where its temporary data folder is made; the system's temporary folder (`TMPDIR`) by default.
        java: the Java to run on; `find_java()` by default.
        use_archive: whether to start from the AppCDS archive when there is one.
        archive_to: make an AppCDS archive here, written by `finish`.
        progress: told of the jars when they have to be fetched first.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        gate: bool = True,
        settings: Mapping[str, str] | None = None,
        parent_dir: Path | None = None,
        java: JavaHome | None = None,
        use_archive: bool = True,
        archive_to: Path | None = None,
        progress: Progress = silent,
    ) -> None:
        self._port = port
        self._with_gate = gate
        self._settings = dict(settings or {})
        self._parent_dir = parent_dir
        self._java = java
        self._use_archive = use_archive
        self._archive_to = archive_to
        self._progress = progress
        self._dir: OwnedDir | None = None
        self._child: ChildProcess | None = None
        self._ports = (0, 0, 0)
        self.gate: Gate | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for any Kafka client; never goes through the gate."""
        return f"{HOST}:{self._ports[0]}"

    @property
    def worker_bootstrap_servers(self) -> str:
        """`host:port` for the clients of workers: through the gate when there is one."""
        return f"{HOST}:{self.gate.port}" if self.gate is not None else self.bootstrap_servers

    @property
    def alive(self) -> bool:
        """Whether the broker's process runs."""
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id of the broker's Java, None before start and after stop."""
        return self._child.pid if self._child is not None else None

    @property
    def data_dir(self) -> Path | None:
        """Its temporary folder, None before start and after stop."""
        return self._dir.path if self._dir is not None else None

    def start(self) -> Self:
        """Start the broker and wait until it answers.

        Raises:
            NoJavaError, JarDownloadError: what it needs cannot be had.
            PortTakenError: `port` belongs to another program.
            DiskFullError: less than 200 MB free for its data.
            BrokerError: it did not start; has the end of its log.
        """
        if self._child is not None:
            return self
        java = self._java = self._java or find_java()
        class_path = jars.fetch(jars.KAFKA, java, self._progress)
        if self._port is not None and not _is_free(self._port):
            raise PortTakenError(self._port)
        self._dir = OwnedDir("kafka", self._parent_dir)
        try:
            require_free(self._dir.path, NEEDED_BYTES, _disk_setting(self._parent_dir))
            self._format(java, class_path)
            self._start_on_free_ports(java, class_path)
        except BaseException as error:
            self.stop()
            if isinstance(error, OSError) and is_disk_full(error):
                raise DiskFullError("the broker's data", _disk_setting(self._parent_dir), str(error)) from error
            raise
        return self

    def stop(self) -> None:
        """End the broker and remove its data. A second call does nothing."""
        if self._child is not None:
            self._child.kill()  # its data goes with it, so an orderly end would save nothing
            self._child = None
        if self.gate is not None:
            self.gate.close()
            self.gate = None
        if self._dir is not None:
            self._dir.remove()
            self._dir = None

    def finish(self, *, grace_s: float = 30.0) -> None:
        """End the broker in an orderly way and leave its data, as an operator does."""
        if self._child is not None:
            self._child.stop(grace_s)

    def kill(self) -> None:
        """SIGKILL the broker and leave its data: what a crash does. `restart` brings it back."""
        if self._child is not None:
            self._child.kill()

    def restart(self, *, grace_s: float = 10.0) -> None:
        """Start again on the same ports and data; a broker that still runs is first ended in an orderly way.

        Raises:
            BrokerError, DiskFullError: it did not come back.
        """
        if self._child is None or self._dir is None or self._java is None:
            raise BrokerError("cannot be restarted because it was never started", "")
        self._child.stop(grace_s)
        self._launch(self._java, jars.fetch(jars.KAFKA, self._java, self._progress))
        self._wait_ready()

    def failure(self) -> ConnectxError | None:
        """Why the broker died without being asked to, or None while it runs or after `stop`."""
        if self._child is None or self.alive:
            return None
        tail = self._child.log_tail()
        if "No space left on device" in tail or "File too large" in tail or "Disk quota exceeded" in tail:
            return DiskFullError("the broker's data", _disk_setting(self._parent_dir), "the broker could not write")
        return BrokerError(f"died with exit code {self._child.poll()}", tail)

    def log_tail(self) -> str:
        """The end of the broker's log."""
        return self._child.log_tail() if self._child is not None else ""

    def _start_on_free_ports(self, java: JavaHome, class_path: list[Path]) -> None:
        """Another program may take a port between our look and the broker's bind: then try others."""
        for tries_left in range(START_TRIES - 1, -1, -1):
            free = _free_ports(3)
            self._ports = (self._port or free[0], free[1], free[2])
            if self._with_gate:
                self.gate = Gate()
                self.gate.start(HOST, self._ports[1])
            self._write_settings()
            self._launch(java, class_path)
            try:
                self._wait_ready()
                return
            except BrokerError as error:
                if "Address already in use" not in error.log_tail and "BindException" not in error.log_tail:
                    raise
                if self._port is not None and not _is_free(self._port):
                    raise PortTakenError(self._port) from error
                if tries_left == 0:
                    raise
                if self.gate is not None:
                    self.gate.close()

    def _write_settings(self) -> None:
        assert self._dir is not None
        direct, workers, controller = self._ports
        listeners = f"DIRECT://{HOST}:{direct}"
        advertised = listeners
        if self.gate is not None:
            listeners += f",WORKERS://{HOST}:{workers}"
            advertised += f",WORKERS://{HOST}:{self.gate.port}"
        settings = {
            **_SETTINGS,
            "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": advertised,
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "log.dirs": str(self._dir.path / "data"),
            **self._settings,
        }
        lines = "".join(f"{key}={value}\n" for key, value in sorted(settings.items()))
        (self._dir.path / "server.properties").write_text(lines)

    def _format(self, java: JavaHome, class_path: list[Path]) -> None:
        """Make the data folder as `kafka-storage format` does, with ids of its own."""
        assert self._dir is not None
        data = self._dir.path / "data"
        data.mkdir()
        checkpoint = bootstrap_checkpoint(java, class_path, self._dir.path)
        (data / "bootstrap.checkpoint").write_bytes(checkpoint)
        (data / "meta.properties").write_text(
            f"version=1\nnode.id=1\ncluster.id={_kafka_uuid()}\ndirectory.id={_kafka_uuid()}\n"
        )

    def _launch(self, java: JavaHome, class_path: list[Path]) -> None:
        assert self._dir is not None
        options = list(_JAVA_OPTIONS)
        if self._archive_to is not None:
            options += archive.make_options(self._archive_to)
        elif self._use_archive:
            options += archive.use_options(archive_path(java, class_path))
        self._child = ChildProcess(
            broker_command(java, class_path, options, self._dir.path / "server.properties"),
            log=self._dir.path / "server.log",
            cwd=self._dir.path,
        )

    def _wait_ready(self) -> None:
        """Wait until the broker answers a metadata request with itself in it."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not _accepts(self._ports[0]):
            self._check_starting(deadline_s)
            time.sleep(0.02)
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(
            {"bootstrap.servers": self.bootstrap_servers, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50},
            logger=log,
        )
        while True:
            self._check_starting(deadline_s)
            try:
                if admin.list_topics(timeout=2).brokers:
                    return
            except KafkaException as error:
                log.debug("not ready yet: %s", error)
            time.sleep(0.02)

    def _check_starting(self, deadline_s: float) -> None:
        if failure := self.failure():
            raise failure
        if time.monotonic() > deadline_s:
            raise BrokerError(f"was not ready within {START_TIMEOUT_S:.0f} s", self.log_tail())


def broker_command(java: JavaHome, class_path: list[Path], options: list[str], settings: Path) -> list[str]:
    """The command line that runs a broker with the settings file."""
    return [str(java.java), *options, "-cp", os.pathsep.join(map(str, class_path)), "kafka.Kafka", str(settings)]


def archive_path(java: JavaHome, class_path: list[Path]) -> Path:
    """Where the broker's class archive for this Java and these jars is, or would be."""
    return archive.archive_path("kafka", java, class_path)


def make_archive(java: JavaHome, class_path: list[Path]) -> bool:
    """Run a broker once, end it in an orderly way and keep the classes it used; False when Java wrote none."""
    target = archive_path(java, class_path)
    partial = archive.partial_path(target)
    with EmbeddedKafka(gate=False, java=java, archive_to=partial) as broker:
        broker.finish()
    return archive.adopt(partial, target)


def bootstrap_checkpoint(java: JavaHome, class_path: list[Path], scratch: Path) -> bytes:
    """The `bootstrap.checkpoint` of a freshly formatted node: feature levels only, nothing of the node itself.

    Kafka's own StorageTool writes it, once for each version of the jars; then it is kept in the cache, because a
    second JVM at every start would cost a second.
    """
    kept = cache_dir() / "kafka" / f"bootstrap-{class_path[0].parent.name}.checkpoint"
    if kept.exists():
        return kept.read_bytes()
    sample = scratch / "format"
    settings = {**_SETTINGS, "log.dirs": str(sample), "listeners": f"DIRECT://{HOST}:1,CONTROLLER://{HOST}:2",
                "controller.quorum.voters": f"1@{HOST}:2"}  # fmt: skip
    (scratch / "format.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    done = subprocess.run(
        [str(java.java), *_JAVA_OPTIONS, "-cp", os.pathsep.join(map(str, class_path)), "kafka.tools.StorageTool",
         "format", "-t", _kafka_uuid(), "-c", str(scratch / "format.properties")],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise BrokerError("could not be formatted", done.stdout + done.stderr)
    content = (sample / "bootstrap.checkpoint").read_bytes()
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_suffix(f".{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.rename(kept)
    return content


def _kafka_uuid() -> str:
    """A random id as Kafka writes them: 16 bytes in URL-safe base64; a leading dash would look like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def _disk_setting(parent_dir: Path | None) -> str:
    return "TMPDIR" if parent_dir is None else "parent_dir"


def _free_ports(count: int) -> list[int]:
    """Ports that are free now; held together so that they differ."""
    held = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0
