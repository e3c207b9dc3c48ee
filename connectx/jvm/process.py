"""A child process that cannot outlive its owner.

Ctrl-C in the owner's terminal does not reach it (it has a separate session), and when the owner dies, even by
SIGKILL, it dies too: it is started by a small shell whose standard input is a pipe from the owner, and the end of
that pipe ends the child. `PR_SET_PDEATHSIG` is not used: it fires when the *thread* that started the child ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

# The watcher blocks in `read` until the owner's end of the pipe closes. The shell prints the child's process id.
_WATCH = """
log=$1; shift; exec 3<&0
"$@" </dev/null >>"$log" 2>&1 3<&- &
child=$!
{ read -r _ <&3; kill -9 $child; } >/dev/null 2>&1 &
watcher=$!
exec 3<&-; echo $child; exec >/dev/null
wait $child; code=$?
kill -9 $watcher 2>/dev/null
exit $code
"""

LOG_TAIL_BYTES = 6000


class ChildProcess:
    """One running program with its output in `log`.

    Args:
        command: program and arguments.
        log: the file that gets its standard output and error, appended.
        env: its environment, this process's by default.
        cwd: its working directory.
        pass_fds: open file descriptors, from 10 on, that it inherits.

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.log = log
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "sh", str(log), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd=cwd,
            start_new_session=True,
            pass_fds=pass_fds,
        )
        assert self._shell.stdout is not None
        self.pid = int(self._shell.stdout.readline())
        self._end = weakref.finalize(self, _end, self._shell, self.pid, os.getpid())

    def poll(self) -> int | None:
        """The exit code, 128 + signal number when a signal ended it, or None while it runs."""
        return self._shell.poll()

    def wait(self, timeout_s: float) -> int | None:
        """Wait at most `timeout_s` seconds for its end; the exit code, or None when it still runs."""
        try:
            return self._shell.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program itself. Nothing happens when it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it with SIGKILL and wait until it is gone; also happens when the interpreter ends."""
        self._end()

    def stop(self, grace_s: float) -> None:
        """Ask it to end with SIGTERM, then SIGKILL after `grace_s` seconds."""
        self.signal(signal.SIGTERM)
        self.wait(grace_s)
        self.kill()

    def log_tail(self) -> str:
        """The end of its log, for error messages."""
        return log_tail(self.log)


def _end(shell: subprocess.Popen[bytes], pid: int, owner_pid: int) -> None:
    if os.getpid() != owner_pid:  # a forked copy of the owner
        return
    if shell.poll() is None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shell.wait()
    for pipe in (shell.stdin, shell.stdout):
        if pipe is not None:
            pipe.close()


def log_tail(log: Path, limit_bytes: int = LOG_TAIL_BYTES) -> str:
    """The last `limit_bytes` of a log file as text; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit_bytes))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""
