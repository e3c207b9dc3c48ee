"""Recordings in a file: JSON lines, a header, the core's state and a line for each step, for each core in turn.

The format has a version. It holds no code: reading a file makes values of the core's own classes and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from connectx.errors.history import RecordingError
from connectx.model.decoding import reason_of
from connectx.owned_files import owned_file
from connectx.protocol import compact_json
from connectx.values import Value
from connectx.views import Form, Shown, masked_text

FORMAT: Final = "connectx-core-recording"
VERSION: Final = 3


class Entry(Shown, Value):
    """One step of a core, as JSON values.

    Attributes:
        at_ms: the core's clock.
        stimulus: what the core was given.
        effects: what it ordered; None if it raised an error.
        ignored: why it ignored the stimulus, as a late answer; None if it did not.
        answers: what functions that the core called in this step returned, in order.
        error: what it raised.
    """

    at_ms: int
    stimulus: Any
    effects: list[Any] | None
    ignored: str | None = None
    answers: tuple[Any, ...] = ()
    error: str | None = None


class Recording(Shown, Value):
    """Steps of one core, from a state on.

    Attributes:
        kind: name of the kind of core, of `connectx.recording.kinds`.
        name: the worker's name; that of a task's or client's core begins with it.
        settings: what the core decides by, as JSON values.
        state: the core's state before the first step, as JSON values.
        entries: the steps.
        known: what functions of the settings returned, by question.
        reason: why the recording was written.
    """

    kind: str
    name: str
    settings: Any
    state: Any
    entries: tuple[Entry, ...]
    known: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""

    def _shown(self) -> Form:
        facts = {
            "kind": self.kind,
            "name": self.name,
            "steps": len(self.entries),
            "reason": masked_text(self.reason),
        }
        return Form("Recording", facts)

    def lines(self) -> Iterator[str]:
        header = {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "name": self.name,
            "reason": self.reason,
            "settings": self.settings,
            "known": dict(self.known),
            "steps": len(self.entries),
        }
        yield json_text(header)
        yield json_text({"state": self.state})
        for entry in self.entries:
            yield entry_text(entry)


def json_text(value: Any) -> str:
    """Return `value` as one line of ASCII."""
    return json.dumps(value, separators=(",", ":"))


def entry_text(entry: Entry) -> str:
    """Return one step as a line; what is None or empty is left out."""
    content: dict[str, Any] = {"at_ms": entry.at_ms, "stimulus": entry.stimulus, "effects": entry.effects}
    if entry.ignored is not None:
        content["ignored"] = entry.ignored
    if entry.answers:
        content["answers"] = list(entry.answers)
    if entry.error is not None:
        content["error"] = entry.error
    return json_text(content)


def write_recordings(path: Path, recordings: Iterable[Recording]) -> Path:
    """Write recordings to a file that only its owner can read.

    Raises:
        RecordingError: the file cannot be written.
    """
    try:
        with owned_file(path) as file:
            for recording in recordings:
                file.writelines(f"{line}\n" for line in recording.lines())
    except OSError as error:
        raise RecordingError(
            f"The recording could not be written to {path}: {error.strerror}.",
            next_step="Name a file in a folder that you may write to.",
        ) from error
    return path


def read_recordings(path: Path) -> tuple[Recording, ...]:
    """Read a file that `write_recordings` wrote.

    Raises:
        RecordingError: the file cannot be read, is of another format or version, or a line is broken.
    """
    try:
        return recordings_of(path.read_text(encoding="ascii").splitlines(), str(path))
    except OSError as error:
        raise RecordingError(
            f"The recording {path} could not be read: {error.strerror}.",
            next_step="Name a file that cluster.record wrote.",
        ) from error
    except UnicodeDecodeError as error:
        raise _broken(str(path), 1, "it is not ASCII text") from error


def recordings_of(lines: Sequence[str], path: str) -> tuple[Recording, ...]:
    """Read lines of `Recording.lines`; `path` is where they are from. Raises RecordingError as `read_recordings`."""
    found: list[Recording] = []
    at = 0
    while at < len(lines):
        header = _object(path, at, lines[at])
        if header.get("format") != FORMAT:
            raise _broken(path, at + 1, "it is not the header of a recording")
        if header.get("version") != VERSION:
            raise _broken(path, at + 1, f"its version is {header.get('version')}, and this one reads {VERSION}")
        try:
            end = at + 2 + header["steps"]
            if end < at + 2:
                raise _broken(path, at + 1, f"its number of steps is {header['steps']}")
            if end > len(lines):
                raise _broken(path, len(lines), f"{end - len(lines)} lines are missing after it")
            entries = tuple(entry_of(_object(path, number, lines[number])) for number in range(at + 2, end))
            state = _object(path, at + 1, lines[at + 1])["state"]
            named = {name: header[name] for name in ("kind", "name", "settings", "known", "reason")}
        except (KeyError, TypeError, IndexError) as error:
            raise _broken(path, at + 1, f"{error} is missing or of a wrong type in its recording") from error
        found.append(Recording(state=state, entries=entries, **named))
        at = end
    if not found:
        raise _broken(path, 1, "the file is empty")
    return tuple(found)


def entry_of(content: Mapping[str, Any]) -> Entry:
    """Inverse of `entry_text` after JSON parsing; KeyError if a field is missing."""
    answers = tuple(content.get("answers", ()))
    ignored, error = content.get("ignored"), content.get("error")
    return Entry(content["at_ms"], content["stimulus"], content["effects"], ignored, answers, error)


def _object(path: str, number: int, line: str) -> dict[str, Any]:
    try:
        value = compact_json.loads(line.encode())
    except (ValueError, RecursionError) as error:
        raise _broken(path, number + 1, reason_of(error)) from error
    if not isinstance(value, dict):
        raise _broken(path, number + 1, "it is not a JSON object")
    return value


def _broken(path: str, line: int, why: str) -> RecordingError:
    return RecordingError(
        f"Line {line} of {path} is not part of a recording: {why}.",
        next_step="Read a whole file that this version of connectx wrote.",
    )
