"""Latency of a sink: from the timestamp of a record in Kafka to its commit in the target.

The time of a record is its timestamp: when it was made, or, with `message.timestamp.type=LogAppendTime`, appended.
Kafka Connect has no such metric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.model.latencies import PER_DOUBLING, added

_STEP_MS: Final = 10
"""Times of records that wait for a commit are kept in steps of this length."""


class CommitLatency:
    """Counts the records of one task instance by bucket (`connectx.model.latencies`), as soon as they are committed.

    Args:
        put_commits: a put commits, so that no record waits for a commit of offsets.
    """

    def __init__(self, *, put_commits: bool) -> None:
        self._put_commits = put_commits
        self._waiting: dict[int, int] = {}
        self._sent: dict[int, Mapping[int, int]] = {}
        self.buckets: dict[int, int] = {}

    def put(self, rows: pa.Table, now_ms: int) -> None:
        """Rows were put; those without a `timestamp` (int64, ms since 1970) are left out."""
        if "timestamp" not in rows.column_names:
            return
        times = pc.filter(rows["timestamp"], pc.greater(rows["timestamp"], 0))
        if self._put_commits:
            ages = pc.max_element_wise(pc.subtract(pa.scalar(now_ms, pa.int64()), times), 1)
            buckets = pc.floor(pc.multiply(pc.log2(pc.cast(ages, pa.float64())), float(PER_DOUBLING)))
            self.buckets = added(self.buckets, _counts(pc.cast(buckets, pa.int64())))
        else:
            self._waiting = added(self._waiting, _counts(pc.divide(times, _STEP_MS)))

    def rewound(self) -> None:
        """What was put since the last commit will be put again."""
        self._waiting = {}

    def commit_sent(self, sequence: int) -> None:
        """A commit of all that was put so far has begun."""
        self._sent[sequence] = self._waiting
        self._waiting = {}

    def commit_ended(self, sequence: int, now_ms: int, *, committed: bool) -> None:
        """A commit has ended; what it was to commit waits for the next one if it has failed."""
        for older in [number for number in self._sent if number <= sequence]:
            times = self._sent.pop(older)
            if committed:
                self.buckets = added(self.buckets, _aged(times, now_ms))
            else:
                self._waiting = added(self._waiting, times)


def _aged(times: Mapping[int, int], now_ms: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for step, count in times.items():
        bucket = math.floor(math.log2(max(now_ms - step * _STEP_MS, 1)) * PER_DOUBLING)
        found[bucket] = found.get(bucket, 0) + count
    return found


def _counts(values: Any) -> dict[int, int]:
    counted = pc.value_counts(values)
    return dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))
