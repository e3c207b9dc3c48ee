"""Spark's from_avro and to_avro read what AvroConverter writes and write what it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb
import pytest

from connectx.jvm import jars
from tests.support.programs import example_of, link_jars, run

TYPES: Final = """
import datetime
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import SparkSession, functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from connectx.data.avro.converter import AvroConverter

DAY = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, datetime.UTC)
KIND = pa.struct([
    pa.field("int", pa.int32(), nullable=False), ("long", pa.int64()), ("float", pa.float32()),
    ("double", pa.float64()), ("bool", pa.bool_()), ("text", pa.string()), ("bytes", pa.binary()),
    ("date", pa.date32()), ("at", pa.timestamp("ms", "UTC")), ("price", pa.decimal128(9, 2)),
    ("tags", pa.list_(pa.string())), ("counts", pa.map_(pa.string(), pa.int64())),
    ("part", pa.struct([("a", pa.int64()), ("b", pa.string())])),
])
FULL = {"int": -7, "long": 1 << 60, "float": 0.5, "double": 1e300, "bool": True, "text": "tea \\u00e9",
        "bytes": b"\\xff\\x00", "date": DAY.date(), "at": DAY, "price": Decimal("-12.30"), "tags": ["a", None],
        "counts": [("x", 1), ("y", None)], "part": {"a": 1, "b": None}}
EMPTY = {**dict.fromkeys(FULL), "int": 0}

converter = AvroConverter({"schema.registry.url": "mock://types"}, is_key=False)
written = converter.for_topic("t").to_bytes_arrow(pa.array([FULL, EMPTY], KIND)).to_pylist()
latest = converter._registry._client.get_latest_version("t-value")
schema = latest.schema.schema_str

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", "jars/spark-avro_2.13-4.0.0.jar")
    .config("spark.driver.extraClassPath", "jars/spark-avro_2.13-4.0.0.jar")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.ui.enabled", False)
    .getOrCreate()
)
records = spark.createDataFrame([(bytes(one),) for one in written], "value binary")
body = F.expr("substring(value, 6)")
rows = records.select(from_avro(body, schema, {"mode": "FAILFAST"}).alias("row")).select("row.*")
read = pa.table(rows.toArrow()).cast(pa.schema(list(KIND))).to_pylist()
assert read == [FULL, EMPTY], read

header = bytes([0]) + latest.schema_id.to_bytes(4, "big")
again = rows.select(F.concat(F.lit(header), to_avro(F.struct("*"), schema)).alias("value")).toArrow()["value"]
back = converter.from_bytes_arrow(again.combine_chunks()).value.cast(KIND).to_pylist()
assert back == [FULL, EMPTY], back
spark.stop()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the jars in `jars`."""
    (tmp_path / "jars").mkdir()
    avro, *_ = link_jars("spark-avro", tmp_path / "jars") + link_jars("spark-kafka", tmp_path / "jars")
    assert avro.revision == jars.spark_version()
    return tmp_path


def test_the_example_reads_a_topic_by_spark_and_writes_records_that_a_sink_reads(folder: Path) -> None:
    assert run(example_of("docs/schema-registry.md", "test_spark_avro.py"), folder).startswith("1000 ['")
    found = duckdb.execute(f"SELECT * FROM read_parquet('{folder}/lake/**/*.parquet')").fetchall()
    assert len(found) == 2000
    assert len(set(found)) == 1000, "each row once from the Generator and once from Spark"


def test_every_type_is_the_same_in_both_directions(folder: Path) -> None:
    run(TYPES, folder)
