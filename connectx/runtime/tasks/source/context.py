"""The context that a source plugin gets: its offsets, waiting, and boundaries of transactions.

Decides nothing. Mirrors Kafka Connect's WorkerSourceTaskContext and WorkerTransactionContext.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from connectx.core.source.messages import NO_BOUNDARY, Boundary, SourceAction, SourceStimulus
from connectx.model.ids import TaskId
from connectx.model.source_offsets import SourceOffset, SourcePartition

if TYPE_CHECKING:
    from connectx.runtime.tasks.runner import Runner
    from connectx.runtime.tasks.services import OffsetReader


RowBoundaries = dict[int, tuple[Boundary, SourceOffset | None]]
"""Boundaries that were requested after rows of a slice, with the source offsets after these rows."""


class Transactions:
    """TransactionContext of one task: keeps what the task asks for until the loop takes it."""

    def __init__(self) -> None:
        self._after_slice = NO_BOUNDARY
        self._after_rows: RowBoundaries = {}

    def commit_transaction(self, row: int | None = None, offset: SourceOffset | None = None) -> None:
        self._ask(Boundary(commit=True), row, offset)

    def abort_transaction(self, row: int | None = None, offset: SourceOffset | None = None) -> None:
        self._ask(Boundary(abort=True), row, offset)

    def take(self) -> tuple[Boundary, RowBoundaries]:
        """What was asked for since the last call."""
        taken = self._after_slice, self._after_rows
        self._after_slice, self._after_rows = NO_BOUNDARY, {}
        return taken

    def _ask(self, asked: Boundary, row: int | None, offset: SourceOffset | None) -> None:
        if row is None:
            self._after_slice |= asked
        else:
            before, known = self._after_rows.get(row, (NO_BOUNDARY, None))
            self._after_rows[row] = before | asked, offset or known


class SourceContext:
    """SourceTaskContext of one task.

    Attributes:
        transaction: None unless the task itself defines its transactions.
        until_ms: ends waiting early; None: never.
        gone: ends the reading of offsets, from any thread.
    """

    def __init__(
        self,
        task: TaskId,
        runner: Runner[SourceStimulus, SourceAction],
        offsets: OffsetReader,
        *,
        defines_transactions: bool,
    ) -> None:
        self.transaction = Transactions() if defines_transactions else None
        self._task = task
        self._runner = runner
        self._clock = runner.services.clock
        self._committed = offsets
        self._offsets: dict[str, SourceOffset | None] = {}
        self.until_ms: int | None = None
        self.gone = threading.Event()

    @property
    def task(self) -> TaskId:
        return self._task

    def offset(self, partition: SourcePartition) -> SourceOffset | None:
        """Position of a source partition: what was polled so far, at start what was committed."""
        return self.offsets([partition])[0]

    def offsets(self, partitions: Sequence[SourcePartition]) -> list[SourceOffset | None]:
        """Positions of source partitions; the offsets topic is read once."""
        keys = [json.dumps(dict(partition)) for partition in partitions]
        new = {key: dict(of) for key, of in zip(keys, partitions, strict=True) if key not in self._offsets}
        if new:
            found = self._committed.read(self._task.connector, list(new.values()), cancel=self.gone)
            self._offsets.update(zip(new, found, strict=True))
        return [self._offsets[key] for key in keys]

    def position(self, partition: SourcePartition) -> SourceOffset | None:
        """As `offset`, without asking Kafka: empty when the position was not read or polled yet."""
        return self._offsets.get(json.dumps(dict(partition)), {})

    def remember(self, partition: SourcePartition, offset: SourceOffset) -> None:
        self._offsets[json.dumps(dict(partition))] = offset

    def take_boundaries(self) -> tuple[Boundary, RowBoundaries]:
        """What the task asked of its transactions since the last call."""
        return (NO_BOUNDARY, {}) if self.transaction is None else self.transaction.take()

    def wait(self, timeout_ms: int) -> bool:
        """Sleep until the task is asked to do something else (True) or the time is over (False)."""
        left_ms = timeout_ms if self.until_ms is None else min(timeout_ms, self.until_ms - self._clock())
        return (
            left_ms <= 0
            or self._runner.wait(left_ms / 1000)
            or (self.until_ms is not None and self._clock() >= self.until_ms)
        )
