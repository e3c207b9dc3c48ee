"""What a source task sees of the runtime: its offsets, and a way to wait.

Decides nothing. Mirrors Kafka Connect's WorkerSourceTaskContext.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from connectx.connectors.api import SourceOffset, SourcePartition
from connectx.model.ids import TaskId
from connectx.runtime.mailbox import now_ms

if TYPE_CHECKING:
    from connectx.runtime.runner import Runner


class SourceContext:
    """SourceTaskContext of one task.

    Attributes:
        until_ms: ends waiting early; None: never.
        gone: ends the reading of offsets, from any thread.
    """

    def __init__(self, task: TaskId, runner: Runner) -> None:
        self._task = task
        self._runner = runner
        self._offsets: dict[str, SourceOffset | None] = {}
        self.until_ms: int | None = None
        self.gone = threading.Event()

    @property
    def task(self) -> TaskId:
        """Id of the task."""
        return self._task

    def offset(self, partition: SourcePartition) -> SourceOffset | None:
        """Position of a source partition: what was polled so far, at start what was committed."""
        key = json.dumps(dict(partition))
        if key not in self._offsets:
            read = self._runner.services.offsets.read
            self._offsets[key] = read(self._task.connector, [dict(partition)], cancel=self.gone)[0]
        return self._offsets[key]

    def remember(self, partition: SourcePartition, offset: SourceOffset) -> None:
        """The position after a poll."""
        self._offsets[json.dumps(dict(partition))] = offset

    def wait(self, timeout_ms: int) -> bool:
        """Sleep until the task is asked to do something else (True) or the time is over (False)."""
        left_ms = timeout_ms if self.until_ms is None else min(timeout_ms, self.until_ms - now_ms())
        return (
            left_ms <= 0
            or self._runner.wait(left_ms / 1000)
            or (self.until_ms is not None and now_ms() >= self.until_ms)
        )
