"""A Kafka that has just started: brokers answer, but there is no group coordinator yet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import connectx as cx
from connectx.spark.sessions import SparkProvider
from tests.support.kafka_nodes import three_nodes
from tests.support.options import BROKER
from tests.support.waiting import until

WAITS = "Waiting for Kafka's group coordinator"


@BROKER
def test_a_cluster_waits_for_the_group_coordinator_of_brokers_that_are_starting(spark_provider: SparkProvider) -> None:
    """The topic of group offsets wants three replicas, and two brokers run."""
    shown: list[tuple[str, int, int]] = []
    config = {f"{store}.storage.replication.factor": "2" for store in ("config", "offset", "status")}
    spark = spark_provider.get()

    with three_nodes(1, 2) as nodes, ThreadPoolExecutor(1) as pool:

        def start() -> str:
            servers = nodes.bootstrap_servers
            with cx.Cluster(
                1, config=config, bootstrap_servers=servers, spark=spark, progress=lambda *step: shown.append(step)
            ) as cluster:
                return next(iter(cluster.workers)).state

        starting = pool.submit(start)
        until(lambda: (WAITS, 0, 1) in shown, "the cluster to wait")
        nodes.start(3)
        assert starting.result(90) == "running"
    assert (WAITS, 1, 1) in shown
