"""Recordings of cores: bounded, without secrets, replayed step by step, and written as a test."""

from __future__ import annotations

import ast
import copy
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import pytest
from typer.testing import CliRunner

from connectx.cli import app
from connectx.core import messages, verbs
from connectx.core.context import StartAgain
from connectx.core.fetcher import messages as fetcher
from connectx.core.group_messages import JoinGroupReplied
from connectx.core.messages import (
    ConfigReadToEnd,
    ConfigRecordRead,
    ConnectorStarted,
    Request,
    SessionKeyCreated,
    Stimulus,
    TaskConfigsGenerated,
    TaskStopped,
    TimerFired,
    WorkerStarted,
)
from connectx.core.moves import IllegalMoveError, moved
from connectx.core.producer import messages as producer
from connectx.core.requests import RequestHandler
from connectx.core.tasks import TASK_MOVES, TaskPhase, Tasks
from connectx.core.worker import WorkerCore
from connectx.errors.history import RecordingError
from connectx.model.causes import CAUSES
from connectx.model.config_records import ConnectorConfigRecord, SessionKeyRecord
from connectx.model.states import TargetState
from connectx.model.worker_keys import WorkerKeys
from connectx.recording.clients import FETCHER, PRODUCER
from connectx.recording.codec import Codec, Mask, shown
from connectx.recording.file import Recording, read_recordings, write_recordings
from connectx.recording.kind import CoreKind
from connectx.recording.kinds import KINDS
from connectx.recording.replay import first_difference, late_answers, write_test
from connectx.recording.ring import RecordedCore
from connectx.recording.worker import SETTINGS, WORKER
from tests.simulation.chaos import Chaos
from tests.simulation.world import World
from tests.support.worker_script import C0, C1, SOURCE, leading, settings

ROOT = Path(__file__).parents[3]
MASK = Mask(b"salt")
SECRET = "hunter2-is-not-in-the-file"
encode, decode = WORKER.codec.encode, WORKER.codec.decode


def recorded(max_bytes: int = 1 << 20, mask: Mask | None = MASK) -> RecordedCore[WorkerCore]:
    """A settled leader of connector c and its two tasks, whose steps are recorded from now on."""
    core = RecordedCore(WORKER, "worker-1", settings(), max_bytes, mask)
    core.core.restore(leading().core.state())
    return core


def some_steps(core: RecordedCore[WorkerCore]) -> Recording:
    core.handle(Request(7, verbs.RestartTask("c", 0)), 1_000)
    core.handle(ConfigReadToEnd(2), 1_001)
    core.handle(TaskStopped(C0, 99), 1_002)
    core.handle(TimerFired(next(iter(core.core.membership.timers.awaited)), 99), 1_003)
    recording = core.recording("a test")
    assert recording is not None
    return recording


def classes_of(union: Any) -> list[type]:
    return [cls for cls in get_args(union) if isinstance(cls, type)]


def example(hint: Any) -> Any:
    """A value of a type hint: the longest that it allows, so that a field is not left out."""
    origin = getattr(hint, "__origin__", None)
    if is_dataclass(origin):  # of a type variable
        (name,) = (item.name for item in fields(origin) if item.name in ("request", "answer", "effect"))
        return replace(example(origin), **{name: example(get_args(hint)[0])})
    if isinstance(hint, TypeVar):
        return None
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return hint(**{item.name: example(hints[item.name]) for item in fields(hint)})  # type: ignore[operator]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    simple = {str: "text", int: 7, bool: True, bytes: b"bytes", float: 0.5, Any: ("any", 1)}
    if hint in simple:
        return simple[hint]
    arguments = get_args(hint)
    if origin is tuple or str(origin).endswith("Sequence'>"):
        return (example(arguments[0]),)
    if str(origin).endswith("Mapping'>") or origin is dict:
        return {example(arguments[0]): example(arguments[1])}
    return example(arguments[0])  # a union: its first type


@pytest.mark.parametrize(
    "cls", [*classes_of(messages.Stimulus), *classes_of(messages.Effect)], ids=lambda c: c.__name__
)
def test_every_stimulus_and_effect_is_read_back_as_it_was(cls: type) -> None:
    value = example(cls)
    assert decode(json.loads(json.dumps(encode(value)))) == value


