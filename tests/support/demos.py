"""Demos in separate processes: their output, their leftovers, and the outcome of the main job."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.programs import ROOT

KEYS = [
    "rows_in",
    "records",
    "rows_out",
    "lost",
    "duplicated",
    "kills",
    "rebalances",
    "fenced",
    "failover_s",
    "seconds",
]
ROWS = 60_000
LIMIT_S = 170


class Run:
    """A demo in a separate process group, its temporary files in `folder`; collects what it prints."""

    def __init__(self, folder: Path, command: Sequence[str | Path], environment: Mapping[str, str], cwd: Path) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=cwd,
            env={**environment, "TMPDIR": str(self.temporary)},
        )
        self.lines: list[str] = []
        self.family: dict[int, psutil.Process] = {}
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.lines)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.errors)),
        ]
        self._seen = threading.Condition()
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Iterator[str], into: list[str]) -> None:
        for line in stream:
            with self._seen:
                into.append(line.rstrip("\n"))
                self._seen.notify_all()

    def wait_for(self, text: str, limit_s: int = LIMIT_S) -> None:
        """Until a line with `text` was printed."""
        with self._seen:
            found = self._seen.wait_for(lambda: any(text in line for line in self.lines), limit_s)
        assert found, f"{text!r} did not come: {self.lines} {self.errors}"

    def remember_children(self) -> None:
        """Note every process that it has started so far."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            self.family[child.pid] = child

    def end(self, limit_s: int = LIMIT_S) -> int:
        """Wait for its end; the exit code. Nothing that it started may be left."""
        code = self.process.wait(limit_s)
        for reader in self._readers:
            reader.join()
        _, alive = psutil.wait_procs(self.family.values(), timeout=10)
        assert [child.cmdline()[:3] for child in alive] == []
        # Lock files and the empty parent of connectx's folders are shared with other processes and may stay.
        shared = f"connectx-{os.getuid()}"
        left = [path for path in self.temporary.rglob("*") if path.name != shared and not path.name.startswith(".")]
        assert not left, left
        return code

    def force(self) -> None:
        """Clean up after a test that failed."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)


@contextmanager
def started(
    folder: Path, *command: str | Path, environment: Mapping[str, str] = os.environ, cwd: Path = ROOT
) -> Iterator[Run]:
    run = Run(folder, command, environment, cwd)
    try:
        yield run
    finally:
        run.force()


def check_main_job(folder: Path, *demo: str | Path, environment: Mapping[str, str] = os.environ) -> None:
    """Run the demo in a folder to its end: every flight arrives once although two workers are killed."""
    with started(folder, *demo, "--rows", str(ROWS), environment=environment, cwd=folder) as run:
        run.wait_for("was killed at")
        run.remember_children()
        assert run.end() == 0, (run.lines, run.errors)
    result = json.loads(run.lines[-1])
    assert list(result) == KEYS
    assert [result[key] for key in ("rows_in", "records", "rows_out", "lost", "duplicated")] == [ROWS, ROWS, ROWS, 0, 0]
    assert result["kills"] == 2
    assert result["fenced"] >= 1
    assert len(result["failover_s"]) == 2
    text = "\n".join(run.lines)
    assert "scheduled.rebalance.max.delay.ms=3000" in text
    assert "worker-4 was added and joined the group" in text
    assert re.search(r"worker-\d was killed while it ran .*flights-in-0", text)
    assert re.search(r"worker-\d was killed while it ran .*flights-out-\d", text)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    page = (folder / "flights-demo.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "Nothing lost, nothing duplicated" in page
    assert 'data-task="flights-in-0"' in page
