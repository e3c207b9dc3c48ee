"""Latencies of sinks over time, out of samples of their counts by bucket (`connectx.model.latencies`). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from connectx.model.ids import TaskId
from connectx.model.latencies import Buckets, added, gained, quantile
from connectx.values import Value

_LEAST_MS = 1_000
_POINTS = 300
_KEPT = 4_000

LatencySamples = Mapping[TaskId, Sequence[tuple[int, Buckets]]]
"""Tasks to (milliseconds since 1970, records committed since the sample before, by bucket), oldest first."""


@dataclass(slots=True)
class LatencyCounter:
    """Adds up the counts of task instances by task, like "orders-0". A restarted instance counts from 0 again."""

    of: dict[str, Buckets] = field(default_factory=dict)
    _seen: dict[tuple[str, str], Buckets] = field(default_factory=dict)

    def take(self, instances: Iterable[tuple[str, str, object]]) -> dict[str, dict[int, int]]:
        """Add a sample: worker, task and counts of each instance; returns what came to each task, if anything did."""
        news: dict[str, dict[int, int]] = {}
        for worker, task, counts in instances:
            if not isinstance(counts, Mapping):
                continue
            now = {int(bucket): int(count) for bucket, count in counts.items()}  # text, out of another process
            more = gained(self._seen.get((worker, task), {}), now)
            self._seen[worker, task] = now
            if more:
                news[task] = added(news.get(task, {}), more)
                self.of[task] = added(self.of.get(task, {}), more)
        return news


def halved(samples: list[tuple[int, Buckets]]) -> list[tuple[int, Buckets]]:
    """The same records in fewer samples, if there are many: of the older half each two become one."""
    if len(samples) <= _KEPT:
        return samples
    half = len(samples) // 2 // 2 * 2
    older = zip(samples[:half:2], samples[1:half:2], strict=True)
    return [*((end_ms, added(first, then)) for (_, first), (end_ms, then) in older), *samples[half:]]


class LatencySeries(Value):
    """Latencies of a sink connector: (milliseconds since 1970, p50, p99) in milliseconds, None where none is known."""

    connector: str
    points: tuple[tuple[int, float | None, float | None], ...]


def latencies(samples: LatencySamples, now_ms: int) -> list[LatencySeries]:
    """Median and 99th percentile of each sink, of the records that were committed since the point before.

    Points are a second apart, further for a long history.
    """
    first_ms = min((points[0][0] for points in samples.values() if points), default=now_ms)
    bin_ms = max(_LEAST_MS, -(-(now_ms - first_ms) // _POINTS // _LEAST_MS) * _LEAST_MS)
    found = []
    for connector in dict.fromkeys(task.connector for task in samples):
        bins: dict[int, Buckets] = {}
        for task in (task for task in samples if task.connector == connector):
            for time_ms, counts in samples[task]:
                number = max(now_ms - time_ms, 0) // bin_ms
                bins[number] = added(bins.get(number, {}), counts)
        points = [
            (now_ms - number * bin_ms, quantile(bins.get(number, {}), 0.5), quantile(bins.get(number, {}), 0.99))
            for number in range((now_ms - first_ms) // bin_ms, -1, -1)
        ]
        found.append(LatencySeries(connector, tuple(points)))
    return found
