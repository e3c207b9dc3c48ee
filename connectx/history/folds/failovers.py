"""Failovers: for each fault, when it was noticed, which work moved where, and what was fenced. Pure.

Numbers come from events only; what they do not show is None or missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from connectx.history.folds.fences import fenced_by
from connectx.history.folds.rebalances import Rebalance, rebalances
from connectx.history.folds.runs import Run, RunState, runs
from connectx.model.events import Event, EventKind
from connectx.model.payloads import FaultInjected, PartitionsAssigned, PartitionsLost, PartitionsRevoked
from connectx.values import Value

Holder = tuple[str, str]
"""Task name and worker name."""


class Handover(Value):
    """Partitions that a task of a worker held and that another task (or the same one elsewhere) was given next."""

    partitions: tuple[str, ...]
    from_task: str
    to_task: str
    to_worker: str
    time_ms: int


def handovers(events: Iterable[Event], worker: str, after_seq: int) -> tuple[Handover, ...]:
    """Where the partitions went that sink tasks of `worker` held at event `after_seq`, by the first to get each."""
    held: dict[str, str] = {}
    taken: dict[tuple[str, str, str, int], list[str]] = {}
    for event in events:
        moved = event.payload
        if not isinstance(moved, _Moved) or event.worker is None:
            continue
        holder = (f"{event.connector}-{event.task}", event.worker)
        partitions = sorted(moved.partitions)
        if event.seq <= after_seq:
            if event.worker == worker:
                _follow(held, moved, holder)
        elif isinstance(moved, PartitionsAssigned):
            for partition in partitions:
                if (from_task := held.pop(partition, None)) is not None:
                    taken.setdefault((from_task, *holder, event.time_ms), []).append(partition)
    return tuple(
        Handover(tuple(partitions), from_task, to_task, to_worker, time_ms)
        for (from_task, to_task, to_worker, time_ms), partitions in taken.items()
    )


_Moved = PartitionsAssigned | PartitionsRevoked | PartitionsLost


def _follow(held: dict[str, str], moved: _Moved, holder: Holder) -> None:
    for partition in moved.partitions:
        if isinstance(moved, PartitionsAssigned):
            held[partition] = holder[0]
        elif held.get(partition) == holder[0]:
            del held[partition]


FAULTS = ("kill", "stop", "pause", "stall", "partition")
REJECTIONS = (EventKind.PRODUCER_FENCED, EventKind.COMMIT_REFUSED)
_ENDS_FAULT = ("resume", "heal")
_HELD_STATES = (RunState.RUNNING, RunState.PAUSED, RunState.STARTING)


class Move(Value):
    """A task that another instance runs now; `time_ms` is when that one reached RUNNING (or PAUSED).

    `from_epoch` is the last that the older producer is known to have had, `to_epoch` the first of the newer.
    """

    task: str
    from_worker: str
    to_worker: str
    time_ms: int
    generation: int | None
    from_epoch: int | None
    to_epoch: int | None

    @property
    def shut_out(self) -> bool:
        """True when the successor initialised a producer with a higher epoch: the older one can commit nothing more."""
        return self.from_epoch is not None and self.to_epoch is not None and self.to_epoch > self.from_epoch


class Failover(Value):
    """A fault of a worker and what followed from it.

    Attributes:
        worker: the worker it hit.
        fault: kill, stop, pause, stall or partition.
        time_ms: when it was injected, milliseconds since 1970.
        held: names of the tasks that the worker ran then, sorted.
        epochs: the last known producer epochs of those of them that have one.
        noticed: the first round of the group without the worker, None when there was none.
        detected_ms: from the fault to the start of that round.
        handovers: where partitions went that sink tasks of the worker held.
        moves: the next instances of `held`, in order of time.
        moved_ms: from the fault until all of `held` ran again; None while one does not, or when nothing was held.
        kept: names of tasks that went on with the same instance, because the worker was back in time.
        zombie_ms: for how long the worker's threads went on with `held` after that was no longer theirs, the longest.
        ended_ms: when the fault ended (resume, heal), milliseconds since 1970.
        fenced: how many of `held` are shown to be shut out: by a higher producer epoch or by a rejected write.
        rejections: the rejected writes of the worker.
        fenced_by: who rejected them, by the number of the event, where the worker found out.
        aborted: transactions of the worker that were aborted after the fault.
    """

    worker: str
    fault: str
    time_ms: int
    seq: int
    held: tuple[str, ...]
    epochs: Mapping[str, int]
    noticed: Rebalance | None
    detected_ms: int | None
    handovers: tuple[Handover, ...]
    moves: tuple[Move, ...]
    moved_ms: int | None
    kept: tuple[str, ...]
    zombie_ms: int
    ended_ms: int | None
    fenced: int
    rejections: tuple[Event, ...]
    fenced_by: Mapping[int, str]
    aborted: tuple[Event, ...]


def failovers(events: Iterable[Event]) -> list[Failover]:
    """One entry per injected fault that takes a worker's work away, in order."""
    listed = list(events)
    all_runs = runs(listed)
    rounds = [round_ for round_ in rebalances(listed) if round_.generation is not None]
    return [
        _failover(event, listed, all_runs, rounds)
        for event in listed
        if fault_of(event) in FAULTS and event.worker is not None
    ]


