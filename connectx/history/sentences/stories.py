"""Stories: one sentence for each cause with its consequences, in the order they began. Pure.

A sentence has only what the events show; a part whose event is missing is left out, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from connectx.history.folds.failovers import REJECTIONS, Failover, Move, failovers, fault_of, task_name
from connectx.history.folds.fences import fenced_by
from connectx.history.folds.rebalances import Rebalance, rebalances
from connectx.history.folds.runs import Run, RunState, epoch_of, runs
from connectx.history.sentences.titles import rejection
from connectx.history.wording import duration, listing, plural
from connectx.model.causes import OutsideGroup, TakenSilently
from connectx.model.events import Event, EventKind
from connectx.model.payloads import (
    BulkFailed,
    FaultInjected,
    LaneChanged,
    MemberRemoved,
    TaskState,
    TransactionAborted,
    WorkerFailed,
)
from connectx.values import Value
from connectx.views import Shown, gist, masked_text


class Story(Shown, Value):
    """One sentence, without a full stop.

    `kind` is the fault (kill, stop, pause, stall, partition, delay, add_worker, broker_kill), or one of leader,
    task_failed, worker_failed, removed, departed, fenced, lane_changed and bulk_failed.
    """

    time_ms: int
    seq: int
    kind: str
    worker: str | None
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def stories(events: Iterable[Event]) -> list[Story]:
    """All stories of a history, in the order in which they began."""
    listed = list(events)
    all_runs = runs(listed)
    rounds = [round_ for round_ in rebalances(listed) if round_.generation is not None]
    after_faults = failovers(listed)
    explained = {event.seq for failover in after_faults for event in failover.rejections}
    fences = fenced_by(listed)
    found = [Story(f.time_ms, f.seq, f.fault, f.worker, failover_story(f)) for f in after_faults]
    found.extend(_added_workers(listed, all_runs, rounds))
    found.extend(_delays(listed))
    found.extend(_broker_deaths(listed))
    found.extend(_removals(listed))
    found.extend(_departures(listed, all_runs))
    found.extend(_leader_changes(rounds))
    found.extend(_failures(listed, all_runs))
    found.extend(_lanes(listed))
    found.extend(
        Story(event.time_ms, event.seq, "fenced", event.worker, _rejection(event, _epoch(event, all_runs), fences))
        for event in listed
        if event.kind in REJECTIONS and event.seq not in explained
    )
    shown = [replace(story, sentence=masked_text(story.sentence)) for story in found]
    return sorted(shown, key=lambda story: (story.time_ms, story.seq))


_OPENINGS = {
    "kill": "was killed",
    "stop": "was stopped",
    "pause": "was paused",
    "stall": "stalled (heartbeats stopped)",
    "partition": "was cut off from Kafka",
}
_NOUNS = {"kill": "kill", "stop": "stop", "pause": "pause", "stall": "stall", "partition": "cut"}
_ENDS = {"pause": "resumed", "stall": "resumed", "partition": "was connected again"}


def failover_story(failover: Failover) -> str:
    """One failover in a sentence, without a full stop."""
    held = listing(failover.held) if failover.held else "no task"
    parts = [f"{failover.worker} {_OPENINGS[failover.fault]} while it ran {held}"]
    parts.extend(_noticing(failover))
    parts.extend(_handing_over(failover))
    parts.extend(_moving(failover))
    parts.extend(_after_fault(failover))
    return "; ".join(parts)


def _noticing(failover: Failover) -> Iterator[str]:
    noticed = failover.noticed
    if noticed is None or failover.detected_ms is None:
        return
    yield f"the group removed it after {duration(failover.detected_ms)}, generation {noticed.generation}"
    if noticed.delay_ms and noticed.lost:
        yield f"its work waited up to {duration(noticed.delay_ms)} for its return"


def _handing_over(failover: Failover) -> Iterator[str]:
    for handover in failover.handovers:
        to_whom = "" if handover.to_task == handover.from_task else f"{handover.to_task} on "
        took = duration(handover.time_ms - failover.time_ms)
        yield f"{listing(handover.partitions)} went to {to_whom}{handover.to_worker} after {took}"


def _moving(failover: Failover) -> Iterator[str]:
    def where(move: Move) -> tuple[str, int, int, int]:
        epochs = (-1, -1) if move.from_epoch is None or move.to_epoch is None else (move.from_epoch, move.to_epoch)
        return (move.to_worker, move.generation or -1, *epochs)

    for (to_worker, generation, from_epoch, to_epoch), group in groupby(failover.moves, where):
        moves = list(group)
        verb = "started again on" if to_worker == failover.worker else "moved to"
        text = f"{listing([move.task for move in moves])} {verb} {to_worker}"
        text += f" (generation {generation})" if generation >= 0 else ""
        text += f", epoch {from_epoch} to {to_epoch}" if to_epoch >= 0 else ""
        took = duration(moves[-1].time_ms - failover.time_ms)
        yield f"{text}, and ran {took} after the {_NOUNS[failover.fault]}"
    moved = {move.task for move in failover.moves}
    waiting = [task for task in failover.held if task not in moved and not (task in failover.kept and _ended(failover))]
    if waiting:
        yield f"{listing(waiting)} {'has' if len(waiting) == 1 else 'have'} not moved so far"


def _after_fault(failover: Failover) -> Iterator[str]:
    if failover.ended_ms is not None and _ended(failover):
        after = duration(failover.ended_ms - failover.time_ms)
        kept = f" and kept {listing(failover.kept)}" if failover.kept else ""
        yield f"{failover.worker} {_ENDS[failover.fault]} after {after}{kept}"
    if failover.fault == "kill" and failover.zombie_ms >= 100:
        yield f"its threads ended {duration(failover.zombie_ms)} after the kill"
    elif failover.zombie_ms >= 100:
        yield f"{failover.worker} continued as a zombie for {duration(failover.zombie_ms)}"
    for event in failover.aborted:
        records = event.payload.records if isinstance(event.payload, TransactionAborted) else None
        what = f" of {plural(records, 'record')}" if records else ""
        yield f"an open transaction{what} of {failover.worker} was aborted"
    fences, rejections = failover.fenced_by, []
    for event in failover.rejections:
        epoch = failover.epochs.get(task_name(event)) if event.producer_epoch is None else event.producer_epoch
        rejections.append(_rejection(event, epoch, fences))
    yield from dict.fromkeys(rejections)


def _ended(failover: Failover) -> bool:
    return failover.ended_ms is not None and failover.fault in _ENDS


def _rejection(event: Event, epoch: int | None, fences: Mapping[int, str]) -> str:
    by = f": {fences[event.seq]}" if event.seq in fences else ""
    return rejection(event, epoch, owner=f"{event.worker}'s", of=f" for {task_name(event)}") + by


def _added_workers(events: Sequence[Event], all_runs: Sequence[Run], rounds: Sequence[Rebalance]) -> Iterator[Story]:
    faults = [event for event in events if event.kind is EventKind.FAULT_INJECTED]
    for event in faults:
        if fault_of(event) == "add_worker" and event.worker is not None:
            until_seq = next((later.seq for later in faults if later.seq > event.seq), len(events) + events[0].seq)
            sentence = _added_worker(event, until_seq, all_runs, rounds)
            yield Story(event.time_ms, event.seq, "add_worker", event.worker, sentence)


def _added_worker(event: Event, until_seq: int, all_runs: Sequence[Run], rounds: Sequence[Rebalance]) -> str:
    """What a new worker took over before the next fault."""
    worker = event.worker or ""
    joined = next((r for r in rounds if worker in r.members and (r.end_ms or 0) >= event.time_ms), None)
    if joined is None:
        return f"{worker} was added and has not joined the group"
    parts = [f"{worker} was added and joined the group in generation {joined.generation}"]
    taken = [
        run
        for run in all_runs
        if run.worker == worker and run.task is not None and event.seq < run.segments[0].seq < until_seq
    ]
    for run in taken:
        before = [r for r in all_runs if r.task_id == run.task_id and r is not run and r.start_ms < run.start_ms]
        text = f"it took over {run.name}" + (f" from {before[-1].worker}" if before else "")
        text += f" (generation {run.generation})" if run.generation is not None else ""
        epochs = (before[-1].producer_epoch if before else None, run.first_epoch)
        parts.append(text + (f", epoch {epochs[0]} to {epochs[1]}" if None not in epochs else ""))
    if not taken:
        parts.append("no task moved to it")
    return "; ".join(parts)


def _delays(events: Sequence[Event]) -> Iterator[Story]:
    faults = [(event, event.payload) for event in events if isinstance(event.payload, FaultInjected)]
    delays = [(event, fault) for event, fault in faults if fault.fault == "delay"]
    deliveries = [(event, fault) for event, fault in faults if fault.fault == "deliver"]
    for event, delay in delays:
        after = (pair for pair in deliveries if pair[0].seq > event.seq and pair[0].worker == event.worker)
        delivered, delivery = next((pair for pair in after if pair[1].for_s == delay.for_s), (None, None))
        wanted = delay.requests
        what = f"the next {' or '.join(wanted)}" if wanted is not None else "the next request"
        sentence = f"{what} on each connection of {event.worker} to Kafka was held, and the connection cut; "
        if delivered is None or delivery is None:
            sentence += "the delayed requests have not arrived yet"
        else:
            counts = delivery.requests
            arrived = [f"{count} {kind}" for kind, count in counts.items()] if isinstance(counts, Mapping) else []
            took = duration(delivered.time_ms - event.time_ms)
            sentence += f"{listing(arrived)} arrived after {took}"
        yield Story(event.time_ms, event.seq, "delay", event.worker, sentence)


def _broker_deaths(events: Sequence[Event]) -> Iterator[Story]:
    faults = [event for event in events if event.kind is EventKind.FAULT_INJECTED and event.worker is None]
    for event in faults:
        if fault_of(event) == "broker_kill":
            after = (later for later in faults if later.seq > event.seq and fault_of(later) == "broker_restart")
            back = next(after, None)
            sentence = "the broker was killed; "
            if back is None:
                sentence += "it was not started again"
            else:
                sentence += f"it was started again after {duration(back.time_ms - event.time_ms)}"
            yield Story(event.time_ms, event.seq, "broker_kill", None, sentence)


def _removals(events: Sequence[Event]) -> Iterator[Story]:
    """LeaveGroup requests for a worker whose process has ended: one story for each time that it ended."""
    ends: dict[str, Event] = {}
    removed: dict[int, list[Event]] = {}
    for event in events:
        worker = event.worker or ""
        if event.kind is EventKind.WORKER_FAILED or fault_of(event) == "kill":
            ends[worker] = event
        elif event.kind is EventKind.MEMBER_REMOVED:
            removed.setdefault(ends.get(worker, event).seq, []).append(event)
    for removals in removed.values():
        first = removals[0]
        end = ends.get(first.worker or "", first)
        groups = listing([f"group {e.payload.group}" for e in removals if isinstance(e.payload, MemberRemoved)])
        after = f" {duration(max(removals[-1].time_ms - end.time_ms, 0))} after its end" if end is not first else ""
        sentence = f"{groups} {'was' if len(removals) == 1 else 'were'} informed{after} that {first.worker} had left"
        sentence += f", because {first.cause}" if first.cause else ""
        yield Story(
            first.time_ms, first.seq, "removed", first.worker, f"{sentence}, without waiting for session.timeout.ms"
        )


_TOGETHER_MS = 10_000
"""Work of one worker that others have within this time was lost together."""


def _departures(events: Sequence[Event], all_runs: Sequence[Run]) -> Iterator[Story]:
    """Workers of an attached cluster that are gone, or whose work others have although they did not release it."""
    departed: dict[str, int] = {}
    for event in events:
        is_gone = isinstance(event.why, OutsideGroup) and not event.why.answers
        is_taken = event.kind is EventKind.TASK_STATE and isinstance(event.why, TakenSilently)
        if event.worker is None or not (is_gone or is_taken):
            continue
        if event.time_ms - departed.get(event.worker, -_TOGETHER_MS) >= _TOGETHER_MS:
            departed[event.worker] = event.time_ms
            yield Story(event.time_ms, event.seq, "departed", event.worker, _departure(event, all_runs))


def _departure(event: Event, all_runs: Sequence[Run]) -> str:
    """Which worker is gone, and where the work is that it ran."""
    since_ms, until_ms = event.time_ms - _TOGETHER_MS, event.time_ms + _TOGETHER_MS
    places: dict[str, list[str]] = {}
    for run in all_runs:
        ended = run.lost or (run.end_ms is not None and since_ms <= run.end_ms <= until_ms)
        if run.worker == event.worker and run.task is not None and ended:
            later = [other for other in all_runs if other.task_id == run.task_id and other.start_ms >= since_ms]
            heir = next((other.worker for other in later if other.worker != run.worker), "")
            places.setdefault(heir, []).append(run.name)
    where = [f"{listing(tasks)} moved to {worker}" for worker, tasks in places.items() if worker]
    if waiting := places.get(""):
        where.append(f"{listing(waiting)} {'has' if len(waiting) == 1 else 'have'} not moved so far")
    return "; ".join([f"{event.worker} is gone (it was stopped, killed or cut off)", *where])


def _leader_changes(rounds: Sequence[Rebalance]) -> Iterator[Story]:
    for before, after in pairwise(round_ for round_ in rounds if round_.leader is not None):
        if before.leader != after.leader:
            gone = "" if before.leader in after.members else ", which had left the group"
            sentence = f"{after.leader} became leader in generation {after.generation}, replacing {before.leader}{gone}"
            yield Story(after.end_ms or after.start_ms, after.seq, "leader", after.leader, sentence)


def _failures(events: Sequence[Event], all_runs: Sequence[Run]) -> Iterator[Story]:
    """Failures of tasks, except of zombies and fenced ones, which belong to failovers; and failures of workers."""
    traces = {event.seq: event.payload.trace or "" for event in events if isinstance(event.payload, TaskState)}
    for run in all_runs:
        for segment in run.segments:
            if segment.state is RunState.FAILED and run.fenced_ms is None and run.task is not None:
                why = gist(traces.get(segment.seq, "")) or "no reason was given"
                sentence = f"{run.name} failed on {run.worker}: {why}"
                yield Story(segment.start_ms, segment.seq, "task_failed", run.worker, sentence)
    for event in events:
        if isinstance(event.payload, WorkerFailed):
            why = gist(event.payload.error or event.cause) or "no reason was given"
            yield Story(event.time_ms, event.seq, "worker_failed", event.worker, f"{event.worker} failed: {why}")


def _lanes(events: Sequence[Event]) -> Iterator[Story]:
    """Changes of lanes and failed jobs. The way back to the tail after a failed job is part of its story."""
    failed: set[str] = set()
    for event in events:
        task = task_name(event)
        match event.payload:
            case BulkFailed(error):
                failed.add(task)
                sentence = f"a bulk job of {task} failed on {event.worker}: {gist(error)}"
                yield Story(event.time_ms, event.seq, "bulk_failed", event.worker, sentence)
            case LaneChanged(lane):
                if lane != "tail" or task not in failed:
                    sentence = f"{task} on {event.worker} changed to the {lane} lane: {gist(event.cause)}"
                    yield Story(event.time_ms, event.seq, "lane_changed", event.worker, sentence)
                failed.discard(task)
            case _:
                pass


def _epoch(event: Event, all_runs: Sequence[Run]) -> int | None:
    about = (run for run in all_runs if run.worker == event.worker and run.name == task_name(event))
    return epoch_of(event, next((run for run in about if run.covers(event.time_ms)), None))