@pytest.mark.parametrize(
    ("kind", "union"),
    [
        (PRODUCER, producer.ProducerStimulus),
        (PRODUCER, producer.ProducerEffect),
        (FETCHER, fetcher.FetcherStimulus),
        (FETCHER, fetcher.FetcherEffect),
    ],
)
def test_every_stimulus_and_effect_of_a_client_is_read_back_as_it_was(kind: CoreKind[Any, Any], union: Any) -> None:
    for hint in get_args(union):
        value = example(hint)
        assert kind.codec.decode(json.loads(json.dumps(kind.codec.encode(value)))) == value


def test_kinds_are_known_by_their_names() -> None:
    assert {name: kind.name for name, kind in KINDS.items()} == {name: name for name in KINDS}


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.__name__)
def test_every_cause_is_read_back_as_it_was(cause: type) -> None:
    again = StartAgain(example(cause), is_restart=True)
    assert decode(json.loads(json.dumps(encode(again)))) == again


@pytest.mark.parametrize("verb", classes_of(verbs.Verb), ids=lambda verb: verb.__name__)
def test_every_request_is_read_back_as_it_was(verb: type) -> None:
    request = Request(1, example(verb))
    assert decode(json.loads(json.dumps(encode(request)))) == request


def test_the_state_of_a_core_in_the_middle_of_a_rebalance_is_read_back_as_it_was() -> None:
    chaos = Chaos(seed=3)
    chaos.run(actions=12)
    for worker in chaos.world.workers.values():
        other = WorkerCore(worker.core.context.settings)
        other.restore(decode(json.loads(json.dumps(encode(worker.core.state())))))
        assert other == worker.core


@pytest.mark.parametrize("value", [{"$": "Path", "value": "x"}, {"$": ["a"]}, {"$": "TaskId", "unknown": 1}])
def test_a_file_names_only_classes_of_the_core_with_their_fields(value: Any) -> None:
    with pytest.raises(ValueError, match=r"not known|other fields"):
        decode(value)


def test_classes_of_one_kind_of_core_have_different_names() -> None:
    @dataclass
    class TaskId:
        number: int

    with pytest.raises(TypeError, match="have the same name"):
        Codec((messages.Stimulus, TaskId))


def test_effects_are_shown_on_one_line() -> None:
    assert shown(encode(ConnectorStarted("c", 1, TargetState.PAUSED))) == (
        "ConnectorStarted(connector='c', instance=1, state='PAUSED', version=None)"
    )


def test_secrets_are_not_in_a_recording_and_the_replay_still_sees_what_changed() -> None:
    core = recorded()
    config = SOURCE | {"password": SECRET, "x": f"jdbc://u:{SECRET}@h/${{file:f:k}}", "plain": SECRET}
    core.handle(ConfigRecordRead(6, ConnectorConfigRecord("c", config)), 1_000)
    core.handle(Request(7, verbs.PutConfig("c", config | {"password": SECRET + "2"})), 1_000)
    core.handle(Request(8, verbs.ConnectorConfig("c")), 1_000)
    core.handle(Request(9, verbs.ListConnectors(("info", "status"))), 1_000)
    core.handle(Request(10, verbs.PutTaskConfigs("c", (config,), SECRET.encode(), SECRET, "HmacSHA256")), 1_000)
    core.handle(TaskConfigsGenerated("c", 1, (config,), f"no connection to jdbc://u:{SECRET}@h"), 1_000)
    core.handle(SessionKeyCreated(99, SECRET.encode()), 1_000)
    recording = core.recording("a test")
    assert recording is not None
    text = "\n".join(recording.lines())
    assert SECRET not in text
    assert SECRET.encode().hex() not in text
    assert "${file:f:k}" in text
    assert first_difference(recording) is None


def test_equal_secrets_have_equal_digests_in_one_recording_and_others_in_the_next() -> None:
    assert MASK.text("a") == Mask(b"salt").text("a") != MASK.text("b")
    assert Mask(b"other").text("a") != MASK.text("a")
    assert len(MASK.data(b"k" * 32)) == 32


