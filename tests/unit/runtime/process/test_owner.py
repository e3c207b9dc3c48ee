"""A worker in a process: what it says when it is frozen, and what becomes of it when one of the two is not heard."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from connectx.errors import WorkerStoppedError
from connectx.jvm.cache import OwnedDir
from connectx.jvm.process import ChildProcess
from connectx.model.events import EventKind, Transition
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.runtime.process.owner import ProcessSurroundings, ProcessWorker
from connectx.runtime.process.wire import News, Order, encode, transition_content
from connectx.runtime.worker_handle import WorkerState
from tests.support.histories import transition
from tests.support.waiting import until

FAILED = transition(EventKind.WORKER_FAILED, cause="it broke", data={"error": "it broke"})


def state_of(pid: int) -> str:
    """One letter of Linux: S sleeps, T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def worker_of(
    record: Callable[[Transition, str | None], object], ended: Callable[[ProcessWorker], None] = lambda worker: None
) -> ProcessWorker:
    config = WorkerConfig.parse({**embedded_config({}), "bootstrap.servers": "127.0.0.1:1"})
    return ProcessWorker("worker-1", ProcessSurroundings(config, "127.0.0.1:1", Future(), record, ended))


@pytest.fixture
def child(tmp_path: Path) -> Iterator[ChildProcess]:
    """A process that only sleeps."""
    process = ChildProcess([sys.executable, "-c", "import time; time.sleep(600)"], log=tmp_path / "log")
    yield process
    process.kill()


def test_a_worker_that_fails_in_the_moment_of_its_freeze_has_failed_and_does_not_stay_frozen(
    child: ChildProcess,
) -> None:
    history: list[EventKind] = []
    worker = worker_of(lambda transition, worker: history.append(transition.kind))
    mine, theirs = socket.socketpair()
    with mine, theirs:
        theirs.sendall(encode(News.EVENT, transition=transition_content(FAILED)))
        worker._child, worker._link, worker.state = child, mine, WorkerState.RUNNING
        faults: list[str] = []
        frozen: list[bool] = []
        freezing = threading.Thread(
            target=lambda: frozen.append(worker.freeze(tasks=True, on_fault=lambda: faults.append("pause"))),
            daemon=True,
        )
        freezing.start()
        freezing.join(10)
        assert frozen == [False]
    assert (worker.state, worker.error, history, faults) == (
        WorkerState.FAILED,
        "it broke",
        [EventKind.WORKER_FAILED],
        [],
    )
    until(lambda: state_of(child.pid) == "S", "the process to go on")


def refuse(transition: Transition, worker: str | None) -> None:
    """A history that takes in nothing of a task."""
    if transition.kind is EventKind.TASK_STEP:
        raise RuntimeError("the history is broken")


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (b'{"kind":"song"}\n', "ValueError: 'song' is not a valid News"),
        (b"no json\n", "JSONDecodeError: "),
        (
            encode(
                News.EVENT,
                transition=transition_content(transition(EventKind.TASK_STEP, "c", 0, data={"step": "prepare"})),
            ),
            "RuntimeError: the history is broken",
        ),
    ],
)
def test_a_worker_that_cannot_be_understood_is_ended_and_has_failed(
    child: ChildProcess, line: bytes, cause: str
) -> None:
    history: list[Transition] = []
    over: list[str] = []

    def record(transition: Transition, worker: str | None) -> None:
        refuse(transition, worker)
        history.append(transition)

    worker = worker_of(record, lambda worker: over.append(worker.name))
    mine, theirs = socket.socketpair()
    with mine, theirs:
        worker._child, worker._link, worker._dir = child, mine, OwnedDir("worker")
        answer: Future[Any] = worker._order(Order.START)
        worker._listener.start()
        theirs.sendall(line)
        with pytest.raises(WorkerStoppedError, match="could not be taken in"):
            answer.result(30)
        worker._listener.join(30)
    assert worker.state is WorkerState.FAILED
    assert f"could not be taken in: {cause}" in (worker.error or "")
    assert [transition.kind for transition in history] == [EventKind.WORKER_FAILED]
    assert over == ["worker-1"]
    assert child.poll() is not None, "the process has ended"


def test_others_hear_of_the_end_of_a_process_though_it_cannot_be_recorded(child: ChildProcess) -> None:
    def record(transition: Transition, worker: str | None) -> None:
        raise RuntimeError("the history is broken")

    over: list[str] = []
    worker = worker_of(record, lambda worker: over.append(worker.name))
    mine, theirs = socket.socketpair()
    worker._child, worker._link, worker._dir = child, mine, OwnedDir("worker")
    answer: Future[Any] = worker._order(Order.START)
    child.kill()
    theirs.close()
    worker._listener.start()
    with pytest.raises(WorkerStoppedError, match="exit code"):
        answer.result(30)
    worker._listener.join(30)
    assert (worker.state, over) == (WorkerState.FAILED, ["worker-1"])


MUTE = """
import logging, socket, threading
from connectx.runtime.process.child import _Sender

def no_worker():
    raise RuntimeError("no worker")

logging.basicConfig()
mine, theirs = socket.socketpair()
_Sender(mine, no_worker).start()
threading.Event().wait(30)
"""


def test_a_process_that_cannot_reach_its_owner_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", MUTE], check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "cannot reach its owner" in ended.stderr
    assert "RuntimeError: no worker" in ended.stderr
