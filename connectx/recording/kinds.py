"""All kinds of cores that are recorded, by their names in files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connectx.recording.clients import FETCHER, PRODUCER
from connectx.recording.kind import CoreKind
from connectx.recording.loops import SINK, SOURCE
from connectx.recording.worker import WORKER

KINDS: Final[Mapping[str, CoreKind[Any, Any]]] = {kind.name: kind for kind in (WORKER, SOURCE, SINK, PRODUCER, FETCHER)}
