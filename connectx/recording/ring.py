"""A core that records its latest steps, and the state before them, in bounded memory.

Two segments of half the bytes take turns: when the second is full, the first is dropped, and a copy of the core is
taken for the next. Steps are kept as lines of the file, without secrets, so that their size is known.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from connectx.core.context import WorkerPhase
from connectx.core.messages import ConfigRecordRead, StatusRecordRead, Stimulus, WorkerStep
from connectx.core.settings import CoreSettings
from connectx.core.worker import WorkerCore
from connectx.model.config_records import SessionKeyRecord
from connectx.model.states import ConnectorType
from connectx.recording.codec import Mask, encode
from connectx.recording.file import Entry, Recording, entry_of, entry_text, settings_of


@dataclass(slots=True)
class _Segment:
    """Steps that follow each other, and the core before the first of them."""

    core: WorkerCore
    lines: list[str] = field(default_factory=list)
    size: int = 0


class RecordedCore:
    """A `WorkerCore` with a recording of its latest steps. One thread calls `handle`, any thread `recording`.

    The recording begins when the worker has read the internal topics: what it reads before is in the state.

    Args:
        worker: the worker's name.
        settings: settings of the core.
        max_bytes: size of the recorded steps, without the two states; 0 records nothing.
        mask: hides secrets; without it the recording holds all configurations.
    """

    def __init__(self, worker: str, settings: CoreSettings, max_bytes: int, mask: Mask | None) -> None:
        self._worker = worker
        self._given = settings
        self._max_bytes = max_bytes
        self._mask = mask
        self._types: dict[str, str] = {}
        self._signatures: list[Any] = []
        self._segments: list[_Segment] = []
        self._lock = threading.Lock()
        self.core = WorkerCore(
            replace(settings, connector_type_of=self._connector_type, check_signature=self._check_signature)
        )

    def handle(self, stimulus: Stimulus, now_ms: int) -> WorkerStep:
        """As `WorkerCore.handle`; the step is recorded, also if it raises an error."""
        is_reading = self.core.context.phase is WorkerPhase.STARTING and not self._segments
        if self._max_bytes == 0 or (is_reading and isinstance(stimulus, ConfigRecordRead | StatusRecordRead)):
            return self.core.handle(stimulus, now_ms)
        segment = self._segment()
        self._signatures = []
        try:
            step = self.core.handle(stimulus, now_ms)
        except Exception as error:
            self._keep(segment, stimulus, now_ms, None, f"{type(error).__name__}: {error}")
            raise
        self._keep(segment, stimulus, now_ms, step, None)
        return step

    def recording(self, reason: str) -> Recording | None:
        """Return what is recorded, None before the first step."""
        with self._lock:
            segments = [(segment.core, tuple(segment.lines)) for segment in self._segments]
            types = dict(self._types)
        if not segments:
            return None
        return Recording(
            worker=self._worker,
            url=self._given.url,
            settings=settings_of(self._given.worker),
            state=encode(segments[0][0].state(), self._mask),
            entries=tuple(entry_of(json.loads(line)) for _, lines in segments for line in lines),
            types=types,
            reason=reason,
        )

    def _segment(self) -> _Segment:
        if self._segments and self._segments[-1].size < self._max_bytes // 2:
            return self._segments[-1]
        segment = _Segment(copy.deepcopy(self.core))
        with self._lock:
            self._segments = [*self._segments[-1:], segment]
        return segment

    def _keep(
        self, segment: _Segment, stimulus: Stimulus, now_ms: int, step: WorkerStep | None, error: str | None
    ) -> None:
        effects = None if step is None else [encode(effect, self._mask) for effect in step.effects]
        ignored = None if step is None or step.ignored is None else str(step.ignored)
        signatures = tuple(self._signatures)
        line = entry_text(Entry(now_ms, encode(stimulus, self._mask), effects, ignored, signatures, error))
        with self._lock:
            segment.lines.append(line)
            segment.size += len(line)

    def _connector_type(self, config: Mapping[str, str | None]) -> ConnectorType:
        found, name = self._given.connector_type_of(config), config.get("connector.class") or ""
        if self._types.get(name) != found.value:
            with self._lock:
                self._types[name] = found.value
        return found

    def _check_signature(
        self, key: SessionKeyRecord | None, body: bytes, signature: str | None, algorithm: str | None
    ) -> tuple[int, str] | None:
        refusal = self._given.check_signature(key, body, signature, algorithm)
        self._signatures.append(refusal)
        return refusal
