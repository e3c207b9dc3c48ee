"""The loops of tasks are recorded and replayed as other cores are, and what they know of rows is hidden."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest

from connectx.core.lanes import BulkMode, LaneSettings
from connectx.core.loops.lifecycle import Phase, TaskLoop
from connectx.core.loops.messages import Answered, Done, EffectFailed, NotDone, ReportFailed, StartPlugin
from connectx.core.sink import messages as sink
from connectx.core.sink.loop import SinkTaskCore
from connectx.core.sink.progress import Progress, SinkTaskSettings
from connectx.core.source import messages as source
from connectx.core.source.bulk import BulkLane
from connectx.core.source.loop import SourceTaskCore
from connectx.core.source.progress import SourceProgress
from connectx.model.ids import TopicPartition
from connectx.recording.codec import Mask, agree, shown
from connectx.recording.file import Recording
from connectx.recording.kind import CoreKind
from connectx.recording.loops import SINK, SOURCE
from connectx.recording.recorder import Recorder
from connectx.recording.replay import first_difference, late_answers
from connectx.recording.ring import RecordedCore
from tests.support.source_loop import AT_LEAST_ONCE, FILE, ORDERS, TASK, exactly_once
from tests.support.task_loops import numbered
from tests.unit.recording.test_recording import example

MASK = Mask(b"salt")
SECRET = "hunter2-is-not-in-the-file"
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
SINK_SETTINGS = SinkTaskSettings(TASK, exactly_once=False, offset_flush_interval_ms=1_000, retry_timeout_ms=60_000)
RING_BYTES = 16 * 2_000


def recorded(kind: CoreKind[Any, Any], settings: Any, max_bytes: int = 1 << 24) -> RecordedCore[Any]:
    return Recorder(max_bytes, MASK).part(kind, "worker-1/lines-0", settings)


def handle(core: RecordedCore[Any], *stimuli: Any, now_ms: int = 0) -> Any:
    """Take stimuli, answers with the numbers of their effects, in steps that keep the rules; returns the last step."""
    step = None
    for stimulus in stimuli:
        before = core.core.marks()
        step = core.handle(numbered(core.core, stimulus), max(now_ms, core.core.now_ms))
        assert core.core.check(before) == ()
    return step


def recording_of(core: RecordedCore[Any]) -> Recording:
    recording = core.recording("a test")
    assert recording is not None
    return recording


def play(core: RecordedCore[Any], answer_to: Callable[[Any], Any], steps: int) -> None:
    """Answer what is outstanding, the latest first."""
    for _ in range(steps):
        number, effect = next(reversed(core.core.outstanding.items()))
        handle(core, Answered(number, answer_to(effect)), now_ms=core.core.now_ms + 100)


def source_of_many_steps(max_bytes: int = 1 << 24) -> RecordedCore[SourceTaskCore]:
    """At-least-once, with commits, conversions that are tried again, a pause, and an answer that comes twice."""
    core = recorded(SOURCE, replace(AT_LEAST_ONCE, retry_timeout_ms=-1), max_bytes)
    numbers = itertools.count(1)

    def answer_to(effect: Any) -> Any:
        number = next(numbers)
        polled = source.Polled(number, 2, {"line": f"{SECRET}{number}", "nested": {"rows": [SECRET, number]}})
        match effect:
            case source.Poll() if number % 7 == 0:
                return NotDone(SECRET)
            case source.Poll() if number % 5 == 0:
                return replace(polled, partition={"file": f"other {SECRET}"}, start={})
            case source.Poll() | source.ConvertAgain():
                return polled
            case source.Wait():
                return Done()
            case StartPlugin():
                return source.PluginStarted({"file": SECRET})
            case source.ReadOffsets():
                return source.OffsetsRead({"line": SECRET})
            case _:
                return source.Sent()

    handle(core, ORDERS.begin)
    play(core, answer_to, 40)
    while core.core.phase is not Phase.WAITING:
        handle(core, ORDERS.pause)
        play(core, answer_to, 1)
    handle(core, ORDERS.resume)
    play(core, answer_to, 20)
    core.handle(Answered(1, source.PluginStarted({"file": SECRET})), core.core.now_ms)
    return core


def sink_of_many_steps(max_bytes: int = 1 << 24) -> RecordedCore[SinkTaskCore]:
    """At-least-once, with puts that are tried again, commits, a pause and rebalances."""
    core = recorded(SINK, SINK_SETTINGS, max_bytes)
    numbers = itertools.count(1)

    def answer_to(effect: Any) -> Any:
        number, progress = next(numbers), core.core.progress
        if progress.commit is not None and not isinstance(effect, sink.CommitOffsets):
            handle(core, sink.OffsetsCommitted(progress.commit.sequence))
        match effect:
            case sink.OpenPartitions(epoch):
                return sink.Opened(epoch, {})
            case sink.Poll(epoch) if not core.core.batches:
                return sink.Fetched(epoch, {p: (at, at + number) for p, at in progress.reached.items()})
            case sink.Put(epoch) if number % 3 == 0:
                return sink.PutFailed(epoch, True, SECRET)
            case sink.Put(epoch):
                return sink.PutDone(epoch, number, skipped=1, skip_reason=SECRET)
            case sink.CommitOffsets(sequence):
                return sink.OffsetsCommitted(sequence)
            case _:
                return Done()

    handle(core, ORDERS.begin)
    play(core, answer_to, 1)
    handle(core, sink.PartitionsAssigned({A0: 0, A1: 0}))
    play(core, answer_to, 60)
    while not core.core.paused:
        handle(core, ORDERS.pause)
        play(core, answer_to, 1)
    handle(core, ORDERS.resume)
    play(core, answer_to, 5)
    handle(core, sink.PartitionsRevoked((A0,)))
    play(core, answer_to, 20)
    handle(core, sink.PartitionsAssigned({A0: 5}))
    play(core, answer_to, 20)
    while not isinstance(next(reversed(core.core.outstanding.values())), sink.Flush):
        play(core, answer_to, 1)
    handle(core, NotDone(SECRET))
    play(core, answer_to, 5)
    return core


@pytest.mark.parametrize(
    ("kind", "union"),
    [
        (SOURCE, source.SourceStimulus),
        (SOURCE, source.SourceEffect),
        (SINK, sink.SinkStimulus),
        (SINK, sink.SinkEffect),
    ],
)
def test_every_stimulus_and_effect_of_a_loop_is_read_back_as_it_was(kind: CoreKind[Any, Any], union: Any) -> None:
    for hint in get_args(union):
        value = example(hint)
        assert kind.codec.decode(json.loads(json.dumps(kind.codec.encode(value)))) == value


@pytest.mark.parametrize("steps", [source_of_many_steps, sink_of_many_steps])
@pytest.mark.parametrize("max_bytes", [1 << 24, RING_BYTES])
def test_a_loop_is_replayed_without_a_difference(steps: Any, max_bytes: int) -> None:
    core = steps(max_bytes)
    recording = recording_of(core)
    assert first_difference(recording) is None
    is_whole = shown(recording.entries[0].stimulus).startswith("BeginTask(")
    assert is_whole == (max_bytes > RING_BYTES), "a recording without room begins in the middle"


def test_a_loop_that_has_changed_is_found_with_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = recording_of(source_of_many_steps()), recording_of(sink_of_many_steps())
    monkeypatch.setattr(SourceProgress, "offsets", lambda progress: ())
    monkeypatch.setattr(Progress, "rewind", lambda progress: None)
    monkeypatch.setattr(SourceTaskCore, "RULES", {})
    of_source, of_sink = map(first_difference, recordings)
    assert of_source is not None
    assert "FlushAndCommitOffsets(offsets=[]," in of_source.ordered[0]
    assert of_sink is not None
    assert (of_sink.stimulus.partition("(")[0], of_sink.found) == ("Answered", "effect 1 differs")
    assert of_sink.recorded[0].startswith("Seek(")


@pytest.mark.parametrize("steps", [source_of_many_steps, sink_of_many_steps])
@pytest.mark.parametrize("max_bytes", [1 << 24, RING_BYTES])
def test_values_of_rows_and_texts_of_errors_are_hidden(steps: Any, max_bytes: int) -> None:
    text = "\n".join(recording_of(steps(max_bytes)).lines())
    assert "[hidden " in text
    assert SECRET not in text


def test_numbers_and_names_in_source_offsets_are_shown() -> None:
    recording = recording_of(source_of_many_steps())
    polled = next(entry for entry in recording.entries if "Polled(" in shown(entry.stimulus))
    assert "'nested': {'rows': ['[hidden " in shown(polled.stimulus)
    assert "3]}" in shown(polled.stimulus)


@pytest.mark.parametrize(
    ("kind", "core"),
    [
        (SOURCE, SourceTaskCore(replace(exactly_once(), lanes=LaneSettings(BulkMode.AUTO, 1 << 27)))),
        (SOURCE, SourceTaskCore(exactly_once())),
        (SINK, SinkTaskCore(replace(SINK_SETTINGS, lanes=LaneSettings(BulkMode.ALWAYS)))),
    ],
)
def test_the_lane_is_part_of_the_state_and_does_not_begin_again(kind: CoreKind[Any, Any], core: Any) -> None:
    core.bulk.choice, core.bulk.failure = BulkLane.of(None, None).choice, "lost"
    if kind is SOURCE:
        core.bulk.slice_bytes = 1 << 25
    other = type(core)(core.settings)
    other.restore(kind.codec.decode(json.loads(json.dumps(kind.codec.encode(core.state())))))
    assert other == core


def test_a_text_that_a_loop_makes_around_a_hidden_error_agrees_with_the_recorded_one() -> None:
    core = recorded(SINK, replace(SINK_SETTINGS, retry_timeout_ms=100))
    handle(core, ORDERS.begin, Done(), sink.PartitionsAssigned({A0: 0}), sink.Opened(1, {}))
    handle(core, sink.Fetched(1, {A0: (0, 5)}), sink.PutFailed(1, True, SECRET))
    handle(core, Done(), now_ms=200)
    step = handle(core, sink.PutFailed(1, True, SECRET), now_ms=500)
    assert isinstance(step.effects[-1], ReportFailed)
    assert step.effects[-1].error.startswith(f"{SECRET} It was tried 2 times")
    assert first_difference(recording_of(core)) is None
    assert not agree(MASK.text("one"), MASK.text("another"))


def test_late_answers_of_a_loop_are_listed() -> None:
    core = sink_of_many_steps()
    handle(core, sink.OffsetsCommitted(7))
    assert list(late_answers(recording_of(core)))[-1].endswith("was ignored: OffsetsCommitted 7 is not awaited")


def test_an_error_of_a_loop_has_the_story_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    core = recorded(SOURCE, AT_LEAST_ONCE)
    handle(core, ORDERS.begin, source.PluginStarted(FILE))
    monkeypatch.setattr(TaskLoop, "fail", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError) as raised:
        handle(core, EffectFailed(SECRET))
    story = raised.value.__notes__[0].splitlines()
    assert story[0] == "The last 3 steps of the source task worker-1/lines-0:"
    assert "raised ZeroDivisionError" in story[-1]
    assert SECRET not in story[-1]
