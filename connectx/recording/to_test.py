"""A pytest file from a recording: the recording beside it, and a test that replays it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from connectx.errors.history import RecordingError
from connectx.recording.file import open_owned

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
            with open_owned(beside) as copy:
                copy.write(recording.read_text(encoding="ascii"))
    except OSError as error:
        raise RecordingError(
            f"The test could not be written to {test}: {error.strerror}.",
            next_step="Name a new file in a folder that you may write to.",
        ) from error
    return test
