"""The recordings of one worker: its core's, and those of its tasks and Kafka clients."""

from __future__ import annotations

import threading
from typing import Any, Final
from weakref import WeakSet

from connectx.recording.codec import Mask
from connectx.recording.file import Recording
from connectx.recording.kind import CoreKind, CoreT, SettingsT
from connectx.recording.ring import RecordedCore

_SHARE: Final = 16


class Recorder:
    """Makes recorded cores, and returns what those that are in use have recorded. From any thread.

    Args:
        max_bytes: size of the recorded steps of the worker's core (`recording.max.bytes`); any other core gets a
            sixteenth of it. 0 records nothing.
        mask: hides secrets.
    """

    def __init__(self, max_bytes: int, mask: Mask | None) -> None:
        self._max_bytes = max_bytes
        self._mask = mask
        self._cores: WeakSet[RecordedCore[Any]] = WeakSet()  # a core that ends with its driver is left out then
        self._lock = threading.Lock()

    def worker(self, kind: CoreKind[SettingsT, CoreT], name: str, settings: SettingsT) -> RecordedCore[CoreT]:
        return self._add(RecordedCore(kind, name, settings, self._max_bytes, self._mask))

    def part(self, kind: CoreKind[SettingsT, CoreT], name: str, settings: SettingsT) -> RecordedCore[CoreT]:
        """Make the core of a task or a client."""
        return self._add(RecordedCore(kind, name, settings, self._max_bytes // _SHARE, self._mask))

    def _add(self, core: RecordedCore[CoreT]) -> RecordedCore[CoreT]:
        with self._lock:
            self._cores.add(core)
        return core

    def recordings(self, reason: str) -> tuple[Recording, ...]:
        """Return what is recorded of each core that has taken a step, by name; the worker's is the first."""
        with self._lock:
            cores = sorted(self._cores, key=lambda core: core.name)
        found = (core.recording(reason) for core in cores)
        return tuple(recording for recording in found if recording is not None)
