"""What is left when a cluster ends, however it ends: nothing. And clusters that share a process, a Kafka or a Spark."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import connectx as cx
from connectx.errors.clusters import ClusterClosedError, GroupInUseError
from connectx.errors.kafka import KafkaUnreachableError
from connectx.errors.plugins import ConfigError
from connectx.errors.rest import ListenerTakenError
from connectx.model.events import EventKind
from connectx.spark.sessions import SparkProvider
from tests.support.clusters import MakeCluster, events
from tests.support.flows import Lines
from tests.support.options import BROKER, WHOLE
from tests.support.profiles import QUICK
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectx.kafka.broker.embedded import EmbeddedKafka

MakeLines = Callable[..., Lines]

PROGRAM = """
import json, os, sys, threading
import connectx as cx

mode, folder = sys.argv[1:]
print("started", flush=True)
cluster = cx.Cluster(workers=2, config={"value.converter": "org.apache.kafka.connect.storage.StringConverter"})
lines, out = os.path.join(folder, "in.txt"), os.path.join(folder, "out.txt")
with open(lines, "w") as file:
    file.write("one\\ntwo\\n")
cluster.create("in", {"connector.class": "FileStreamSource", "file": lines, "topic": "t"})
cluster.create("out", {"connector.class": "FileStreamSink", "file": out, "topics": "t"})
with cluster.events.subscribe(since=0) as news:
    while not any(e.kind == "offsets_committed" and e.connector == "out" for e in news.get(1)):
        pass
if mode == "forget":
    sys.exit(0)
ports = [int(worker.url.rstrip("/").rpartition(":")[2]) for worker in cluster.workers]
ports += [int(cluster.bootstrap_servers.rpartition(":")[2]), cluster.kafka.gate.port]
cluster.close()
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(5)  # one of py4j looks once a second whether it is to end
threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
print(json.dumps({"threads": threads, "ports": ports}))
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """`run(mode)`: PROGRAM as a process whose temporary files have a folder of their own."""
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "tmp").mkdir()
    (tmp_path / "work").mkdir()

    def begin(mode: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, mode, str(tmp_path / "work")],
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=tmp_path / "work",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def no_threads_are_left(before: set[threading.Thread]) -> None:
    """Until the threads that began since have ended."""

    def left() -> list[str]:
        return sorted(thread.name for thread in set(threading.enumerate()) - before)

    try:
        until(lambda: not left(), "the end of all threads", 20)
    except AssertionError:
        assert left() == []


def left_behind(folder: Path) -> list[str]:
    """Temporary files, but for Java's, and the lock that all clusters of a user share."""
    found = (path for path in (folder / "tmp").glob("**/*") if "hsperfdata" not in str(path))
    return sorted(str(path) for path in found if path.name not in (".lock", f"connectx-{os.getuid()}"))


