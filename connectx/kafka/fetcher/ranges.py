"""Reads exact ranges of offsets as Arrow tables, without a worker, consumer group or Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectx.errors.kafka import KafkaRequestError
from connectx.kafka.fetcher.fetcher import FetchedRecords, RecordFetcher
from connectx.model.ids import TopicPartition

_POLL_S: Final = 0.5


def read_ranges(
    config: Mapping[str, Any],
    ranges: Mapping[TopicPartition, tuple[int, int]],
    *,
    max_records: int = 100_000,
    quiet_s: float = 30.0,
    checkpoint: Callable[[], None] = lambda: None,
) -> Iterator[pa.Table]:
    """Records with offsets in [start, end) of each partition, in order within each partition.

    Records that retention or compaction removed are missing, and with `isolation.level=read_committed`, the default,
    so are those of aborted transactions. Leaders that move are followed. A range that reaches beyond the end of its
    partition, or beyond an open transaction, is waited for.

    Args:
        config: settings of a consumer in librdkafka's spelling.
        ranges: start and end by partition.
        max_records: most rows of one table.
        quiet_s: how long nothing may come before the reading ends with an error.
        checkpoint: called at least every half second; what it raises ends the reading.

    Yields:
        Tables with the columns of FetchedRecords.rows, never empty.

    Raises:
        OffsetOutOfRangeError: the log no longer has the start.
        KafkaPermissionError, KafkaLoginError, KafkaRequestError, RecordBatchError: see RecordFetcher.poll;
            KafkaRequestError also if nothing came for `quiet_s`.
    """
    left = {partition: end for partition, (start, end) in ranges.items() if end > start}
    if not left:
        return
    fetcher = RecordFetcher(config)
    fetcher.start()
    try:
        fetcher.fetch_from({partition: ranges[partition][0] for partition in left})
        received_s = time.monotonic()
        while left:
            checkpoint()
            fetched = fetcher.poll(_POLL_S, max_records)
            if fetched is not None:
                received_s = time.monotonic()
                rows = _within(fetched, left)
                done = [partition for partition, end in left.items() if _reached(fetched, partition) >= end]
                fetcher.forget(done)
                for partition in done:
                    del left[partition]
                if rows.num_rows:
                    yield rows
                    received_s = time.monotonic()
            elif time.monotonic() - received_s > quiet_s:
                raise KafkaRequestError(
                    f"read {', '.join(map(str, sorted(left)))} to the end",
                    fetcher.trouble or f"nothing came for {quiet_s:g} s",
                    next_step="Check the brokers that lead these partitions.",
                )
    finally:
        fetcher.close()


def _reached(fetched: FetchedRecords, partition: TopicPartition) -> int:
    return max(fetched.ends.get(partition, 0), fetched.ranges.get(partition, (0, 0))[1])


def _within(fetched: FetchedRecords, left: Mapping[TopicPartition, int]) -> pa.Table:
    """Rows below the end of their partition."""
    rows = fetched.rows
    for partition, (_, reached) in fetched.ranges.items():
        end = left[partition]
        if reached > end:
            own = pc.and_(pc.equal(rows["topic"], partition.topic), pc.equal(rows["partition"], partition.partition))
            rows = rows.filter(pc.invert(pc.and_(own, pc.greater_equal(rows["offset"], end))))
    return rows
