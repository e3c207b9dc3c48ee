"""Sinks of tables in files: rows/s with a commit each second, how long commits take, and Iceberg's own sink beside."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest.mock import patch

import psutil
from confluent_kafka import Producer

import connectx as cx
from bench.flows import JSON, STRINGS, create_topic, fill, group_offset, percentiles, until
from bench.peer import both_sides, compared
from bench.plugins import plugin_folder
from connectx.connectors.lake.table import LakeTable, Pending
from connectx.connectors.lake.task import LakeTask
from connectx.kafka.broker.embedded import EmbeddedKafka

PARTITIONS: Final = 4
JARS: Final = "iceberg-connect"
_FEW_ROWS_S: Final = 8.0
_COMMIT_MS: Final = "1000"


@dataclass(frozen=True)
class Commit:
    """A commit of a table: when it ended, how long it took, and how many rows it had."""

    end_s: float
    took_ms: float
    rows: int


def rows(count: int) -> Iterator[bytes]:
    """Narrow rows as JSON."""
    return (b'{"id":%d,"name":"name-%d","amount":%d.5}' % (i, i, i) for i in range(count))


@contextmanager
def timed_commits() -> Iterator[list[Commit]]:
    """Every commit of a sink of tables in this process, as it ends."""
    found: list[Commit] = []
    commit_table = LakeTask._commit_table

    def timed(task: LakeTask, table: LakeTable, pending: Pending) -> None:
        began_s = time.monotonic()
        commit_table(task, table, pending)
        end_s = time.monotonic()
        found.append(Commit(end_s, (end_s - began_s) * 1000, pending.row_count))

    with patch.object(LakeTask, "_commit_table", timed):
        yield found


def measure_lake_sinks(count: int) -> Iterator[dict[str, object]]:
    """Exactly-once, a commit each second, 1 task over 4 partitions: a backlog, and then a few rows a second.

    The rate leaves out what came before the first commit ended, which makes the table.
    """
    with tempfile.TemporaryDirectory() as folder, cx.Cluster(workers=1, faults=False) as cluster:
        create_topic(cluster, "rows", PARTITIONS)
        fill(cluster, "rows", rows(count), PARTITIONS)
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
        places = {
            "ParquetSink": {"path": folder},
            "DeltaSink": {"path": folder},
            "IcebergSink": {f"iceberg.catalog.{name}": text for name, text in catalog.items()},
        }
        at = count
        for name, place in places.items():
            common = {"topics": "rows", "flush.interval.ms": _COMMIT_MS, "table.name.format": f"bench.{name.lower()}"}
            with timed_commits() as commits:
                before_s = _cpu_s()
                connector = cluster.create(name, {"connector.class": name, **common, **place, **JSON})
                until(lambda name=name, at=at: _taken(cluster, name) >= at, step_s=0.05)
                cpu_us = (_cpu_s() - before_s) / at * 1e6
                loaded, idle_s = list(commits), time.monotonic() + _FEW_ROWS_S
                producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
                while time.monotonic() < idle_s:
                    for value in rows(PARTITIONS):
                        producer.produce("rows", value)
                        at += 1
                    producer.flush()
                    time.sleep(0.2)
                until(lambda name=name, at=at: _taken(cluster, name) >= at, step_s=0.05)
                few = commits[len(loaded) :]
            connector.delete()
            yield {
                "measure": "lake_sink",
                "connector": name,
                "rows": sum(commit.rows for commit in loaded),
                "rows_per_s": round(_rate(loaded)),
                "process_cpu_us_per_record": round(cpu_us, 2),
                "median_rows_of_a_commit": round(statistics.median(commit.rows for commit in loaded)),
                **{f"commit_{key}": value for key, value in percentiles([c.took_ms for c in loaded]).items()},
                **{f"few_rows_commit_{key}": value for key, value in percentiles([c.took_ms for c in few]).items()},
            }


def _taken(cluster: cx.Cluster, name: str) -> int:
    return group_offset(cluster, f"connect-{name}", "rows", PARTITIONS)


def _rate(commits: Sequence[Commit]) -> float:
    """Rows/s of the commits after the first one; 0 if there are none."""
    if len(commits) < 2:
        return 0.0
    return sum(commit.rows for commit in commits[1:]) / (commits[-1].end_s - commits[0].end_s)


def _cpu_s() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)


def measure_iceberg_peer(count: int, rounds: int = 2) -> Iterator[dict[str, object]]:
    """IcebergSink and Iceberg's own sink for Kafka Connect in turns, a commit each second; the first round warms up."""
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka(gate=False) as kafka:
        folder = Path(name)
        create_topic(kafka, "rows", PARTITIONS)
        create_topic(kafka, "control-iceberg")
        fill(kafka, "rows", rows(count), PARTITIONS)
        figures: dict[str, dict[str, float]] = {"rows_per_s": {}, "cpu_us_per_record": {}}
        with both_sides(kafka, folder, "disabled", plugin_folder(folder, JARS)) as sides:
            for number in range(rounds):
                for side in sides:
                    table, before_s = f"{side.name}_{number}", side.cpu_s()
                    config = _java_config(folder, table) if side.name == "kafka_connect" else _config(folder, table)
                    began_s = time.monotonic()
                    side.create(table, {"topics": "rows", "tasks.max": "1", **STRINGS, **JSON_JAVA, **config})
                    until(lambda table=table: _rows_in(folder, table) >= count, step_s=0.2)
                    figures["rows_per_s"][side.name] = count / (time.monotonic() - began_s)
                    figures["cpu_us_per_record"][side.name] = (side.cpu_s() - before_s) / count * 1e6
                    side.delete(table)
        yield compared("iceberg_rows_per_s", figures["rows_per_s"])
        yield compared("iceberg_worker_cpu_us_per_record", figures["cpu_us_per_record"], less_is_better=True)


JSON_JAVA: Final = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def _config(folder: Path, table: str) -> Mapping[str, str]:
    return {
        "connector.class": "IcebergSink",
        "iceberg.catalog.type": "sql",
        "iceberg.catalog.uri": f"sqlite:///{folder}/catalog.db",
        "iceberg.catalog.warehouse": f"file://{folder}",
        "table.name.format": f"bench.{table}",
        "flush.interval.ms": _COMMIT_MS,
    }


def _java_config(folder: Path, table: str) -> Mapping[str, str]:
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "iceberg.catalog.type": "hadoop",
        "iceberg.catalog.warehouse": f"file://{folder}",
        "iceberg.tables": f"bench.{table}",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.control.commit.interval-ms": _COMMIT_MS,
        "iceberg.control.group-id-prefix": f"control-{table}",
    }


def _rows_in(folder: Path, table: str) -> int:
    """Rows of the last snapshot, by the newest metadata of a table."""
    files = list(folder.glob(f"bench*/{table}/metadata/*.metadata.json"))
    try:
        metadata = json.loads(max(files, key=lambda path: path.stat().st_mtime_ns).read_text()) if files else {}
    except (FileNotFoundError, json.JSONDecodeError):  # it is being replaced
        return 0
    last = max(metadata.get("snapshots", ()), key=lambda snapshot: int(snapshot["sequence-number"]), default=None)
    return 0 if last is None else int(last["summary"].get("total-records", 0))
