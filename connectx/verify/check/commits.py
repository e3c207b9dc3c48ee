"""Finds gaps and overlaps between the slices that source tasks committed. Pure.

Slices are judged by where they start and end, not by the time of their events: a worker that froze may report a commit
long after it was made. Offsets with one number in them are compared by it, others only for equality. When a user
altered offsets (OFFSETS_ALTERED), a new chapter begins that need not continue the previous one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

from connectx.history.wording import plural
from connectx.model.events import Event, EventKind
from connectx.model.payloads import OffsetsCommitted, TransactionCommitted, Unknown
from connectx.values import Value

COMMITS = (EventKind.TRANSACTION_COMMITTED, EventKind.OFFSETS_COMMITTED)


class Committed(Value):
    """One source partition's part of a commit.

    `start` is None at the beginning. `known_start` is False if the event does not name a start.

    `run` is the same for all commits of one instance of a task.
    """

    event: Event
    partition: str
    start: Mapping[str, Any] | None
    end: Mapping[str, Any]
    known_start: bool
    chapter: int
    run: tuple[str | None, int, str, int | None]

    @property
    def task(self) -> str:
        """`lines-0`."""
        return f"{self.event.connector}-{self.event.task}"


@dataclass(slots=True)
class SourceHistory:
    """What the history shows of one source partition of a connector.

    Attributes:
        chapters: (start, end) of each stretch that was committed.
        overlaps: pairs of commits that cover the same, in the order of their events.
        gaps: (commit before, commit after) with offsets between them that no commit covers.
        unrecorded: gaps before the first commit of another instance. That instance began at Kafka's offset, so another
            one committed what is between, and ended before Kafka's answer came.
        backwards: commits of an instance that end before its own previous one.
        unseen: why something may be missed.
    """

    connector: str
    partition: Mapping[str, Any]
    chapters: list[tuple[Mapping[str, Any] | None, Mapping[str, Any]]] = field(default_factory=list)
    overlaps: list[tuple[Committed, Committed]] = field(default_factory=list)
    gaps: list[tuple[Committed, Committed]] = field(default_factory=list)
    unrecorded: list[tuple[Committed, Committed]] = field(default_factory=list)
    backwards: list[Committed] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)


def source_histories(events: Iterable[Event]) -> list[SourceHistory]:
    """One entry per connector and source partition, in the order of their first commits."""
    by_partition: dict[tuple[str, str], list[Committed]] = {}
    for commit in commits(events):
        by_partition.setdefault((commit.event.connector or "", commit.partition), []).append(commit)
    return [_history(connector, partition, found) for (connector, partition), found in by_partition.items()]


def commits(events: Iterable[Event]) -> Iterator[Committed]:
    """Commits of source offsets, one per source partition, in the order of their events."""
    chapters: dict[str | None, int] = {}
    starts: Counter[str | None] = Counter()  # of workers: each counts its instances from 1
    for event in events:
        starts[event.worker] += event.kind is EventKind.WORKER_STARTED
        if event.kind is EventKind.OFFSETS_ALTERED:
            chapters[event.connector] = chapters.get(event.connector, 0) + 1
        committed = event.payload
        if not isinstance(committed, TransactionCommitted | OffsetsCommitted):
            continue
        if not isinstance(committed.offsets, tuple):  # a sink's are a mapping
            continue
        writer = (event.worker, starts[event.worker], f"{event.connector}-{event.task}", committed.instance)
        for covered in committed.offsets:
            known = not isinstance(covered.from_, Unknown)
            yield Committed(
                event,
                json.dumps(covered.partition),
                None if isinstance(covered.from_, Unknown) else covered.from_,
                covered.offset,
                known,
                chapters.get(event.connector, 0),
                writer,
            )


def _history(connector: str, partition: str, found: list[Committed]) -> SourceHistory:
    history = SourceHistory(connector, json.loads(partition))
    ordered = all(_number(c.end) is not None and (c.start is None or _number(c.start) is not None) for c in found)
    for _, chapter in groupby(sorted(found, key=lambda commit: commit.chapter), key=lambda commit: commit.chapter):
        _chapter(history, list(chapter), ordered=ordered)
    unknown = sum(not commit.known_start for commit in found)
    if unknown:
        what = f"{plural(unknown, 'commit')} of {connector}"
        history.unseen.append(f"{what} did not report where in the source partition {partition} it started")
    return history


def _chapter(history: SourceHistory, found: list[Committed], *, ordered: bool) -> None:
    runs: dict[object, list[Committed]] = {}
    for commit in found:
        runs.setdefault(commit.run, []).append(commit)
    first_of_run = {run[0].event.seq for run in runs.values()}
    if ordered:
        known = [commit for commit in found if commit.known_start]
        _by_number(history, sorted(known, key=lambda c: (_place(c.start), _place(c.end), c.event.seq)))
        history.backwards += [c for c in known if _place(c.end) < _place(c.start)]
        history.backwards += [b for run in runs.values() for a, b in pairwise(run) if _place(b.end) < _place(a.end)]
        first, last = min(found, key=lambda c: _place(c.start)), max(found, key=lambda c: _place(c.end))
        history.chapters.append((first.start, last.end))
    else:
        _by_equality(history, [commit for commit in found if commit.known_start])
        history.chapters.append((found[0].start, found[-1].end))
    history.unrecorded += [(a, b) for a, b in history.gaps if b.event.seq in first_of_run]
    history.gaps = [(a, b) for a, b in history.gaps if b.event.seq not in first_of_run]


def _by_number(history: SourceHistory, found: list[Committed]) -> None:
    """Commits by where they start: each has to start where those before it have come to."""
    furthest: Committed | None = None
    for commit in found:
        if furthest is not None:
            if _place(commit.start) < _place(furthest.end) and _place(commit.end) > _place(commit.start):
                history.overlaps.append(_pair(commit, furthest))
            elif _place(commit.start) > _place(furthest.end):
                history.gaps.append((furthest, commit))
        if furthest is None or _place(commit.end) > _place(furthest.end):
            furthest = commit


def _by_equality(history: SourceHistory, found: list[Committed]) -> None:
    """Two commits from the same offset cover the same; one from an offset that none ended at leaves a gap."""
    starts: dict[str, Committed] = {}
    ends = {json.dumps(commit.end, sort_keys=True) for commit in found}
    for before, commit in pairwise([None, *found]):
        assert commit is not None, "only the first has none before it"
        start = json.dumps(commit.start, sort_keys=True)
        if start in starts:
            history.overlaps.append(_pair(starts[start], commit))
        elif before is not None and start not in ends:
            history.gaps.append((before, commit))
        starts[start] = commit


def _pair(one: Committed, other: Committed) -> tuple[Committed, Committed]:
    return (one, other) if one.event.seq <= other.event.seq else (other, one)


def _number(offset: Mapping[str, Any]) -> float | None:
    numbers = [value for value in offset.values() if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return numbers[0] if len(offset) == len(numbers) == 1 else None


def _place(offset: Mapping[str, Any] | None) -> float:
    number = None if offset is None else _number(offset)
    return float("-inf") if number is None else number
