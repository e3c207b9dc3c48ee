"""Throughput and lag over time, computed from samples, for charts. Pure.

Samples show what a commit cannot: a sink moves its records after its source did, and a killed worker moves none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from connectx.model.ids import TaskId
from connectx.values import Value
from connectx.views import Shown

_LEAST_MS = 1_000
_POINTS = 300

Counts = Mapping[TaskId, Sequence[tuple[int, int]]]
"""Tasks to (milliseconds since 1970, records moved so far by all of their instances), oldest first."""


@dataclass(slots=True)
class RecordCounter:
    """Adds up the records that instances of tasks have moved. A restarted instance counts from 0 again.

    Attributes:
        moved: records by task, like "orders-0", of all instances.
        of_zombies: those of them that were seen to be moved by an instance while a newer one existed.
    """

    moved: dict[str, int] = field(default_factory=dict)
    of_zombies: dict[str, int] = field(default_factory=dict)
    _seen: dict[tuple[str, str], int] = field(default_factory=dict)

    def take(self, instances: Iterable[tuple[str, str, int]]) -> None:
        """Add a sample: worker, task and count of each instance that exists, the newest instance of a task last."""
        listed = list(instances)
        newest = {task: worker for worker, task, _ in listed}
        for worker, task, count in listed:
            before = self._seen.get((worker, task))
            gained = count - before if before is not None and count >= before else count
            self._seen[worker, task] = count
            self.moved[task] = self.moved.get(task, 0) + gained
            if newest[task] != worker and before is not None:
                self.of_zombies[task] = self.of_zombies.get(task, 0) + gained


class Series(Value):
    """A number of a connector (`task` None: over all of its tasks) over time; `points` are (milliseconds, number)."""

    connector: str
    task: int | None
    points: tuple[tuple[int, float | None], ...]


class LagSample(Shown, Value):
    """Lag of a sink task at a time, in records; None: not known. It holds until the next sample of the task."""

    time_ms: int
    task: TaskId
    lag: int | None


def throughput(counts: Counts, now_ms: int) -> list[Series]:
    """Records a second of each connector and then of its tasks, from the first sample to `now_ms`.

    Each point is the mean rate since the point before: one second, longer for a long history.
    """
    sampled = {task: points for task, points in counts.items() if points}
    if not any(points[-1][1] for points in sampled.values()):
        return []
    first_ms = min(points[0][0] for points in sampled.values())
    bin_ms = max(_LEAST_MS, -(-(now_ms - first_ms) // _POINTS // _LEAST_MS) * _LEAST_MS)
    times = [*reversed(range(now_ms, first_ms - bin_ms, -bin_ms))]
    rates = {task: _rates(points, times) for task, points in sampled.items()}
    found = []
    for connector in dict.fromkeys(task.connector for task in sampled):
        tasks = sorted(task for task in sampled if task.connector == connector)
        both = [sum(numbers) for numbers in zip(*(rates[task] for task in tasks), strict=True)]
        for number, line in [(None, both), *((task.task, rates[task]) for task in tasks)]:
            found.append(Series(connector, number, tuple(zip(times[1:], line, strict=True))))
    return found


def _rates(points: Sequence[tuple[int, int]], times: Sequence[int]) -> list[float]:
    """Records a second between each two of the times."""
    reached = [_reached(points, time_ms) for time_ms in times]
    return [
        (reached[number + 1] - reached[number]) * 1000 / (times[number + 1] - times[number])
        for number in range(len(times) - 1)
    ]


def _reached(points: Sequence[tuple[int, int]], time_ms: int) -> float:
    """The count at a time; between two samples it grows evenly."""
    place = bisect_right(points, time_ms, key=lambda point: point[0])
    if place == 0:
        return 0.0
    if place == len(points):
        return points[-1][1]
    (before_ms, before), (after_ms, after) = points[place - 1], points[place]
    return before + (after - before) * (time_ms - before_ms) / (after_ms - before_ms)


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
