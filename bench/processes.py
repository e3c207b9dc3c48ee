"""Workers as processes: memory, start, and how long the work of a killed one is not run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

import connectx as cx
from bench.flows import STRINGS, create_topic, until
from connectx.model.events import EventKind

SESSION = {"session.timeout.ms": "6000", "scheduled.rebalance.max.delay.ms": "0"}


def process_of(worker: Any) -> psutil.Process:
    """The system's view of a worker."""
    return psutil.Process(worker._handle.pid)


def measure_processes() -> Iterator[dict[str, object]]:
    """Memory of a worker's process, idle and after its first use of Spark, and what its start costs."""
    with tempfile.TemporaryDirectory() as folder, cx.Cluster(workers=3, isolation="process") as cluster:
        idle = [process_of(worker) for worker in cluster.workers]
        idle_mb = [round(process.memory_info().rss / 2**20) for process in idle]
        own_mb = [round(process.memory_full_info().uss / 2**20) for process in idle]
        cpu_s = [round(sum(process.cpu_times()[:2]), 2) for process in idle]
        started = time.monotonic()
        cluster.add_worker(60)
        joined_s = round(time.monotonic() - started, 2)
        cluster.spark  # noqa: B018  waits for it
        path = Path(folder) / "in.csv"
        path.write_text("id,name\n" + "".join(f"{n},name {n}\n" for n in range(1000)))
        config = {"connector.class": "FileSource", "file": str(path), "topic": "rows", "format": "csv",
                  "header": "true", "schema": "id BIGINT, name STRING"}  # fmt: skip
        cluster.create("rows", config)
        until(lambda: any(event.kind is EventKind.TRANSACTION_COMMITTED for event in cluster.events))
        owner = next(worker for worker in cluster.workers if "rows-0" in worker.tasks)
        with_spark_mb = round(process_of(owner).memory_info().rss / 2**20)
        yield {
            "measure": "processes",
            "idle_mb": idle_mb,
            "idle_unshared_mb": own_mb,
            "with_spark_mb": with_spark_mb,
            "start_cpu_s": cpu_s,
            "add_worker_s": joined_s,
        }


def measure_process_failover(kills: int) -> Iterator[dict[str, object]]:
    """From SIGKILL of a worker's process until its source task is RUNNING elsewhere, without and with fast failover.

    One kill of each in turn, so that both meet the same machine; session timeout 6 s, rebalance delay 0.
    """
    took_s: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.txt"
        source.write_text("")
        clusters = {
            fast: cx.Cluster(workers=3, isolation="process", fast_failover=fast, config=SESSION) for fast in took_s
        }
        try:
            for cluster in clusters.values():
                create_topic(cluster, "in")
                config = {"connector.class": "FileStreamSource", "file": str(source), "topic": "in", **STRINGS}
                cluster.create("in", config)
            for _ in range(kills):
                for fast, cluster in clusters.items():
                    took_s[fast].append(round(_kill_owner(cluster, "in"), 2))
                    cluster.add_worker(60)
        finally:
            for cluster in clusters.values():
                cluster.close()
    median = {fast: sorted(values)[len(values) // 2] for fast, values in took_s.items()}
    yield {
        "measure": "process_failover",
        "session_timeout_ms": 6000,
        "slow_s": took_s[False],
        "fast_s": took_s[True],
        "ratio": round(median[False] / median[True], 1),
    }


def _kill_owner(cluster: cx.Cluster, connector: str) -> float:
    """SIGKILL from outside, without announcement; seconds until the task runs elsewhere."""
    cluster.wait(connector, "RUNNING")
    cluster.wait_stable()
    owner = next(w for w in cluster.workers if w.state == "running" and f"{connector}-0" in w.tasks)
    since, started = cluster.events.last_seq, time.monotonic()
    os.kill(process_of(owner).pid, signal.SIGKILL)
    cluster.events.wait(
        lambda event: (
            event.kind is EventKind.TASK_STATE
            and event.connector == connector
            and event.worker != owner.name
            and event.data["state"] == "RUNNING"
        ),
        60,
        since=since,
    )
    return time.monotonic() - started


_START = """
import time
started = time.monotonic()
import connectx as cx
cluster = cx.Cluster(workers=3, isolation="process")
stable = time.monotonic()
cluster.close()
import json
print(json.dumps({"stable_s": stable - started, "close_s": time.monotonic() - stable}))
"""


def measure_process_start(runs: int) -> Iterator[dict[str, object]]:
    """Cluster(workers=3, isolation="process") from import to a stable group, in a fresh process each time."""
    figures = []
    for _ in range(runs):
        done = subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True, check=True)
        figures.append(json.loads(done.stdout.splitlines()[-1]))
    for name in figures[0]:
        values = sorted(round(figure[name], 2) for figure in figures)
        yield {"measure": f"process_start_{name}", "min": values[0], "median": values[len(values) // 2]}
