"""Reads tables with the Spark readers of Delta Lake and Apache Iceberg, which share no code with the sinks' libraries.

    python -m tests.support.lake_readers FOLDER JAR...

FOLDER has `tables.json`: per name the format, the path, conditions, and expressions over all rows. `rows/NAME.parquet`
gets the rows by id, and `found.json` the ids for each condition and the values of the expressions. Spark answers both
from the statistics of the files, as far as it can.
"""

from __future__ import annotations

import json
import shutil
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession


def session(jars: list[str]) -> SparkSession:
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(jars))
        .config("spark.driver.extraClassPath", ":".join(jars))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 1)
        .config("spark.databricks.delta.snapshotPartitions", 1)
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.codegen.wholeStage", False)  # to compile each small query would take most of the time
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.ui.enabled", False)
        .getOrCreate()
    )


def loaded(spark: SparkSession, kind: str, path: Path) -> DataFrame:
    if kind == "iceberg":  # without a catalog it reads the metadata file with this name
        metadata = path / "metadata"
        shutil.copy(max(metadata.glob("0*.metadata.json")), metadata / "v1.metadata.json")
        (metadata / "version-hint.text").write_text("1")
    return spark.read.format(kind).load(str(path))


def found(frame: DataFrame, conditions: list[str], expressions: list[str]) -> dict[str, Any]:
    parts = [frame.where(one).selectExpr(f"{at} AS at", "id") for at, one in enumerate(conditions)]
    rows = sorted((at, number) for at, number in reduce(DataFrame.union, parts).collect())
    ids = {one: [number for place, number in rows if place == at] for at, one in enumerate(conditions)}
    return {"ids": ids, "values": [*(frame.selectExpr(*expressions).first() or ())]}


def main(folder: Path, jars: list[str]) -> None:
    tables = json.loads((folder / "tables.json").read_text())
    (folder / "rows").mkdir()
    spark, results = session(jars), {}
    for name, (kind, path, conditions, expressions) in tables.items():
        frame = loaded(spark, kind, Path(path))
        pq.write_table(pa.table(frame.orderBy("id").toArrow()), folder / "rows" / f"{name}.parquet")
        results[name] = found(frame, conditions, expressions)
    (folder / "found.json").write_text(json.dumps(results))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
