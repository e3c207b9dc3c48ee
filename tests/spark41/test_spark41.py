"""`make spark41` tests with the Spark that it says, which has no Kafka source and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectx.jvm import jars
from connectx.model.ids import TopicPartition
from connectx.spark.sessions import SparkProvider
from connectx.spark.topic_frame import topic_frame, topic_read_error

RANGES = {TopicPartition("orders", 0): (0, 10)}


def test_this_environment_has_the_pinned_spark(spark_provider: SparkProvider) -> None:
    pinned = (Path(__file__).parent / "requirements.txt").read_text().partition("pyspark==")[2].strip()
    assert jars.spark_version() == spark_provider.get().version == pinned
    assert not jars.fits_spark()


def test_a_topic_read_says_that_this_spark_has_no_kafka_source(spark_provider: SparkProvider) -> None:
    with pytest.raises(Exception, match="data source: kafka") as caught:
        topic_frame(spark_provider.get(), {"kafka.bootstrap.servers": "127.0.0.1:1"}, RANGES).toArrow()
    error = topic_read_error(caught.value, RANGES)
    assert "this Spark has no Kafka source (spark-sql-kafka-0-10)" in error.message
    assert "spark-sql-kafka-0-10" in error.next_step
