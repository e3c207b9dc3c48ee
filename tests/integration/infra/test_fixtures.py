"""The shared servers are real, and work together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from connectx.kafka.broker.embedded import EmbeddedKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_reads_what_a_client_wrote_through_the_gate(
    kafka: EmbeddedKafka, topic: Callable[..., str], spark: SparkSession
) -> None:
    from confluent_kafka import Producer

    name = topic("fixture", partitions=2)
    producer = Producer({"bootstrap.servers": kafka.worker_bootstrap_servers, "client.id": "worker-1/p"})
    for number in range(10):
        producer.produce(name, str(number))
    assert producer.flush(30) == 0
    read = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", name)
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
    )
    assert sorted(int(row.value) for row in read.collect()) == list(range(10))


def test_postgres_answers_adbc(postgres: str) -> None:
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(postgres) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 41 + 1")
        assert cursor.fetchone() == (42,)
