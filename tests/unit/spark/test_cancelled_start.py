"""A cluster that closes does not wait until Spark has started."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectx.errors.spark import SparkStartError
from connectx.spark import sessions
from connectx.spark.launcher import SparkDriver
from connectx.spark.sessions import SparkProvider


class SleepingDriver(SparkDriver):
    """Its process never becomes connectable."""

    launched: threading.Event

    def start(self) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            self._process = process
            self.launched.set()
            try:
                self._wait_connectable(Path("not-there"))
            finally:
                process.kill()
                self._process = None


@pytest.mark.parametrize("begun", [True, False])
def test_closing_a_provider_ends_the_start_of_its_driver(monkeypatch: pytest.MonkeyPatch, begun: bool) -> None:
    monkeypatch.setattr(sessions, "active_session", lambda: None)
    monkeypatch.setattr(sessions, "SparkDriver", SleepingDriver)
    SleepingDriver.launched = threading.Event()
    provider = SparkProvider()
    provider.start()
    if begun:
        assert SleepingDriver.launched.wait(30)
    provider.close()
    with pytest.raises(SparkStartError, match="was stopped"):
        provider.get()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


def test_cancelling_kills_a_jvm_whose_session_is_being_made(process: subprocess.Popen[bytes]) -> None:
    driver = SparkDriver()
    driver._process = process
    driver.cancel()
    assert process.wait(30) == -signal.SIGKILL
    with pytest.raises(SparkStartError, match="was stopped"):
        driver.completed()
    driver._process = None


def test_cancelling_leaves_a_jvm_that_has_a_session_alone(process: subprocess.Popen[bytes]) -> None:
    driver = SparkDriver()
    driver._process = process
    driver.completed()
    driver.cancel()
    driver.completed()
    assert process.poll() is None
    driver._process = None
