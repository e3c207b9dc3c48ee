"""Steps a real core through its recording, to the first step that fails or differs from it, and makes tests of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from connectx.errors.history import RecordingError
from connectx.owned_files import owned_file
from connectx.recording.codec import agree, shown
from connectx.recording.file import Entry, Recording
from connectx.recording.kind import Answers, Core, CoreKind
from connectx.recording.kinds import KINDS
from connectx.values import Value

_TEST: Final = '''"""Replays recorded cores: `connectx replay --core {name} --to-test {test}`."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectx.recording.file import Recording, read_recordings
from connectx.recording.replay import first_difference

RECORDINGS = read_recordings(Path(__file__).with_name("{name}"))


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_each_step_of_the_core_is_sound_and_as_recorded(recording: Recording) -> None:
    difference = first_difference(recording)
    assert difference is None, str(difference)
'''


def write_test(recording: Path, test: Path) -> Path:
    """Write a test to `test` and copy the recording beside it; returns `test`.

    Raises:
        RecordingError: the files cannot be written, or `test` exists.
    """
    beside = test.with_name(f"{test.stem}.jsonl")
    try:
        with test.open("x", encoding="utf-8") as file:
            file.write(_TEST.format(name=beside.name, test=test.name))
        if not (beside.exists() and beside.samefile(recording)):
            with owned_file(beside) as copy:
                copy.write(recording.read_text(encoding="ascii"))
    except OSError as error:
        raise RecordingError(
            f"The test could not be written to {test}: {error.strerror}.",
            next_step="Name a new file in a folder that you may write to.",
        ) from error
    return test


_OF_ANOTHER_VERSION: Final = (ValueError, KeyError, TypeError)


class Difference(Value):
    """The first step of a replay that is not sound, or not as recorded.

    Attributes:
        core: name of the recording.
        step: number of the step, from 1.
        at_ms: the core's clock in that step.
        stimulus: what the core was given, as text.
        found: what is wrong, in a sentence.
        recorded: the effects that were recorded and not ordered, as text.
        ordered: the effects that were ordered and not recorded, as text.
    """

    core: str
    step: int
    at_ms: int
    stimulus: str
    found: str
    recorded: tuple[str, ...] = ()
    ordered: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.core}, step {self.step} at {self.at_ms} ms: {self.found}", f"  given:    {self.stimulus}"]
        lines += [f"  recorded: {effect}" for effect in self.recorded]
        lines += [f"  ordered:  {effect}" for effect in self.ordered]
        return "\n".join(lines)


def first_difference(recording: Recording, *, sentences: bool = True) -> Difference | None:
    """Replay a recording; None if every step is sound and orders the recorded effects.

    Without `sentences`, bodies of replies, traces and errors are not compared.

    Raises:
        RecordingError: the recording is of another version, or was changed.
    """
    kind = KINDS.get(recording.kind)
    if kind is None:
        raise _unreadable(recording, "header", ValueError(f"the kind {recording.kind!r} is not known"))
    codec = kind.codec
    answers = Answers(recording.known)
    core = _started(recording, kind, answers)
    for number, entry in enumerate(recording.entries, start=1):
        try:
            stimulus = codec.decode(entry.stimulus)
        except Exception as error:
            raise _unreadable(recording, f"step {number}", error) from error
        answers.given = list(entry.answers)
        before = core.marks()
        named = recording.name, number, entry.at_ms, shown(entry.stimulus)
        try:
            step = core.handle(stimulus, entry.at_ms)
        except Exception as error:  # whatever it is, it is what the replay looks for
            return Difference(*named, found=f"the core raises {type(error).__name__}: {error}")
        ordered = [codec.encode(effect) for effect in step.effects]
        if entry.effects is not None and not agree(entry.effects, ordered, sentences):
            return _of_effects(named, entry, ordered, sentences)
        if entry.effects is not None and (entry.ignored is None) != (step.ignored is None):
            return Difference(*named, found="it is ignored" if step.ignored else "it is not ignored any more")
        if broken := core.check(before):
            return Difference(*named, found=f"a rule is broken: {'; '.join(map(str, broken))}")
    return None


def _started(recording: Recording, kind: CoreKind[Any, Any], answers: Answers) -> Core:
    try:
        core: Core = kind.make(kind.read(recording.settings, answers))
    except Exception as error:
        raise _unreadable(recording, "header", error) from error
    try:
        core.restore(kind.codec.decode(recording.state))
    except Exception as error:
        raise _unreadable(recording, "state", error) from error
    return core


def late_answers(recording: Recording) -> Iterator[str]:
    """Return a line for each stimulus that the core ignored, with the reason."""
    for number, entry in enumerate(recording.entries, start=1):
        if entry.ignored is not None:
            yield f"step {number} at {entry.at_ms} ms: {shown(entry.stimulus)} was ignored: {entry.ignored}"


def _of_effects(named: tuple[str, int, int, str], entry: Entry, ordered: list[Any], sentences: bool) -> Difference:
    recorded = entry.effects or []
    same = next(
        (at for at, pair in enumerate(zip(recorded, ordered, strict=False)) if not agree(*pair, sentences)), None
    )
    at = min(len(recorded), len(ordered)) if same is None else same
    only_recorded, only_ordered = tuple(map(shown, recorded[at:])), tuple(map(shown, ordered[at:]))
    found = f"effect {at + 1} differs" if only_recorded and only_ordered else f"there is no effect {at + 1}"
    if not only_recorded:
        found = f"effect {at + 1} was not recorded"
    return Difference(*named, found=found, recorded=only_recorded, ordered=only_ordered)


def _unreadable(recording: Recording, what: str, error: Exception) -> RecordingError:
    return RecordingError(
        f"The {what} of the recording of {recording.name} cannot be replayed: {error}.",
        next_step="Replay it with the version of connectx that wrote it.",
    )
