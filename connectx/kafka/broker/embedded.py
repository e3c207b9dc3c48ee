"""The embedded broker: Apache Kafka itself, one KRaft node, as a child process of this one.

It decides when that node starts, ends and counts as ready, and reports why it died. It never outlives its owner,
listens on 127.0.0.1 only, and removes its files.

It listens twice: `bootstrap_servers` is for any client; `worker_bootstrap_servers` leads through the gate, because
the broker advertises the gate's port on the second listener.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from connectx.errors.base import ConnectxError
from connectx.errors.machine import BrokerError, DiskFullError, PortTakenError
from connectx.extras import require
from connectx.jvm import archive, jars
from connectx.jvm.cache import OwnedDir, is_disk_full, reports_disk_full, require_free
from connectx.jvm.java import JavaHome, find_java
from connectx.jvm.process import ChildProcess
from connectx.jvm.progress import Progress, silent
from connectx.kafka.broker import node
from connectx.kafka.broker.gate import Gate
from connectx.views import Form, Shown

NEEDED_BYTES = 200 << 20
START_TIMEOUT_S = 60.0
START_TRIES = 3
LOG_LOOK_BYTES = 1 << 20

log = logging.getLogger(__name__)


class EmbeddedKafka(Shown):
    """One Kafka broker in a child process.

    Args:
        port: port of the direct listener; a free one by default.
        gate: whether workers go through a gate that can cut them off.
        settings: broker settings in addition to, or instead of, the embedded ones.
        java: the Java to run on; `find_java()` by default.
        archive_to: make an AppCDS archive here, written by `finish`.
        progress: shows the download of missing jars.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        gate: bool = True,
        settings: Mapping[str, str] | None = None,
        java: JavaHome | None = None,
        archive_to: Path | None = None,
        progress: Progress = silent,
    ) -> None:
        self._port = port
        self._with_gate = gate
        self._settings = dict(settings or {})
        self._java = java
        self._archive_to = archive_to
        self._progress = progress
        self._dir: OwnedDir | None = None
        self._child: ChildProcess | None = None
        self._ports = (0, 0, 0)
        self._ended_on_purpose = False
        self._log_seen_bytes = 0
        self._saw_disk_full = False
        self.gate: Gate | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _shown(self) -> Form:
        gate = None if self.gate is None else f"{self.worker_bootstrap_servers}, where workers can be cut off"
        facts = {
            "bootstrap servers": self.bootstrap_servers,
            "gate": gate,
            "state": "runs" if self.alive else "does not run",
        }
        return Form("EmbeddedKafka", {**facts, "process": self.pid, "data": self.data_dir})

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for any Kafka client; never goes through the gate."""
        return f"{node.HOST}:{self._ports[0]}"

    @property
    def worker_bootstrap_servers(self) -> str:
        """`host:port` for the clients of workers: through the gate when there is one."""
        return f"{node.HOST}:{self.gate.port}" if self.gate is not None else self.bootstrap_servers

    @property
    def alive(self) -> bool:
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
            MissingExtraError, NoJavaError, JarDownloadError: what it needs cannot be had.
            PortTakenError: `port` belongs to another program.
            DiskFullError: less than 200 MB free for its data.
            BrokerError: it did not start; has the end of its log.
        """
        if self._child is not None:
            return self
        require("The embedded Kafka", "embedded", "pyspark")  # which has the Ivy that fetches its jars
        java = self._java = self._java or find_java()
        class_path = jars.fetch(jars.KAFKA, java, self._progress)
        if self._port is not None and not node.is_free(self._port):
            raise PortTakenError(self._port)
        self._dir = OwnedDir("kafka")
        try:
            require_free(self._dir.path, NEEDED_BYTES, "TMPDIR")
            node.format_data(java, class_path, self._dir.path)
            self._start_on_free_ports(java, class_path)
        except BaseException as error:
            self.stop()
            if isinstance(error, OSError) and is_disk_full(error):
                raise DiskFullError("the broker's data", "TMPDIR", str(error)) from error
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
            self._ended_on_purpose = True
            self._child.stop(grace_s)

    def kill(self) -> None:
        """SIGKILL the broker and leave its data: what a crash does. `restart` brings it back."""
        if self._child is not None:
            self._ended_on_purpose = True
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
        """What is wrong with the broker, or None while it is well, after `kill` and after `stop`.

        Returns:
            DiskFullError: it could not write; it may still run, for example when only a topic could not be made.
            BrokerError: it died without being asked to.
        """
        if self._child is None or self._ended_on_purpose:
            return None
        if self._disk_full():
            return DiskFullError("the broker's data", "TMPDIR", "the broker could not write")
        code = self._child.poll()
        return None if code is None else BrokerError(f"died with exit code {code}", self._child.log_tail())

    def _disk_full(self) -> bool:
        """Look at what its log has got since the last look."""
        assert self._child is not None
        try:
            with self._child.log.open("rb") as file:
                file.seek(self._log_seen_bytes)
                new = file.read(LOG_LOOK_BYTES)
                self._log_seen_bytes += len(new)
        except FileNotFoundError:
            new = b""
        self._saw_disk_full = self._saw_disk_full or reports_disk_full(new.decode(errors="replace"))
        return self._saw_disk_full

    def log_tail(self) -> str:
        return self._child.log_tail() if self._child is not None else ""

    def _start_on_free_ports(self, java: JavaHome, class_path: list[Path]) -> None:
        """Another program may take a port between our look and the broker's bind: then try others."""
        assert self._dir is not None
        folder = self._dir.path
        for tries_left in range(START_TRIES - 1, -1, -1):
            free = node.free_ports(3)
            self._ports = (self._port or free[0], free[1], free[2])
            if self._with_gate:
                self.gate = Gate()
                self.gate.start(node.HOST, self._ports[1])
            gate_port = None if self.gate is None else self.gate.port
            settings = node.node_settings(folder / "data", self._ports, gate_port, self._settings)
            node.write_settings(folder / "server.properties", settings)
            self._launch(java, class_path)
            try:
                self._wait_ready()
                return
            except BrokerError as error:
                if "Address already in use" not in error.log_tail and "BindException" not in error.log_tail:
                    raise
                if self._port is not None and not node.is_free(self._port):
                    raise PortTakenError(self._port) from error
                if tries_left == 0:
                    raise
                if self.gate is not None:
                    self.gate.close()

    def _launch(self, java: JavaHome, class_path: list[Path]) -> None:
        assert self._dir is not None
        self._ended_on_purpose = self._saw_disk_full = False
        options: list[str] = []
        if self._archive_to is not None:
            options += archive.make_options(java, self._archive_to)
        else:
            options += archive.use_options(java, node.archive_path(java, class_path))
        output = self._dir.path / "server.log"
        self._log_seen_bytes = output.stat().st_size if output.exists() else 0
        self._child = ChildProcess(
            node.broker_command(java, class_path, options, self._dir.path / "server.properties"),
            log=output,
            cwd=self._dir.path,
        )

    def _wait_ready(self) -> None:
        """Wait until the broker answers a metadata request with itself in it."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not node.accepts(self._ports[0]):
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
        if not self.alive:
            raise BrokerError("was killed while it started", self.log_tail())
        if time.monotonic() > deadline_s:
            raise BrokerError(f"was not ready within {START_TIMEOUT_S:.0f} s", self.log_tail())


def make_archive(java: JavaHome, class_path: list[Path]) -> bool:
    """Run a broker once, end it in an orderly way and keep the classes it used; False when Java wrote none."""
    target = node.archive_path(java, class_path)
    partial = archive.partial_path(target)
    with EmbeddedKafka(gate=False, java=java, archive_to=partial) as broker:
        broker.finish()
    return archive.adopt(partial, target)
