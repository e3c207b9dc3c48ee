"""Numbers over time, for charts: records a second out of the commits of a history, and lag out of samples. Pure.

Records are told when they are committed, so those of a commit are spread evenly over the time since the task's commit
before. Nothing gets lost in that: the area below a line is the number of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from connectx.model.events import Event, EventKind
from connectx.model.ids import TaskId

_COMMITS = (EventKind.TRANSACTION_COMMITTED, EventKind.OFFSETS_COMMITTED)
_SPREAD_MS = 10_000
"""Records of a commit came within so much time before it at most: a task that was idle before did not work slowly."""
_LEAST_MS = 1_000
_POINTS = 300


@dataclass(frozen=True, slots=True)
class Series:
    """A number of a connector (`task` None: over all of its tasks) over time; `points` are (milliseconds, number)."""

    connector: str
    task: int | None
    points: tuple[tuple[int, float | None], ...]


@dataclass(frozen=True, slots=True)
class LagSample:
    """How far a sink task was behind at a time, in records; None: nobody knows, for instance because nobody runs it.

    It holds until the next sample of the task.
    """

    time_ms: int
    task: TaskId
    lag: int | None


def throughput(events: Iterable[Event]) -> list[Series]:
    """Records a second of each connector and then of its tasks, from the first commit of all to the last.

    Records count when they are committed: those of a source in Kafka, those of a sink in its target.
    """
    commits = _spread(events)
    if not commits:
        return []
    first_ms, last_ms = min(begin for _, begin, _, _ in commits), max(end for _, _, end, _ in commits)
    bin_ms = max(_LEAST_MS, -(-(last_ms - first_ms) // _POINTS // _LEAST_MS) * _LEAST_MS)
    count = (last_ms - first_ms) // bin_ms + 1
    sums: dict[TaskId, list[float]] = {}
    for task, begin_ms, end_ms, records in commits:
        _add(sums.setdefault(task, [0.0] * count), begin_ms - first_ms, end_ms - first_ms, records, bin_ms)
    times = [first_ms + number * bin_ms for number in range(count)]
    found = []
    for connector in dict.fromkeys(task.connector for task in sums):
        tasks = sorted(task for task in sums if task.connector == connector)
        both = [sum(sums[task][number] for task in tasks) for number in range(count)]
        for number, line in [(None, both), *((task.task, sums[task]) for task in tasks)]:
            rates = tuple(zip(times, (records * 1000 / bin_ms for records in line), strict=True))
            found.append(Series(connector, number, rates))
    return found


def _spread(events: Iterable[Event]) -> list[tuple[TaskId, int, int, int]]:
    """Task, from when, until when, how many records."""
    begun: dict[TaskId, int] = {}
    found = []
    for event in events:
        if event.connector is None or event.task is None:
            continue
        task = TaskId(event.connector, event.task)
        if event.kind is EventKind.TASK_STATE and event.data.get("state") == "RUNNING":
            begun[task] = event.time_ms
        records = event.data.get("records")
        if event.kind in _COMMITS and isinstance(records, int) and records > 0:
            began_ms = max(begun.get(task, event.time_ms), event.time_ms - _SPREAD_MS)
            found.append((task, min(began_ms, event.time_ms - 1), event.time_ms, records))
        if event.kind in _COMMITS:
            begun[task] = event.time_ms
    return found


def _add(line: list[float], begin_ms: int, end_ms: int, records: int, bin_ms: int) -> None:
    begin_ms = max(begin_ms, 0)
    span_ms = max(end_ms - begin_ms, 1)
    for number in range(begin_ms // bin_ms, min((begin_ms + span_ms - 1) // bin_ms, len(line) - 1) + 1):
        low, high = max(begin_ms, number * bin_ms), min(begin_ms + span_ms, (number + 1) * bin_ms)
        line[number] += records * (high - low) / span_ms


def lags(samples: Sequence[LagSample], now_ms: int) -> list[Series]:
    """Lag of each sink connector and then of its tasks, step by step up to `now_ms`.

    A connector's lag is the sum of what is known of its tasks, None when nothing is. Of a long history each line keeps
    its peaks and where it came to, so that a figure stays small enough for a notebook.
    """
    found = []
    for connector in dict.fromkeys(sample.task.connector for sample in samples):
        mine = [sample for sample in samples if sample.task.connector == connector]
        known: dict[TaskId, int | None] = {}
        both: list[tuple[int, float | None]] = []
        for sample in mine:
            known[sample.task] = sample.lag
            numbers = [lag for lag in known.values() if lag is not None]
            both.append((sample.time_ms, sum(numbers) if numbers else None))
        found.append(_until(Series(connector, None, tuple(both)), now_ms))
        for task in sorted(known):
            steps = tuple((sample.time_ms, sample.lag) for sample in mine if sample.task == task)
            found.append(_until(Series(connector, task.task, steps), now_ms))
    return found


def _until(series: Series, now_ms: int) -> Series:
    last_ms, last = series.points[-1]
    return Series(series.connector, series.task, (*_thinned(series.points), (max(now_ms, last_ms), last)))


def _thinned(points: tuple[tuple[int, float | None], ...]) -> tuple[tuple[int, float | None], ...]:
    """Of each stretch of time the largest number and the last one; all points where there are not many."""
    if len(points) <= 2 * _POINTS:
        return points
    first_ms = points[0][0]
    stretch_ms = (points[-1][0] - first_ms) // _POINTS + 1
    stretches: dict[int, list[tuple[int, float | None]]] = {}
    for point in points:
        stretches.setdefault((point[0] - first_ms) // stretch_ms, []).append(point)
    kept = [
        (max(some, key=lambda point: -1 if point[1] is None else point[1]), some[-1]) for some in stretches.values()
    ]
    return tuple(point for peak, end in kept for point in dict.fromkeys((peak, end)))
