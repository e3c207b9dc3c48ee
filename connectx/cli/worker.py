"""`connectx worker FILE.properties`: one distributed worker as a separate process, in place of a Java worker.

Decides how a worker's process begins and ends: its settings from Kafka Connect's own file, its log on stderr, signals,
exit codes. Everything else is `connectx.runtime.worker`. Mirrors Kafka Connect's ConnectDistributed; exit codes are
finer here: 0 stopped by a signal, 1 the worker failed, 2 wrong usage or settings, 3 its REST port is taken, 4 Kafka or
its internal topics cannot be used.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Annotated, Any, Final

import typer

from connectx import __version__
from connectx.cli import worker_log
from connectx.cli.common import read_properties
from connectx.errors.base import ConnectxError
from connectx.errors.history import EventLogError
from connectx.errors.kafka import (
    ClientSettingError,
    InternalTopicError,
    KafkaLoginError,
    KafkaPermissionError,
    KafkaRequestError,
    KafkaUnreachableError,
    TopicMissingError,
)
from connectx.errors.plugins import ConfigError, ConfigProviderError, PluginNotFoundError
from connectx.errors.rest import CommandError, ListenerError, ListenerTakenError, RestAuthError, RestTlsError
from connectx.errors.spark import SparkSettingError
from connectx.model.events import EventKind, Transition
from connectx.model.worker_config import WorkerConfig
from connectx.plugins.registry import worker_config
from connectx.views import masked

STOPPED, FAILED, BAD_SETTINGS, PORT_TAKEN, NO_KAFKA = range(5)

_STOP_S: Final = 30.0
_STARTED: Final = "started"
_FAILED: Final = "failed"
_KAFKA_ERRORS: Final = (
    KafkaUnreachableError,
    KafkaLoginError,
    KafkaPermissionError,
    KafkaRequestError,
    InternalTopicError,
    TopicMissingError,
)
_SETTINGS_ERRORS: Final = (
    ConfigError,
    ConfigProviderError,
    ClientSettingError,
    ListenerError,
    PluginNotFoundError,
    RestAuthError,
    RestTlsError,
    SparkSettingError,
)
_CODES: Final[tuple[tuple[tuple[type[BaseException], ...], int], ...]] = (
    ((ListenerTakenError,), PORT_TAKEN),
    (_SETTINGS_ERRORS, BAD_SETTINGS),
    (_KAFKA_ERRORS, NO_KAFKA),
)

_log = logging.getLogger(__name__)

News = str | int | BaseException
"""What the main thread waits for: a signal's number, why the worker cannot start, or that it has started or failed."""


def worker(
    file: Annotated[Path, typer.Argument(metavar="FILE.properties", help="Worker settings, as for Kafka Connect.")],
    name: Annotated[
        str | None, typer.Option(help="Name in client ids and in the history; by default host and process id.")
    ] = None,
    log_level: Annotated[worker_log.Level, typer.Option(help="Level of connectx's log.")] = worker_log.Level.INFO,
    kafka_timeout: Annotated[
        float, typer.Option(min=1, help="How many seconds to wait for Kafka at the start.")
    ] = 60.0,
    history: Annotated[
        Path | None, typer.Option(help="File for the events, written at the end, for `connectx replay`.")
    ] = None,
) -> None:
    """Run one distributed worker, like Kafka Connect's connect-distributed.sh, until SIGTERM or SIGINT.

    Workers with the same group.id and topics form a cluster, with Java workers, too. REST listens on 127.0.0.1 unless
    `listeners` names another host. Spark starts when a task first needs it. Exit codes: 0 stopped by a signal, 1 the
    worker failed, 2 wrong usage or settings, 3 the REST port is taken, 4 Kafka cannot be used.
    """
    worker_log.to_stderr(log_level)
    own_name = (name or f"{socket.gethostname()}-{os.getpid()}").replace("/", "-")
    try:
        process = _Process(own_name, worker_config(read_properties(file)), kafka_timeout)
    except (CommandError, *_SETTINGS_ERRORS) as error:
        _log.error("The settings in %s cannot be used: %s", file, _sentence(error))
        raise typer.Exit(BAD_SETTINGS) from None
    code = process.run(history)
    logging.shutdown()
    os._exit(code)  # threads of clients that Kafka does not answer would hold the process back


