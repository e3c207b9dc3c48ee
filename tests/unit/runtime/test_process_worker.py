"""A worker in a process, as its owner holds it: what the process says in the moment in which it is frozen."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from connectx.jvm.process import ChildProcess
from connectx.model.events import EventKind, Transition
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.runtime.live import WorkerState
from connectx.runtime.process_lines import News, encode, transition_content
from connectx.runtime.process_worker import ProcessSurroundings, ProcessWorker
from tests.integration.waiting import until

FAILED = Transition(EventKind.WORKER_FAILED, cause="it broke", data={"error": "it broke"})


def state_of(pid: int) -> str:
    """One letter of Linux: S sleeps, T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def child(tmp_path: Path) -> Iterator[ChildProcess]:
    """A process that only sleeps."""
    process = ChildProcess([sys.executable, "-c", "import time; time.sleep(600)"], log=tmp_path / "log")
    yield process
    process.kill()


def test_a_worker_that_fails_in_the_moment_of_its_freeze_has_failed_and_does_not_stay_frozen(
    child: ChildProcess,
) -> None:
    config = WorkerConfig.parse({**embedded_config({}), "bootstrap.servers": "127.0.0.1:1"})
    history: list[EventKind] = []
    url: Future[str] = Future()
    given = ProcessSurroundings(
        config, "127.0.0.1:1", url, lambda transition, worker: history.append(transition.kind), lambda worker: None
    )
    worker = ProcessWorker("worker-1", given)
    mine, theirs = socket.socketpair()
    with mine, theirs:
        theirs.sendall(encode(News.EVENT, transition=transition_content(FAILED)))
        worker._child, worker._link, worker.state = child, mine, WorkerState.RUNNING
        told: list[str] = []
        frozen: list[bool] = []
        freezing = threading.Thread(
            target=lambda: frozen.append(worker.freeze(tasks=True, told=lambda: told.append("pause"))), daemon=True
        )
        freezing.start()
        freezing.join(10)
        assert frozen == [False]
    assert (worker.state, worker.error, history, told) == (
        WorkerState.FAILED,
        "it broke",
        [EventKind.WORKER_FAILED],
        [],
    )
    until(lambda: state_of(child.pid) == "S", "the process to go on")
