"""Prepares what the embedded Kafka and the local Spark need, once per user: `python -m connectx.cli.setup`.

Fetches the jars and makes the class archives that let both start fast. Everything it makes is in the cache
(`CONNECTX_CACHE_DIR`); a second run finds it there. Nothing depends on it: what is missing at first use is fetched
then, and without archives both start, only slower.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from filelock import FileLock

from connectx.errors import ConnectxError
from connectx.jvm import jars
from connectx.jvm.cache import cache_dir
from connectx.jvm.java import JavaHome, find_java
from connectx.jvm.progress import Progress, silent, terminal_progress
from connectx.kafka.broker import embedded, node
from connectx.spark import launcher, sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def prepare(progress: Progress = silent, java: JavaHome | None = None) -> None:
    """Fetch the jars and make the class archives, as far as they are not in the cache.

    Args:
        progress: told of each step.
        java: the Java to prepare for; `find_java()` by default.

    Raises:
        NoJavaError, JarDownloadError, ChecksumError, DiskFullError: what the embedded Kafka needs cannot be had.
        BrokerError, SparkStartError: a part does not start on this machine.
    """
    java = java or find_java()
    kafka_jars = jars.fetch(jars.KAFKA, java, progress)
    spark_jars = launcher.class_path(java, progress)
    with FileLock(cache_dir() / "archives.lock"):
        if not node.archive_path(java, kafka_jars).exists():
            progress("Making Kafka start fast", 0, 1)
            embedded.make_archive(java, kafka_jars)
            progress("Making Kafka start fast", 1, 1)
        if not launcher.archive_path(java, spark_jars).exists():
            progress("Making Spark start fast", 0, 1)
            with embedded.EmbeddedKafka(gate=False, java=java) as broker:
                sessions.make_archive(java, partial(_typical_work, broker.bootstrap_servers))
            progress("Making Spark start fast", 1, 1)


def _typical_work(bootstrap_servers: str, spark: SparkSession) -> None:
    """Load the classes that connectx's own queries need: Arrow in and out, Python on executors, Kafka."""
    import pyarrow as pa
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    client.create_topics([NewTopic("setup", 2)])["setup"].result(30)
    rows = spark.createDataFrame(pa.table({"id": [1, 2], "name": ["a", "b"]}))
    rows.selectExpr("to_json(struct(*)) AS value", "upper(name) AS key").toArrow()
    rows.mapInArrow(lambda batches: batches, rows.schema).toArrow()
    written = rows.selectExpr("to_json(struct(id)) AS value").write.format("kafka")
    written.option("kafka.bootstrap.servers", bootstrap_servers).option("topic", "setup").save()
    kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap_servers)
    read = kafka.option("subscribe", "setup").load()
    read.selectExpr("from_json(CAST(value AS STRING), 'id BIGINT') AS value").toArrow()


def main() -> int:
    """Run `prepare` with progress on stderr; the exit code."""
    try:
        with terminal_progress() as progress:
            prepare(progress)
    except ConnectxError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