class _Process:
    """The worker's process, from its settings to its exit code."""

    def __init__(self, name: str, config: WorkerConfig, kafka_timeout_s: float) -> None:
        from connectx.history.clock import system_clock
        from connectx.history.log import EventLog
        from connectx.kafka.settings.clients import ClientConfigs
        from connectx.plugins.registry import Plugins
        from connectx.runtime.worker import Worker, WorkerEnvironment
        from connectx.spark.sessions import SparkProvider

        self._config = config
        self._kafka_timeout_s = kafka_timeout_s
        self._news: SimpleQueue[News] = SimpleQueue()
        clock = system_clock()
        self._events = EventLog(clock=clock)
        self._clients = ClientConfigs(config, name)
        self._spark = SparkProvider(config.spark_settings or None)  # starts with the first task that asks for a session
        self._worker = Worker(
            name, WorkerEnvironment(config, config.bootstrap_servers, Plugins(), self._spark, self._record, clock)
        )

    def run(self, history: Path | None) -> int:
        """Start, wait for a signal or a failure, end; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._introduce()
        threading.Thread(target=self._start, name="connectx-start", daemon=True).start()
        code = self._wait()
        if not self._worker.stop(_STOP_S):
            _log.warning("Some tasks did not stop in time and were abandoned")
        self._spark.close()
        if history is not None:
            try:
                self._events.to_jsonl(history)
            except EventLogError as error:
                _log.error("%s", error)
        _log.info("Worker stopped")
        return code

    def _introduce(self) -> None:
        config = self._config
        shown = "".join(f"\n\t{key} = {value}" for key, value in sorted(masked(config.given).items()))
        _log.info("Starting a Kafka Connect worker, connectx %s, with these settings:%s", __version__, shown)
        for warning in config.warnings:
            _log.warning("%s", warning)
        if "//:" in config.listeners[0]:
            _log.warning("REST listens on 127.0.0.1 only; to be reached from elsewhere, name a host in listeners")

    def _start(self) -> None:
        from connectx.kafka.admin.topics import ensure_internal_topics

        try:
            self._worker.start(lambda: ensure_internal_topics(self._clients, self._config, self._kafka_timeout_s))
        except BaseException as error:  # whatever it is, the main thread waits for it
            self._news.put(error)
        else:
            self._news.put(_STARTED)

    def _wait(self) -> int:
        """Until a signal or a failure; the exit code."""
        started = False
        while True:
            news = self._news.get()
            if isinstance(news, int):
                _log.info("%s: stopping", signal.Signals(news).name)
                signal.signal(signal.SIGINT, _exit)
                signal.signal(signal.SIGTERM, _exit)
                self._worker.request_stop()
                return STOPPED
            if isinstance(news, BaseException):
                _log.error("The worker cannot start: %s", _sentence(news), exc_info=_unexpected(news))
                return next((code for kinds, code in _CODES if isinstance(news, kinds)), FAILED)
            started = started or news == _STARTED
            if started and not self._worker.alive:
                _log.error("The worker has failed: %s", self._worker.error)
                return FAILED
            if news == _STARTED:
                _log.info("REST listens at %s", self._worker.url)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._news.put(number)

    def _record(self, transition: Transition, worker: str | None) -> None:
        self._events.append(transition, worker)
        worker_log.log_transition(transition)
        if transition.kind is EventKind.WORKER_FAILED:
            self._news.put(_FAILED)  # of one that starts, `_start` knows more


def _exit(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _sentence(error: BaseException) -> str:
    if isinstance(error, ConfigError):
        return "; ".join(problem.rstrip(".") for problem in error.problems) + f". {error.next_step}".rstrip()
    return str(error) or type(error).__name__


def _unexpected(error: BaseException) -> Any:
    """The trace of what is not one of our own sentences."""
    return None if isinstance(error, ConnectxError) else error