def check_nothing_is_left(children: list[psutil.Process], folder: Path) -> None:
    _, alive = psutil.wait_procs(children, timeout=20)
    assert [child.cmdline()[:3] for child in alive] == []
    assert left_behind(folder) == []


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def has_ended(process: subprocess.Popen[str], timeout_s: float) -> bool:
    """Whether the process has ended, after at most `timeout_s` seconds."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def children_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return list(psutil.Process(process.pid).children(recursive=True))


@WHOLE
def test_a_closed_cluster_leaves_no_process_thread_port_or_file(
    run: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = run("close")
    children: dict[int, psutil.Process] = {}
    while not has_ended(process, 0.2):
        children |= {child.pid: child for child in children_of(process)}
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    left = json.loads(out.splitlines()[-1])
    assert left["threads"] == []
    assert [port for port in left["ports"] if is_listening(port)] == []
    assert len(left["ports"]) == 4
    assert children, "there was a broker"
    check_nothing_is_left(list(children.values()), tmp_path)
    assert (tmp_path / "work" / "out.txt").read_text() == "one\ntwo\n"
    assert err == "", "nothing prints"


@WHOLE
def test_a_cluster_that_was_not_closed_ends_with_its_interpreter(
    run: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = run("forget")
    children: dict[int, psutil.Process] = {}
    while not has_ended(process, 0.2):
        children |= {child.pid: child for child in children_of(process)}
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    assert err == ""
    check_nothing_is_left(list(children.values()), tmp_path)


@WHOLE
@pytest.mark.parametrize("moment", ["at once", "broker", "workers"])
def test_ctrl_c_during_the_start_leaves_nothing(
    run: Callable[[str], subprocess.Popen[str]], tmp_path: Path, moment: str
) -> None:
    process = run("interrupted")
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    children: list[psutil.Process] = []
    if moment != "at once":
        children = until(lambda: brokers(children_of(process)), "the broker's process")
    if moment == "workers":
        until(lambda: [c for c in psutil.Process(process.pid).net_connections() if c.status == "LISTEN"], "a listener")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in err.splitlines()[-1]
    check_nothing_is_left(children, tmp_path)


def brokers(processes: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in processes:
        try:
            if "kafka.Kafka" in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


@BROKER
def test_an_exception_in_the_with_block_closes_the_cluster(spark: SparkSession) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError), cx.Cluster(config=QUICK) as cluster:
        raise ZeroDivisionError
    assert cluster.kafka is not None
    assert not cluster.kafka.alive
    assert [worker.state for worker in cluster.workers] == ["stopped"]
    assert events(cluster, EventKind.CLUSTER_STOPPED)
    no_threads_are_left(before)
    cluster.close()
    assert len(events(cluster, EventKind.CLUSTER_STOPPED)) == 1
    assert "closed" in repr(cluster)
    assert "closed" in cluster._repr_html_()
    for verb in (cluster.add_worker, lambda: cluster.status("x"), lambda: cluster.connectors):
        with pytest.raises(ClusterClosedError):
            verb()


def test_a_cluster_closes_with_paused_stalled_and_killed_workers(
    make_cluster: MakeCluster, make_lines: MakeLines
) -> None:
    before = set(threading.enumerate())
    with make_cluster(workers=4, config=QUICK) as cluster:
        flows = [make_lines(cluster) for _ in range(4)]
        for lines in flows:
            lines.start()
            lines.append(10)
        for lines in flows:
            lines.wait_committed()
        cluster.pause("worker-1")
        cluster.stall("worker-2")
        cluster.kill("worker-3")
    assert [worker.state for worker in cluster.workers] == ["stopped", "stopped", "killed", "stopped"]
    no_threads_are_left(before)


@BROKER
def test_closing_ends_a_newcomer_that_waits_for_a_dead_broker_and_does_not_wait_with_it(spark: SparkSession) -> None:
    with cx.Cluster(workers=1, config=QUICK, spark=spark) as group:
        group.kill_broker()
        group.kill("worker-1")
        coming = group.after(0).add_worker()
        until(lambda: len(group.workers) == 2, "the newcomer")
        newcomer = group.workers["worker-2"]
        assert newcomer.state == "starting"
    assert newcomer.state == "stopped", "it was not waited for until it had failed"
    assert coming.state == "failed"
    assert not events(group, EventKind.WORKER_FAILED)


def test_two_clusters_in_one_process_do_not_disturb_each_other(
    cluster: cx.Cluster, make_cluster: MakeCluster, make_lines: MakeLines
) -> None:
    with make_cluster(workers=2, config=QUICK) as other:
        mine, others = make_lines(cluster), make_lines(other)
        for lines in (mine, others):
            lines.start()
            lines.append(50)
        other.kill(others.owner().name)
        for lines in (mine, others):
            lines.append(50)
            lines.check_exactly_once()
        assert [connector.name for connector in other.connectors] == [others.name]
        assert all(worker.state == "running" for worker in cluster.workers)
    mine.append(50)
    mine.check_exactly_once()


@BROKER
def test_open_clusters_are_listed_and_a_second_one_of_the_same_group_gives_a_warning(
    cluster: cx.Cluster, make_lines: MakeLines, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match=r"cx\.close_all") as caught:
        other = cx.Cluster(config={**QUICK, "group.id": cluster.config.group_id})
    with other:
        assert [warning.filename for warning in caught if warning.category is UserWarning] == [__file__]
        assert cx.clusters()[-1] is other
        assert any(one is cluster for one in cx.clusters())
        lines = make_lines(other)
        lines.start()
        letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": f"{lines.name}-letters"}
        sink = {"connector.class": "FileStreamSink", "file": str(tmp_path / "out.txt"), "topics": lines.topic}
        other.create("out", {**sink, **letters}).wait("RUNNING", WAIT_S)  # its queue has one replica
    assert all(one is not other for one in cx.clusters())


@pytest.fixture
def own(kafka: EmbeddedKafka, numbers: Iterator[int]) -> dict[str, Any]:
    """Arguments of a cluster on a Kafka that is not its own; the broker has one node."""
    topics = {f"{storage}.storage.replication.factor": "1" for storage in ("config", "offset", "status")}
    config = {"group.id": f"own{next(numbers)}", "offset.storage.partitions": "2", **topics}
    strings = {key: QUICK[key] for key in ("value.converter",)}
    return {"bootstrap_servers": kafka.bootstrap_servers, "config": {**config, **strings}}


def test_a_cluster_on_your_kafka_has_kafka_connects_defaults_and_leaves_your_kafka_alone(
    kafka: EmbeddedKafka, own: dict[str, Any], spark_provider: SparkProvider, make_lines: MakeLines
) -> None:
    with cx.Cluster(workers=2, **own) as cluster:
        assert cluster.kafka is None
        assert cluster.config.session_timeout_ms == 10_000
        assert cluster.config.scheduled_rebalance_max_delay_ms == 300_000
        assert not cluster.config.exactly_once_source_enabled
        lines = make_lines(cluster)
        lines.start()
        lines.append(100)
        lines.wait_committed()
        assert cluster.workers[0].stop()
        assert "embedded" not in repr(cluster)
    assert kafka.alive
    with cx.Cluster(workers=1, **own) as cluster:  # no member of the closed one is in the way
        assert [connector.name for connector in cluster.connectors] == [lines.name]
        cluster[lines.name].wait("RUNNING", WAIT_S)
        lines.append(100)
        until(lambda: set(lines.committed.values()) == set(lines.expected), "all lines")
        cluster[lines.name].delete()


def test_a_second_cluster_with_the_same_group_is_refused_unless_it_is_to_join(
    own: dict[str, Any], spark_provider: SparkProvider
) -> None:
    with cx.Cluster(workers=1, **own) as first:
        with pytest.raises(GroupInUseError, match=r"1 member\(s\) of protocol type 'connect'") as caught:
            cx.Cluster(workers=1, **own)
        assert "group.id" in caught.value.next_step
        assert "join=True" in caught.value.next_step
        first.wait_stable(WAIT_S)
        assert first.generation == 1, "the first cluster has not noticed"
        with cx.Cluster(workers=1, join=True, **own) as second:
            until(lambda: second.generation == first.generation == 2, "one group of both")
            leaders = [worker.is_leader for group in (first, second) for worker in group.workers]
            assert sorted(leaders) == [False, True]
        until(lambda: first.generation == 3, "the second one's leave")


def test_your_spark_session_is_used_and_left_running(own: dict[str, Any], spark: SparkSession) -> None:
    with cx.Cluster(workers=1, spark=spark, **own) as cluster:
        assert cluster.spark is spark
        assert f"spark {spark.version}" in repr(cluster)
    assert spark.range(3).count() == 3


def test_a_port_of_listeners_that_is_taken_is_told_and_nothing_is_left(
    own: dict[str, Any], spark: SparkSession
) -> None:
    before = set(threading.enumerate())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        own["config"]["listeners"] = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ListenerTakenError, match="listeners") as caught:
            cx.Cluster(workers=2, **own)
    assert "port 0" in caught.value.next_step
    no_threads_are_left(before)


def test_a_kafka_that_does_not_answer_is_told_and_nothing_is_left(own: dict[str, Any], spark: SparkSession) -> None:
    before = set(threading.enumerate())
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        own["bootstrap_servers"] = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(KafkaUnreachableError, match="bootstrap"):
            cx.Cluster(workers=2, **own)
    no_threads_are_left(before)


def test_all_problems_of_worker_settings_are_told_at_once_before_anything_starts() -> None:
    bad = {"session.timeout.ms": "soon", "exactly.once.source.support": "maybe", "connect.protocol": "newest"}
    with pytest.raises(ConfigError) as caught:
        cx.Cluster(workers=1, config=bad)
    for key in bad:
        assert any(key in problem for problem in caught.value.problems), key


NO_SPARK = """
import sys
import connectx as cx

