"""Live numbers of the tasks of a cluster, summed by connector: records a second, lag, the last source offset."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connectx.connect_cluster import ConnectCluster


class Numbers:
    """Reads the tasks' own counts; rates are over the time since the last reading."""

    def __init__(self, cluster: ConnectCluster) -> None:
        self._cluster = cluster
        self._read_s = time.monotonic()
        self._counts: dict[str, int] = {}
        self.by_connector: dict[str, dict[str, Any]] = {}
        """Connector to `records` (now running instances), `rate` (a second), `lag`, `offset`."""

    def read(self) -> bool:
        """Read once; True when a number changed."""
        before, self.by_connector = self.by_connector, {}
        now_s = time.monotonic()
        passed_s, self._read_s = max(now_s - self._read_s, 1e-3), now_s
        counts: dict[str, int] = {}
        for worker in self._cluster.workers:
            for task, facts in worker.facts.items():
                connector = task.rpartition("-")[0]
                key = f"{worker.name}/{task}"
                counts[key] = _count(facts)
                gained = max(0, counts[key] - self._counts.get(key, 0))
                self._add(connector, facts, gained / passed_s)
        self._counts = counts
        return before != self.by_connector

    def _add(self, connector: str, facts: Mapping[str, Any], rate: float) -> None:
        sums = self.by_connector.setdefault(connector, {"records": 0, "rate": 0, "lag": None, "offset": None})
        sums["records"] += _count(facts)
        sums["rate"] += round(rate)
        if isinstance(lag := facts.get("lag"), int):
            sums["lag"] = (sums["lag"] or 0) + lag
        if (offset := facts.get("source_offset")) is not None:
            sums["offset"] = json.dumps(offset, default=str)[:80]


def _count(facts: Mapping[str, Any]) -> int:
    records = facts.get("records", 0)
    return records if isinstance(records, int) else 0
