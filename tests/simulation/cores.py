"""The cores of a simulated world, which record their steps for trails that are kept."""

from __future__ import annotations

from typing import Any

from connectx.recording.file import Recording
from connectx.recording.kind import CoreKind, CoreT, SettingsT
from connectx.recording.ring import RecordedCore


class RecordedCores:
    """Makes the cores of a world: workers, tasks and clients alike.

    Args:
        max_bytes: of each recording; 0 records nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._made: list[RecordedCore[Any]] = []

    def make(self, kind: CoreKind[SettingsT, CoreT], name: str, settings: SettingsT) -> RecordedCore[CoreT]:
        """Make a core; its name gets a number if another has it."""
        same = sum(made.name.partition(" #")[0] == name for made in self._made)
        core = RecordedCore(kind, f"{name} #{same + 1}" if same else name, settings, self._max_bytes, None)
        self._made.append(core)
        return core

    def recordings(self, reason: str) -> list[Recording]:
        """What was recorded of each core that has taken a step, in the order in which they were made."""
        found = (core.recording(reason) for core in self._made)
        return [recording for recording in found if recording is not None]
