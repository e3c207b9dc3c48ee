"""A worker writes the recording of its core when it fails or breaks a rule, and checks its core between two stimuli."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from connectx.core import verbs
from connectx.core.invariants import BrokenRule, Rule
from connectx.core.messages import Request
from connectx.core.worker import WorkerCore
from connectx.errors import WorkerStoppedError
from connectx.plugins.registry import Plugins
from connectx.recording.file import read_recordings
from connectx.recording.ring import RecordedCore
from connectx.runtime.worker import Surroundings, Worker
from tests.support.worker_script import leading, settings, worker_of


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker that has recorded one step and runs nothing but its mailbox; its files are in `tmp_path`."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    surroundings = Surroundings(
        worker_of(), "127.0.0.1:9", Plugins(), cast("Any", None), lambda transition, worker: None, lambda: 1_000
    )
    made = Worker("worker-1", surroundings)
    made._recorded = RecordedCore("worker-1", settings(), 1 << 20, None)
    made._recorded.core.restore(leading().core.state())
    made._recorded.handle(Request(7, verbs.Worker()), 1_000)
    made._mailbox.start()
    yield made
    made.kill()
    assert made._mailbox.join(30)


def test_a_worker_that_fails_writes_its_recording(worker: Worker, tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level(logging.ERROR):
        worker._fail(RuntimeError("a bug"))
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("connectx-worker-1-")
    assert f"Its last 1 steps: connectx replay --core {path}" in caplog.text
    (recording,) = read_recordings(path)
    assert (recording.worker, recording.reason) == ("worker-1", "the worker failed: a bug")
    assert worker.recording("after its end") is not None


def test_a_sound_core_passes_its_check_and_writes_nothing(worker: Worker, tmp_path: Path) -> None:
    assert worker.check() == ()
    assert list(tmp_path.iterdir()) == []


def test_a_broken_rule_is_returned_and_writes_the_recording(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = BrokenRule(Rule.SIGNALS_ROUTED, "an outcome")
    monkeypatch.setattr(WorkerCore, "check", lambda core: (broken,))
    assert worker.check() == (broken,)
    (path,) = tmp_path.iterdir()
    assert read_recordings(path)[0].reason == f"a rule is broken: {broken}"


def test_a_core_that_stands_still_or_does_not_exist_cannot_be_checked(worker: Worker) -> None:
    worker._mailbox.freeze()
    with pytest.raises(WorkerStoppedError, match=r"its core did not answer within 0.1 s"):
        worker.check(timeout_s=0.1)
    worker._recorded = None
    with pytest.raises(WorkerStoppedError, match="it has not started"):
        worker.check()
    assert worker.recording("before its start") is None


def test_the_core_of_an_ended_worker_is_checked(worker: Worker) -> None:
    worker.kill()
    assert worker.check() == ()


def test_a_recording_that_cannot_be_written_does_not_hide_the_failure(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    worker._fail(RuntimeError("a bug"))
    assert worker.error == "a bug"
    assert "its recording could not be written" in caplog.text
