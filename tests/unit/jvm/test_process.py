"""A child process ends with its owner, and only then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from connectx.jvm.process import ChildProcess, log_tail


def test_output_and_exit_code_of_the_program_are_kept(tmp_path: Path) -> None:
    child = ChildProcess(["sh", "-c", "echo out; echo err >&2; exit 7"], tmp_path / "log")
    assert child.wait(10) == 7
    assert child.log_tail() == "out\nerr"
    child.kill()


def test_a_program_that_a_signal_ended_says_so(tmp_path: Path) -> None:
    child = ChildProcess(["sleep", "60"], tmp_path / "log")
    child.signal(signal.SIGTERM)
    assert child.wait(10) == 128 + signal.SIGTERM
    child.kill()


def test_kill_ends_the_program_and_its_shell(tmp_path: Path) -> None:
    child = ChildProcess(["sleep", "60"], tmp_path / "log")
    program = psutil.Process(child.pid)
    child.kill()
    assert not program.is_running()
    assert child.poll() == 128 + signal.SIGKILL


def test_ctrl_c_of_the_owners_terminal_does_not_reach_it(tmp_path: Path) -> None:
    child = ChildProcess(["sleep", "60"], tmp_path / "log")
    assert os.getsid(child.pid) != os.getsid(0)
    child.kill()


def test_it_dies_when_its_owner_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib; from connectx.jvm.process import ChildProcess;"
        "child = ChildProcess(['sleep', '60'], pathlib.Path(sys.argv[1]));"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        program = psutil.Process(int(owner.stdout.readline()))
        owner.send_signal(signal.SIGKILL)
    assert psutil.wait_procs([program], timeout=10)[1] == []


def test_it_ends_with_an_interpreter_that_forgot_it(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from connectx.jvm.cache import OwnedDir; from connectx.jvm.process import ChildProcess;"
        "folder = OwnedDir('kafka', pathlib.Path(sys.argv[1]));"
        "child = ChildProcess(['sleep', '60'], folder.path / 'log'); print(child.pid, folder.path)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    pid, folder = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.split()
    assert not psutil.pid_exists(int(pid))
    assert not Path(folder).exists()


def test_it_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    import threading

    started: list[ChildProcess] = []
    thread = threading.Thread(target=lambda: started.append(ChildProcess(["sleep", "60"], tmp_path / "log")))
    thread.start()
    thread.join()
    assert started[0].wait(0.2) is None
    started[0].kill()


def test_only_the_end_of_a_long_log_is_shown(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a" * 100 + "end")
    assert log_tail(tmp_path / "log", limit_bytes=4) == "aend"
    assert log_tail(tmp_path / "missing") == ""
