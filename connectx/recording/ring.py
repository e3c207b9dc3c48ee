"""A core that records its latest steps, and the state before them, in bounded memory.

Two segments of half the bytes take turns: when the second is full, the first is dropped, and a copy of the core is
taken for the next. Steps are kept as the values that the core was given and returned, which do not change; they are
written without secrets when a recording is asked for. So a step costs little, and its size is an estimate.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple

from connectx.core.rules import BrokenRule
from connectx.recording.codec import Mask, shown
from connectx.recording.file import Entry, Recording, entry_text, json_text
from connectx.recording.kind import Answers, CoreKind, CoreT, SettingsT

_STEP_BYTES: Final = 50  # of the time, and of what is around stimulus and effects
_MEASURED_EVERY: Final = 32
_STORY_STEPS: Final = 8
_STORY_CHARS: Final = 300


class _Kept(NamedTuple):
    """A step, as `Entry` without the codec."""

    at_ms: int
    stimulus: Any
    effects: tuple[Any, ...] | None
    ignored: str | None
    answers: tuple[Any, ...]
    error: str | None


@dataclass(slots=True)
class _Segment(Generic[CoreT]):
    """Steps that follow each other, and the core before the first of them."""

    core: CoreT
    steps: list[_Kept] = field(default_factory=list)
    size: int = 0


class RecordedCore(Generic[CoreT]):
    """A core with a recording of its latest steps. One thread at a time calls `handle`, any thread `recording`.

    Args:
        kind: of the core.
        name: the worker's name; that of a task's or client's core begins with it.
        settings: settings of the core.
        max_bytes: size of the recorded steps, without the two states; 0 records nothing.
        mask: hides secrets; without it the recording holds all configurations.
    """

    def __init__(
        self, kind: CoreKind[SettingsT, CoreT], name: str, settings: SettingsT, max_bytes: int, mask: Mask | None
    ) -> None:
        self.name = name
        self._kind: CoreKind[Any, CoreT] = kind
        self._settings = settings
        self._max_bytes = max_bytes
        self._mask = mask
        self._answers = Answers()
        self._segments: list[_Segment[CoreT]] = []
        self._sizes: dict[type, tuple[int, int]] = {}  # of the step measured last, and how many there were
        self._lock = threading.Lock()
        self.core = kind.make(kind.listening(settings, self._answers))

    def handle(self, stimulus: Any, now_ms: int) -> Any:
        """As the core's `handle`; the step is recorded.

        An error that the core raises is recorded, too, and gets the latest steps as a note.
        """
        if self._max_bytes == 0 or not (self._segments or self._kind.begins(self.core, stimulus)):
            return self.core.handle(stimulus, now_ms)
        segment = self._segment()
        self._answers.given = []
        try:
            step = self.core.handle(stimulus, now_ms)
        except Exception as error:
            self._keep(segment, stimulus, now_ms, None, f"{type(error).__name__}: {error}")
            error.add_note(self._story(getattr(error, "subject", None)))
            raise
        self._keep(segment, stimulus, now_ms, step, None)
        return step

    def check(self) -> tuple[BrokenRule, ...]:
        return self.core.check()

    def recording(self, reason: str) -> Recording | None:
        """Return what is recorded, None before the first step."""
        with self._lock:
            segments = [(segment.core, tuple(segment.steps)) for segment in self._segments]
        if not segments:
            return None
        return Recording(
            kind=self._kind.name,
            name=self.name,
            settings=self._kind.written(self._settings, self._mask),
            state=self._kind.codec.encode(segments[0][0].state(), self._mask),
            entries=tuple(self._entry(step) for _, steps in segments for step in steps),
            known=self._answers.known,
            reason=reason,
        )

    def _segment(self) -> _Segment[CoreT]:
        if self._segments and self._segments[-1].size < self._max_bytes // 2:
            return self._segments[-1]
        segment = _Segment(copy.deepcopy(self.core))
        with self._lock:
            self._segments = [*self._segments[-1:], segment]
        return segment

    def _keep(self, segment: _Segment[CoreT], stimulus: Any, now_ms: int, step: Any, error: str | None) -> None:
        effects = None if step is None else tuple(step.effects)
        ignored = None if step is None or step.ignored is None else str(step.ignored)
        kept = _Kept(now_ms, stimulus, effects, ignored, tuple(self._answers.given), error)
        size = self._size(type(stimulus), kept)
        with self._lock:
            segment.steps.append(kept)
            segment.size += size

    def _size(self, kind: type, step: _Kept) -> int:
        """Rough size of a step: of those with one kind of stimulus the first of 32 is measured."""
        size, uses = self._sizes.get(kind, (0, 0))
        if uses % _MEASURED_EVERY == 0:
            size_of = self._kind.codec.size
            size = _STEP_BYTES + size_of(step.stimulus) + sum(map(size_of, step.effects or ()))
        self._sizes[kind] = size, uses + 1
        return size

    def _entry(self, step: _Kept) -> Entry:
        encode, mask = self._kind.codec.encode, self._mask
        effects = None if step.effects is None else [encode(effect, mask) for effect in step.effects]
        return Entry(step.at_ms, encode(step.stimulus, mask), effects, step.ignored, step.answers, step.error)

    def _story(self, subject: object) -> str:
        """The last steps; for a connector or task that made a wrong move those which name it."""
        entries = [self._entry(step) for segment in self._segments for step in segment.steps]
        named = json_text(self._kind.codec.encode(subject))
        about = [entry for entry in entries if subject is not None and named in entry_text(entry)]
        last = (about or entries)[-_STORY_STEPS:]
        story = [f"The last {len(last)} steps of {subject if about else f'the {self._kind.name} {self.name}'}:"]
        for entry in last:
            stimulus = shown(entry.stimulus)[:_STORY_CHARS]
            ends = f"raised {entry.error}" if entry.effects is None else f"ordered {shown(entry.effects)}"
            story.append(f"  at {entry.at_ms} ms {stimulus} {ends[:_STORY_CHARS]}")
        return "\n".join(story)
