"""Live numbers of a cluster: of its tasks (records, rate, lag, source offset), and the last heartbeats of its workers.

Numbers change all the time, so they are read once a second at most. A heartbeat that comes in time is no news: only one
that is overdue becomes part of the picture, and the moments of the others go with the panel's regular beat.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from connectx.api.recorder import running
from connectx.history.folds.flow import Flow, LagClock, flows
from connectx.history.folds.latency import LatencyCounter
from connectx.history.folds.rates import RecordCounter
from connectx.model.latencies import Buckets, added, gained, quantile
from connectx.views import masked_text

if TYPE_CHECKING:
    from connectx.api.connect_cluster import ConnectCluster
    from connectx.api.movement import Movement

_OFFSET_CHARS = 80
_WHY_CHARS = 120
_COUNTED = {"records": "moved", "retries": "retries", "record_failures": "errors"}
"""Counts of a task's instances, and the names of their sums over all instances."""
_OF_LANE = ("lane", "lane_reason", "parts", "parts_done")
_LATE_BEATS = 2.5
_LATE_MS = 1_000
"""A heartbeat is overdue after so many intervals, and so much time for a machine that is busy."""
WINDOW_S = 8.0
"""Rates are over this time. Commits and bursts come seconds apart, so a shorter one would show 0 in between."""
LATENCY_S = 60.0
"""Latencies are those of records that were committed in this time."""
MOVEMENTS_MS = 2_000
"""Offsets of a cluster that runs elsewhere are read so often."""
_LAG_STEP_MS = 100