def test_the_key_of_the_session_is_hidden_in_the_state() -> None:
    recording = some_steps(recorded())
    assert b"kkkk".hex() not in "\n".join(recording.lines())
    state = decode(recording.state)
    assert isinstance(state["context"]["config"].session_key, SessionKeyRecord)


def test_all_settings_that_the_core_reads_are_recorded_and_no_others() -> None:
    read: set[str] = {"heartbeat_interval_ms", "session_timeout_ms", "rebalance_timeout_ms"}
    read |= {"retry_backoff_ms", "retry_backoff_max_ms"}  # of the membership, which has the settings as `settings`
    for path in (ROOT / "connectx/core").rglob("*.py"):
        read |= set(re.findall(r"settings\.worker\.(\w+)", path.read_text()))
        read |= set(re.findall(r"self\.settings\.(\w+)", path.read_text())) if path.stem == "membership" else set()
    read |= set(re.findall(r"settings\.(topic_tracking_\w+)", (ROOT / "connectx/core/requests.py").read_text()))
    derived = {
        "config_transactional_id": "transactional_id",
        "inter_worker_key_bytes": "inter_worker_key_size",
        "exactly_once_source_enabled": "exactly_once_source_support",
    }
    names = {getattr(WorkerKeys, derived.get(name, name)).name for name in read}
    assert names == set(SETTINGS)


def test_a_recording_begins_when_the_internal_topics_were_read() -> None:
    core = RecordedCore(WORKER, "worker-1", settings(), 1 << 20, MASK)
    core.handle(ConfigRecordRead(0, ConnectorConfigRecord("c", SOURCE)), 1_000)
    assert core.recording("a test") is None
    core.handle(WorkerStarted(), 1_000)
    recording = core.recording("a test")
    assert recording is not None
    assert [shown(entry.stimulus) for entry in recording.entries] == ["WorkerStarted()"]
    assert decode(recording.state)["context"]["config"].contains("c")


def test_a_recording_has_a_bounded_size_and_begins_with_the_state_of_its_first_step() -> None:
    core = recorded(max_bytes=4_000)
    for number in range(200):
        core.handle(Request(number, verbs.Worker()), 1_000 + number)
    recording = core.recording("a test")
    assert recording is not None
    steps = list(recording.lines())[2:]
    assert 1_000 < sum(map(len, steps)) < 6_000
    assert recording.entries[-1].at_ms == 1_199
    assert first_difference(recording) is None


def test_a_core_without_room_records_nothing() -> None:
    core = recorded(max_bytes=0)
    core.handle(Request(7, verbs.Worker()), 1_000)
    assert core.recording("a test") is None


@pytest.mark.parametrize(
    ("stimulus", "reason"),
    [
        (ConfigReadToEnd(99), "request 99 is not pending"),
        (JoinGroupReplied(9, None, 4, "me", "me", "sessioned", {}), "request 9 is not pending"),
        (TaskStopped(C0, 9), "instance 9 of c-0 is gone, instance 2 follows it"),
        (ConnectorStarted("c", 9, TargetState.STARTED), "instance 9 of c is gone, instance 1 follows it"),
    ],
)
def test_a_late_answer_is_recorded_with_the_reason_for_ignoring_it(stimulus: Stimulus, reason: str) -> None:
    core = recorded()
    before = copy.deepcopy(core.core)
    core.handle(stimulus, 1_000)
    recording = core.recording("a test")
    assert recording is not None
    assert [entry.ignored for entry in recording.entries] == [reason]
    assert reason in next(late_answers(recording))
    assert core.core == before


def test_what_the_core_waits_for_is_not_late() -> None:
    recording = some_steps(recorded())
    assert (recording.entries[3].ignored or "").endswith("was cancelled or set again")
    assert [entry.ignored is None for entry in recording.entries] == [True, True, False, False]


def test_every_worker_of_a_simulated_cluster_is_replayed_without_a_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(World, "recording_bytes", 60_000)
    chaos = Chaos(seed=7)
    chaos.run()
    found = [worker.recorded.recording("a test") for worker in chaos.world.workers.values()]
    recordings = [recording for recording in found if recording is not None]
    assert len(recordings) == len(chaos.world.workers)
    assert sum(len(recording.entries) for recording in recordings) > 200
    assert [first_difference(recording) for recording in recordings] == [None] * len(recordings)


