"""The process of one worker: `python -m connectx.runtime.process.child FD`, started by its owner.

Decides nothing: it makes the same `Worker` that threads use, carries out its owner's orders and reports what happens.
The whole configuration comes over the inherited socket, so that no secret is on a command line. When the socket closes,
the owner is gone, and the process ends immediately. If it is frozen then, the watcher that started it ends it.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Final

from connectx.errors.base import ConnectxError
from connectx.history.clock import system_clock
from connectx.model.events import EventKind, Transition
from connectx.plugins.registry import Plugins, worker_config
from connectx.runtime.process.wire import Line, Lines, News, Order, encode, metrics_content, transition_content
from connectx.runtime.worker import Worker, WorkerEnvironment
from connectx.spark.remote import RemoteSpark

_METRICS_S: Final = 0.25
_FLUSH_S: Final = 5.0
_log = logging.getLogger(__name__)


class _Sender:
    """Sends lines to the owner on a separate thread, so that the core and the tasks never wait for it."""

    def __init__(self, link: socket.socket, worker: Callable[[], Worker | None]) -> None:
        self._link = link
        self._worker = worker
        self._sent_heartbeat_ms: int | None = None
        self._sent_metrics: list[list[Any]] = []
        self._sent_jvm: int | None = None
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="connectx-sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def send(self, kind: News, **content: Any) -> None:
        """Queue a line; never blocks."""
        self._lines.put(encode(kind, **content))

    def end(self) -> None:
        """Send what is queued, then no more."""
        self._lines.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(_FLUSH_S)

    def _run(self) -> None:
        try:
            self._send()
        except Exception:  # with any error: a worker without a link to its owner must not continue
            _log.exception("the worker cannot reach its owner any more")
            os._exit(1)

    def _send(self) -> None:
        due_s = time.monotonic() + _METRICS_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, due_s - time.monotonic()))
            except Empty:
                due_s = time.monotonic() + _METRICS_S
                line = self._regular_news()
            if line is None:
                return
            try:
                self._link.sendall(line)
            except OSError:
                os._exit(1)  # the owner is gone

    def _regular_news(self) -> bytes:
        """What is not worth a line each time that it changes: the last heartbeat and the numbers of the tasks."""
        worker, lines = self._worker(), b""
        if worker is None:
            return lines
        heartbeat_ms, metrics = worker.heartbeat_ms(), metrics_content(worker.task_metrics())
        if heartbeat_ms != self._sent_heartbeat_ms:
            self._sent_heartbeat_ms = heartbeat_ms
            lines += encode(News.HEARTBEAT, time_ms=heartbeat_ms)
        if metrics != self._sent_metrics:
            self._sent_metrics = metrics
            lines += encode(News.TASK_METRICS, metrics=metrics)
        if (pid := worker.jvm.pid) != self._sent_jvm:
            self._sent_jvm = pid
            lines += encode(News.JVM, pid=pid)
        return lines


class Child:
    """The process of one worker, from its owner's first order to its end."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._sender = _Sender(link, lambda: self._worker)
        self._spark = RemoteSpark(
            on_session=lambda session_id: self._sender.send(News.SPARK_SESSION, session_id=session_id),
            on_released=lambda session_id: self._sender.send(News.SPARK_SESSION_RELEASED, session_id=session_id),
        )
        self._worker: Worker | None = None
        self._started = False
        self._view: Mapping[str, Any] = {}

    def run(self) -> None:
        """Carry out orders until the owner is gone; never returns before."""
        self._sender.start()
        lines = Lines()
        while data := self._link.recv(1 << 16):
            for line in lines.feed(data):
                self._carry_out(line)

    def _carry_out(self, order: Line) -> None:
        kind = Order(order["kind"])
        if kind is Order.START:
            threading.Thread(target=self._start, args=(order,), name="connectx-start", daemon=True).start()
            return
        if kind is Order.SPARK:
            if "url" in order:
                self._spark.connect(order["url"])
            else:
                self._spark.fail(order["error"])
            return
        worker = self._worker
        assert worker is not None, "an owner orders nothing before the start is done"
        if kind is Order.STALL:
            self._done(order, worker.freeze(tasks=False))
        elif kind is Order.FREEZE_JVM:
            worker.jvm.freeze()
            self._done(order, True)
        elif kind is Order.THAW:
            worker.jvm.thaw()
            self._done(order, worker.thaw())
        elif kind in (Order.CHECK, Order.RECORDING):  # on a thread: a stalled core does not answer
            args = (worker, kind, order)
            threading.Thread(target=self._inspect, args=args, name="connectx-inspect", daemon=True).start()
        elif kind is Order.REQUEST_STOP:
            worker.request_stop()
        elif kind is Order.STOP:
            in_time = worker.stop(order["timeout_s"])
            self._sender.send(News.STOPPED, in_time=in_time)
            self._end(0)

    def _start(self, order: Line) -> None:
        try:
            environment = WorkerEnvironment(
                worker_config(order["config"]),
                order["bootstrap_servers"],
                Plugins(),
                self._spark,
                self._record,
                system_clock(),
                self._on_view,
                order["process_token"],
            )
            self._worker = Worker(order["name"], environment)
            self._worker.start()
        except Exception as error:  # whatever it is, the owner waits for it
            _log.exception("the worker could not start")
            shown = error.message if isinstance(error, ConnectxError) else f"{type(error).__name__}: {error}"
            self._sender.send(News.DONE, id=order["id"], error=shown)
            self._end(1)
        self._started = True
        self._done(order, self._worker.url if self._worker is not None else "")

    def _inspect(self, worker: Worker, kind: Order, order: Line) -> None:
        try:
            if kind is Order.CHECK:
                self._done(order, [[broken.rule.name, broken.found] for broken in worker.check(order["timeout_s"])])
            else:
                recordings = worker.recordings(order["reason"])
                self._done(order, [line for recording in recordings for line in recording.lines()])
        except ConnectxError as error:
            self._sender.send(News.DONE, id=order["id"], error=error.message)

    def _done(self, order: Line, result: object) -> None:
        self._sender.send(News.DONE, id=order["id"], result=result)

    def _record(self, transition: Transition, worker: str | None) -> None:
        self._sender.send(News.EVENT, transition=transition_content(transition))
        if transition.kind is EventKind.WORKER_FAILED and self._started:
            self._end(1)

    def _on_view(self, view: Mapping[str, Any]) -> None:
        if view != self._view:
            self._view = view
            self._sender.send(News.VIEW, view=view)

    def _end(self, code: int) -> None:
        """End the process after its queued reports are sent, without closing anything."""
        self._sender.end()
        logging.shutdown()
        os._exit(code)


def main() -> None:
    """Run the worker that the owner at the other end of the inherited socket orders."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s [%(threadName)s] %(levelname)s %(name)s: %(message)s"
    )
    try:
        with socket.socket(fileno=int(sys.argv[1])) as link:
            Child(link).run()
    except Exception:  # with any error: a worker without orders must not continue
        _log.exception("the worker cannot take orders any more")
    os._exit(1)  # the owner has ended, and so have its Kafka and Spark


if __name__ == "__main__":
    main()