class Numbers:
    """Reads the tasks' own counts.

    Rates are over the last `WINDOW_S` seconds and include what zombies write. Lag and offset are those of the newest
    instance of a task.
    """

    def __init__(self, cluster: ConnectCluster) -> None:
        self._cluster = cluster
        self._counters = {name: RecordCounter() for name in _COUNTED}
        self._moved: deque[tuple[float, dict[str, int], dict[str, int]]] = deque()
        self._latencies = LatencyCounter()
        self._latencies_before: deque[tuple[float, dict[str, Buckets]]] = deque()
        self._quantiles: dict[str, dict[str, int]] = {}
        self._lag_clocks: dict[str, LagClock] = {}
        self._writes: dict[str, tuple[str, ...]] = {}
        self._reads: dict[str, tuple[str, ...]] = {}
        self._count(self._read_metrics())
        self._movements: Mapping[str, Movement] = {}
        self.by_connector: dict[str, dict[str, Any]] = {}
        """Connector to `rate` and `zombie` (records a second, of all instances and of zombies), `moved`, `by_zombies`
        (records), `committed` (where no history has it), `every` (milliseconds between counts; 1000 if not there),
        `retries`, `errors` (records that failed, each try counts), `lag`, `lagging_since` (when the topic ended
        where the sink is, in milliseconds since 1970), `p50_ms` and `p99_ms` (from the time of a record to its commit),
        `offset`, `waits` (why it does not continue), `bulk` (tasks in the bulk lane, if there are any)."""
        self.by_task: dict[str, dict[str, Any]] = {}
        """The same by task, like "orders-0", but in place of `bulk` its `lane` and `lane_reason`, and while a job runs
        its `parts` and `parts_done`."""
        self.late: dict[str, int] = {}
        """Workers whose heartbeat is overdue, and when the last one was answered (milliseconds since 1970)."""

    def read(self, now_ms: int) -> bool:
        """Read once; True when a number changed."""
        before = (self.by_connector, self.by_task, self.late)
        instances = self._read_metrics()
        self._count(instances)
        newest = {task: metrics for _, task, metrics in instances}
        self.by_task = {
            task: self._numbers(task, newest.get(task, {}), now_ms) for task in self._counters["records"].moved
        }
        self.by_connector = {}
        for task, numbers in self.by_task.items():
            sums = self.by_connector.setdefault(_connector_of(task), {})
            _add(sums, {name: number for name, number in numbers.items() if name not in _OF_LANE})
            if numbers["lane"] == "bulk":
                sums["bulk"] = sums.get("bulk", 0) + 1
        for connector, numbers in self._quantiles.items():
            self.by_connector[connector] |= numbers
        for connector, movement in self._movements.items():
            self.by_connector[connector] = self._moving(connector, movement, now_ms)
        limit_ms = self._limit_ms()
        self.late = {name: at for name, at in self.heartbeats().items() if limit_ms and now_ms - at > limit_ms}
        return before != (self.by_connector, self.by_task, self.late)

    def take(self, movements: Mapping[str, Movement]) -> None:
        """Take what was computed from offsets, for connectors whose tasks are out of sight."""
        self._movements = movements
        for name, movement in movements.items():
            (self._reads if movement.is_sink else self._writes)[name] = movement.topics

    def flows(self, connectors: Iterable[str]) -> list[Flow]:
        """Topics with those of the connectors that have written and read them, as far as their tasks were seen."""
        named = set(connectors)
        writes, reads = (
            {name: topics for name, topics in used.items() if name in named} for used in (self._writes, self._reads)
        )
        return flows(writes, reads)

    def _read_metrics(self) -> list[tuple[str, str, Mapping[str, Any]]]:
        return list(running(self._cluster.workers))

    def _count(self, instances: list[tuple[str, str, Mapping[str, Any]]]) -> None:
        for name, counter in self._counters.items():
            counter.take((worker, task, _count(metrics.get(name))) for worker, task, metrics in instances)
        now_s, records = time.monotonic(), self._counters["records"]
        self._moved.append((now_s, dict(records.moved), dict(records.of_zombies)))
        while len(self._moved) > 2 and now_s - self._moved[1][0] >= WINDOW_S:
            self._moved.popleft()
        self._count_latencies(instances, now_s)
        for _, task, metrics in instances:
            used = self._reads if "positions" in metrics else self._writes
            topics = {*metrics.get("topics", ()), *(name.rpartition("-")[0] for name in metrics.get("positions", ()))}
            used[_connector_of(task)] = tuple(sorted({*used.get(_connector_of(task), ()), *topics}))

    def _count_latencies(self, instances: list[tuple[str, str, Mapping[str, Any]]], now_s: float) -> None:
        self._latencies.take((worker, task, metrics.get("latency")) for worker, task, metrics in instances)
        known: dict[str, Buckets] = {}
        for task, buckets in self._latencies.of.items():
            known[_connector_of(task)] = added(known.get(_connector_of(task), {}), buckets)
        self._latencies_before.append((now_s, known))
        while len(self._latencies_before) > 2 and now_s - self._latencies_before[1][0] >= LATENCY_S:
            self._latencies_before.popleft()
        before = self._latencies_before[0][1]
        for connector, buckets in known.items():
            if newest := gained(before.get(connector, {}), buckets):
                shares = {name: quantile(newest, share) or 0 for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99))}
                self._quantiles[connector] = {name: round(share) for name, share in shares.items()}

    def _moving(self, connector: str, movement: Movement, now_ms: int) -> dict[str, Any]:
        return {
            "rate": None if movement.rate is None else round(movement.rate),
            "moved": movement.moved,
            "committed": movement.moved,
            "every": MOVEMENTS_MS,
            "lag": movement.lag,
            "lagging_since": self._lagging_since(connector, movement.lag, movement.committed, now_ms),
        }

    def _lagging_since(self, who: str, lag: object, positions: Mapping[str, Any] | None, now_ms: int) -> int | None:
        """The moment stays while nothing moves, so that a lag that only gets older is no news."""
        if not isinstance(lag, int) or not positions:
            return None
        lagging_ms = self._lag_clocks.setdefault(who, LagClock()).take(now_ms, positions, lag)
        return None if lagging_ms == 0 else round((now_ms - lagging_ms) / _LAG_STEP_MS) * _LAG_STEP_MS

    def _numbers(self, task: str, metrics: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
        (first_s, *first), (last_s, *last) = self._moved[0], self._moved[-1]
        rate, zombie = (
            round((end.get(task, 0) - begin.get(task, 0)) / max(last_s - first_s, 1e-3))
            for begin, end in zip(first, last, strict=True)
        )
        lag, offset = metrics.get("lag"), metrics.get("source_offset")
        waits = metrics.get("waits") or (metrics.get("retrying") and f"retries: {metrics['retrying']}")
        return {
            "rate": rate,
            "zombie": zombie,
            "by_zombies": last[1].get(task, 0),
            **{shown: self._counters[name].moved.get(task, 0) for name, shown in _COUNTED.items()},
            "lag": lag if isinstance(lag, int) else None,
            "lagging_since": self._lagging_since(task, lag, metrics.get("positions"), now_ms),
            "offset": None if offset is None else json.dumps(offset, default=str)[:_OFFSET_CHARS],
            "waits": masked_text(str(waits))[:_WHY_CHARS] if waits else None,
            **_lane(metrics),
        }

    def heartbeats(self) -> dict[str, int]:
        """Workers that have not ended, and when the group last answered a heartbeat of theirs, as far as is known."""
        known = {
            worker.name: getattr(worker, "heartbeat_ms", None)
            for worker in self._cluster.workers
            if worker.state not in ("stopped", "killed", "failed")
        }
        return {name: at for name, at in known.items() if at is not None}

    def _limit_ms(self) -> float:
        if not self._cluster.has_faults:  # it runs elsewhere: its settings and heartbeats cannot be seen
            return 0
        config = getattr(self._cluster, "config", None)
        return 0 if config is None else config.heartbeat_interval_ms * _LATE_BEATS + _LATE_MS


def _lane(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """None is what the task does not report, and the progress of a job where none runs."""
    reason, job = metrics.get("lane_reason"), metrics.get("job") or {}
    shown = masked_text(str(reason))[:_WHY_CHARS] if reason else None
    known = metrics.get("lane"), shown, job.get("parts"), job.get("parts_done")
    return dict(zip(_OF_LANE, known, strict=True))


def _connector_of(task: str) -> str:
    return task.rpartition("-")[0]


def _add(sums: dict[str, Any], numbers: Mapping[str, Any]) -> None:
    """Counts add up, of lags in time the longest counts; of several offsets and reasons to wait one is shown."""
    for name, number in numbers.items():
        before = sums.get(name)
        if before is None or number is None or name in ("offset", "waits"):
            sums[name] = before if number is None else number
        else:
            sums[name] = min(before, number) if name == "lagging_since" else before + number


def _count(metric: object) -> int:
    return metric if isinstance(metric, int) else 0