class Numbers(cx.SourceConnector):
    config = cx.ConfigDef()

    class Task(cx.SourceTask):
        def poll(self, spark, offset):
            return cx.Slice(spark.range(3).selectExpr("string(id) AS value"), {"n": 3}, topic="n")

folder, bootstrap_servers, group = sys.argv[1:]
one = {f"{storage}.storage.replication.factor": "1" for storage in ("config", "offset", "status")}
strings = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
with cx.Cluster(bootstrap_servers=bootstrap_servers, config={"group.id": group, **one, **strings}) as cluster:
    with open(f"{folder}/in.txt", "w") as file:
        file.write("one\\n")
    cluster.create("lines", {"connector.class": "FileStreamSource", "file": f"{folder}/in.txt", "topic": f"{group}-t"})
    cluster.create("numbers", {"connector.class": Numbers}).wait("FAILED", 60)
    print(cluster["numbers"].tasks[0].trace.splitlines()[0])
    cluster.wait("lines", "RUNNING", 60)
    print(cluster["lines"].state, len(repr(cluster)) > 0)
"""


@WHOLE
def test_without_spark_only_what_needs_it_fails(kafka: EmbeddedKafka, own: dict[str, Any], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_SPARK, str(tmp_path), kafka.bootstrap_servers, own["config"]["group.id"]],
        env={**os.environ, "JAVA_TOOL_OPTIONS": "-Xms1000g", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    failure, state = done.stdout.splitlines()
    assert "Spark" in failure
    assert "Java" in failure or "driver" in failure
    assert state == "RUNNING True"
