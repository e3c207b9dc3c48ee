"""Buckets of latencies: quantiles are at most 9 % too high, and counts that begin again are whole gains."""

from __future__ import annotations

import math

import pytest

from connectx.model.latencies import PER_DOUBLING, added, gained, quantile


def buckets(*latencies_ms: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for latency_ms in latencies_ms:
        found = added(found, {math.floor(math.log2(latency_ms) * PER_DOUBLING): 1})
    return found


@pytest.mark.parametrize("latency_ms", [1, 7, 40, 1_000, 86_400_000])
def test_a_quantile_is_at_most_nine_percent_too_high(latency_ms: int) -> None:
    known = quantile(buckets(*[latency_ms] * 3), 0.5)
    assert known is not None
    assert latency_ms <= known <= 1.0906 * latency_ms


def test_the_median_and_the_tail_are_told_apart() -> None:
    known = buckets(*[10] * 98, 5_000, 5_000)
    assert (quantile(known, 0.5) or 0) < 11
    assert (quantile(known, 0.99) or 0) >= 5_000
    assert quantile({}, 0.5) is None


def test_a_count_that_begins_again_is_all_new() -> None:
    assert gained({3: 5}, {3: 7, 4: 1}) == {3: 2, 4: 1}
    assert gained({3: 5}, {3: 2}) == {3: 2}
    assert gained({3: 5}, {3: 5}) == {}
