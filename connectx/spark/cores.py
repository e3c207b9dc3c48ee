"""How many tasks Spark's executors run at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def executor_cores(session: SparkSession) -> int:
    """Cores of all executors that a session has now; asking a Spark Connect session for them runs a small job."""
    if not type(session).__module__.startswith("pyspark.sql.connect"):
        context: Any = session.sparkContext
        return int(context.defaultParallelism)
    from pyspark.sql import functions as F

    # A range has as many partitions as there are cores.
    return session.range(1_000_000).select(F.spark_partition_id().alias("core")).distinct().count()
