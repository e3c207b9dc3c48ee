"""Reads exact ranges of offsets with Spark's Kafka source, for `cluster.compare`.

It decides how a range is asked for, never which one. Ranges must not pass the last stable offset: Spark waits there
for records that do not come. A range that the log no longer has entirely is an error, not a shorter result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from connectx.errors.kafka import TopicReadError
from connectx.model.ids import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Ranges = Mapping[TopicPartition, tuple[int, int]]

# Waiting for more than what is there would only cost time: the range is known to be complete.
_FETCH_MAX_WAIT_MS = "10"


def topic_frame(spark: SparkSession, options: Mapping[str, str], ranges: Ranges) -> DataFrame:
    """Records of these ranges: topic, partition, offset, timestamp (int64, ms), key, value (binary), headers.

    Args:
        options: `kafka.` options of Spark's reader: addresses, security, isolation level.
        ranges: per partition the first offset, and the offset after the last one.
    """
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for partition, (start, end) in sorted(ranges.items()):
        starts.setdefault(partition.topic, {})[str(partition.partition)] = start
        ends.setdefault(partition.topic, {})[str(partition.partition)] = end
    assigned = {topic: sorted(int(number) for number in numbers) for topic, numbers in starts.items()}
    reader = spark.read.format("kafka").options(**{"kafka.fetch.max.wait.ms": _FETCH_MAX_WAIT_MS, **options})
    frame = (
        reader.option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .load()
    )
    return frame.selectExpr(
        "topic", "partition", "offset", "unix_millis(timestamp) AS timestamp", "key", "value", "headers"
    )


def topic_read_error(error: Exception, ranges: Ranges) -> TopicReadError:
    """A failed read as the user should see it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "offset" in line.lower() or "Exception" in line]
    cause = (named or lines or [repr(error)])[0]
    shown = ", ".join(f"{partition} {start} to {end}" for partition, (start, end) in sorted(ranges.items()))
    if "data source: kafka" in str(error):  # the words before it differ between versions of Spark
        cause = "this Spark has no Kafka source (spark-sql-kafka-0-10), which the local one has only with Spark 4.0.0."
    return TopicReadError(
        f"Spark could not read {shown}: {cause}",
        next_step="Correct the cause, or give a Spark with the library spark-sql-kafka-0-10.",
    )
