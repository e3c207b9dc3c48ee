"""The owner's side of a worker process: the same interface as `connectx.runtime.worker.Worker`.

Faults are signals: kill is SIGKILL, pause is SIGSTOP, resume is SIGCONT; only stall and stop are orders to the process.
Events of the process before a fault are in the history before the fault. Decides nothing about the group.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any, Final

from connectx.core.invariants import Rule
from connectx.core.rules import BrokenRule
from connectx.errors.base import ConnectxError
from connectx.errors.clusters import WorkerFailedError, WorkerStoppedError
from connectx.jvm.cache import OwnedDir
from connectx.jvm.process import ChildProcess, log_tail
from connectx.model.causes import ThreadEnded
from connectx.model.events import Transition
from connectx.model.ids import TaskId
from connectx.model.payloads import StepName, TaskEnded, TaskState, TaskStep, WorkerFailed
from connectx.model.states import State
from connectx.model.worker_config import WorkerConfig
from connectx.recording.file import Recording, recordings_of
from connectx.runtime.process.wire import Line, Lines, News, Order, encode, metrics_of, transition_of
from connectx.runtime.worker_handle import ALIVE, JOINED, Isolation, OnFault, WorkerState, no_op
from connectx.values import Value

_ANSWER_S: Final = 10.0
_FREEZE_S: Final = 2.0
_FIRST_FD: Final = 10  # the shell that watches over the process uses lower numbers itself
_LOG_SHOWN_BYTES: Final = 2000
_log = logging.getLogger(__name__)


class ProcessEnvironment(Value):
    """What a worker in a process is given.

    Attributes:
        config: settings, the same for all workers of a cluster.
        bootstrap_servers: where this worker's clients connect, through the gate if there is one.
        spark_url: address of the Spark Connect server, once it is up.
        record: puts a transition of a worker into the history.
        ended: called when a process has ended for any reason, on a thread that may wait.
    """

    config: WorkerConfig
    bootstrap_servers: str
    spark_url: Future[str]
    record: Callable[[Transition, str | None], object]
    ended: Callable[[ProcessWorker], None]


class ProcessWorker:
    """A worker of the group, in a separate process."""

    isolation: Final[Isolation] = "process"

    def __init__(self, name: str, environment: ProcessEnvironment) -> None:
        self.name = name
        self.process_token = secrets.token_hex(8)  # no worker of any cluster has the same
        self.state = WorkerState.STARTING
        self.error: str | None = None
        self.url = ""
        self.spark_sessions: list[str] = []
        self._given = environment
        self._moving = threading.Lock()
        self._pumping = threading.Lock()  # the listener and a fault both take in what has come, one at a time
        self._over = threading.Event()
        self._dir: OwnedDir | None = None
        self._child: ChildProcess | None = None
        self._link: socket.socket | None = None
        self._lines = Lines()
        self._answers: dict[int, Future[Any]] = {}
        self._ids = itertools.count(1)
        self._view: Mapping[str, Any] = {}
        self._instances: dict[TaskId, int] = {}  # tasks that run there
        self._task_metrics: dict[TaskId, Mapping[str, object]] = {}
        self._heartbeat_ms: int | None = None
        self._has_jvm = False
        self._in_time = True
        self._on_killed: OnFault = no_op
        self._garbled: str | None = None  # why its output can no longer be read
        self._listener = threading.Thread(target=self._listen, name=f"{name}-listener", daemon=True)

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    @property
    def alive(self) -> bool:
        return self.state in ALIVE

    def view(self) -> Mapping[str, Any]:
        """The core's latest view of its place in the group, also after its end; never blocks."""
        return self._view

    def task_metrics(self) -> dict[TaskId, Mapping[str, object]]:
        """Live numbers of the tasks that run there, at most half a second old."""
        return {task: self._task_metrics.get(task, {}) for task in sorted(self._instances)}

    def heartbeat_ms(self) -> int | None:
        """When the group last answered one of its heartbeats, by its own clock; at most half a second late."""
        return self._heartbeat_ms

    def check(self, timeout_s: float = 10.0) -> tuple[BrokenRule, ...]:
        """Check the rules between the parts of its core, in its process.

        Raises:
            WorkerStoppedError: it has ended, or does not answer in time, as while it is paused.
        """
        found = self._inspect(Order.CHECK, timeout_s + _ANSWER_S, timeout_s=timeout_s)
        return tuple(BrokenRule(Rule[name], detail) for name, detail in found)

    def recordings(self, reason: str) -> tuple[Recording, ...]:
        """Return the latest steps of its cores, without secrets; empty if it keeps none, or has ended."""
        if not self.alive:
            return ()  # they went with its process, which wrote it to a file if it failed
        lines = self._inspect(Order.RECORDING, _ANSWER_S, reason=reason)
        return recordings_of(lines, self.name) if lines else ()

    def _inspect(self, order: Order, answer_s: float, **content: Any) -> list[Any]:
        if not self.alive:
            raise WorkerStoppedError(self.name, self.error or f"it is {self.state}")
        try:
            return list(self._order(order, **content).result(answer_s))
        except FutureTimeoutError:
            raise WorkerStoppedError(self.name, f"its process did not answer within {answer_s:g} s") from None
        except WorkerFailedError as error:
            raise WorkerStoppedError(self.name, str(error.message)) from error

    def start(self) -> None:
        """Start the process and wait until the worker may join the group.

        Raises:
            WorkerFailedError: it could not start: a port is taken, Kafka cannot be reached, ...
            WorkerStoppedError: it was ended meanwhile.
        """
        with self._moving:
            if self.state is not WorkerState.STARTING:
                raise WorkerStoppedError(self.name, f"it was {self.state} before it had started")
            self._spawn()
            self._listener.start()
        given = self._given
        config, servers = dict(given.config.given), given.bootstrap_servers
        started = self._order(
            Order.START, name=self.name, process_token=self.process_token, config=config, bootstrap_servers=servers
        )
        self.url = str(started.result())
        if not self._move(WorkerState.RUNNING, WorkerState.STARTING):
            raise WorkerStoppedError(self.name, f"it was {self.state} before it had started")
        given.spark_url.add_done_callback(self._send_spark)

    def request_stop(self) -> None:
        """Begin to stop, without waiting. `stop` waits for the end."""
        if self.state is WorkerState.STARTING:
            if self._move(WorkerState.STOPPED, WorkerState.STARTING):
                self._end_process()
        elif self._move(WorkerState.STOPPING, *JOINED):
            self._send(encode(Order.REQUEST_STOP))

    def stop(self, timeout_s: float = 30.0) -> bool:
        self.request_stop()
        was_alive = self.alive
        if was_alive:
            self._send(encode(Order.STOP, timeout_s=timeout_s))
            if not self._over.wait(timeout_s + _ANSWER_S):
                self._in_time = False
                self._move(WorkerState.STOPPED, WorkerState.STOPPING)
                self._end_process()
        if self._listener.is_alive():
            self._listener.join(_ANSWER_S)  # what is done after its end needs Kafka and Spark
        return not was_alive or (self.state is WorkerState.STOPPED and self._in_time)

    def kill(self, on_fault: OnFault = no_op) -> None:
        """A fault: SIGKILL. Returns when the process is gone, and all its reports are in the history."""
        self._freeze_jvm()
        with self._moving:
            if self.state not in ALIVE:
                return
            self.state = WorkerState.KILLED
            self._on_killed = on_fault
        self._end_process()

    def freeze(self, *, tasks: bool, on_fault: OnFault = no_op) -> bool:
        """A fault: SIGSTOP, or without the tasks an order to the core alone. False when there is nothing to freeze."""
        if not tasks:
            if self.state is not WorkerState.RUNNING:
                return False
            on_fault()
            return bool(self._ask(Order.STALL)) and self._move(WorkerState.STALLED, WorkerState.RUNNING)
        self._freeze_jvm()
        with self._moving:
            if self._child is None or self.state not in (WorkerState.RUNNING, WorkerState.STALLED):
                return False
            self._child.signal(signal.SIGSTOP)
            self.state = WorkerState.PAUSED
        self._pump()  # without the lock: its last message may be that it has failed
        if self.state is not WorkerState.PAUSED or self._garbled is not None:
            self._child.signal(signal.SIGCONT)  # it is about to end by itself
            return False
        on_fault()
        return True

    def _freeze_jvm(self) -> None:
        """Let the process stop its JVM, which gets no signal that the process gets, and record what it has committed.

        The JVM of a process that is killed then ends with it.
        """
        if self._has_jvm and self.state in (WorkerState.RUNNING, WorkerState.STALLED, WorkerState.STOPPING):
            with suppress(FutureTimeoutError, WorkerStoppedError):
                self._order(Order.FREEZE_JVM).result(_FREEZE_S)

    def thaw(self) -> bool:
        """End `freeze`: SIGCONT, and an order to the core. False if it was not frozen."""
        if self._child is None or self.state not in (WorkerState.PAUSED, WorkerState.STALLED):
            return False
        was_stalled = self.state is WorkerState.STALLED
        self._child.signal(signal.SIGCONT)
        if was_stalled:
            self._ask(Order.THAW)
        else:
            self._send(encode(Order.THAW, id=0))  # in case it was stalled before; it has much to catch up with
        return self._move(WorkerState.RUNNING, WorkerState.PAUSED, WorkerState.STALLED)

    def _move(self, to: WorkerState, *sources: WorkerState) -> bool:
        with self._moving:
            if self.state not in sources:
                return False
            self.state = to
            return True

    def _spawn(self) -> None:
        self._dir = OwnedDir("worker")
        self._link, theirs = socket.socketpair()
        fd = fcntl.fcntl(theirs, fcntl.F_DUPFD, _FIRST_FD)
        env = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
        env["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        command = [sys.executable, "-P", "-m", "connectx.runtime.process.child", str(fd)]
        try:
            self._child = ChildProcess(command, log=self._dir.path / "worker.log", env=env, pass_fds=[fd])
        finally:
            os.close(fd)
            theirs.close()

    def _end_process(self) -> None:
        """SIGKILL, and wait until its end is in the history."""
        if self._child is None:
            self._on_killed()
            self._over.set()
            return
        self._child.kill()
        self._over.wait(_ANSWER_S)

    def _send(self, line: bytes) -> None:
        if self._link is not None:
            with suppress(OSError):  # it has ended; the listener finds out
                self._link.sendall(line)

    def _order(self, order: Order, **content: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        number = next(self._ids)
        self._answers[number] = answer
        self._send(encode(order, id=number, **content))
        if self._over.is_set():
            self._fail_answers()
        return answer

    def _ask(self, order: Order) -> Any:
        try:
            return self._order(order).result(_ANSWER_S)
        except FutureTimeoutError:
            return None

    def _send_spark(self, url: Future[str]) -> None:
        error = url.exception()
        if error is None:
            self._send(encode(Order.SPARK, url=url.result()))
        else:
            self._send(encode(Order.SPARK, error=error.message if isinstance(error, ConnectxError) else str(error)))

    def _listen(self) -> None:
        """The listener's thread: takes in what comes, until the process has ended."""
        assert self._link is not None
        with suppress(OSError):
            while self._garbled is None and self._link.recv(1, socket.MSG_PEEK):
                self._pump()
        self._on_end()

    def _pump(self) -> None:
        """Handle all reports so far. A report that cannot be handled ends the process, because it would be lost."""
        assert self._link is not None
        assert self._child is not None
        with self._pumping:
            while self._garbled is None:
                try:
                    data = self._link.recv(1 << 16, socket.MSG_DONTWAIT)
                except OSError:
                    return
                if not data:
                    return
                try:
                    for line in self._lines.feed(data):
                        self._take(line)
                except Exception as error:  # with any error: a worker without a link to its owner must not continue
                    self._garbled = f"a message of its process could not be read: {type(error).__name__}: {error}"
                    _log.exception("%s: %s", self.name, self._garbled)
                    self._child.kill()

    def _take(self, news: Line) -> None:
        kind = News(news["kind"])
        if kind is News.EVENT:
            self._on_event(transition_of(news["transition"]))
        elif kind is News.VIEW:
            self._view = news["view"]
        elif kind is News.HEARTBEAT:
            self._heartbeat_ms = news["time_ms"]
        elif kind is News.TASK_METRICS:
            self._task_metrics = metrics_of(news["metrics"])
        elif kind is News.SPARK_SESSION:
            self.spark_sessions.append(news["session_id"])
        elif kind is News.SPARK_SESSION_RELEASED:
            self.spark_sessions.remove(news["session_id"])
        elif kind is News.JVM:
            self._has_jvm = news["pid"] is not None
        elif kind is News.STOPPED:
            self._in_time = news["in_time"]
            self._move(WorkerState.STOPPED, WorkerState.STOPPING)
        elif (answer := self._answers.pop(news["id"], None)) is not None:
            if "error" in news:
                answer.set_exception(WorkerFailedError(self.name, news["error"]))
            else:
                answer.set_result(news["result"])

    def _on_event(self, transition: Transition) -> None:
        task = None if transition.task is None else TaskId(transition.connector or "", transition.task)
        match transition.payload:
            case WorkerFailed(error):
                self._fail(error)
            case TaskEnded(instance) if task is not None and self._instances.get(task) == instance:
                del self._instances[task]
            case (TaskStep(_, int(instance)) | TaskState(_, _, int(instance))) as payload if task and _begins(payload):
                self._instances[task] = max(instance, self._instances.get(task, instance))
        self._given.record(transition, self.name)

    def _fail(self, cause: str) -> bool:
        self.error = self.error or cause
        return self._move(WorkerState.FAILED, *ALIVE)

    def _on_end(self) -> None:
        """The process has ended, and all its messages were read."""
        assert self._child is not None
        assert self._link is not None
        assert self._dir is not None
        code = self._child.wait(_ANSWER_S)
        self._child.kill()  # one that has closed its link and still runs cannot report any more
        try:
            self._record_end(code)
        except Exception:  # whatever it is, others wait for the end
            _log.exception("%s: its end could not be recorded", self.name)
        self._instances = {}
        self._over.set()
        self._fail_answers()
        try:
            self._given.ended(self)
        finally:
            self._link.close()
            self._dir.remove()

    def _record_end(self, code: int | None) -> None:
        assert self._child is not None
        self._on_killed()
        cause = self._garbled or f"its process ended with exit code {code}"
        if self.alive and self._fail(cause):
            _log.warning("%s: %s\n%s", self.name, cause, log_tail(self._child.log, _LOG_SHOWN_BYTES))
            self._given.record(Transition(WorkerFailed(cause)), self.name)
        for task in sorted(self._instances):
            why = ThreadEnded("its worker's process has ended")
            ended = Transition(TaskEnded(self._instances[task]), task.connector, task.task, why=why)
            self._given.record(ended, self.name)

    def _fail_answers(self) -> None:
        for number in list(self._answers):
            answer = self._answers.pop(number, None)
            if answer is not None:
                reason = self.error or f"it is {self.state}"
                answer.set_exception(WorkerStoppedError(self.name, reason))


def _begins(payload: TaskStep | TaskState) -> bool:
    """True for what only a task with a thread reports."""
    if isinstance(payload, TaskStep):
        return payload.step not in (StepName.STOP, StepName.CANCEL)
    return payload.state in (State.RUNNING, State.PAUSED)
