"""One child JVM and the socket to it: orders go out as JSON lines, reports come in.

It decides nothing. The JVM ends when the socket closes, and the shell that watches over it kills it when this process
dies, so it never outlives its worker. Its settings, with their secrets, go over the socket only, which is in a folder
of this user.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from connectx.errors.base import ConnectxError
from connectx.errors.rest import RestError
from connectx.jvm import jars
from connectx.jvm.cache import OwnedDir
from connectx.jvm.connect_host import MAIN_CLASS, copy_jar
from connectx.jvm.java import find_java
from connectx.jvm.process import ChildProcess, log_tail
from connectx.model.decoding import Unreadable
from connectx.runtime.tasks.java.reports import Answer, HostFailed, Line, Ready, Report, report_of

_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:+ExitOnOutOfMemoryError")
_HEAP: Final = "-Xmx1g"
_HEAP_VARIABLE: Final = "KAFKA_HEAP_OPTS"
_ACCEPT_S: Final = 0.1
_END_S: Final = 5.0
_ANSWER_S: Final = 90.0
_LOG_SHOWN_BYTES: Final = 2000
_LOG4J: Final = """
status = error
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %X{connector.context}%c{1}: %m%n
logger.configs.name = org.apache.kafka.common.config.AbstractConfig
logger.configs.level = warn
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""
"""Kafka's classes log whole configurations at level info; those of plugins have secrets under any name."""
_log = logging.getLogger(__name__)


