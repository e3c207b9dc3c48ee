"""Live numbers of a cluster: of its tasks (records a second, lag, source offset), and when its workers were last heard.

Numbers change all the time, so they are read once a second at most. A heartbeat that comes in time is no news: only one
that is overdue becomes part of the picture, and the moments of the others go with the panel's regular beat.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connectx.api.connect_cluster import ConnectCluster

_OFFSET_CHARS = 80
_LATE_BEATS = 2.5
_LATE_MS = 1_000
"""A heartbeat is overdue after so many intervals, and so much time for a machine that is busy."""


class Numbers:
    """Reads the tasks' own counts; rates are over the time since the last reading. Of two instances of a task, as while
    a zombie is left, the newer one counts."""

    def __init__(self, cluster: ConnectCluster) -> None:
        self._cluster = cluster
        self._read_s = time.monotonic()
        self._counts = {key: _count(metrics) for key, _, metrics in self._running()}
        self.by_connector: dict[str, dict[str, Any]] = {}
        """Connector to `records` (of the instances that run now), `rate` (a second), `lag`, `offset`."""
        self.by_task: dict[str, dict[str, Any]] = {}
        """The same by task, like "orders-0"."""
        self.late: dict[str, int] = {}
        """Workers whose heartbeat is overdue, and when the last one was answered (milliseconds since 1970)."""

    def read(self, now_ms: int) -> bool:
        """Read once; True when a number changed."""
        before = (self.by_connector, self.by_task, self.late)
        self.by_connector, self.by_task = {}, {}
        now_s = time.monotonic()
        passed_s, self._read_s = max(now_s - self._read_s, 1e-3), now_s
        counts: dict[str, int] = {}
        for key, task, metrics in self._running():
            counts[key] = _count(metrics)
            gained = max(0, counts[key] - self._counts.get(key, 0))
            self.by_task[task] = _numbers(metrics, round(gained / passed_s))
        for task, numbers in self.by_task.items():
            _add(self.by_connector.setdefault(task.rpartition("-")[0], {}), numbers)
        self._counts = counts
        limit_ms = self._limit_ms()
        self.late = {name: at for name, at in self.heartbeats().items() if limit_ms and now_ms - at > limit_ms}
        return before != (self.by_connector, self.by_task, self.late)

    def _running(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """An instance, its task and what it says; of a zombie and its successor the successor comes last."""
        for worker in sorted(self._cluster.workers, key=lambda worker: worker.generation or 0):
            for task, metrics in worker.task_metrics.items():
                yield f"{worker.name}/{task}", task, metrics

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


def _numbers(metrics: Mapping[str, Any], rate: int) -> dict[str, Any]:
    lag, offset = metrics.get("lag"), metrics.get("source_offset")
    return {
        "records": _count(metrics),
        "rate": rate,
        "lag": lag if isinstance(lag, int) else None,
        "offset": None if offset is None else json.dumps(offset, default=str)[:_OFFSET_CHARS],
    }


def _add(sums: dict[str, Any], numbers: Mapping[str, Any]) -> None:
    """Counts add up; of several source offsets one is shown."""
    for name, number in numbers.items():
        before = sums.get(name)
        both = before is not None and number is not None and name != "offset"
        sums[name] = before + number if both else before if number is None else number


def _count(metrics: Mapping[str, Any]) -> int:
    records = metrics.get("records", 0)
    return records if isinstance(records, int) else 0
