"""Recordings in a file: JSON lines, a header, the core's state and a line for each step, for each worker in turn.

The format has a version. It holds no code: reading a file makes values of the core's own classes and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from connectx.errors.history import RecordingError
from connectx.model.worker_config import WorkerConfig
from connectx.model.worker_keys import WorkerKeys
from connectx.views import Form, Shown, masked_text

FORMAT: Final = "connectx-core-recording"
VERSION: Final = 2

SETTINGS: Final = tuple(
    key.name
    for key in (
        WorkerKeys.group_id,
        WorkerKeys.connect_protocol,
        WorkerKeys.exactly_once_source_support,
        WorkerKeys.transactional_id,
        WorkerKeys.session_timeout_ms,
        WorkerKeys.heartbeat_interval_ms,
        WorkerKeys.rebalance_timeout_ms,
        WorkerKeys.retry_backoff_ms,
        WorkerKeys.retry_backoff_max_ms,
        WorkerKeys.worker_sync_timeout_ms,
        WorkerKeys.worker_unsync_backoff_ms,
        WorkerKeys.scheduled_rebalance_max_delay_ms,
        WorkerKeys.task_shutdown_graceful_timeout_ms,
        WorkerKeys.inter_worker_key_ttl_ms,
        WorkerKeys.inter_worker_key_size,
        WorkerKeys.inter_worker_key_generation_algorithm,
        WorkerKeys.topic_tracking_enable,
        WorkerKeys.topic_tracking_allow_reset,
    )
)
"""Settings of a worker that its core reads. No other is in a recording."""


@dataclass(frozen=True, slots=True, repr=False)
class Entry(Shown):
    """One step of a core, as JSON values.

    Attributes:
        at_ms: the core's clock.
        stimulus: what the core was given.
        effects: what it ordered; None if it raised an error.
        ignored: why it ignored the stimulus, as a late answer; None if it did not.
        signatures: what the checks of signatures in this step returned, in order.
        error: what it raised.
    """

    at_ms: int
    stimulus: Any
    effects: list[Any] | None
    ignored: str | None = None
    signatures: tuple[Any, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Recording(Shown):
    """Steps of one worker's core, from a state on.

    Attributes:
        worker: the worker's name.
        url: its advertised URL.
        settings: values of `SETTINGS` that were given, by key.
        state: the core's state before the first step, as JSON values.
        entries: the steps.
        types: connector class to source, sink or unknown, as the worker saw them.
        reason: why the recording was written.
    """

    worker: str
    url: str
    settings: Mapping[str, str]
    state: Any
    entries: tuple[Entry, ...]
    types: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""

    def _shown(self) -> Form:
        facts = {"worker": self.worker, "steps": len(self.entries), "reason": masked_text(self.reason)}
        return Form("Recording", facts)

    def lines(self) -> Iterator[str]:
        """Return the lines of the file."""
        header = {
            "format": FORMAT,
            "version": VERSION,
            "worker": self.worker,
            "url": self.url,
            "reason": self.reason,
            "settings": dict(self.settings),
            "types": dict(self.types),
            "steps": len(self.entries),
        }
        yield json_text(header)
        yield json_text({"state": self.state})
        for entry in self.entries:
            yield entry_text(entry)


def settings_of(config: WorkerConfig) -> dict[str, str]:
    """Return the settings that a recording holds."""
    return {name: config.originals[name] for name in SETTINGS if name in config.originals}


def json_text(value: Any) -> str:
    """Return `value` as one line of ASCII."""
    return json.dumps(value, separators=(",", ":"))


def entry_text(entry: Entry) -> str:
    """Return one step as a line; what is None or empty is left out."""
    content: dict[str, Any] = {"at_ms": entry.at_ms, "stimulus": entry.stimulus, "effects": entry.effects}
    if entry.ignored is not None:
        content["ignored"] = entry.ignored
    if entry.signatures:
        content["signatures"] = list(entry.signatures)
    if entry.error is not None:
        content["error"] = entry.error
    return json_text(content)


def write_recordings(path: Path, recordings: Iterable[Recording]) -> Path:
    """Write recordings to a file that only its owner can read.

    Raises:
        RecordingError: the file cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
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
            if end > len(lines):
                raise _broken(path, len(lines), f"{end - len(lines)} lines are missing after it")
            entries = tuple(entry_of(_object(path, number, lines[number])) for number in range(at + 2, end))
            state = _object(path, at + 1, lines[at + 1])["state"]
            named = {name: header[name] for name in ("worker", "url", "settings", "types", "reason")}
        except (KeyError, TypeError) as error:
            raise _broken(path, at + 1, f"{error} is missing or of a wrong type in its recording") from error
        found.append(Recording(state=state, entries=entries, **named))
        at = end
    if not found:
        raise _broken(path, 1, "the file is empty")
    return tuple(found)


def entry_of(content: Mapping[str, Any]) -> Entry:
    """Inverse of `entry_text` after JSON parsing; KeyError if a field is missing."""
    signatures = tuple(content.get("signatures", ()))
    ignored, error = content.get("ignored"), content.get("error")
    return Entry(content["at_ms"], content["stimulus"], content["effects"], ignored, signatures, error)


def _object(path: str, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise _broken(path, number + 1, "it is not JSON") from error
    if not isinstance(value, dict):
        raise _broken(path, number + 1, "it is not a JSON object")
    return value


def _broken(path: str, line: int, why: str) -> RecordingError:
    return RecordingError(
        f"Line {line} of {path} is not part of a recording: {why}.",
        next_step="Read a whole file that this version of connectx wrote.",
    )
