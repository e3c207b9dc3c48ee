"""A session as on Databricks' standard clusters: Spark Connect only, no SparkContext, no jars that could be added.

The check-up says what is off, and everything that needs no more than the defaults works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import connectx as cx
from connectx.verify.doctor.report import Status
from tests.support.clusters import MakeCluster
from tests.support.options import CONNECT
from tests.support.profiles import QUICK
from tests.support.spark_server import spark_server
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectx.kafka.broker.embedded import EmbeddedKafka

pytestmark = [CONNECT, pytest.mark.timeout(400)]  # a server of its own starts without a class archive


@pytest.fixture(scope="module")
def bare() -> Iterator[SparkSession]:
    """A session of a server in another process."""
    from pyspark.sql import SparkSession

    with spark_server() as url:
        yield SparkSession.builder.remote(url).create()


@pytest.fixture(scope="module")
def bare_cluster(bare: SparkSession, make_cluster: MakeCluster) -> Iterator[cx.Cluster]:
    with make_cluster(workers=2, config={**QUICK, "group.id": "bare"}, spark=bare) as made:
        yield made


def test_the_checkup_says_what_is_off_and_that_a_cluster_can_run(bare: SparkSession, kafka: EmbeddedKafka) -> None:
    one = {f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")}
    config = {**one, "group.id": "nobody", "exactly.once.source.support": "enabled"}
    found = cx.doctor(spark=bare, bootstrap_servers=kafka.bootstrap_servers, config=config)
    assert found.ok, found
    assert found["Spark"].found.startswith("Spark Connect session, Spark 4.0.0, without a SparkContext")
    states = {name: found[name].status for name in ("Tasks that use Spark", "Your Kafka", "Internal topics")}
    assert set(states.values()) == {Status.OK}, states
    assert found["Your Kafka"].found.startswith("Kafka 4.")
    assert found["Exactly-once sources"].status is Status.OK
    assert found["Workers as processes"].status is Status.OK


def test_rows_go_through_spark_and_kafka_into_a_file_with_the_defaults(
    bare_cluster: cx.Cluster, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, out = topic("bare", partitions=2), tmp_path / "out.txt"
    (tmp_path / "in.csv").write_text("id,name\n" + "".join(f"{n},n{n}\n" for n in range(200)))
    source = {"connector.class": "FileSource", "file": str(tmp_path / "in.csv"), "format": "csv", "topic": name}
    plain = {
        "header": "true",
        "schema": "id INT, name STRING",
        "bulk.mode": "always",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    bare_cluster.create("bare-in", {**source, **plain}).wait("RUNNING", WAIT_S)
    bare_cluster.create("bare-out", {"connector.class": "FileStreamSink", "file": str(out), "topics": name})
    until(lambda: out.exists() and len(out.read_text().splitlines()) >= 200, "200 rows")
    assert sorted(out.read_text().splitlines()) == sorted(f'{{"id":{n},"name":"n{n}"}}' for n in range(200))
    bare_cluster.check(timeout=60).require_valid()
