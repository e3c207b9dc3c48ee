"""Ends every process that a test run has started, as soon as the run's own process ends, also by SIGKILL.

`watch()` marks the environment of this process, which all programs inherit that it starts from then on, and starts the
watchdog: a process in a separate session, so that no signal for the run reaches it. When the run is gone, it kills
what has the mark and what that has started, until nothing is left. Parents and process groups would not do: a program
that made its own session, or whose parent has ended, belongs to neither.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from contextlib import suppress
from typing import Final

import psutil

MARK: Final = "CONNECTX_TEST_RUNS"
"""Environment variable: the tokens of the runs, one in another, that a process belongs to."""
_POLL_S: Final = 0.1
_ROUNDS: Final = 100  # a program may start another one while it is being looked for


def watch() -> None:
    """Start the watchdog of this process; what it starts from now on ends with it."""
    token = secrets.token_hex(8)
    command = [sys.executable, "-P", __file__, str(os.getpid()), token]
    nowhere = subprocess.DEVNULL  # a reader of this run's output waits until all that hold it have ended
    subprocess.run(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True, check=True)
    os.environ[MARK] = ":".join(filter(None, (os.environ.get(MARK), token)))


def marked(token: str) -> list[psutil.Process]:
    """The running processes with a token in their environment, and all that they have started."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE and token in process.environ().get(MARK, ""):
                found |= {one.pid: one for one in (process, *process.children(recursive=True))}
    found.pop(os.getpid(), None)
    return list(found.values())


def main(owner_pid: int, token: str) -> None:
    """Leave the owner's children, wait until the owner is gone, then end what has its token."""
    owner = psutil.Process(owner_pid)
    if os.fork():
        os._exit(0)
    while _is_alive(owner):
        time.sleep(_POLL_S)
    for _ in range(_ROUNDS):
        left = marked(token)
        if not left:
            return
        for process in left:
            with suppress(Exception):
                process.kill()
        time.sleep(_POLL_S)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
