"""Attributes findings of a check to moments of a history: the task instance that wrote, and why. Pure.

It reports only what events show. A writer that had been replaced (a run in state zombie) comes first, then a takeover.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from connectx.history.folds.failovers import REJECTIONS, failovers, fault_of
from connectx.history.folds.runs import Run, RunState, Segment, runs
from connectx.history.render.frame import clock_time
from connectx.history.wording import plural
from connectx.model.events import Event, EventKind
from connectx.model.payloads import OffsetsCommitted, TransactionCommitted
from connectx.verify.check.commits import Committed
from connectx.verify.check.verdict import Anomaly, Finding, Moment

_SINCE = {
    "stall": "stalled",
    "pause": "paused",
    "partition": "cut off from Kafka",
    "kill": "killed",
    "stop": "stopped",
}
_BACK = ("resume", "heal")


class Attribution:
    """Looks up moments in one history."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = list(events)
        self._runs = [run for run in runs(self._events) if run.task is not None]

    def of_write(self, connectors: Sequence[str], time_ms: int | None) -> Moment | None:
        """The zombie that may have written at a time, or else the last take-over before it."""
        if time_ms is None:
            return None
        mine = [run for run in self._runs if run.connector in connectors]
        for run in mine:
            for segment in run.segments:
                ended = segment.end_ms is not None and segment.end_ms < time_ms
                if segment.state is RunState.ZOMBIE and segment.start_ms <= time_ms and not ended:
                    return self._of_zombie(run, segment)
        return self._of_succession([run for run in mine if (run.reached(RunState.RUNNING) or time_ms) < time_ms])

    def of_commit(self, commit: Committed, what: str) -> Moment:
        event = commit.event
        sentence = f"{self._who(event.worker, event.time_ms)} committed {commit.task} {what}"
        return Moment(event.seq, event.time_ms, event.worker, sentence)

    def of_overlaps(self, pairs: Sequence[tuple[Committed, Committed]]) -> list[tuple[Moment, int]]:
        """Writers of repeated commits, with the number of records: zombies, or else the later task instance."""
        both = {commit.event.seq: commit for pair in pairs for commit in pair}
        zombies = [mine for mine in _by_writer(both.values()) if self._zombie(mine)]
        later = {commit.event.seq: commit for _, commit in pairs}
        return [self._of_writer(mine, self._zombie(mine)) for mine in zombies or _by_writer(later.values())]

    def _of_writer(self, mine: Sequence[Committed], zombie: Run | None) -> tuple[Moment, int]:
        first = mine[0].event
        records = sum(records_of(commit.event) for commit in mine)
        successor = None if zombie is None else self._successor(zombie)
        why = " again" if successor is None else f" after {_taken(successor)}"
        who = self._who(first.worker, first.time_ms)
        what = f"{plural(records, 'record')} of {mine[0].task} in {plural(len(mine), 'commit')}"
        return Moment(first.seq, first.time_ms, first.worker, f"{who} committed {what}{why}"), records

    def _zombie(self, mine: Sequence[Committed]) -> Run | None:
        """The run of a writer that was not its own any more when it committed."""
        about = (run for run in self._runs if run.worker == mine[0].event.worker and run.name == mine[0].task)
        return next((run for run in about if any(_is_zombie_at(run, commit.event.time_ms) for commit in mine)), None)

    def of_offset(self, connector: str, partition: str, offset: int) -> Moment | None:
        """The commit of a sink that first went past an offset."""
        for event in self._events:
            if isinstance(event.payload, OffsetsCommitted) and event.connector == connector:
                offsets = event.payload.offsets
                reached = offsets.get(partition) if isinstance(offsets, Mapping) else None
                if reached is not None and reached > offset:
                    sentence = f"{event.worker} committed offset {reached} of {partition}, which is after it"
                    return Moment(event.seq, event.time_ms, event.worker, sentence)
        return None

    def _of_zombie(self, run: Run, segment: Segment) -> Moment:
        successor = self._successor(run)
        after = segment.cause if successor is None else _taken(successor)
        sentence = f"{self._who(run.worker, segment.start_ms)} went on writing for {run.name} after {after}"
        return Moment(segment.seq, segment.start_ms, run.worker, sentence)

    def _of_succession(self, before: Sequence[Run]) -> Moment | None:
        for run in sorted(before, key=lambda run: -run.segments[0].seq):
            earlier = [other for other in self._runs if other.task_id == run.task_id and _began(other) < _began(run)]
            if earlier:
                lost = self._who(earlier[-1].worker, run.start_ms)
                sentence = f"{_taken(run)} from {lost} and continued after the last committed offset"
                began = next((s for s in run.segments if s.state is RunState.RUNNING), run.segments[0])
                return Moment(began.seq, began.start_ms, run.worker, sentence)
        return None

    def _successor(self, run: Run) -> Run | None:
        later = [other for other in self._runs if other.task_id == run.task_id and _began(other) > _began(run)]
        return next((other for other in later if other.reached(RunState.RUNNING) is not None), None)

    def _who(self, worker: str | None, time_ms: int) -> str:
        """`worker-1, stalled since 12:00:00.000,` if a fault of it lasts at that time."""
        since = ""
        for event in self._events:
            fault = fault_of(event)
            if fault is not None and event.worker == worker and event.time_ms <= time_ms:
                if fault in _BACK:
                    since = ""
                elif fault in _SINCE:
                    since = f", {_SINCE[fault]} since {clock_time(event.time_ms)},"
        return f"{worker}{since}"


