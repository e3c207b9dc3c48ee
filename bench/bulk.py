"""CPU time per record of a source's two lanes: in the worker, in Spark's JVM, and in the Python of its executors."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from confluent_kafka import KafkaException

import connectx as cx
from bench.flows import JSON, committed_end, create_topic, until

PARTITIONS = 4
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
    """CPU seconds used since it was made, by part. Python processes of executors live as long as Spark."""

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
            found["executors_python"] += _seconds(child)
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
    """FileSource of CSV as JSON, in the tail and in bulk, after a run that warms both up."""
    with tempfile.TemporaryDirectory() as folder, cx.Cluster(workers=1, faults=False) as cluster:
        warm, path = (rows_file(Path(folder), rows) for rows in (count // 10, count))
        for mode in ("never", "always"):
            for number, (file, rows) in enumerate(((warm, count // 10), (path, count))):
                name = f"rows-{mode}-{number}"
                create_topic(cluster, name, PARTITIONS)
                cpu, began_s = CpuTimes(), time.monotonic()
                source = {"connector.class": "FileSource", "file": str(file), "topic": name, "schema": SCHEMA}
                connector = cluster.create(name, {**source, **JSON, "bulk.mode": mode})
                until(lambda name=name, rows=rows: _committed(cluster, name) >= rows, 600, 0.2)
                took_s = time.monotonic() - began_s
                used = cpu.us_per_record(rows)
                connector.delete()
            lane = "tail" if mode == "never" else "bulk"
            yield {
                "measure": "bulk",
                **{"lane": lane, "records": count, "mb": round(path.stat().st_size / 1e6, 1)},
                **{"records_per_s": round(count / took_s), **used},
            }