def test_a_replay_shows_the_first_step_whose_effects_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = some_steps(recorded())
    changed = list(recording.entries[1].effects or [])
    changed[-1] = {**changed[-1], "at_ms": 7_000}
    entries = (recording.entries[0], replace(recording.entries[1], effects=changed), *recording.entries[2:])
    difference = first_difference(replace(recording, entries=entries))
    assert difference is not None
    assert (difference.step, difference.at_ms, difference.found) == (2, 1_001, f"effect {len(changed)} differs")
    assert difference.stimulus == "ConfigReadToEnd(request_id=2, error=None)"
    assert "at_ms=7000" in difference.recorded[0]
    assert "at_ms=6001" in difference.ordered[0]
    assert "worker-1, step 2 at 1001 ms: effect" in str(difference)


@pytest.mark.parametrize("extra", [True, False])
def test_a_replay_shows_effects_that_are_missing_or_new(extra: bool) -> None:
    recording = some_steps(recorded())
    effects = list(recording.entries[1].effects or [])
    changed = [*effects, effects[0]] if extra else effects[:-1]
    entries = (recording.entries[0], replace(recording.entries[1], effects=changed))
    difference = first_difference(replace(recording, entries=entries))
    assert difference is not None
    number = len(effects) + extra
    assert difference.found == f"there is no effect {number}" if extra else f"effect {number} was not recorded"


def test_the_error_of_a_wrong_move_has_the_story_of_its_task_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    core = recorded()
    core.handle(messages.TaskPrepared(C1, 9), 1_000)
    core.handle(messages.TaskPrepared(C0, 9), 1_001)
    monkeypatch.setattr(Tasks, "on_prepared", lambda *_: moved(TASK_MOVES, TaskPhase.FAILED, TaskPhase.ACTIVE, C0))
    with pytest.raises(IllegalMoveError) as raised:
        core.handle(messages.TaskPrepared(C0, 2), 1_002)
    story = raised.value.__notes__[0].splitlines()
    assert story[0] == "The last 2 steps of c-0:"
    assert "TaskPrepared(task=TaskId(connector='c', task=0), instance=9" in story[1]
    assert "TaskPrepared(task=TaskId(connector='c', task=0), instance=2" in story[2]


