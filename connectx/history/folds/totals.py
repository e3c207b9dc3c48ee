"""Totals of records that connectors and tasks committed, skipped and sent to dead letter queues. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from connectx.history.folds.configured import ConfiguredFold
from connectx.model.events import Event, EventKind
from connectx.model.payloads import OffsetsCommitted, RecordsSkipped, TransactionCommitted

COMMITS = (EventKind.TRANSACTION_COMMITTED, EventKind.OFFSETS_COMMITTED)


@dataclass(slots=True)
class Totals:
    """Numbers of records since the beginning of the history.

    Attributes:
        committed: of a source in Kafka, of a sink in its target.
        skipped: left out because of errors, as `errors.tolerance` allows; dead letters included.
        dead_letters: those of the skipped that were sent to the dead letter queue.
    """

    committed: int = 0
    skipped: int = 0
    dead_letters: int = 0

    def add(self, event: Event) -> None:
        """Count an event of this connector or task."""
        match event.payload:
            case TransactionCommitted(records) | OffsetsCommitted(records):
                self.committed += records
            case RecordsSkipped(records, dead_letters):
                self.skipped += records
                self.dead_letters += dead_letters
            case _:
                pass  # events without a total


class TotalsFold:
    """Takes events one by one, in order. A deleted connector starts from 0 again, and its last tasks count no more.

    `of` maps (connector, task) to totals, those of a whole connector with task None. Only what has a total is in it.
    """

    def __init__(self) -> None:
        self.of: dict[tuple[str, int | None], Totals] = {}
        self._configured = ConfiguredFold()

    def take(self, event: Event) -> None:
        self._configured.take(event)
        if event.connector is None:
            return
        if not self._configured.has(event.connector, None, event.seq):
            self.of = {work: totals for work, totals in self.of.items() if work[0] != event.connector}
        elif event.kind in (*COMMITS, EventKind.RECORDS_SKIPPED):
            for task in dict.fromkeys((None, event.task)):
                self.of.setdefault((event.connector, task), Totals()).add(event)
