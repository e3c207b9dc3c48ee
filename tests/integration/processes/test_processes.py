"""Workers in processes of their own: really killed, really stopped, and nothing is lost, repeated or left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import adbc_driver_postgresql.dbapi as postgresql
import psutil
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

import connectx as cx
from connectx.errors.plugins import ClassNotImportableError
from connectx.errors.spark import SparkNotSharedError
from connectx.model.events import EventKind
from connectx.recording.file import read_recordings
from connectx.recording.replay import first_difference
from connectx.spark.remote import release_sessions
from tests.support.clusters import events, owner_of, restore
from tests.support.flows import Lines
from tests.support.held_jobs import held, holding
from tests.support.profiles import JSON
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectx.api.workers import Worker
    from connectx.spark.sessions import SparkProvider

MakeLines = Callable[..., Lines]
PEOPLE = {"connector.class": "FileSource", "format": "csv", "header": "true", "schema": "id BIGINT, name STRING",
          "slice.bytes": "4096", **JSON}  # fmt: skip


@pytest.fixture(autouse=True)
def three_workers(processes: cx.Cluster) -> Iterator[None]:
    """Before each test, three workers that run and agree, and nothing left to do."""
    restore(processes)
    yield
    orphans = [worker for worker in processes.workers if worker.state in ("killed", "failed", "stopped")]
    assert [worker.name for worker in orphans if psutil.pid_exists(pid_of(worker))] == []


def pid_of(worker: Worker) -> int:
    """Process id of a worker: what an operator sees, and no part of the public face."""
    live: Any = worker._handle
    return int(live.pid)


def was_removed_from(cluster: cx.Cluster, worker: str, since: int, groups: Sequence[str]) -> bool:
    removed = events(cluster, EventKind.MEMBER_REMOVED, since, worker=worker)
    return {event.data["group"] for event in removed}.issuperset(groups)


def has_rows(uri: str, count: int) -> bool:
    return len(rows(uri, "people_in_processes")) > count


def people(path: Path, first: int, until_: int) -> None:
    with path.open("a") as file:
        if first == 0:
            file.write("id,name\n")
        file.writelines(f"{number},name {number}\n" for number in range(first, until_))


def rows(uri: str, table: str) -> list[int]:
    with postgresql.connect(uri) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT id FROM {table} ORDER BY id")
        return [row[0] for row in cursor.fetchall()]


def test_rows_through_spark_connect_arrive_once_though_source_and_sink_are_killed(
    processes: cx.Cluster, postgres: str, tmp_path: Path
) -> None:
    path, topic = tmp_path / "people.csv", "people-in-processes"
    with postgresql.connect(postgres) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE people_in_processes (id BIGINT, name TEXT)")
        connection.commit()
    people(path, 0, 4000)
    processes.create("people", {**PEOPLE, "file": str(path), "topic": topic})
    sink = {"connector.class": "PostgresSink", "topics": topic, "connection.url": postgres, **JSON,
            "table.name.format": "people_in_processes", "insert.mode": "insert"}  # fmt: skip
    processes.create("people-out", sink)
    until(lambda: len(rows(postgres, "people_in_processes")) > 500, "the first rows")
    for number, task in enumerate(("people-0", "people-out-0")):
        # Rows that the owners of now have moved: the sink's consumer is a member of its group.
        until(partial(has_rows, postgres, 4000 * number), "rows")
        since, victim = processes.events.last_seq, owner_of(processes, task)
        victim.kill()
        assert victim.state == "killed"
        assert not psutil.pid_exists(pid_of(victim))
        people(path, 4000 + 1000 * number, 5000 + 1000 * number)
        assert owner_of(processes, task).name != victim.name
        wanted = ("connectx", "connect-people-out")[: number + 1]
        until(
            partial(was_removed_from, processes, victim.name, since, wanted),
            "goodbyes to its groups",
        )
    until(lambda: len(rows(postgres, "people_in_processes")) >= 6000, "all rows")
    assert rows(postgres, "people_in_processes") == list(range(6000))
    assert processes.spark.sparkContext.statusTracker().getActiveJobsIds() == []


def test_the_job_of_a_sink_whose_process_is_killed_is_discarded_and_its_records_are_written_once(
    processes: cx.Cluster, tmp_path: Path
) -> None:
    topic, table = "rows-held-by-executors", tmp_path / "lake" / "rows-held-by-executors"
    producer = Producer({"bootstrap.servers": processes.bootstrap_servers})

    def produce(first: int, end: int) -> None:
        for number in range(first, end):
            producer.produce(topic, json.dumps({"id": number}), partition=0)
        producer.flush(WAIT_S)

    def ids() -> list[int]:
        if not (table / "_delta_log").exists():
            return []
        return sorted(DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist())

    table.parent.mkdir()
    create_topic(processes.bootstrap_servers, topic, 1)
    produce(0, 1)
    sink = {"connector.class": "DeltaSink", "topics": topic, "path": str(table.parent), "flush.interval.ms": "200",
            "bulk.mode": "always", **JSON}  # fmt: skip
    processes.create("held", sink | held(tmp_path, after=1))
    processes.wait_committed("held", 1, timeout=WAIT_S)
    produce(1, 500)
    until(lambda: holding(tmp_path), "a job on executors")
    victim = owner_of(processes, "held-0")
    assert [event.worker for event in events(processes, EventKind.BULK_STARTED, connector="held")][-1] == victim.name
    victim.kill()
    assert owner_of(processes, "held-0").name != victim.name
    assert ids() == [0]
    (tmp_path / "go").touch()
    until(lambda: len(ids()) >= 500, "all rows")
    assert ids() == list(range(500))
    processes["held"].delete()
    until(lambda: not processes.spark.sparkContext.statusTracker().getActiveJobsIds(), "the end of all jobs")


ASLEEP = """
import sys
from connectx.spark.remote import RemoteSpark
spark = RemoteSpark(lambda session_id: print(session_id, flush=True))
spark.connect(sys.stdin.readline().strip())
spark.task_session().sql("SELECT java_method('java.lang.Thread', 'sleep', 600000L + id) FROM range(1)").toArrow()
"""


def test_a_job_that_a_killed_client_left_behind_is_ended(processes: cx.Cluster) -> None:
    tracker, url = processes.spark.sparkContext.statusTracker(), processes._spark.connect_url.result()
    with subprocess.Popen(
        [sys.executable, "-c", ASLEEP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(url + "\n")
        client.stdin.flush()
        session_id = client.stdout.readline().strip()
        until(tracker.getActiveJobsIds, "the job")
        client.kill()
    assert tracker.getActiveJobsIds() != [], "the server does not miss its client"
    release_sessions(url, [session_id])
    until(lambda: not tracker.getActiveJobsIds(), "the end of the job")


RELEASED = """
import sys
from connectx.spark.remote import RemoteSpark, with_params
from connectx.spark.slices import TaskSpark
from pyspark.sql import SparkSession
url, told, released = sys.stdin.readline().strip(), [], []
spark = RemoteSpark(told.append, released.append)
spark.connect(url)
one, other = TaskSpark(spark, {}), TaskSpark(spark, {})
print(one.session().range(3).count(), other.session().range(3).count())
one.release()
one.release()
print(released == told[:1], one.used, other.session().range(4).count())
try:
    SparkSession.builder.remote(with_params(url, session_id=told[0])).create().range(1).count()
