"""Spark's from_avro and to_avro read what AvroConverter writes and write what it reads."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final
from unittest.mock import patch

import duckdb
import pytest

from connectx.jvm import jars
from connectx.jvm.java import find_java

ROOT: Final = Path(__file__).parents[2]
_LOCK: Final = ROOT / "tests/support/spark_avro.lock.json"
_EXAMPLE: Final = r"^<!-- not run: .*test_spark_avro\.py.* -->\n```python\n(.*?)^```"

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
    .config("spark.jars", "spark-avro_2.13-4.0.0.jar")
    .config("spark.driver.extraClassPath", "spark-avro_2.13-4.0.0.jar")
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
    """A folder with the jar, which Ivy fetches once per user."""
    wanted = tuple(jars.Jar(**entry) for entry in json.loads(_LOCK.read_text())["spark-avro"])
    assert wanted[0].revision == jars.spark_version()
    with patch.object(jars, "locked", lambda name: wanted):
        (jar,) = jars.fetch("spark-avro", find_java())
    (tmp_path / jar.name).symlink_to(jar)
    return tmp_path


def run(code: str, folder: Path) -> str:
    (folder / "example.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "widgets")))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_reads_a_topic_by_spark_and_writes_records_that_a_sink_reads(folder: Path) -> None:
    page = (ROOT / "docs/schema-registry.md").read_text(encoding="utf-8")
    (code,) = re.findall(_EXAMPLE, page, re.MULTILINE | re.DOTALL)
    assert run(code, folder).startswith("1000 ['")
    found = duckdb.execute(f"SELECT * FROM read_parquet('{folder}/lake/**/*.parquet')").fetchall()
    assert len(found) == 2000
    assert len(set(found)) == 1000, "each row once from the Generator and once from Spark"


def test_every_type_is_the_same_in_both_directions(folder: Path) -> None:
    run(TYPES, folder)
