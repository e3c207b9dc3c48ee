"""A run of tests that is interrupted, terminated or killed leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.tiers import ROOT
from tests.support.waiting import until

LIMIT_S = 10.0
RUN = """
from pathlib import Path
from tests.support.tiers import Part, run_tier, supervise
supervise()
run_tier([(Part("part", ("test_it.py", "--rootdir=.", "-p", "xdist"), workers=1, needs_java=False),)], Path.cwd())
"""
# A program that has a separate session, and that has lost its parent.
STALL = '''
import os, subprocess, sys, threading
SLEEP = "import time; time.sleep(600)"
ORPHAN = f"""
import subprocess, sys
command, nowhere = [sys.executable, "-c", {SLEEP!r}], subprocess.DEVNULL
print(subprocess.Popen(command, stdout=nowhere, stderr=nowhere, start_new_session=True).pid)
"""
def test_stall():
    orphan = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=True).stdout
    child = subprocess.Popen([sys.executable, "-c", SLEEP])
    with open("pids.part", "w") as file:
        file.write(f"{orphan.strip()} {child.pid} {os.getpid()} {os.getppid()}")
    os.rename("pids.part", "pids")
    threading.Event().wait()
'''


@contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[psutil.Process]]]:
    """Yield a run that is in the middle of its test, and its processes: an orphan, a child, the worker, pytest."""
    plain = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    environment = {name: value for name, value in os.environ.items() if name != "MAKELEVEL"} | plain
    (folder / "test_it.py").write_text(STALL)
    pids = folder / "pids"
    run = subprocess.Popen(command, cwd=folder, env=environment)
    try:
        until(pids.exists, "the test to start")
        yield run, [psutil.Process(int(pid)) for pid in pids.read_text().split()]
    finally:
        run.kill()
        run.wait()


def wait_ended(processes: Sequence[psutil.Process]) -> None:
    until(lambda: all(map(has_ended, processes)), "the end of all processes", LIMIT_S)


def has_ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_run_after_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with running([sys.executable, "-c", RUN], tmp_path) as (run, processes):
        run.send_signal(number)
        wait_ended(processes)


def test_nothing_is_left_of_a_run_whose_make_was_killed(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(RUN)
    (tmp_path / "Makefile").write_text(f"run:\n\t@{sys.executable} run.py\n")
    with running(["make", "--silent", "run"], tmp_path) as (make, processes):
        make.kill()
        wait_ended(processes)


def test_nothing_is_left_of_a_run_without_tiers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "test_it.py", "--rootdir=.", "-p", "xdist", "-n1"]
    with running([*command, "-p", "tests.support.options"], tmp_path) as (run, processes):
        run.kill()
        wait_ended(processes)
