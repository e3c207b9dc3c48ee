"""Start, idle cost, memory and failover of a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

import connectx as cx
from bench.flows import STRINGS, create_topic, lines_file, reader, until
from bench.machine import tree_rss_mb

_START = """
import time
started = time.monotonic()
import connectx as cx
imported = time.monotonic()
cluster = cx.Cluster(workers=3)
stable = time.monotonic()
shown = repr(cluster)
shown_at = time.monotonic()
cluster.spark
spark = time.monotonic()
cluster.close()
import json
print(json.dumps({"import_s": imported - started, "stable_s": stable - started, "shown_s": shown_at - started,
                  "spark_s": spark - started, "close_s": time.monotonic() - spark}))
"""


def measure_start(runs: int) -> Iterator[dict[str, object]]:
    """Cluster(workers=3) from import to a stable group, everything cached, in a fresh process each time."""
    figures = []
    for _ in range(runs):
        done = subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True, check=True)
        figures.append(json.loads(done.stdout.splitlines()[-1]))
    for name in figures[0]:
        values = sorted(round(figure[name], 2) for figure in figures)
        yield {"measure": f"start_{name}", "min": values[0], "median": values[len(values) // 2], "max": values[-1]}


def measure_memory() -> Iterator[dict[str, object]]:
    """Resident memory of this process with 1 worker, then what each of four more adds."""
    with cx.Cluster(workers=1) as cluster:
        one = tree_rss_mb()
        for _ in range(4):
            cluster.add_worker()
        each = (tree_rss_mb() - one) / 4
        yield {"measure": "memory", "one_worker_process_mb": round(one), "each_further_worker_mb": round(each, 1)}


def measure_idle(seconds: float) -> Iterator[dict[str, object]]:
    """Share of one core that this process takes with 3 workers and 10 connectors that have nothing to do."""
    with tempfile.TemporaryDirectory() as folder, cx.Cluster(workers=3) as cluster:
        for number in range(10):
            path = lines_file(Path(folder), 10).rename(Path(folder) / f"idle-{number}.txt")
            config = {"connector.class": "FileStreamSource", "file": str(path), "topic": f"idle-{number}", **STRINGS}
            cluster.create(f"idle-{number}", config)
        for number in range(10):
            cluster.wait(f"idle-{number}", "RUNNING")
        time.sleep(3)
        process, started = psutil.Process(), time.monotonic()
        before = process.cpu_times()
        time.sleep(seconds)
        after = process.cpu_times()
        used_s = after.user + after.system - before.user - before.system
        share = used_s / (time.monotonic() - started)
        yield {"measure": "idle", "connectors": 10, "workers": 3, "core_percent": round(100 * share, 1)}


def measure_failover(kills: int) -> Iterator[dict[str, object]]:
    """From the kill of the worker that runs a source task to the next record that a consumer sees."""
    with tempfile.TemporaryDirectory() as folder, cx.Cluster(workers=3) as cluster:
        source = Path(folder) / "in.txt"
        source.write_text("")
        create_topic(cluster, "in")
        cluster.create("in", {"connector.class": "FileStreamSource", "file": str(source), "topic": "in", **STRINGS})
        consumer = reader(cluster, "in", 0)
        took_s = []
        for number in range(kills):
            cluster.wait("in", "RUNNING")
            until(lambda: any("in-0" in w.tasks for w in cluster.workers if w.state == "running"))
            owner = next(w for w in cluster.workers if w.state == "running" and "in-0" in w.tasks)
            owner.kill()
            with source.open("a") as out:
                out.write(f"{number}\n")
            started = time.monotonic()
            while (message := consumer.poll(0.1)) is None or message.error():
                if time.monotonic() - started > 60:
                    raise TimeoutError("no record came after the kill")
            took_s.append(round(time.monotonic() - started, 2))
            cluster.add_worker()
        consumer.close()
        settings = cluster.config
        yield {
            "measure": "failover",
            "session_timeout_ms": settings.session_timeout_ms,
            "scheduled_rebalance_max_delay_ms": settings.scheduled_rebalance_max_delay_ms,
            "seconds": took_s,
        }


def measure_steady(minutes: float) -> Iterator[dict[str, object]]:
    """Memory of this process over a steady flow: at the first and the last tenth."""
    with cx.Cluster(workers=3, faults=False) as cluster:
        cluster.create("ticks", {"connector.class": "Generator", "topic": "ticks", "rate": "2000"})
        cluster.wait("ticks", "RUNNING")
        time.sleep(20)
        samples = []
        deadline = time.monotonic() + minutes * 60
        while time.monotonic() < deadline:
            samples.append(tree_rss_mb())
            time.sleep(2)
        tenth = max(1, len(samples) // 10)
        first, last = sum(samples[:tenth]) / tenth, sum(samples[-tenth:]) / tenth
        yield {"measure": "steady", "minutes": minutes, "first_mb": round(first, 1), "last_mb": round(last, 1)}
