"""The main job as a user runs it: in a process of its own, to its last line; and interrupted in the middle."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

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
ROWS_ON_SPARK = 170_000
"""Of one of three years: enough for a third slice, of at least 16 MB each, whose job lasts long enough for a kill."""
DEMO = ("-c", "from connectx.cli import main; main()", "demo")
ON_SPARK = ("-m", "bench.spark_cluster")
LIMIT_S = 170
LIMIT_ON_SPARK_S = 300


class Run:
    """A demo in a process group of its own, its temporary files in `folder`; collects what it prints."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.report = folder / "report.html"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, *arguments, "--report", str(self.report)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(self.temporary)},
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
        left = [path for path in self.temporary.rglob("*") if not path.name.startswith(".")]
        assert [path for path in left if path.name != f"connectx-{os.getuid()}"] == []
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
def started(folder: Path, *arguments: str, program: Sequence[str] = DEMO) -> Iterator[Run]:
    run = Run(folder, *program, *arguments)
    try:
        yield run
    finally:
        run.force()


@pytest.mark.timeout(LIMIT_S + 60)
def test_every_flight_arrives_once_although_workers_are_killed(tmp_path: Path) -> None:
    with started(tmp_path, "--rows", str(ROWS)) as demo:
        demo.wait_for("was killed at")
        demo.remember_children()
        assert demo.end() == 0, (demo.lines, demo.errors)
    result = json.loads(demo.lines[-1])
    assert list(result) == KEYS
    assert [result[key] for key in ("rows_in", "records", "rows_out", "lost", "duplicated")] == [ROWS, ROWS, ROWS, 0, 0]
    assert result["kills"] == 2
    assert result["fenced"] >= 1
    assert len(result["failover_s"]) == 2
    text = "\n".join(demo.lines)
    assert "scheduled.rebalance.max.delay.ms=3000" in text
    assert "worker-4 was added and joined the group" in text
    assert re.search(r"worker-\d was killed while it ran .*flights-in-0", text)
    assert re.search(r"worker-\d was killed while it ran .*flights-out-\d", text)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    page = demo.report.read_text(encoding="utf-8")
    assert "<script" not in page
    assert "Nothing lost, nothing duplicated" in page
    assert 'data-task="flights-in-0"' in page


@pytest.mark.timeout(2 * LIMIT_ON_SPARK_S + 60)
def test_every_flight_is_in_both_tables_once_although_parts_of_a_spark_cluster_are_killed(tmp_path: Path) -> None:
    with started(tmp_path, "--rows", str(ROWS_ON_SPARK), program=ON_SPARK) as demo:
        demo.wait_for("a Spark worker was killed while a job ran", LIMIT_ON_SPARK_S)
        demo.remember_children()
        code = demo.end(LIMIT_ON_SPARK_S)
    assert code == 0, (demo.lines, demo.errors)
    result = json.loads(demo.lines[-1])
    places = [result[f"rows_{place}"] for place in ("csv", "topic", "postgresql", "delta")]
    assert places == [3 * ROWS_ON_SPARK] * 4
    assert result["differing"] == []
    executor, spark_worker, worker, another = result["killed"]
    assert re.fullmatch(r"executor \d+", executor)
    assert (spark_worker, another) == ("a Spark worker", "another Spark worker")
    text = "\n".join(demo.lines)
    assert re.search(rf"{worker} was killed while it ran .*flights-in-0", text)
    assert "Nothing lost, nothing duplicated" in text
    page = demo.report.read_text(encoding="utf-8")
    assert "Nothing lost, nothing duplicated" in page
    assert 'data-task="flights-to-delta-0"' in page


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("moment", ["Starting Kafka", "was killed at"])
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, moment: str) -> None:
    with started(tmp_path, "--rows", str(ROWS)) as demo:
        demo.wait_for(moment)
        demo.remember_children()
        os.killpg(demo.process.pid, signal.SIGINT)  # as a terminal does: to the whole foreground group
        assert demo.end() == 130, (demo.lines, demo.errors)
    assert demo.errors[-1] == "Interrupted; everything that was started has been stopped."
