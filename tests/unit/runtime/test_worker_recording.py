"""A worker writes the recording of its core when it fails or breaks a rule, and checks its core between two stimuli."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from connectx.core.invariants import Rule
from connectx.core.messages import InternalTopicsFailed
from connectx.core.producer.messages import Call, ProducerSettings
from connectx.core.rules import BrokenRule
from connectx.core.worker import WorkerCore
from connectx.errors.clusters import WorkerStoppedError
from connectx.kafka.group import GroupConnection
from connectx.kafka.internal.topics import InternalTopics
from connectx.model.events import EventKind, Transition
from connectx.plugins.registry import Plugins
from connectx.recording.clients import PRODUCER
from connectx.recording.file import read_recordings
from connectx.recording.replay import first_difference
from connectx.runtime.worker import Worker, WorkerEnvironment
from tests.support.waiting import until
from tests.support.worker_script import worker_of


@pytest.fixture
def history() -> list[EventKind]:
    """What a worker has recorded."""
    return []


@pytest.fixture
def environment(history: list[EventKind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerEnvironment:
    """Of workers whose group and internal topics stay silent; their files are in `tmp_path`."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(InternalTopics, "start", lambda topics: None)
    monkeypatch.setattr(GroupConnection, "start", lambda group: None)
    config = worker_of(listeners="http://127.0.0.1:0")

    def record(transition: Transition, worker: str | None) -> None:
        history.append(transition.kind)

    return WorkerEnvironment(config, "127.0.0.1:9", Plugins(), cast("Any", None), record, lambda: 1_000)


@pytest.fixture
def worker(environment: WorkerEnvironment) -> Iterator[Worker]:
    """A worker that has started, and has recorded that step."""
    made = Worker("worker-1", environment)
    made.start()
    assert made.check() == (), "the step is done"
    yield made
    made.kill()


def fail(worker: Worker, history: list[EventKind]) -> None:
    """The worker fails, has tried to write its recording, and says so in the history."""
    worker.post(InternalTopicsFailed("a bug"))
    until(lambda: EventKind.WORKER_FAILED in history, "the end of the worker")


def test_a_worker_that_fails_writes_its_recording(
    worker: Worker, history: list[EventKind], tmp_path: Path, caplog: Any
) -> None:
    with caplog.at_level(logging.ERROR):
        fail(worker, history)
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("connectx-worker-1-")
    assert f"Its last 1 steps: connectx replay --core {path}" in caplog.text
    (recording,) = read_recordings(path)
    assert (recording.name, recording.reason) == ("worker-1", f"the worker failed: {worker.error}")
    assert "its internal topics have failed (a bug)" in recording.reason
    assert worker.recordings("after its end")


def test_the_recording_of_a_failed_worker_has_the_cores_of_its_clients(
    worker: Worker, history: list[EventKind], tmp_path: Path
) -> None:
    assert worker._clients.recorder is not None
    client = worker._clients.recorder.part(PRODUCER, "worker-1/producer-c-0", ProducerSettings())
    client.handle(Call.INITIALIZE, 1_000)
    fail(worker, history)
    (path,) = tmp_path.iterdir()
    found = read_recordings(path)
    assert [(one.kind, one.name) for one in found] == [("worker", "worker-1"), ("producer", "worker-1/producer-c-0")]
    assert [first_difference(one) for one in found] == [None, None]
    assert path.stat().st_mode & 0o777 == 0o600


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


def test_a_core_that_stands_still_cannot_be_checked(worker: Worker) -> None:
    assert worker.freeze(tasks=False)
    with pytest.raises(WorkerStoppedError, match=r"its core did not answer within 0.1 s"):
        worker.check(timeout_s=0.1)


def test_a_worker_that_has_not_started_has_no_core_to_check_and_no_recording(environment: WorkerEnvironment) -> None:
    worker = Worker("worker-1", environment)
    with pytest.raises(WorkerStoppedError, match="it has not started"):
        worker.check()
    assert worker.recordings("before its start") == ()
    worker.kill()


def test_the_core_of_an_ended_worker_is_checked(worker: Worker) -> None:
    worker.kill()
    assert worker.check() == ()


def test_a_recording_that_cannot_be_written_does_not_hide_the_failure(
    worker: Worker, history: list[EventKind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    fail(worker, history)
    assert "a bug" in (worker.error or "")
    assert "its recording could not be written" in caplog.text
