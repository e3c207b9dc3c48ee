"""A record's latency counts when its commit has succeeded, and reaches from its own time to there."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connectx.model.latencies import quantile
from connectx.runtime.tasks.sink.latency import CommitLatency


def rows(*times_ms: int | None) -> pa.Table:
    return pa.table({"timestamp": pa.array(times_ms, pa.int64())})


def test_a_put_that_commits_counts_at_once_and_records_without_a_time_do_not() -> None:
    latency = CommitLatency(put_commits=True)
    latency.put(rows(9_900, None, -1, 9_900), 10_000)
    assert sum(latency.buckets.values()) == 2
    assert quantile(latency.buckets, 1) == pytest.approx(100, rel=0.1)


def test_other_records_wait_for_their_commit_and_a_failed_one_leaves_them_for_the_next() -> None:
    latency = CommitLatency(put_commits=False)
    latency.put(rows(1_000, 2_000), 3_000)
    latency.commit_sent(1)
    latency.put(rows(4_000), 4_000)
    latency.commit_ended(1, 5_000, committed=False)
    assert latency.buckets == {}
    latency.commit_sent(2)
    latency.commit_ended(2, 9_000, committed=True)
    assert sum(latency.buckets.values()) == 3
    assert quantile(latency.buckets, 1) == pytest.approx(8_000, rel=0.1)


def test_what_is_put_again_after_a_failed_flush_counts_once() -> None:
    latency = CommitLatency(put_commits=False)
    latency.put(rows(1_000), 2_000)
    latency.rewound()
    latency.put(rows(1_000), 3_000)
    latency.commit_sent(1)
    latency.commit_ended(1, 3_000, committed=True)
    assert sum(latency.buckets.values()) == 1
