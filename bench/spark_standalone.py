"""A Spark standalone cluster on this machine: a master and workers as processes, from pyspark's jars.

Mirrors `sbin/start-master.sh` and `sbin/start-worker.sh`, which pyspark does not install.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from connectx.errors.demo import DemoError
from connectx.errors.spark import SparkMasterError
from connectx.jvm.ivy import spark_jars_dir
from connectx.jvm.java import find_java
from connectx.jvm.process import ChildProcess
from connectx.spark.settings import MASTER, SparkSettings

_START_S: Final = 90.0
_STOP_S: Final = 20.0
_MODULE: Final = "jdk.incubator.vector"  # Spark starts every executor with it
_HEAP: Final = "-Xmx256m"  # of a master or worker, which carry no data


class SparkStandalone:
    """Master and workers; a context manager that starts them and ends them with their executors.

    Args:
        folder: where they write; it outlives them.
        workers: how many.
        cores, memory: what each worker offers to executors.

    Raises:
        DemoError: Java lacks what executors need, or the master does not start.
    """

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self._folder = folder
        self._count = workers
        self._offer = ("--cores", str(cores), "--memory", memory)
        self._endings = ExitStack()
        self.workers: list[ChildProcess] = []
        self.url = ""

    @property
    def settings(self) -> dict[str, str]:
        """Settings of a session that uses all of it: one executor on each worker."""
        loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        return {MASTER: self.url, "spark.executor.memory": self._offer[-1], **loopback}

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        java = find_java().java
        modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False).stdout
        if _MODULE not in modules:
            raise DemoError(
                f"Spark's executors need a full JDK, and {java} has no module {_MODULE}.",
                next_step="Set JAVA_HOME to a JDK 17 or later.",
            )
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.url = f"spark://127.0.0.1:{server.getsockname()[1]}"
        try:
            master = self._start("master.Master", "master", "--port", self.url.rpartition(":")[2])
            self._await(master)
            for _ in range(self._count):
                self.add_worker()
        except BaseException:
            self._endings.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._endings.close()

    def add_worker(self) -> None:
        """Start a worker; the master gives sessions an executor on it when it has registered."""
        name = f"worker-{len(self.workers)}"
        folder = str(self._folder / name.replace("er", ""))
        self.workers.append(self._start("worker.Worker", name, *self._offer, "--work-dir", folder, self.url))

    def kill_worker(self, number: int) -> None:
        """SIGKILL a worker. Its executor ends itself when it notices."""
        self.workers[number].signal(signal.SIGKILL)

    def executors(self) -> list[psutil.Process]:
        """JVMs of executors, those of the oldest worker first."""
        found = []
        for worker in self.workers:
            try:
                found += psutil.Process(worker.pid).children()
            except psutil.NoSuchProcess:
                continue
        return found

    def _start(self, cls: str, name: str, *arguments: str) -> ChildProcess:
        home = spark_jars_dir().parent
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        env |= {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1"}
        env["SPARK_LOCAL_DIRS"] = str(self._folder)
        command = [str(find_java().java), _HEAP, "-cp", f"{home}/jars/*", f"org.apache.spark.deploy.{cls}"]
        process = ChildProcess(
            [*command, "--host", "127.0.0.1", "--webui-port", "0", *arguments], self._folder / f"{name}.log", env
        )
        self._endings.callback(process.stop, _STOP_S)
        return process

    def _await(self, master: ChildProcess) -> None:
        settings, end_s = SparkSettings.parse({MASTER: self.url}), time.monotonic() + _START_S
        while True:
            try:
                return settings.require_reachable()
            except SparkMasterError as error:
                if master.poll() is not None or time.monotonic() > end_s:
                    tail = master.log_tail()
                    raise DemoError("Spark's master did not start.", next_step=f"Its log:\n{tail}") from error
            time.sleep(0.1)
