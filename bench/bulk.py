"""CPU time per record of the two lanes: in the worker, in Spark's JVMs, and in the Python of its executors.

The bulk lane is measured on three masters with two cores each: threads of the driver, processes of a local cluster, and
a standalone cluster of a master and two workers. A worker uses some CPU time also without work. That is measured
separately, because a slow run has more of it per record.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil

import connectx as cx
from bench.flows import JSON, create_topic
from connectx.demo.standalone import SparkStandalone
from connectx.model.events import EventKind

PARTITIONS = 4
STANDALONE = "spark://"
IDLE_S = 10.0
MASTERS = ("local[2]", "local-cluster[2,1,1024]", STANDALONE)
EXECUTOR_CORES = (4, 16, 64)
_EVENT_S = 5.0
_LIMIT_S = 600.0
_COMMITS = (EventKind.TRANSACTION_COMMITTED, EventKind.OFFSETS_COMMITTED)
_JOB_ENDS = (EventKind.TRANSACTION_COMMITTED, EventKind.BULK_STAGED)
SCHEMA = "id INT, name STRING, amount DOUBLE, at TIMESTAMP, city STRING"


def rows_file(folder: Path, count: int) -> Path:
    """CSV lines of five columns, about 60 bytes each."""
    path = folder / f"rows-{count}.csv"
    with path.open("w") as out:
        out.writelines(
            f"{number},name {number},{number / 4},2020-01-01T00:00:{number % 60:02d}Z,city {number % 100}\n"
            for number in range(count)
        )
    return path


class CpuTimes:
    """CPU seconds used since it was made, by part. Python processes of executors that ended count as their daemon's."""

    def __init__(self) -> None:
        self._before = {**_of_spark(), "worker": _seconds(psutil.Process())}  # last: to find the others costs time

    def us_per_record(self, count: int) -> dict[str, float]:
        """Microseconds per record of each part."""
        after = {"worker": _seconds(psutil.Process()), **_of_spark()}
        return {f"{name}_us_per_record": round((after[name] - self._before[name]) / count * 1e6, 2) for name in after}


def _of_spark() -> dict[str, float]:
    """CPU seconds of Spark's JVMs, and of the Python processes of its executors."""
    found = {"spark_jvm": 0.0, "executors_python": 0.0}
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended, and those of executors count as their daemon's
            command = " ".join(child.cmdline())
            if "pyspark.daemon" in command:
                times = child.cpu_times()
                found["executors_python"] += _seconds(child) + float(times.children_user + times.children_system)
            elif "spark" in command.lower() and "java" in child.name():
                found["spark_jvm"] += _seconds(child)
    return found


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure_bulk(count: int) -> Iterator[dict[str, object]]:
    """FileSource of CSV as JSON, and DeltaSink of its topic: the tail, and the bulk lane on each master.

    Each with four times as many records, after a run with `count` of them that warms up. Then rates that are computed,
    not measured, for more cores.
    """
    last: dict[str, Mapping[str, Any]] = {}
    for master in MASTERS:
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            folder, spark = Path(name), {"spark.master": master}
            if master == STANDALONE:
                spark = stack.enter_context(SparkStandalone(folder / "spark")).settings
            cluster = stack.enter_context(cx.Cluster(workers=1, faults=False, spark=spark))
            for mode in ("never", "always") if master == MASTERS[0] else ("always",):
                flows = {"source": _source, "sink": _sink}
                for flow in flows.values():
                    flow(cluster, folder, mode, count)
                idle_ms_per_s = _idle_ms_per_s()
                for kind, flow in flows.items():
                    found = {"kind": kind, "lane": "tail" if mode == "never" else "bulk", "master": master}
                    measured = flow(cluster, folder, mode, 4 * count)
                    last[kind] = {**measured, **worker_parts(measured, idle_ms_per_s)}
                    yield {"measure": "bulk", **found, **last[kind]}
    for kind, figures in last.items():
        for cores in EXECUTOR_CORES:
            rate = computed_rate(figures, cores)
            yield {"measure": "bulk_computed", "kind": kind, "cores": cores, "records_per_s": rate}


def _source(cluster: cx.Cluster, folder: Path, mode: str, count: int) -> dict[str, Any]:
    """Move so many rows of a file to a new topic in one lane, with a new connector."""
    path, name = rows_file(folder, count), _topic(mode, count)
    create_topic(cluster, name, PARTITIONS)
    config = {"connector.class": "FileSource", "file": str(path), "topic": name, "schema": SCHEMA}
    return _flow(cluster, name, {**config, "bulk.mode": mode}, count)


def _sink(cluster: cx.Cluster, folder: Path, mode: str, count: int) -> dict[str, Any]:
    """Move the rows of that topic to the lane's table, which the run that warms up has made."""
    topic = _topic(mode, count)
    name = f"{topic}-sink"
    config = {
        "connector.class": "DeltaSink",
        "path": str(folder),
        "topics": topic,
        "table.name.format": f"rows-{mode}",
        "flush.interval.ms": "1000",
        "bulk.mode": mode,
    }
    return _flow(cluster, name, config, count)


def _topic(mode: str, count: int) -> str:
    return f"rows-{mode}-{count}"


def _flow(cluster: cx.Cluster, name: str, config: Mapping[str, str], count: int) -> dict[str, Any]:
    """From the creation of a connector until that many records are committed; also who used how much CPU time."""
    moved = jobs = 0
    with cluster.events.subscribe() as news:  # a question to Kafka would cost the worker's process CPU time
        cpu, began_s = CpuTimes(), time.monotonic()
        connector = cluster.create(name, {**config, **JSON})
        while moved < count:
            found = [event for event in news.get(_EVENT_S) if event.connector == name]
            moved += sum(event.data["records"] for event in found if event.kind in _COMMITS)
            jobs += sum(event.kind in _JOB_ENDS for event in found)
            if time.monotonic() - began_s > _LIMIT_S:
                raise TimeoutError("the flow did not end in time")
        took_s = time.monotonic() - began_s
        used = cpu.us_per_record(count)
    connector.delete()
    return {"records": count, "seconds": round(took_s, 1), "jobs": jobs, "records_per_s": round(count / took_s), **used}


def _idle_ms_per_s() -> float:
    """Milliseconds of CPU time that the worker uses in a second without work."""
    cpu = CpuTimes()
    time.sleep(IDLE_S)
    return cpu.us_per_record(1)["worker_us_per_record"] / IDLE_S / 1000


def worker_parts(figures: Mapping[str, float], idle_ms_per_s: float) -> dict[str, float]:
    """The worker's CPU time in two parts: what it uses without work, and the rest for each job.

    The start of the connector counts as part of its jobs.
    """
    used_ms = figures["worker_us_per_record"] * figures["records"] / 1000
    for_jobs_ms = max(0.0, used_ms - idle_ms_per_s * figures["seconds"])
    return {
        "worker_idle_ms_per_s": round(idle_ms_per_s, 1),
        "worker_ms_per_job": round(for_jobs_ms / max(1, figures["jobs"]), 1),
    }


def computed_rate(bulk: Mapping[str, float], cores: int) -> int:
    """Records/s of so many executor cores, computed from the CPU time that executors and the worker's jobs used.

    As if executors did nothing but this, and Kafka, network and source kept pace: an upper limit. The worker has one
    thread.
    """
    executors_us = bulk["spark_jvm_us_per_record"] + bulk["executors_python_us_per_record"]
    worker_us = bulk["worker_ms_per_job"] * bulk["jobs"] * 1000 / bulk["records"]
    return round(min(cores / executors_us, 1 / worker_us) * 1e6)
