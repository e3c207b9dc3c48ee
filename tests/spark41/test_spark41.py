"""`make spark41` tests with the Spark that it says."""

from __future__ import annotations

from pathlib import Path

from connectx.jvm import jars
from connectx.spark.sessions import SparkProvider


def test_this_environment_has_the_pinned_spark(spark_provider: SparkProvider) -> None:
    pinned = (Path(__file__).parent / "requirements.txt").read_text().partition("pyspark==")[2].strip()
    assert jars.spark_version() == spark_provider.get().version == pinned