class JavaLink:
    """One JVM, from its start to its end.

    Args:
        worker: the worker's name.
        settings: the worker's, as Kafka Connect's DistributedConfig takes them.
        masked: hides the worker's secrets in a text.
        on_report: gets each report; on the thread of the link, or on one that freezes or kills.
        on_end: gets the reason once, after the last report, on the thread of the link.
    """

    def __init__(
        self,
        worker: str,
        settings: Callable[[Path], Mapping[str, str]],
        masked: Callable[[str], str],
        on_report: Callable[[Report], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._worker = worker
        self._settings = settings
        self._masked = masked
        self._on_report = on_report
        self._on_end = on_end
        self._dir: OwnedDir | None = None
        self._child: ChildProcess | None = None
        self._socket: socket.socket | None = None
        self._rest = b""
        self._sending = threading.Lock()
        self._pumping = threading.Lock()  # the thread of the link and a fault both take in what has come
        self._waiting: list[bytes] | None = []  # orders until the JVM is ready, None from then on
        self._answers: dict[int, Future[Any]] = {}
        self._ids = itertools.count(1)
        self._failure: str | None = None
        self._killed = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{worker}-java", daemon=True)

    @property
    def pid(self) -> int | None:
        """Process id of the JVM, None before it has one."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        """Begin to start the JVM, without waiting for it."""
        self._thread.start()

    def order(self, name: str, fields: Mapping[str, Any]) -> None:
        """Send an order; never waits for the JVM's start. Nothing happens once it has ended."""
        line = json.dumps({"order": name, **fields}, separators=(",", ":")).encode() + b"\n"
        with self._sending:
            if self._waiting is not None:
                self._waiting.append(line)
            else:
                self._send(line)

    def ask(self, question: str, fields: Mapping[str, Any]) -> Any:
        """Ask and wait for the answer.

        Raises:
            RestError: the JVM refuses, does not answer in time, or has ended.
        """
        number, answer = next(self._ids), Future[Any]()
        self._answers[number] = answer
        self.order(question, {"id": number, **fields})
        if self._ended.is_set():
            self._fail_answers()
        try:
            return answer.result(_ANSWER_S)
        except FutureTimeoutError:
            self._answers.pop(number, None)
            raise RestError(f"The JVM of {self._worker} did not answer within {_ANSWER_S:g} s.", status=500) from None

    def freeze(self) -> None:
        """SIGSTOP; then everything that the JVM had reported before has been handed on."""
        if self._child is not None:
            self._child.signal(signal.SIGSTOP)
            self._pump()

    def thaw(self) -> None:
        """SIGCONT."""
        if self._child is not None:
            self._child.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, without a commit; then everything that the JVM had reported has been handed on."""
        self._killed = True
        if self._child is not None:
            self._child.kill()
            self._pump()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(_END_S)

    def _run(self) -> None:
        try:
            reason = self._live()
        except ConnectxError as error:
            reason = f"The JVM for Java connectors could not start: {error}"
        except Exception as error:  # whatever it is, connectors and tasks wait for the end
            _log.exception("the JVM of %s cannot be reached", self._worker)
            reason = f"The JVM for Java connectors cannot be reached: {type(error).__name__}: {error}"
        finally:
            if self._child is not None:
                self._child.kill()
        self._failure = self._masked(self._failure or reason)
        self._ended.set()
        self._fail_answers()
        if self._socket is not None:
            self._socket.close()
        if self._dir is not None:
            self._dir.remove()
        if not self._killed:
            _log.warning("%s: %s", self._worker, self._failure)
        self._on_end(self._failure)

    def _live(self) -> str:
        """Start the JVM and take in its reports to its end; returns why it has ended."""
        self._dir = folder = OwnedDir("java")
        with socket.socket(socket.AF_UNIX) as listener:
            address = folder.path / "socket"
            listener.bind(str(address))
            listener.listen(1)
            self._child = child = self._spawn(folder.path, address)
            if self._killed:
                return "It was killed."
            listener.settimeout(_ACCEPT_S)
            while self._socket is None and child.poll() is None:
                with suppress(TimeoutError):
                    self._socket, _ = listener.accept()
        if self._socket is not None:
            self._socket.setblocking(True)
            greeting = {"worker": self._worker, "settings": self._settings(folder.path)}
            with suppress(OSError):
                self._socket.sendall(json.dumps(greeting).encode() + b"\n")
                while self._failure is None and self._socket.recv(1, socket.MSG_PEEK):
                    self._pump()
        code = child.wait(_END_S)
        return f"The JVM of {self._worker} has ended with exit code {code}:\n{log_tail(child.log, _LOG_SHOWN_BYTES)}"

    def _spawn(self, folder: Path, address: Path) -> ChildProcess:
        java = find_java()
        class_path = [copy_jar(folder), *jars.fetch(jars.KAFKA_CONNECT, java)]
        (folder / "log4j2.properties").write_text(_LOG4J)
        (folder / "worker.properties").touch(mode=0o600)  # some connectors read it; the JVM fills it
        heap = (os.environ.get(_HEAP_VARIABLE) or _HEAP).split()
        command = [str(java.java), *heap, *_OPTIONS, f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"]
        return ChildProcess(
            [*command, "-cp", os.pathsep.join(map(str, class_path)), MAIN_CLASS, str(address)], folder / "java.log"
        )

    def _send(self, line: bytes) -> None:
        if self._socket is not None:
            with suppress(OSError):  # it has ended, which the thread of the link finds out
                self._socket.sendall(line)

    def _pump(self) -> None:
        """Hand on all reports so far. After a line that is no report the JVM is killed: a report was lost."""
        with self._pumping:
            while self._socket is not None and self._failure is None:
                try:
                    data = self._socket.recv(1 << 16, socket.MSG_DONTWAIT)
                except OSError:
                    return
                if not data:
                    return
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    self._take(report_of(line))

    def _take(self, report: Line | Unreadable) -> None:
        match report:
            case Unreadable(reason):
                self._failure = f"A report of the JVM of {self._worker} is unreadable: {reason}."
            case HostFailed(trace):
                self._failure = f"The JVM for Java connectors could not start: {trace}"
            case Ready():
                with self._sending:
                    for line in self._waiting or ():
                        self._send(line)
                    self._waiting = None
            case Answer(number, value, error, status):
                if (answer := self._answers.pop(number, None)) is not None:
                    if error is None:
                        answer.set_result(value)
                    else:
                        answer.set_exception(RestError(self._masked(error), status=status))
            case _:
                self._on_report(report)

    def _fail_answers(self) -> None:
        for number in list(self._answers):
            if (answer := self._answers.pop(number, None)) is not None:
                answer.set_exception(RestError(self._failure or "The JVM has ended.", status=500))
