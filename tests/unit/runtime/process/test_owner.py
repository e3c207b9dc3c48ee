"""A worker in a process: what it says when it is frozen, and what becomes of it when one of the two is not heard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from connectx.errors.clusters import WorkerStoppedError
from connectx.jvm.process import ChildProcess
from connectx.model.events import EventKind, Transition
from connectx.model.worker_config import WorkerConfig, embedded_config
from connectx.runtime.process import owner
from connectx.runtime.process.owner import ProcessEnvironment, ProcessWorker
from connectx.runtime.process.wire import News, encode
from connectx.runtime.process.wire import transition_content as content
from connectx.runtime.worker_handle import WorkerState
from tests.support.histories import transition
from tests.support.waiting import WAIT_S, until

FAILED = transition(EventKind.WORKER_FAILED, cause="it broke", data={"error": "it broke"})
STEP = encode(News.EVENT, transition=content(transition(EventKind.TASK_STEP, "c", 0, data={"step": "prepare"})))


def state_of(pid: int) -> str:
    """One letter of Linux: S sleeps, T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def worker_of(
    record: Callable[[Transition, str | None], object], ended: Callable[[ProcessWorker], None] = lambda worker: None
) -> ProcessWorker:
    config = WorkerConfig.parse({**embedded_config({}), "bootstrap.servers": "127.0.0.1:1"})
    return ProcessWorker("worker-1", ProcessEnvironment(config, "127.0.0.1:1", Future(), record, ended))


SCRIPTED = """
import signal, socket, sys
link = socket.socket(fileno=int(sys.argv[1]))
link.recv(1 << 16)
link.sendall(bytes.fromhex(sys.argv[2]))
if sys.argv[3] == "lives":
    signal.pause()
"""


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have workers start a process that sends these lines after its first order, and then lives on or ends."""

    def script(lines: bytes, *, lives: bool = True) -> None:
        def child(command: list[str], **given: Any) -> ChildProcess:
            said = [lines.hex(), "lives" if lives else "ends"]
            return ChildProcess([sys.executable, "-S", "-c", SCRIPTED, command[-1], *said], **given)

        monkeypatch.setattr(owner, "ChildProcess", child)

    return script


def test_a_worker_that_fails_in_the_moment_of_its_freeze_has_failed_and_does_not_stay_frozen(
    scripted: Callable[..., None],
) -> None:
    history: list[EventKind] = []
    listens, faults = threading.Event(), list[str]()

    def record(transition: Transition, name: str | None) -> None:
        history.append(transition.kind)
        if transition.kind is EventKind.TASK_STEP:  # what comes next is taken in when the process is frozen
            listens.set()
            until(lambda: worker.state is WorkerState.PAUSED, "the freeze")

    worker = worker_of(record)
    scripted(encode(News.DONE, id=1, result="http://w/") + STEP + encode(News.EVENT, transition=content(FAILED)))
    worker.start()
    pid = worker.pid
    assert pid is not None
    try:
        assert listens.wait(WAIT_S)
        assert not worker.freeze(tasks=True, on_fault=lambda: faults.append("pause"))
        assert (worker.state, worker.error, faults) == (WorkerState.FAILED, "it broke", [])
        assert history == [EventKind.TASK_STEP, EventKind.WORKER_FAILED]
        until(lambda: state_of(pid) == "S", "the process to go on")
    finally:
        os.kill(pid, signal.SIGKILL)  # a real process ends by itself when its worker fails
        worker.stop()


def refuse(transition: Transition, worker: str | None) -> None:
    """A history that takes in nothing of a task."""
    if transition.kind is EventKind.TASK_STEP:
        raise RuntimeError("the history is broken")


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (b'{"kind":"song"}\n', "ValueError: 'song' is not a valid News"),
        (b"no json\n", "JSONDecodeError: "),
        (STEP, "RuntimeError: the history is broken"),
    ],
)
def test_a_worker_that_cannot_be_understood_is_ended_and_has_failed(
    scripted: Callable[..., None], line: bytes, cause: str
) -> None:
    history: list[Transition] = []
    over: list[str] = []

    def record(transition: Transition, worker: str | None) -> None:
        refuse(transition, worker)
        history.append(transition)

    worker = worker_of(record, lambda worker: over.append(worker.name))
    scripted(line)
    with pytest.raises(WorkerStoppedError, match="could not be read"):
        worker.start()
    until(lambda: over == ["worker-1"], "the end of the worker")
    assert worker.state is WorkerState.FAILED
    assert f"could not be read: {cause}" in (worker.error or "")
    assert [transition.kind for transition in history] == [EventKind.WORKER_FAILED]
    assert not Path(f"/proc/{worker.pid}").exists(), "the process has ended"


def test_others_hear_of_the_end_of_a_process_though_it_cannot_be_recorded(scripted: Callable[..., None]) -> None:
    def record(transition: Transition, worker: str | None) -> None:
        raise RuntimeError("the history is broken")

    over: list[str] = []
    worker = worker_of(record, lambda worker: over.append(worker.name))
    scripted(b"", lives=False)
    with pytest.raises(WorkerStoppedError, match="exit code"):
        worker.start()
    until(lambda: over == ["worker-1"], "the end of the worker")
    assert worker.state is WorkerState.FAILED


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
