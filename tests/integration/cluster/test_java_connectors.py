"""Java connectors beside those in Python, on real parts: Kafka's own file connectors in the JVMs of two workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import connectx as cx
from connectx.errors.rest import RestError
from connectx.model.events import EventKind
from tests.support.clusters import MakeCluster, events, owner_of, restore
from tests.support.flows import Lines
from tests.support.java_plugins import file_plugins, jvm_of
from tests.support.java_worker import FILE_SINK, FILE_SOURCE
from tests.support.profiles import QUICK
from tests.support.waiting import WAIT_S, until

JAVA_S = 3 * WAIT_S
"""A JVM starts, on a busy machine."""


@pytest.fixture(scope="module", params=["thread", "process"])
def cluster(
    request: pytest.FixtureRequest, make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[cx.Cluster]:
    """Two workers with Java's file connectors on their plugin path."""
    config = {**QUICK, "plugin.path": str(file_plugins(tmp_path_factory.mktemp("java")))}
    with make_cluster(workers=2, config=config, isolation=request.param) as made:
        yield made


@pytest.fixture
def lines(cluster: cx.Cluster, numbers: Iterator[int], tmp_path: Path) -> Iterator[Lines]:
    """Numbered lines for a Java source, which is deleted in the end."""
    restore(cluster, workers=2)
    made = Lines(cluster, f"java{next(numbers)}", tmp_path, 1)
    yield made
    made.close()
    for connector in list(cluster.connectors):
        connector.delete()


def start(lines: Lines, **settings: str) -> cx.Connector:
    config = {"connector.class": FILE_SOURCE, "file": str(lines.path), "topic": lines.topic, **settings}
    return lines.cluster.create(lines.name, config).wait("RUNNING", JAVA_S)


def recorded(cluster: cx.Cluster, name: str, kind: EventKind) -> int:
    return sum(event.data["records"] for event in events(cluster, kind, connector=name))


def test_a_java_source_loses_and_repeats_nothing_when_its_worker_is_killed(lines: Lines, tmp_path: Path) -> None:
    cluster, target = lines.cluster, tmp_path / "out.txt"
    lines.append(2000)
    start(lines)
    sink = {"connector.class": "FileStreamSink", "file": str(target), "topics": lines.topic}
    cluster.create(f"{lines.name}-out", sink)
    lines.wait_committed()
    worker = lines.owner().name
    jvm = jvm_of(cluster, worker)
    assert jvm is not None
    lines.append(3000)
    cluster.kill(worker)
    until(lambda: not psutil.pid_exists(jvm), "the JVM of the killed worker to end")
    lines.check_exactly_once()
    until(lambda: target.read_text().splitlines() == lines.expected, "the lines in the sink's file")
    verdict = cluster.check(timeout=WAIT_S)
    assert (verdict.lost, verdict.duplicated) == (0, 0), verdict
    moved = owner_of(cluster, lines.task)
    assert moved.name != worker
    (known,) = cluster[lines.name].offsets.get()
    assert known["offset"] == {"position": lines.path.stat().st_size}


def test_the_history_has_each_commit_of_a_java_source(lines: Lines) -> None:
    lines.append(500)
    start(lines)
    lines.wait_committed()
    lines.append(700)
    lines.wait_committed()

    def commits() -> int:
        return recorded(lines.cluster, lines.name, EventKind.TRANSACTION_COMMITTED)

    until(lambda: commits() == 1200, "all records in the history")
    ranges = [
        event.data["offsets"][0]
        for event in events(lines.cluster, EventKind.TRANSACTION_COMMITTED, connector=lines.name)
    ]
    assert ranges[0]["from"] is None, "it had no offset"
    starts = [one["from"] for one in ranges[1:]]
    assert starts == [one["offset"] for one in ranges[:-1]], "each commit begins where the one before has ended"


def test_when_the_jvm_dies_its_work_fails_and_a_restart_starts_another(lines: Lines) -> None:
    cluster = lines.cluster
    lines.append(100)
    connector = start(lines)
    lines.wait_committed()
    worker = lines.owner().name
    jvm = jvm_of(cluster, worker)
    assert jvm is not None
    os.kill(jvm, signal.SIGKILL)
    until(lambda: connector.status()["tasks"][0]["state"] == "FAILED", "the task to fail")
    assert "137" in connector.status()["tasks"][0]["trace"], "the exit code"
    lines.append(100)
    connector.restart(include_tasks=True)
    connector.wait("RUNNING", JAVA_S)
    lines.check_exactly_once()
    assert jvm_of(cluster, owner_of(cluster, lines.task).name) != jvm


def test_a_java_sink_takes_records_of_a_source_in_python(lines: Lines, tmp_path: Path) -> None:
    cluster, target, name = lines.cluster, tmp_path / "java.txt", f"{lines.name}-java"
    lines.append(300)
    lines.start()
    config = {"connector.class": FILE_SINK, "file": str(target), "topics": lines.topic}
    cluster.create(name, config).wait("RUNNING", JAVA_S)
    until(lambda: target.exists() and target.read_text().splitlines() == lines.expected, "the lines in the file")
    until(lambda: recorded(cluster, name, EventKind.OFFSETS_COMMITTED) == 300, "the commits in the history")
    assert events(cluster, EventKind.PARTITIONS_ASSIGNED, connector=name)
    assert cluster[name].topics() == [lines.topic]


def test_pause_resume_stop_and_new_offsets_reach_a_java_source(lines: Lines) -> None:
    lines.append(10)
    connector = start(lines)
    lines.wait_committed()
    connector.pause()
    connector.wait("PAUSED", WAIT_S)
    lines.append(10)
    connector.resume()
    connector.wait("RUNNING", WAIT_S)
    lines.check_exactly_once()
    connector.stop()
    connector.wait("STOPPED", WAIT_S)
    with pytest.raises(RestError, match="offset"):
        connector.offsets.alter([{"partition": {"filename": str(lines.path)}, "offset": {"position": "no number"}}])
    connector.offsets.reset()
    assert connector.offsets.get() == []
    lines.count *= 2  # it reads the file again
    connector.resume()
    lines.wait_committed()


def test_java_validates_configurations(cluster: cx.Cluster) -> None:
    config = {"name": "v", "connector.class": FILE_SOURCE, "topic": "t", "tasks.max": "no", "sasl.password": "hunter2"}
    found = cluster.validate({**config, "transaction.boundary": "connector"})
    problems = {one["value"]["name"]: one["value"]["errors"] for one in found["configs"] if one["value"]["errors"]}
    assert problems.keys() == {"tasks.max", "transaction.boundary"}


def test_a_paused_worker_freezes_its_jvm_and_a_zombie_changes_nothing(lines: Lines) -> None:
    cluster = lines.cluster
    lines.append(500)
    start(lines)
    lines.wait_committed()
    worker = lines.owner().name
    jvm = jvm_of(cluster, worker)
    assert jvm is not None
    cluster.pause(worker)
    until(lambda: psutil.Process(jvm).status() == psutil.STATUS_STOPPED, "the JVM to stand still")
    lines.append(500)
    until(lambda: owner_of(cluster, lines.task).name != worker, "another worker to take over")
    lines.wait_committed()
    cluster.resume(worker)
    cluster.wait_stable(WAIT_S)
    lines.append(500)
    lines.check_exactly_once()