def _by_writer(commits: Iterable[Committed]) -> list[list[Committed]]:
    """Commits of each worker and task, in the order of their events."""
    writers: dict[tuple[str | None, str], list[Committed]] = {}
    for commit in sorted(commits, key=lambda commit: commit.event.seq):
        writers.setdefault((commit.event.worker, commit.task), []).append(commit)
    return list(writers.values())


def records_of(event: Event) -> int:
    """How many records a commit was of."""
    return event.payload.records if isinstance(event.payload, TransactionCommitted | OffsetsCommitted) else 0


def fenced(events: Sequence[Event]) -> list[Finding]:
    """Writers that were shut out: by whom, since when, and what of theirs was rejected."""
    found = []
    mentioned: set[int] = set()
    for failover in failovers(events):
        for move in failover.moves:
            mine = [event for event in failover.rejections if f"{event.connector}-{event.task}" == move.task]
            mentioned.update(event.seq for event in mine)
            if not move.shut_out and not mine:
                continue
            by = f"{move.to_worker} with epoch {move.to_epoch}" if move.shut_out else move.to_worker
            sentence = (
                f"{move.from_worker}'s producer of {move.task} (epoch {move.from_epoch}) is fenced by {by} since "
                f"{clock_time(move.time_ms)}; {_rejected(mine)}"
            )
            moments = tuple(_rejection(event) for event in mine[:3]) or (
                Moment(failover.seq, failover.time_ms, failover.worker, f"{failover.fault} of {failover.worker}"),
            )
            connector = move.task.rpartition("-")[0]
            found.append(Finding(Anomaly.FENCED, 1, f"task {move.task}", (connector,), sentence, (), moments))
    for event in events:
        if event.kind in REJECTIONS and event.seq not in mentioned:
            task = f"{event.connector}-{event.task}"
            sentence = f"{event.worker}'s write for {task} was rejected at {clock_time(event.time_ms)}"
            moments = (_rejection(event),)
            found.append(Finding(Anomaly.FENCED, 1, f"task {task}", (event.connector or "",), sentence, (), moments))
    return found


def _rejected(events: Sequence[Event]) -> str:
    return f"{plural(len(events), 'write')} of it {'was' if len(events) == 1 else 'were'} rejected"


def _rejection(event: Event) -> Moment:
    what = "write" if event.kind is EventKind.PRODUCER_FENCED else "commit"
    sentence = f"{event.worker}'s {what} for {event.connector}-{event.task} was rejected"
    return Moment(event.seq, event.time_ms, event.worker, sentence)


def _is_zombie_at(run: Run, time_ms: int) -> bool:
    return any(
        segment.state is RunState.ZOMBIE
        and segment.start_ms <= time_ms
        and (segment.end_ms is None or time_ms <= segment.end_ms)
        for segment in run.segments
    )


def _taken(run: Run) -> str:
    return f"{run.worker} had taken {run.name} over at {clock_time(run.reached(RunState.RUNNING) or run.start_ms)}"


def _began(run: Run) -> int:
    return run.segments[0].seq
