"""Executors as processes that have none of this process's code, and ways to stop and kill them.

Run as a program with a folder, it moves records through them and prints what it found as one JSON line: a process can
have one Spark driver, which the session's tests share.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.sql import SparkSession

import connectx as cx
from connectx.model.events import EventKind
from connectx.model.worker_config import EMBEDDED_PROFILE
from connectx.spark.executors import executor_cores
from tests.support import held_jobs
from tests.support.databases import Table, postgres_server
from tests.support.held_jobs import held, holding
from tests.support.profiles import JSON
from tests.support.records import Reader, read_all
from tests.support.topics import create_topic
from tests.support.waiting import WAIT_S, until

MASTER = "local-cluster[2,1,1024]"
ROWS = 10_000

# What a user has beside a notebook. Rows have where the executor that read them has its code from, and the second slice
# where it was transformed: before it, topics are not known, so the worker does that.
MODULE = """
import connectx as cx
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


class WhereItRan(cx.Transform):
    def apply(self, table):
        value = table["value"].combine_chunks()
        ran = pa.array([__file__] * len(value))
        columns = [*value.flatten(), ran]
        made = pa.StructArray.from_arrays(columns, [*(field.name for field in value.type), "ran"])
        return table.set_column(table.column_names.index("value"), "value", made)


class Numbers(DataSource):
    def schema(self):
        return "id INT, connectx STRING, module STRING"

    def streamReader(self, schema):
        return Reader()


class Reader(DataSourceStreamReader):
    latest = 0

    def initialOffset(self):
        return {"id": 0}

    def latestOffset(self):
        self.latest = min(20, self.latest + 10)
        return {"id": self.latest}

    def partitions(self, start, end):
        middle = (start["id"] + end["id"]) // 2
        return [InputPartition((start["id"], middle)), InputPartition((middle, end["id"]))]

    def read(self, partition):
        return ((number, cx.__file__, __file__) for number in range(*partition.value))
"""

# Python imports it at its start: a firewall of executors, whose file lists the ports that are closed.
FIREWALL = """
import pathlib
import socket

CLOSED = pathlib.Path(__file__).with_name("closed_ports")


def guarded(connect):
    def guard(self, address):
        if isinstance(address, tuple) and CLOSED.exists() and str(address[1]) in CLOSED.read_text().split():
            raise ConnectionRefusedError(111, "Connection refused")
        return connect(self, address)

    return guard


for name in ("connect", "connect_ex"):
    setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
"""


@contextmanager
def held_while_sending(bootstrap_servers: str, topic: str, partitions: int = 1) -> Iterator[None]:
    """Wait until a job has sent some of its records; it cannot continue until the end, for want of a second replica."""
    reader = Reader(bootstrap_servers, topic, partitions, "read_uncommitted")
    until(reader.poll, "records of a job")
    set_least_replicas(bootstrap_servers, topic, 2)
    try:
        yield
    finally:
        set_least_replicas(bootstrap_servers, topic, 1)
        reader.close()


def set_least_replicas(bootstrap_servers: str, topic: str, count: int) -> None:
    entry = ConfigEntry("min.insync.replicas", str(count), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


def python_of_executors() -> list[psutil.Process]:
    """The Python processes in which Spark's tasks run."""
    return _children(lambda process, command: "pyspark.daemon" in command and not process.children())


