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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import connectx as cx
from bench.bulk_flows import FLOWS, Flow, Run
from bench.flows import JSON, create_topic, postgres
from bench.spark_standalone import SparkStandalone
from connectx.model.events import Event, EventKind

PARTITIONS = 4
STANDALONE = "spark://"
IDLE_S = 10.0
MASTERS = ("local[2]", "local-cluster[2,1,1024]", STANDALONE)
EXECUTOR_CORES = (4, 16, 64)
_EVENT_S = 5.0
_LIMIT_S = 600.0
_COMMITS = (EventKind.TRANSACTION_COMMITTED, EventKind.OFFSETS_COMMITTED)
_JOB_ENDS = (EventKind.TRANSACTION_COMMITTED, EventKind.BULK_STAGED)
_COMMIT_EACH_SECOND = {"offset.flush.interval.ms": "1000"}
_FAILURES = 1
"""Jobs of a sink that may fail: the first one, because the worker creates the table."""
_WARM_UP = 4


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
    """Every connector that has a bulk lane in both lanes, and some of them on each master.

    A run moves `Flow.share` times `count` records, after a run with a quarter of them that warms up. Then rates for
    more cores, which are computed, not measured.
    """
    last: dict[str, Mapping[str, Any]] = {}
    for master in MASTERS:
        is_first = master == MASTERS[0]
        flows = [flow for flow in FLOWS if is_first or flow.on_every_master]
        with ExitStack() as stack:
            folder, spark = Path(stack.enter_context(tempfile.TemporaryDirectory())), {"spark.master": master}
            if master == STANDALONE:
                spark = stack.enter_context(SparkStandalone(folder / "spark")).settings
            database = stack.enter_context(postgres()) if any(flow.uses_database for flow in flows) else ""
            cluster = stack.enter_context(cx.Cluster(workers=1, faults=False, spark=spark, config=_COMMIT_EACH_SECOND))
            for mode in ("never", "always") if is_first else ("always",):
                bench = _Bench(cluster, folder, database, mode)
                for flow in flows:
                    bench.run(flow, round(flow.share * count / _WARM_UP))
                idle_ms_per_s = _idle_ms_per_s()
                for flow in flows:
                    measured = bench.run(flow, round(flow.share * count))
                    figures = {**measured, **worker_parts(measured, idle_ms_per_s)}
                    found = {"connector": flow.connector, "lane": "tail" if mode == "never" else "bulk"}
                    yield {"measure": "bulk", **found, "master": master, **figures}
                    if flow.on_every_master:
                        last[flow.connector] = figures
    for connector, of_bulk in last.items():
        for cores in EXECUTOR_CORES:
            rate = computed_rate(of_bulk, cores)
            yield {"measure": "bulk_computed", "connector": connector, "cores": cores, "records_per_s": rate}


@dataclass
class _Bench:
    """Runs connectors in one lane of a cluster."""

    cluster: cx.Cluster
    folder: Path
    database: str
    lane: str
    filled: set[str] = field(default_factory=set)

    def run(self, flow: Flow, count: int) -> dict[str, Any]:
        """Move so many records: of a source to a new topic, of a sink from a topic of FileSource."""
        writer = flow if flow.is_source else FLOWS[0]
        topic = f"{writer.connector}-{self.lane}-{count}"
        if flow.is_source:
            create_topic(self.cluster, topic, PARTITIONS)
            self.filled.add(topic)
        elif topic not in self.filled:
            self.run(writer, count)
        run = Run(flow.connector, self.folder, self.database, self.lane, count, topic)
        name = topic if flow.is_source else run.table  # a sink continues the table of its first run
        return _flow(self.cluster, name, flow.config(run), count)


def _flow(cluster: cx.Cluster, name: str, config: Mapping[str, str], count: int) -> dict[str, Any]:
    """From the creation of a connector until that many records are committed; also who used how much CPU time."""
    moved = jobs = 0
    failures: list[Event] = []
    with cluster.events.subscribe() as news:  # a question to Kafka would cost the worker's process CPU time
        cpu, began_s = CpuTimes(), time.monotonic()
        connector = cluster.create(name, {**config, **JSON})
        while moved < count:
            found = [event for event in news.get(_EVENT_S) if event.connector == name]
            moved += sum(event.data["records"] for event in found if event.kind in _COMMITS)
            jobs += sum(event.kind in _JOB_ENDS for event in found)
            failures += [event for event in found if event.kind == EventKind.BULK_FAILED]
            if len(failures) > _FAILURES or any(event.data.get("state") == "FAILED" for event in found):
                raise RuntimeError(f"{name} failed: {[dict(event.data) for event in failures or found]}")
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
