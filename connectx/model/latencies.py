"""Latencies counted in buckets, eight per doubling, so a quantile is at most 9 % too high. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PER_DOUBLING: Final = 8

Buckets = Mapping[int, int]
"""Bucket to the number of records in it. Bucket `b` holds latencies from `2 ** (b / 8)` ms to `upper_ms(b)`, excluded;
bucket 0 also holds shorter ones."""


def upper_ms(bucket: int) -> float:
    """Upper end of a bucket, in milliseconds."""
    return float(2 ** ((bucket + 1) / PER_DOUBLING))


def quantile(buckets: Buckets, share: float) -> float | None:
    """The latency in milliseconds that a share of the records (0 to 1) stays below; None without records."""
    wanted = share * sum(buckets.values())
    reached = 0
    for bucket in sorted(buckets):
        reached += buckets[bucket]
        if reached >= wanted and reached:
            return upper_ms(bucket)
    return None


def added(first: Buckets, second: Buckets) -> dict[int, int]:
    return {bucket: first.get(bucket, 0) + second.get(bucket, 0) for bucket in sorted({*first, *second})}


def gained(before: Buckets, after: Buckets) -> dict[int, int]:
    """What came to a growing count; all of `after` when it has begun again at 0."""
    if any(after.get(bucket, 0) < count for bucket, count in before.items()):
        return dict(after)
    return {bucket: count - before.get(bucket, 0) for bucket, count in after.items() if count > before.get(bucket, 0)}
