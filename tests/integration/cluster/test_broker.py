"""The broker goes away, for a while or for good."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import connectx as cx
from connectx.errors.rest import RebalancePendingError
from connectx.model.events import EventKind
from tests.support.clusters import events
from tests.support.flows import Lines
from tests.support.options import BROKER
from tests.support.profiles import QUICK
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectx.spark.sessions import SparkProvider

MakeLines = Callable[..., Lines]

GONE_S = 20.0


def start(cluster: cx.Cluster, make_lines: MakeLines, out: Path) -> Lines:
    """A source and a sink that have moved 100 lines."""
    lines = make_lines(cluster, partitions=2)
    lines.start()
    sink = {"connector.class": "FileStreamSink", "file": str(out), "topics": lines.topic}
    cluster.create(f"{lines.name}-out", sink).wait("RUNNING", WAIT_S)
    lines.append(100)
    until(lambda: out.exists() and len(out.read_text().splitlines()) == 100, "100 lines")
    return lines


@BROKER
def test_everything_goes_on_by_itself_when_the_broker_was_gone_for_20_seconds(
    spark_provider: SparkProvider, make_lines: MakeLines, tmp_path: Path
) -> None:
    out = tmp_path / "out.txt"
    with cx.Cluster(workers=2, config=QUICK) as cluster:
        assert cluster.kafka is not None
        lines = start(cluster, make_lines, out)
        since = cluster.events.last_seq
        cluster.kafka.kill()
        gone_s = time.monotonic()
        lines.append(100)
        for worker in cluster.workers:
            until(
                partial(events, cluster, EventKind.MEMBER_LOST, since, worker=worker.name),
                f"{worker.name} to notice",
            )
        until(lambda: time.monotonic() - gone_s >= GONE_S, "a long absence")
        lines.append(100)
        cluster.kafka.restart()
        lines.append(100)
        until(lambda: set(out.read_text().splitlines()) == set(lines.expected), "all lines in the file")
        lines.check_exactly_once()
        cluster.wait_stable(WAIT_S)
        for connector in cluster.connectors:
            connector.wait("RUNNING", WAIT_S)
        lines.append(10)
        lines.check_exactly_once()
        assert not events(cluster, EventKind.WORKER_FAILED)


@BROKER
@pytest.mark.timeout(120)  # far below the sum of the time-outs of requests, transactions and polls
def test_without_its_broker_a_cluster_says_so_and_closes_all_the_same(
    spark: SparkSession, make_lines: MakeLines, tmp_path: Path
) -> None:
    before = set(threading.enumerate())
    with cx.Cluster(workers=3, config=QUICK) as cluster:
        assert cluster.kafka is not None
        lines = start(cluster, make_lines, tmp_path / "out.txt")
        since = cluster.events.last_seq
        cluster.kafka.kill()
        lines.append(100)
        for worker in cluster.workers:
            until(
                partial(events, cluster, EventKind.MEMBER_LOST, since, worker=worker.name),
                f"{worker.name} to notice",
            )
        assert "coordinator" in events(cluster, EventKind.MEMBER_LOST, since)[0].cause
        until(lambda: not any(worker.task_metrics for worker in cluster.workers), "the end of all work")
        assert "not running" in repr(cluster)
        assert "joining" in repr(cluster)
        assert lines.name in repr(cluster)
        with pytest.raises(RebalancePendingError):
            cluster.create("late", {"connector.class": "FileStreamSource", "file": "x", "topic": "x"}, timeout=1)
    until(lambda: set(threading.enumerate()) <= before, "the end of its threads")
