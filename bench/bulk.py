"""CPU time per record of the two lanes: in the worker, in Spark's JVMs, and in the Python of its executors.

The bulk lane is measured on three masters with two cores each: threads of the driver, processes of a local cluster, and
a standalone cluster of a master and two workers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import KafkaException

import connectx as cx
from bench.flows import JSON, committed_end, create_topic, group_offset, until
from connectx.demo.standalone import SparkStandalone

PARTITIONS = 4
STANDALONE = "spark://"
MASTERS = ("local[2]", "local-cluster[2,1,1024]", STANDALONE)
EXECUTOR_CORES = (4, 16, 64)
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
        self._before = _now()

    def us_per_record(self, count: int) -> dict[str, float]:
        """Microseconds per record of each part."""
        after = _now()
        return {f"{name}_us_per_record": round((after[name] - self._before[name]) / count * 1e6, 2) for name in after}


def _now() -> dict[str, float]:
    """CPU seconds of the worker's process, Spark's JVM, and the Python processes of its executors."""
    own = psutil.Process()
    found = {"worker": _seconds(own), "spark_jvm": 0.0, "executors_python": 0.0}
    for child in own.children(recursive=True):
        command = " ".join(child.cmdline())
        if "pyspark.daemon" in command:
            times = child.cpu_times()
            found["executors_python"] += _seconds(child) + float(times.children_user + times.children_system)
        elif "spark" in command.lower() and "java" in child.name():
            found["spark_jvm"] += _seconds(child)
    return found


def _committed(cluster: cx.Cluster, topic: str) -> int:
    """Records of a topic; 0 while its partitions get their leaders."""
    try:
        return committed_end(cluster, topic, PARTITIONS)
    except KafkaException:
        return 0


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure_bulk(count: int) -> Iterator[dict[str, object]]:
    """FileSource of CSV as JSON, and DeltaSink of its topic: the tail, and the bulk lane on each master.

    Each after a run that warms up. Then rates that are computed, not measured, for more cores.
    """
    last: dict[str, Mapping[str, Any]] = {}
    for master in MASTERS:
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            folder, spark = Path(name), {"spark.master": master}
            if master == STANDALONE:
                spark = stack.enter_context(SparkStandalone(folder / "spark")).settings
            cluster = stack.enter_context(cx.Cluster(workers=1, faults=False, spark=spark))
            for mode in ("never", "always") if master == MASTERS[0] else ("always",):
                for kind, flow in (("source", _source), ("sink", _sink)):
                    flow(cluster, folder, mode, count // 10)
                    found = {"kind": kind, "lane": "tail" if mode == "never" else "bulk", "master": master}
                    last[kind] = flow(cluster, folder, mode, count)
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
    return _flow(cluster, name, {**config, "bulk.mode": mode}, count, lambda: _committed(cluster, name))


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
    return _flow(cluster, name, config, count, lambda: group_offset(cluster, f"connect-{name}", topic, PARTITIONS))


def _topic(mode: str, count: int) -> str:
    return f"rows-{mode}-{count}"


def _flow(
    cluster: cx.Cluster, name: str, config: Mapping[str, str], count: int, done: Callable[[], int]
) -> dict[str, Any]:
    """From the creation of a connector until that many records are done; also who used how much CPU time."""
    cpu, began_s = CpuTimes(), time.monotonic()
    connector = cluster.create(name, {**config, **JSON})
    until(lambda: done() >= count, 600, 0.2)
    took_s = time.monotonic() - began_s
    used = cpu.us_per_record(count)
    connector.delete()
    return {"records": count, "records_per_s": round(count / took_s), **used}


def computed_rate(bulk: Mapping[str, float], cores: int) -> int:
    """Records/s of so many executor cores, computed from the CPU time that executors and the worker used per record.

    As if executors did nothing but this, and Kafka, network and source kept pace: an upper limit. The worker has one
    thread.
    """
    executors_us = bulk["spark_jvm_us_per_record"] + bulk["executors_python_us_per_record"]
    return round(min(cores / executors_us, 1 / bulk["worker_us_per_record"]) * 1e6)
