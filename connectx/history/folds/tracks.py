"""Throughput and lag of the connectors on one time axis, as few lines as a reader can distinguish. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from connectx.history.folds.rates import Counts, LagSample, Series, lags, throughput
from connectx.values import Value
from connectx.views import Form, Shown

MOST = 7
"""Connectors with a separate line, those with the highest peaks; the others share one line."""

_SENT = 300
Points = tuple[tuple[int, float | None], ...]


class Samples(Shown, Value):
    """What was sampled of a cluster: records moved by task, and lag."""

    counts: Counts
    lags: Sequence[LagSample]

    def _shown(self) -> Form:
        sizes = {"tasks": len(self.counts), "samples": sum(map(len, self.counts.values())), "lags": len(self.lags)}
        return Form("Samples", sizes)


class Line(Value):
    """A number over time, None where it is not known; `connector` None: the sum of the connectors without a line."""

    connector: str | None
    points: Points


class Track(Value):
    """Lines of one kind. `holds`: a number lasts until the next one; otherwise it is the mean since the one before."""

    name: str
    holds: bool
    lines: tuple[Line, ...]

    @property
    def peak(self) -> float:
        """The highest number of all lines."""
        return max((number or 0 for line in self.lines for _, number in line.points), default=0)


def tracks(samples: Samples, start_ms: int, now_ms: int) -> tuple[Track, ...]:
    """Records a second and lag between two times; only tracks in which something is known."""
    found = []
    for name, holds, lines in (
        ("records/s", False, throughput(samples.counts, now_ms)),
        ("lag", True, lags(samples.lags, now_ms)),
    ):
        drawn = [_within(line, start_ms, now_ms, holds=holds) for line in lines if line.task is None]
        if drawn := [line for line in drawn if any(number is not None for _, number in line.points)]:
            found.append(Track(name, holds, _together(drawn)))
    return tuple(found)


def _within(series: Series, start_ms: int, end_ms: int, *, holds: bool) -> Line:
    """Its points in the window; a number that holds since before begins where the window does."""
    inside = [(time_ms, number) for time_ms, number in series.points if start_ms <= time_ms <= end_ms]
    before = [number for time_ms, number in series.points if time_ms < start_ms]
    return Line(series.connector, ((start_ms, before[-1]), *inside) if holds and before else tuple(inside))


def _together(lines: list[Line]) -> tuple[Line, ...]:
    if len(lines) <= MOST:
        return tuple(lines)
    ranked = sorted(lines, key=lambda line: -max(number or 0 for _, number in line.points))
    shown, rest = ranked[:MOST], ranked[MOST:]
    times = sorted({time_ms for line in rest for time_ms, _ in line.points})
    sums = ((time_ms, sum(_at(line.points, time_ms) for line in rest)) for time_ms in times)
    return (*(line for line in lines if line in shown), Line(None, tuple(sums)))


def _at(points: Points, time_ms: int) -> float:
    place = bisect_right(points, time_ms, key=lambda point: point[0])
    return (points[place - 1][1] or 0) if place else 0


def busiest(samples: Samples, now_ms: int, most: int) -> dict[str, dict[str, list[tuple[int, float | None]]]]:
    """Points of `rate` (records a second) and `lag` of the connectors with most records or the largest lag."""
    found: dict[str, dict[str, list[tuple[int, float | None]]]] = {}
    for kind, lines in (("rate", throughput(samples.counts, now_ms)), ("lag", lags(samples.lags, now_ms))):
        for line in (line for line in lines if line.task is None):
            found.setdefault(line.connector, {"rate": [], "lag": []})[kind] = list(line.points[-_SENT:])
    peaks = {
        name: max(number or 0 for points in kinds.values() for _, number in points) for name, kinds in found.items()
    }
    return {name: found[name] for name in sorted(found, key=lambda name: -peaks[name])[:most]}