except Exception as error:
    print("SESSION_CLOSED" in str(error))
gone = RemoteSpark(told.append, released.append)
gone.connect("sc://127.0.0.1:1")
gone.release(gone.task_session())
print(len(told), len(released))
other.release()
"""


def test_a_task_that_ends_takes_its_session_with_it_and_no_other(processes: cx.Cluster) -> None:
    url = processes._spark.connect_url.result()
    done = subprocess.run(
        [sys.executable, "-c", RELEASED], input=url + "\n", capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == ["3 3", "True False 4", "True", "3 1", ""], done.stderr


def test_the_history_of_a_killed_process_ends_with_the_kill(processes: cx.Cluster, make_lines: MakeLines) -> None:
    lines = make_lines(processes)
    lines.start()
    lines.append(100)
    lines.wait_committed()
    victim = lines.owner()
    since = processes.events.last_seq
    victim.kill()
    recorded = [event for event in processes.events.since(since) if event.worker == victim.name]
    kill = next(number for number, event in enumerate(recorded) if event.kind is EventKind.FAULT_INJECTED)
    assert recorded[kill].data["tasks"] == [lines.task]
    ended = [event for event in recorded[kill + 1 :] if event.kind is EventKind.TASK_ENDED]
    assert [(event.connector, event.task) for event in ended] == [(lines.name, 0)]
    lines.append(100)
    lines.check_exactly_once()
    late = [event for event in processes.events.since(since) if event.worker == victim.name][kill + 1 :]
    assert {event.kind for event in late} <= {EventKind.TASK_ENDED, EventKind.MEMBER_REMOVED}


def test_work_of_a_killed_worker_is_shown_as_lost_until_another_has_it(
    processes: cx.Cluster, make_lines: MakeLines
) -> None:
    lines = make_lines(processes)
    connector = lines.start()
    victim = lines.owner()
    others = [worker for worker in processes.workers if worker.state == "running" and worker.name != victim.name]
    for worker in others:
        worker.pause()  # nobody can take over, and nobody answers REST
    victim.kill()
    lost = victim.lost
    assert lost is not None
    assert [str(task) for task in lost.tasks] == [lines.task]
    assert f"{lines.task} (lost)" in repr(processes.workers)
    recorded = processes.workers.lost_on(urlsplit(victim.url).netloc)
    assert recorded is not None
    assert f"{victim.name} was killed " in recorded
    assert "no worker is left to take over" in recorded
    for worker in others:
        worker.resume()
    connector.wait("RUNNING", WAIT_S)
    assert connector.tasks[0].worker != victim.name
    assert "lost" not in str(connector.status())
    until(lambda: victim.lost is None, "the end of the loss")


def test_a_process_that_was_stopped_by_the_system_wakes_up_as_a_zombie_and_is_fenced(
    processes: cx.Cluster, make_lines: MakeLines
) -> None:
    lines = make_lines(processes, partitions=2)
    lines.start(transaction_boundary="interval", transaction_boundary_interval_ms="3600000")
    lines.append(50)
    lines.wait_written(50)
    zombie = lines.owner()
    since = processes.events.last_seq
    zombie.pause()
    until(lambda: psutil.Process(pid_of(zombie)).status() == psutil.STATUS_STOPPED, "the stop, which is not at once")
    assert lines.owner().name != zombie.name
    zombie.resume()
    wanted = {"worker": zombie.name, "connector": lines.name}
    until(lambda: events(processes, EventKind.PRODUCER_FENCED, since, **wanted), "the zombie's fencing")
    until(lambda: events(processes, EventKind.TASK_ENDED, since, **wanted), "the zombie's end")
    processes.wait_stable(WAIT_S)
    processes[lines.name].config.update({"transaction.boundary": "poll"})
    lines.append(50)
    lines.check_exactly_once()


def test_a_stopped_process_hands_over_and_one_that_died_by_itself_is_told_and_replaced(
    processes: cx.Cluster, make_lines: MakeLines
) -> None:
    lines = make_lines(processes)
    lines.start()
    lines.append(50)
    lines.wait_committed()
    since, owner = processes.events.last_seq, lines.owner()
    assert owner.stop(), "nothing is left behind"
    assert owner.state == "stopped"
    lines.append(50)
    lines.wait_committed()
    assert not events(processes, EventKind.MEMBER_REMOVED, since), "it said goodbye itself"
    victim = lines.owner()
    os.kill(pid_of(victim), signal.SIGKILL)
    until(lambda: victim.state == "failed", "the end of the process")
    assert "exit code 137" in (victim.error or "")
    lines.append(50)
    lines.check_exactly_once()
    assert lines.owner().name not in (owner.name, victim.name)


def test_a_class_that_only_this_process_has_is_refused(processes: cx.Cluster) -> None:
    class Mine(cx.SourceConnector):
        """Local to a function, as one of a notebook is to the notebook."""

    with pytest.raises(ClassNotImportableError, match="module file"):
        processes.create("mine", {"connector.class": Mine, "topic": "t"})


def test_a_classic_session_of_the_user_cannot_be_shared(spark: SparkSession) -> None:
    with pytest.raises(SparkNotSharedError):
        cx.Cluster(workers=1, isolation="process", spark=spark)


OWNER = """
import psutil, signal, time, connectx as cx
cluster = cx.Cluster(workers=2, isolation="process")
cluster.spark
cluster.pause("worker-2")
print(*[child.pid for child in psutil.Process().children(recursive=True)], flush=True)
time.sleep(600)
"""


def test_everything_ends_with_an_owner_that_is_killed_frozen_workers_too(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as owner:
        assert owner.stdout is not None
        children = [psutil.Process(int(pid)) for pid in owner.stdout.readline().split()]
        assert sum("connectx.runtime.process.child" in " ".join(child.cmdline()) for child in children) >= 2
        owner.send_signal(signal.SIGKILL)
    assert psutil.wait_procs(children, timeout=30)[1] == []


ON_CONNECT = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import connectx as cx
url, folder = sys.stdin.readline().strip(), Path(sys.argv[1])
source, out = folder / "in.csv", folder / "out.txt"
source.write_text("id,name\\n" + "".join(f"{n},name {n}\\n" for n in range(500)))
json = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false"}
text = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
spark = SparkSession.builder.remote(url).create()
with cx.Cluster(workers=2, spark=spark) as cluster:
    cluster.create("in", {"connector.class": "FileSource", "file": str(source), "topic": "t", "format": "csv",
                          "header": "true", "schema": "id BIGINT, name STRING", **json})
    cluster.create("out", {"connector.class": "FileStreamSink", "file": str(out), "topics": "t", **text})
    cluster.wait("in", timeout=90)
    while not out.exists() or len(out.read_text().splitlines()) < 500:
        assert all(task.state != "FAILED" for name in ("in", "out") for task in cluster[name].tasks), cluster["in"]
        cluster.events.subscribe().get(0.2)
print(len(set(out.read_text().splitlines())), spark.range(2).count())
"""


def test_threads_use_a_spark_connect_session_of_the_user(processes: cx.Cluster, tmp_path: Path) -> None:
    provider: SparkProvider = processes._spark
    command = [sys.executable, "-c", ON_CONNECT, str(tmp_path)]
    given = provider.connect_url.result() + "\n"
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=150, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "500 2\n"


def test_cores_of_processes_are_checked_and_their_recordings_replay_without_a_difference(
    processes: cx.Cluster, tmp_path: Path
) -> None:
    running = [worker for worker in processes.workers if worker.state == "running"]
    recordings = read_recordings(processes.record(tmp_path / "cores.jsonl"))
    assert [one.name for one in recordings if one.kind == "worker"] == [worker.name for worker in running]
    assert [first_difference(recording) for recording in recordings] == [None] * len(recordings)
    assert [broken for worker in running for broken in worker.check()] == []