def test_a_replay_shows_the_step_in_which_the_core_failed_or_broke_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    core = recorded()
    with monkeypatch.context() as broken:
        broken.setattr(RequestHandler, "on_config_read", lambda *_: 1 // 0)
        core.handle(Request(7, verbs.RestartTask("c", 0)), 1_000)
        with pytest.raises(ZeroDivisionError) as raised:
            core.handle(ConfigReadToEnd(2), 1_001)
        recording = core.recording("a test")
        assert recording is not None
        assert recording.entries[-1].error == "ZeroDivisionError: integer division or modulo by zero"
        assert raised.value.__notes__[0].splitlines()[0] == "The last 2 steps of the worker worker-1:"
        assert "ConfigReadToEnd(request_id=2, error=None) raised ZeroDivisionError" in raised.value.__notes__[0]
        difference = first_difference(recording)
        assert difference is not None
        assert difference.found == "the core raises ZeroDivisionError: integer division or modulo by zero"
    assert first_difference(recording) is None, "the bug is fixed"
    monkeypatch.setattr(WorkerCore, "check", lambda *_: ("a rule",))
    difference = first_difference(recording)
    assert difference is not None
    assert (difference.step, difference.found) == (1, "a rule is broken: a rule")


def test_a_file_holds_the_recordings_of_all_workers_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    one, other = some_steps(recorded()), replace(some_steps(recorded()), name="worker-2", reason="it failed")
    path = write_recordings(tmp_path / "cores.jsonl", [one, other])
    assert read_recordings(path) == (one, other)
    assert path.stat().st_mode & 0o077 == 0


def test_a_file_that_others_could_read_is_written_over_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "cores.jsonl"
    path.write_text("longer than a recording\n" * 1_000)
    path.chmod(0o644)
    assert read_recordings(write_recordings(path, [some_steps(recorded())]))
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    (tmp_path / "test_x.jsonl").touch(0o644)
    write_test(path, tmp_path / "test_x.py")
    assert (tmp_path / "test_x.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda lines: [], "Line 1 .* the file is empty"),
        (lambda lines: ["nothing"], "Line 1 .* it is not JSON"),
        (lambda lines: ["[1]"], "Line 1 .* it is not a JSON object"),
        (lambda lines: lines[1:], "Line 1 .* it is not the header of a recording"),
        (lambda lines: lines[:-1], "Line 5 .* 1 lines are missing after it"),
        (lambda lines: [lines[0].replace('"version":3', '"version":9'), *lines[1:]], "its version is 9"),
        (lambda lines: [lines[0], "{}", *lines[2:]], "'state' is missing"),
        (lambda lines: [*lines[:-1], "{}"], "'at_ms' is missing"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(tmp_path: Path, change: Any, problem: str) -> None:
    path = write_recordings(tmp_path / "cores.jsonl", [some_steps(recorded())])
    path.write_text("".join(f"{line}\n" for line in change(path.read_text().splitlines())))
    with pytest.raises(RecordingError, match=problem):
        read_recordings(path)


def test_files_that_cannot_be_read_or_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="could not be read: No such file"):
        read_recordings(tmp_path / "none.jsonl")
    with pytest.raises(RecordingError, match="could not be written to"):
        write_recordings(tmp_path / "no" / "folder.jsonl", [])
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(RecordingError, match="not ASCII"):
        read_recordings(tmp_path / "binary")


def test_a_recording_of_another_version_of_the_core_is_refused(tmp_path: Path) -> None:
    recording = some_steps(recorded())
    for broken in (
        replace(recording, state={}),
        replace(recording, state={**recording.state, "tasks": {}}),
        replace(recording, entries=(replace(recording.entries[0], stimulus={"$": "Gone"}),)),
        replace(recording, settings={**recording.settings, "worker": {"heartbeat.interval.ms": "soon"}}),
        replace(recording, kind="gone"),
    ):
        with pytest.raises(RecordingError, match=r"cannot be replayed: .*Replay it with the version"):
            first_difference(broken)


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["replay", *map(str, arguments)])
    return result.exit_code, result.output


def test_the_command_replays_each_worker_and_its_exit_code_tells_of_a_difference(tmp_path: Path) -> None:
    recording = some_steps(recorded())
    path = write_recordings(tmp_path / "cores.jsonl", [recording])
    assert run("--core", path) == (
        0,
        "worker worker-1: 4 steps, 2 late answers were ignored\n  written because a test\n  each step is as recorded\n",
    )
    write_recordings(path, [replace(recording, entries=(replace(recording.entries[0], effects=[]),))])
    code, output = run("--core", path)
    assert code == 1
    assert "worker-1, step 1 at 1000 ms: effect 1 was not recorded" in output
    code, output = run("--core", path, "--json")
    assert code == 1
    assert json.loads(output)["cores"][0]["difference"]["step"] == 1
    assert run("--core", tmp_path / "none.jsonl")[0] == 1


def test_a_recording_becomes_a_test_that_passes_until_the_core_decides_otherwise(tmp_path: Path) -> None:
    path = write_recordings(tmp_path / "cores.jsonl", [some_steps(recorded())])
    test = tmp_path / "test_recorded.py"
    code, output = run("--core", path, "--to-test", test)
    assert (code, output.splitlines()[-1]) == (0, f"Test: {test}")
    assert ast.parse(test.read_text())
    assert run("--core", path, "--to-test", test)[0] == 1, "an existing test is not written over"
    beside = tmp_path / "test_recorded.jsonl"
    assert read_recordings(beside) == read_recordings(path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(test)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins take seconds to load
    passed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 passed" in passed.stdout, passed.stdout
    (recording,) = read_recordings(beside)
    write_recordings(beside, [replace(recording, entries=(replace(recording.entries[0], effects=[]),))])
    failed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "effect 1 was not recorded" in failed.stdout


def test_a_test_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = write_recordings(tmp_path / "cores.jsonl", [some_steps(recorded())])
    with pytest.raises(RecordingError, match="could not be written"):
        write_test(path, tmp_path / "no" / "test_x.py")
