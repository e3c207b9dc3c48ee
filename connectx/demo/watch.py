"""The state of a running demo, for its screen and for choosing when to inject faults. Pure.

These are connectx's own numbers, from its history; the verdict never uses them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from connectx.history.folds.rebalances import rebalances
from connectx.history.folds.snapshot import Snapshot, snapshot
from connectx.model import payloads
from connectx.model.events import Event
from connectx.model.states import State

SOURCE = "flights-in"
SINK = "flights-out"
SOURCE_TASK = f"{SOURCE}-0"


@dataclass(slots=True)
class Watch:
    """A running summary of the history; `take` it all, in order.

    Attributes:
        slices: transactions that the source has committed.
        records: records in them.
        position: bytes of the file that are committed.
        stored: records that the sink's tasks say they have stored.
        with_jobs: connectors whose executors read or write now.
        failure: the first failure of a task that was not a zombie, as a sentence; None when all is well.
    """

    slices: int = 0
    records: int = 0
    position: int = 0
    stored: int = 0
    failure: str | None = None
    killed: set[str] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)
    with_jobs: set[str] = field(default_factory=set)

    def take(self, events: Iterable[Event]) -> None:
        """Take what happened since the last call."""
        for event in events:
            self.events.append(event)
            self._count(event)

    def _count(self, event: Event) -> None:
        match event.payload:
            case payloads.TransactionCommitted(records, offsets) if event.connector == SOURCE:
                self.slices += 1
                self.records += records
                for covered in offsets or ():
                    self.position = max(self.position, int(covered.offset.get("position", 0)))
            case payloads.BulkStarted():
                self.with_jobs.add(event.connector or "")
            case payloads.BulkStaged() | payloads.BulkFailed():
                self.with_jobs.discard(event.connector or "")
            case payloads.OffsetsCommitted(records) if event.connector == SINK:
                self.stored += records
            case payloads.FaultInjected("kill"):
                self.killed.add(event.worker or "")
                self.with_jobs.clear()  # jobs of its tasks are not reported any more
            case payloads.TaskState(State.FAILED, trace) | payloads.ConnectorState(State.FAILED, trace):
                if event.worker not in self.killed and self.failure is None:
                    what = event.connector if event.task is None else f"{event.connector}-{event.task}"
                    self.failure = f"{what} failed on {event.worker}: {trace or event.cause}"
            case payloads.WorkerFailed(error) if self.failure is None:
                self.failure = f"{event.worker} failed: {error or event.cause}"

    def snapshot(self) -> Snapshot:
        """How things stand."""
        return snapshot(self.events)

    def is_settled(self) -> bool:
        """True when no round of the group is under way and all three tasks run."""
        rounds = rebalances(self.events)
        running = [task for task in self.snapshot().tasks if task.state == State.RUNNING]
        return bool(rounds) and rounds[-1].generation is not None and len(running) == 3

    def holder(self, connector: str, task: int | None = None, *, avoid: str = "") -> tuple[str, str] | None:
        """A worker that runs a task of the connector now, and the task; rather not the worker that runs `avoid`."""
        running = [work for work in self.snapshot().tasks if work.state == State.RUNNING and work.worker is not None]
        avoided = {work.worker for work in running if f"{work.connector}-{work.task}" == avoid}
        found = [work for work in running if work.connector == connector and task in (None, work.task)]
        found.sort(key=lambda work: (work.worker in avoided, work.task or 0))
        return (str(found[0].worker), f"{connector}-{found[0].task}") if found else None