def _failover(fault: Event, events: Sequence[Event], all_runs: Sequence[Run], rounds: Sequence[Rebalance]) -> Failover:
    worker = fault.worker or ""
    after = _life_after(fault, events)
    held = sorted(
        (run for run in all_runs if run.worker == worker and run.task is not None and _held(run, fault)),
        key=lambda run: run.name,
    )
    noticed = next((round_ for round_ in rounds if _is_without(round_, worker, fault.time_ms)), None)
    moves = sorted(filter(None, (_move(run, fault, all_runs) for run in held)), key=lambda m: (m.time_ms, m.task))
    moved = {move.task for move in moves}
    kept = tuple(run.name for run in held if run.name not in moved and run.end_ms is None and _is_back(run))
    until = {run.name: _next_begin(run, all_runs) for run in held}
    own = [event for event in after if event.seq < until.get(task_name(event), 0)]
    rejections = tuple(event for event in own if event.kind in REJECTIONS)
    aborted = [event for event in own if event.kind is EventKind.TRANSACTION_ABORTED]
    shut_out = {move.task for move in moves if move.shut_out} | {task_name(event) for event in rejections}
    return Failover(
        worker=worker,
        fault=fault_of(fault) or "",
        time_ms=fault.time_ms,
        seq=fault.seq,
        held=tuple(run.name for run in held),
        epochs={run.name: run.producer_epoch for run in held if run.producer_epoch is not None},
        noticed=noticed,
        detected_ms=None if noticed is None else max(noticed.start_ms - fault.time_ms, 0),
        handovers=handovers(events, worker, fault.seq),
        moves=tuple(moves),
        moved_ms=max(move.time_ms for move in moves) - fault.time_ms if held and len(moves) == len(held) else None,
        kept=kept,
        zombie_ms=max((_zombie_ms(run) for run in held), default=0),
        ended_ms=next((event.time_ms for event in after if fault_of(event) in _ENDS_FAULT), None),
        fenced=len(shut_out),
        rejections=rejections,
        fenced_by=fenced_by(events),
        aborted=tuple(aborted),
    )


def _life_after(fault: Event, events: Sequence[Event]) -> list[Event]:
    """Events of the worker after the fault, up to its next start under the same name."""
    after: list[Event] = []
    for event in events:
        if event.seq <= fault.seq or event.worker != fault.worker:
            continue
        if event.kind is EventKind.WORKER_STARTED:
            break
        after.append(event)
    return after


def _held(run: Run, fault: Event) -> bool:
    """True when the run was its worker's at the time of the fault; ends at the same millisecond count as after it."""
    before = [segment for segment in run.segments if segment.seq < fault.seq]
    if not before or before[-1].state not in _HELD_STATES:
        return False
    end_ms = before[-1].end_ms
    return end_ms is None or end_ms >= fault.time_ms


def _is_without(round_: Rebalance, worker: str, time_ms: int) -> bool:
    return worker not in round_.members and round_.end_ms is not None and round_.end_ms >= time_ms


def _move(run: Run, fault: Event, all_runs: Sequence[Run]) -> Move | None:
    for other in all_runs:
        if other is run or other.task_id != run.task_id or other.segments[0].seq < fault.seq:
            continue
        times = [time for time in (other.reached(RunState.RUNNING), other.reached(RunState.PAUSED)) if time is not None]
        if times:
            return Move(
                task=run.name,
                from_worker=run.worker,
                to_worker=other.worker,
                time_ms=min(times),
                generation=other.generation,
                from_epoch=run.producer_epoch,
                to_epoch=other.first_epoch,
            )
    return None


def _next_begin(run: Run, all_runs: Sequence[Run]) -> float:
    """Sequence number at which the same worker begins another instance of the task; later events are about that one."""
    begun = [other.segments[0].seq for other in all_runs if other.worker == run.worker and other.name == run.name]
    return min((seq for seq in begun if seq > run.segments[0].seq), default=inf)


def _is_back(run: Run) -> bool:
    return run.state in (RunState.RUNNING, RunState.PAUSED)


def _zombie_ms(run: Run) -> int:
    return sum(
        segment.end_ms - segment.start_ms
        for segment in run.segments
        if segment.state is RunState.ZOMBIE and segment.end_ms is not None
    )


def fault_of(event: Event) -> str | None:
    """The fault that an event injects; None for any other event."""
    return event.payload.fault if isinstance(event.payload, FaultInjected) else None


def task_name(event: Event) -> str:
    """The name of the task that an event is about."""
    return f"{event.connector}-{event.task}"
