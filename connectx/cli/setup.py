"""Prepares what the embedded Kafka and the local Spark need, once per user: `connectx setup`.

Fetches the jars, and makes the class archive that lets Kafka start fast; with `archives` Spark's, too, which otherwise
is made beside a later local Spark. Everything is in the cache (`CONNECTX_CACHE_DIR`); a second run finds it there.
Nothing depends on it: what is missing at first use is fetched then, and without archives both start, only slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from connectx.cli.common import reporting_errors
from connectx.jvm import jars
from connectx.jvm.archive import archives_lock
from connectx.jvm.java import JavaHome, find_java
from connectx.jvm.progress import Progress, silent, step, terminal_progress
from connectx.kafka.broker import embedded, node
from connectx.spark import launcher, sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def setup(
    archives: Annotated[
        bool, typer.Option("--archives", help="Make Spark's class archive now, in about a minute, instead of later.")
    ] = False,
) -> None:
    """Download the jars of Kafka and prepare fast starts. A second run takes a moment."""
    with reporting_errors(), terminal_progress() as progress:
        prepare(progress, archives=archives)


def prepare(progress: Progress = silent, java: JavaHome | None = None, *, archives: bool = False) -> None:
    """Fetch the jars and make class archives, as far as they are not in the cache.

    Args:
        progress: called for each step.
        java: the Java to prepare for; `find_java()` by default.
        archives: Spark's class archive, too.

    Raises:
        MissingExtraError, NoJavaError, JarDownloadError, ChecksumError, DiskFullError: what is needed cannot be had.
        BrokerError, SparkStartError: a part does not start on this machine.
    """
    java = java or find_java()
    kafka_jars = jars.fetch(jars.KAFKA, java, progress)
    spark_jars = launcher.class_path()
    if not node.archive_path(java, kafka_jars).exists():
        with step(progress, "Making Kafka start fast"), archives_lock():
            embedded.make_archive(java, kafka_jars)
    if archives and not launcher.archive_path(java, spark_jars).exists():
        with step(progress, "Making Spark start fast"):
            sessions.make_archive(java, _typical_work)


def _typical_work(spark: SparkSession) -> None:
    """Load the classes that connectx's own queries need: Arrow in and out, Python on executors."""
    import pyarrow as pa

    rows = spark.createDataFrame(pa.table({"id": [1, 2], "name": ["a", "b"]}))
    texts = rows.selectExpr("to_json(struct(*)) AS value", "upper(name) AS key")
    texts.toArrow()
    texts.selectExpr("from_json(value, 'id BIGINT') AS value").toArrow()
    rows.mapInArrow(lambda batches: batches, rows.schema).toArrow()