def _children(wanted: Callable[[psutil.Process, str], bool]) -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if wanted(process, " ".join(process.cmdline())):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def bare_python(folder: Path) -> Path:
    """A Python with the packages of this one, but without connectx, which is installed here as a link to its source."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    Path(packages, "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def _where_code_was_read(cluster: cx.Cluster, name: str, mode: str) -> dict[str, list[str]]:
    """Files from which the code of the second slice was read, by what it is."""
    topic = create_topic(cluster.bootstrap_servers, name)
    source = {"connector.class": "DataSourceSource", "datasource.class": "usercode.Numbers", "topic": topic}
    where = {"transforms": "where", "transforms.where.type": "usercode.WhereItRan"}
    cluster.create(name, {**source, **where, **JSON, "bulk.mode": mode})
    cluster.wait_committed(name, 20, timeout=WAIT_S)
    values = [json.loads(message.value()) for message in read_all(cluster.bootstrap_servers, topic)]
    assert [value["id"] for value in values] == list(range(20))
    cluster[name].delete()
    return {part: sorted({value[part] for value in values[10:]}) for part in ("connectx", "module", "ran")}


def _killed(cluster: cx.Cluster, folder: Path) -> Mapping[str, Any]:
    """A file read by executors, of which one is killed while all of them send."""
    path = folder / "in.csv"
    path.write_text("".join(f"{number},{'x' * (number % 90)}\n" for number in range(ROWS)))
    topic = create_topic(cluster.bootstrap_servers, "killed", 2)
    source = {"connector.class": "FileSource", "file": str(path), "topic": topic, "schema": "id INT, pad STRING"}
    cluster.create("killed", {**source, **JSON, "bulk.mode": "always", "producer.override.batch.size": "500"})
    with held_while_sending(cluster.bootstrap_servers, topic, 2):
        committed = len(cluster.events.find(EventKind.TRANSACTION_COMMITTED, connector="killed"))
        cluster.kill_executor()
    cluster.wait_committed("killed", ROWS, timeout=WAIT_S)
    verdict = cluster.check(timeout=WAIT_S)
    values = [json.loads(message.value())["id"] for message in read_all(cluster.bootstrap_servers, topic)]
    return {
        "exact": sorted(values) == list(range(ROWS)),
        "answer": verdict.answer,
        "harm": [verdict.lost, verdict.duplicated, verdict.reordered],
        "committed_before": committed,
    }


def _without_a_route(cluster: cx.Cluster, folder: Path) -> Mapping[str, Any]:
    """Files read by executors that cannot connect to Kafka, with and without transactions."""
    path = folder / "many.csv"
    path.write_text("".join(f"{number},{'x' * (number % 90)}\n" for number in range(ROWS)))
    closed = folder / "firewall" / "closed_ports"
    closed.write_text("\n".join(server.rpartition(":")[2] for server in cluster.bootstrap_servers.split(",")))
    topic = create_topic(cluster.bootstrap_servers, "remote", 2)
    source = {"connector.class": "FileSource", "file": str(path), "topic": topic, "schema": "id INT, pad STRING"}
    cluster.create("remote", {**source, **JSON, "bulk.mode": "always"})
    cluster.wait_committed("remote", ROWS, timeout=WAIT_S)
    closed.unlink()
    verdict = cluster.check(timeout=WAIT_S)
    by_partition: dict[int, list[int]] = {0: [], 1: []}
    for message in read_all(cluster.bootstrap_servers, topic):
        by_partition[message.partition()].append(json.loads(message.value())["id"])
    return {
        "exact": sorted([*by_partition[0], *by_partition[1]]) == list(range(ROWS)),
        "in_order": all(ids == sorted(ids) for ids in by_partition.values()),
        "answer": verdict.answer,
        "harm": [verdict.lost, verdict.duplicated, verdict.reordered],
        "reasons": [
            event.data["reason"] for event in cluster.events.find(EventKind.BULK_SENT_BY_WORKER, connector="remote")
        ],
        "failed": len(cluster.events.find(EventKind.BULK_FAILED, connector="remote")),
    }


def _killed_in_a_sink(cluster: cx.Cluster, folder: Path) -> Mapping[str, Any]:
    """A topic written to PostgreSQL by executors, of which one is killed while both have copied half of their rows."""
    topic = create_topic(cluster.bootstrap_servers, "sunk", 2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.num.messages": 500})
    for number in range(ROWS):
        producer.produce(topic, json.dumps({"id": number}), partition=number % 2)
    producer.flush(30)
    with postgres_server() as uri:
        table = Table(uri, topic)
        more = {"consumer.override.max.partition.fetch.bytes": "20000", "idle.in.transaction.session.timeout.ms": "0"}
        more |= held(folder, after=ROWS // 4) | {"transforms.hold.type": "held_jobs.Hold"}
        cluster.create("sunk", table.config(bulk_mode="always") | more)
        until(lambda: len(holding(folder)) == 2, "jobs of both executors")
        before = table.ids()
        cluster.kill_executor()
        (folder / "go").touch()
        until(lambda: len(table.ids()) >= ROWS, "all rows")
        cluster["sunk"].delete()
        jobs = cluster.events.find(EventKind.BULK_STAGED, connector="sunk")
        return {
            "before": before,
            "exact": table.ids() == list(range(ROWS)),
            "staged": sum(event.data["records"] for event in jobs),
            "failed": len(cluster.events.find(EventKind.BULK_FAILED, connector="sunk")),
            "left": table.sql("SELECT relname::text FROM pg_class WHERE starts_with(relname, 'connectx_stage')"),
        }


def main(folder: Path) -> None:
    """Move records with a classic session, and with one of Spark Connect on the same driver."""
    (folder / "usercode.py").write_text(MODULE)
    (folder / "held_jobs.py").write_text(Path(held_jobs.__file__).read_text())
    sys.path.insert(0, str(folder))
    python = bare_python(folder / "bare")
    without = subprocess.run([python, "-c", "import connectx"], cwd=folder, env={}, check=False, capture_output=True)
    firewall = folder / "firewall"
    firewall.mkdir()
    (firewall / "sitecustomize.py").write_text(FIREWALL)
    of_executors = {"spark.pyspark.python": str(python), "spark.executorEnv.PYTHONPATH": str(firewall)}
    settings = {"spark.master": MASTER, **of_executors}
    found: dict[str, Any] = {"bare": without.returncode != 0}
    with cx.Cluster(workers=1, spark=settings, faults=False) as classic:
        until(lambda: executor_cores(SparkSession.builder.getOrCreate()) == 2, "both executors")
        found["remote"] = _without_a_route(classic, folder)
        found["killed"] = _killed(classic, folder)
        found["sunk"] = _killed_in_a_sink(classic, folder)
        found["classic"] = {mode: _where_code_was_read(classic, f"c-{mode}", mode) for mode in ("never", "always")}
        config, servers = {**EMBEDDED_PROFILE, "group.id": "other"}, classic.bootstrap_servers
        with cx.Cluster(config=config, bootstrap_servers=servers, spark=settings, isolation="process") as remote:
            found["connect"] = {"always": _where_code_was_read(remote, "r-always", "always")}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
