"""A DataFrame's rows come to the worker and are converted there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from connectx.data.converters import decode, encode
from connectx.data.simple import IntegerConverter
from tests.support.conversions import KEY, PLAIN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_data_frame_is_evaluated_with_its_converters_in_order(spark: SparkSession) -> None:
    frame = spark.range(1000).select(
        f.col("id").cast("int").alias("key"),
        f.struct(f.col("id"), f.concat(f.lit("n"), f.col("id")).alias("name")).alias("value"),
        f.lit("t").alias("topic"),
    )
    table = encode(frame, IntegerConverter(is_key=True), PLAIN)
    assert table.column_names == ["key", "value", "topic"]
    assert table["key"].to_pylist() == [number.to_bytes(4, "big") for number in range(1000)]
    assert table["value"].to_pylist() == [b'{"id":%d,"name":"n%d"}' % (number, number) for number in range(1000)]


def test_a_data_frame_without_a_column_value_is_the_value(spark: SparkSession) -> None:
    table = encode(spark.range(2).withColumn("topic", f.lit("x")), KEY, PLAIN)
    assert table.to_pylist() == [
        {"key": None, "value": b'{"id":0,"topic":"x"}'},
        {"key": None, "value": b'{"id":1,"topic":"x"}'},
    ]


def test_records_can_come_as_a_data_frame(spark: SparkSession) -> None:
    frame = spark.sql(
        "select cast(null as binary) as key, cast(concat('{\"id\":', id, '}') as binary) as value from range(50)"
    )
    decoded = decode(frame, KEY, PLAIN)
    assert decoded["value"].to_pylist() == [f'{{"id":{number}}}' for number in range(50)]
