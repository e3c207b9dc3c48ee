"""Java connectors that end or block their JVM, and a worker with a Java task that is cut off from Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import connectx as cx
from tests.support.clusters import MakeCluster, owner_of
from tests.support.connect_host import compiler
from tests.support.flows import Lines
from tests.support.hostile_plugin import HOSTILE, add_hostile_plugin
from tests.support.java_plugins import file_plugins
from tests.support.java_worker import FILE_SOURCE
from tests.support.profiles import QUICK
from tests.support.waiting import WAIT_S, until

JAVA_S = 3 * WAIT_S
"""A JVM starts, on a busy machine."""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cx.Cluster]:
    """Two workers with Java's file connectors and, if it can be compiled, the hostile one on their plugin path."""
    path = file_plugins(tmp_path_factory.mktemp("java"))
    if (program := compiler()) is not None:
        add_hostile_plugin(path, program)
    config = {**QUICK, "plugin.path": str(path), "task.shutdown.graceful.timeout.ms": "1000"}
    with make_cluster(workers=2, config=config) as made:
        yield made


needs_compiler = pytest.mark.skipif(compiler() is None, reason="javac 17 is missing")


@needs_compiler
def test_a_plugin_that_ends_its_jvm_fails_and_leaves_the_worker(cluster: cx.Cluster) -> None:
    connector = cluster.create("exits", {"connector.class": HOSTILE, "mode": "exit"})
    until(lambda: any(task["state"] == "FAILED" for task in connector.status()["tasks"]), "its failure", JAVA_S)
    assert "ended with exit code 7" in connector.status()["tasks"][0]["trace"]
    assert all(worker.state == "running" for worker in cluster.workers)
    connector.delete()


@needs_compiler
@pytest.mark.parametrize("mode", ["poll", "stop"])
def test_a_plugin_that_blocks_holds_up_no_other(cluster: cx.Cluster, mode: str) -> None:
    blocked = cluster.create(f"blocks-{mode}", {"connector.class": HOSTILE, "mode": mode}).wait("RUNNING", JAVA_S)
    beside = cluster.create(f"beside-{mode}", {"connector.class": HOSTILE}).wait("RUNNING", JAVA_S)
    blocked.delete()
    beside.pause()
    beside.wait("PAUSED", WAIT_S)
    beside.delete()


def test_a_java_source_loses_and_repeats_nothing_when_its_worker_is_cut_off(
    cluster: cx.Cluster, tmp_path: Path
) -> None:
    lines = Lines(cluster, "cut-off", tmp_path, 1)
    lines.append(1000)
    config = {"connector.class": FILE_SOURCE, "file": str(lines.path), "topic": lines.topic}
    cluster.create(lines.name, config).wait("RUNNING", JAVA_S)
    lines.wait_committed()
    worker = lines.owner().name
    cluster.partition(worker)
    lines.append(1000)
    until(lambda: owner_of(cluster, lines.task).name != worker, "another worker to take the task", JAVA_S)
    lines.wait_committed()
    cluster.heal(worker)
    lines.append(1000)
    cluster.wait_stable(WAIT_S)
    lines.check_exactly_once()
    lines.close()
    cluster[lines.name].delete()
