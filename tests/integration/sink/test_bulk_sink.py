"""The bulk lane: Spark's executors read, convert and stage records, and the worker commits them with their offsets."""

from __future__ import annotations

import datetime
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from connectx.connectors.lake.parquet import ParquetSink
from connectx.core.messages import TaskFailed, TaskStateReached
from connectx.kafka.broker.embedded import EmbeddedKafka
from connectx.model.events import EventKind
from connectx.model.ids import TopicPartition
from connectx.model.states import TargetState
from connectx.spark.sessions import SparkProvider
from tests.support import functions
from tests.support.databases import Table
from tests.support.held_jobs import held, holding
from tests.support.json_lines import JsonLines, lines_in, named
from tests.support.lake import Lake, batch, write
from tests.support.records import read_all
from tests.support.spark_pages import shown_by_spark, spark_tasks
from tests.support.task_harness import Task
from tests.support.waiting import until

pytestmark = pytest.mark.rule("always.8")

Make = Callable[..., Any]
JSON = "org.apache.kafka.connect.json.JsonConverter"
TRANSFORMS = {
    "transforms": "mask,part",
    "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
    "transforms.mask.fields": "secret",
    "transforms.part.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.part.partition.field": "part",
}


def lake(folder: Path, topic: str, mode: str, **more: str) -> dict[str, str]:
    config = {
        "connector.class": "DeltaSink",
        "path": str(folder),
        "topics": topic,
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
        "flush.interval.ms": "200",
        "bulk.mode": mode,
    }
    return config | {name.replace("_", "."): text for name, text in more.items()}


def value(number: int) -> bytes:
    return json.dumps({"id": number, "amount": number / 4, "secret": "x", "at": {"city": f"c{number}"}}).encode()


def table(folder: Path, topic: str) -> list[dict[str, Any]]:
    path = folder / topic
    if not (path / "_delta_log").exists():
        return []
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def ids(folder: Path, topic: str) -> list[int]:
    return [row["id"] for row in table(folder, topic)]


def begun(sink_task: Make, produce: Make, folder: Path, config: dict[str, str], name: str) -> Task:
    """A task whose table exists, with record 0 of partition 0."""
    folder.mkdir(exist_ok=True)
    topic = config["topics"]
    produce(topic, [value(0)])
    task: Task = sink_task(name, config).begin()
    until(lambda: ids(folder, topic) == [0], "the first row")
    return task


def staged(task: Task) -> int:
    return sum(event.data["records"] for event in task.recorded(EventKind.BULK_STAGED))


def fill(kafka: EmbeddedKafka, topic: str) -> None:
    """Records of two partitions: good, broken, without values, and in transactions of which one is aborted."""
    plain = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(1, 200):
        sent = {50: b'{"id":', 51: None, 60: b'{"id":60}', 120: b"{]", 121: None}.get(number, value(number))
        plain.produce(topic, sent, key=str(number), partition=0, headers=[("h", str(number).encode())])
    plain.flush(30)
    other = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"fill-{topic}"})
    other.init_transactions(30)
    for round_, end in enumerate((other.commit_transaction, other.abort_transaction, other.commit_transaction)):
        other.begin_transaction()
        for number in range(1000 + 100 * round_, 1100 + 100 * round_):
            other.produce(topic, value(number), partition=1)
        other.flush(30)  # an abort drops what is not sent yet
        end(30)


def letters(kafka: EmbeddedKafka, topic: str) -> list[tuple[Any, ...]]:
    """Dead letters without the names of their connector and the lines of code."""
    left_out = ("connector.name", "exception.stacktrace", "exception.message", "topic")
    found = []
    for message in read_all(kafka.bootstrap_servers, topic):
        headers = {
            key: text for key, text in message.headers() if key.rpartition("__connect.errors.")[2] not in left_out
        }
        found.append((message.key(), message.value(), message.timestamp(), tuple(sorted(headers.items()))))
    return sorted(found, key=lambda each: int(each[0]))


def progress(task: Task) -> dict[str, int] | None:
    """Progress of the job that runs, once Spark has reported it."""
    job = task.runner.metrics()["job"]
    return job if isinstance(job, dict) and job["parts_done"] is not None else None


def wait_committed(task: Task, committed: Make, group: str, wanted: dict[str, int]) -> None:
    def reached() -> bool:
        assert not any(isinstance(stimulus, TaskFailed) for stimulus in task.stimuli), task.stimuli
        return bool(committed(group, next(iter(wanted)).rpartition("-")[0], len(wanted)) == wanted)

    until(reached, f"{group} at {wanted}")


def wait_job(task: Task) -> None:
    """Wait for the first job and then for its end: on a busy machine each takes long, because Spark starts."""
    until(lambda: task.recorded(EventKind.BULK_STARTED), "a job")
    until(lambda: task.recorded(EventKind.BULK_STAGED) or task.recorded(EventKind.BULK_FAILED), "its end")


def test_both_lanes_give_the_same_rows_offsets_and_dead_letters(
    kafka: EmbeddedKafka, sink_task: Make, produce: Make, committed: Make, topic: Make, tmp_path: Path
) -> None:
    results: dict[str, tuple[Any, ...]] = {}
    name = topic("lanes", partitions=2)
    required = pa.schema([("id", pa.int64()), pa.field("amount", pa.float64(), nullable=False)])
    for mode in ("never", "always"):
        DeltaTable.create(str(tmp_path / mode / name), required)
        folder, dead = tmp_path / mode, f"{topic('dead')}-{mode}"
        queue = {
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": dead,
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
        }
        config = lake(folder, name, mode) | queue | TRANSFORMS
        if not results:
            task = begun(sink_task, produce, folder, config, f"lane-{mode}")
            fill(kafka, name)
        else:
            task = sink_task(f"lane-{mode}", config).begin()
        wait_committed(task, committed, f"connect-lane-{mode}", {f"{name}-0": 200, f"{name}-1": 303})
        offsets = DeltaTable(str(folder / name))
        held = [offsets.transaction_version(f"connectx/connect-lane-{mode}/{name}/{number}") for number in range(2)]
        results[mode] = table(folder, name), held, letters(kafka, dead), task.runner.metrics()["records"]
    assert results["never"] == results["always"]
    rows, held, dead_letters, _ = results["always"]
    assert (len(rows), held) == (395, [200, 303])
    assert [int(key) for key, *_ in dead_letters] == [50, 51, 60, 120, 121]
    assert rows[1]["secret"] == ""


def test_executors_take_what_waits_and_the_worker_what_changes_the_table(
    sink_task: Make, produce: Make, topic: Make, tmp_path: Path
) -> None:
    name, folder = topic("bulk", partitions=2), tmp_path / "lake"
    upserts = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id", "partition_by": "secret"}
    task = begun(sink_task, produce, folder, lake(folder, name, "always", **upserts), "bulk-1")
    for partition in range(2):
        first = 1 + 5000 * partition
        produce(name, [value(number) for number in range(first, first + 5000)], partition=partition)
    until(lambda: len(table(folder, name)) >= 10_001)
    assert ids(folder, name) == [*range(10_001)]
    assert staged(task) == 10_000
    until(lambda: task.runner.metrics()["records"] == 10_001, "the metrics of the job")
    metrics = task.runner.metrics()
    assert (metrics["lane"], metrics["lane_reason"]) == ("bulk", "bulk.mode is always")
    produce(name, [b'{"id":10001,"more":"column"}', value(10_002)])
    until(lambda: ids(folder, name)[-2:] == [10_001, 10_002])
    (failed,) = [each for each in task.recorded(EventKind.BULK_FAILED) if "columns" in each.data["error"]]
    assert failed.data["offsets"]
    changed = json.dumps({"id": 10_001, "secret": "changed"}).encode()
    produce(name, [value(10_003), changed])
    until(lambda: 10_003 in ids(folder, name))
    until(lambda: table(folder, name)[10_001]["secret"] == "changed")
    assert ids(folder, name) == [*range(10_004)]


def test_a_killed_python_worker_of_spark_leaves_the_records_to_the_task(
    sink_task: Make, produce: Make, topic: Make, tmp_path: Path
) -> None:
    name, folder = topic("kill"), tmp_path / "lake"
    task = begun(sink_task, produce, folder, lake(folder, name, "always") | held(tmp_path), "kill-1")
    produce(name, [value(number) for number in range(1, 2001)])
    victim = until(lambda: holding(tmp_path), "a Python worker that reads")[0]
    job = until(lambda: progress(task), "the progress of the job")
    os.kill(victim, signal.SIGKILL)
    (failed,) = until(lambda: [each for each in task.recorded(EventKind.BULK_FAILED) if each.data["token"] > 1])
    (tmp_path / "go").touch()
    until(lambda: len(table(folder, name)) >= 2001)
    assert ids(folder, name) == [*range(2001)]
    assert "Spark" in failed.data["error"]
    assert (job["job"], job["parts_done"]) == (failed.data["token"], 0)
    assert job["parts"] >= 1


def test_a_revoked_tasks_job_is_discarded_and_the_successor_writes_its_records_once(
    sink_task: Make, produce: Make, topic: Make, tmp_path: Path
) -> None:
    name, folder = topic("revoked", partitions=2), tmp_path / "lake"
    config = lake(folder, name, "always") | held(tmp_path)
    first = begun(sink_task, produce, folder, config, "revoked-1")
    for partition in range(2):
        produce(name, [value(number) for number in range(1 + 1000 * partition, 1001 + 1000 * partition)], partition)
    until(lambda: holding(tmp_path), "a job of the first task")
    second = sink_task("revoked-1", config | {"bulk.mode": "never"}, task=1).begin()
    until(lambda: second.recorded(EventKind.PARTITIONS_ASSIGNED), "a rebalance while the job runs")
    first.stop()
    (tmp_path / "go").touch()
    until(lambda: len(table(folder, name)) >= 2001)
    assert ids(folder, name) == [*range(2001)]
    assert first.recorded(EventKind.BULK_STAGED) == []


def test_the_table_refuses_the_staged_records_of_a_zombie_whose_successor_was_faster(
    sink_task: Make, produce: Make, topic: Make, tmp_path: Path
) -> None:
    name, folder = topic("zombie"), tmp_path / "lake"
    config = lake(folder, name, "always") | {
        "consumer.override.session.timeout.ms": "1500",
        "consumer.override.max.poll.interval.ms": "6000",
    }
    zombie = begun(sink_task, produce, folder, config, "zombie-1")
    zombie.freezes_at = EventKind.BULK_STAGED  # before it commits what executors have staged
    produce(name, [value(number) for number in range(1, 1001)])
    until(lambda: not zombie.unfrozen.is_set(), "a staged job")
    produce(name, [value(1001)])
    sink_task("zombie-1", config | {"bulk.mode": "never"}, worker="worker-2").begin()
    until(lambda: len(table(folder, name)) >= 1002, "the successor's rows")
    zombie.freezes_at = None
    zombie.unfrozen.set()

    def is_refused() -> bool:
        refused = zombie.recorded(EventKind.COMMIT_REFUSED)
        return any(f"{name}-0 is at 1002" in event.data["reason"] for event in refused)

    until(is_refused, "a refusal of the table")
    assert ids(folder, name) == [*range(1002)]
    until(lambda: list((folder / name).glob("connectx-*")) == [], "removal of what it staged")


def test_a_bad_record_fails_the_task_at_the_lowest_offset_with_tolerance_none(
    sink_task: Make, produce: Make, topic: Make, tmp_path: Path
) -> None:
    name, folder = topic("strict"), tmp_path / "lake"
    task = begun(sink_task, produce, folder, lake(folder, name, "always"), "strict-1")
    produce(name, [value(1), b"{", value(3), b"[", value(5)])
    assert f"The record at offset 2 of {name}-0 cannot be read" in task.failure()
    assert ids(folder, name) == [0]


def test_a_data_source_writes_on_executors_and_commits_in_the_worker(
    sink_task: Make, produce: Make, topic: Make, committed: Make, tmp_path: Path
) -> None:
    name = topic("source", partitions=2)
    config = lake(tmp_path, name, "always") | {
        "connector.class": "DataSourceSink",
        "datasource.class": named(JsonLines),
        "datasource.options.folder": str(tmp_path),
    }
    produce(name, [value(0)])
    task = sink_task("source-1", config).begin()
    until(lambda: lines_in(tmp_path), "the first row")
    for partition, count in enumerate((1000, 1001)):
        first = 1 + 1000 * partition
        produce(name, [value(number) for number in range(first, first + count)], partition)
    wait_committed(task, committed, "connect-source-1", {f"{name}-0": 1001, f"{name}-1": 1001})
    assert sorted(row["id"] for row in lines_in(tmp_path)) == [*range(2002)]
    assert staged(task) == 2001


@pytest.mark.parametrize("kind", ["SparkSink", "FunctionSink"])
def test_spark_writes_the_same_rows_of_both_lanes_in_a_format_or_by_a_function(
    kafka: EmbeddedKafka,
    sink_task: Make,
    produce: Make,
    topic: Make,
    committed: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    name, results = topic("formats"), list[tuple[Any, ...]]()
    sent = [value(number) for number in range(1000)]
    for mode in ("always", "never"):
        folder, dead = tmp_path / mode, f"{topic('dead')}-{mode}"
        monkeypatch.setattr(functions, "FOLDER", [folder])
        monkeypatch.setattr(functions, "CALLS", [])
        more = {"format": "json", "format.options.path": str(folder), "function": f"{functions.__name__}.save"}
        queue = {"errors.deadletterqueue.topic.name": dead, "errors.deadletterqueue.topic.replication.factor": "1"}
        config = lake(tmp_path, name, mode, errors_tolerance="all") | {"connector.class": kind} | more | queue
        task = sink_task(f"{kind}-{mode}", config).begin()
        if not results:
            produce(name, sent[:1])
            wait_committed(task, committed, f"connect-{kind}-{mode}", {f"{name}-0": 1})
            produce(name, [*sent[1:500], b"{", None, *sent[500:]])
        wait_committed(task, committed, f"connect-{kind}-{mode}", {f"{name}-0": 1002})
        task.stop()
        lines = [line for path in folder.glob("*.json") for line in path.read_text().splitlines()]
        refused = [message.value() for message in read_all(kafka.bootstrap_servers, dead)]
        results.append((sorted(lines), refused, task.runner.metrics()["records"]))
        if kind == "FunctionSink":
            covered = sorted(cut for ranges, _ in functions.CALLS for cut in ranges.values())
            assert [first for first, _ in covered] == [0, *(end for _, end in covered[:-1])]
        failures = [event.data["error"] for event in task.recorded(EventKind.BULK_FAILED)]
        assert all("columns are not known" in error for error in failures), failures
        assert (staged(task) > 0) == (mode == "always")
    assert results[0] == results[1]
    lines, refused, _ = results[0]
    assert sorted((json.loads(line) for line in lines), key=lambda row: row["id"]) == list(map(json.loads, sent))
    assert refused == [b"{", None]


def test_a_pause_and_a_stop_are_served_while_a_job_runs(
    sink_task: Make, produce: Make, topic: Make, tmp_path: Path
) -> None:
    name, folder = topic("pause"), tmp_path / "lake"
    task = begun(sink_task, produce, folder, lake(folder, name, "always") | held(tmp_path), "pause-1")
    produce(name, [value(1)])
    until(lambda: holding(tmp_path), "a job")
    task.set_state(TargetState.PAUSED)
    task.said(TaskStateReached, 2)
    task.stop()
    assert ids(folder, name) == [0]
    assert list((folder / name).glob("connectx-*")) == []


def changes(produce: Make, name: str) -> None:
    """Rows of two partitions, some of them changed, deleted, broken or refused by a condition of the table."""
    numbers = [*range(200), *range(40, 60)]
    rows = [{"amount": number / 4, "name": f"n{at}"} for at, number in enumerate(numbers)]
    sent: list[bytes | None] = [json.dumps(row).encode() for row in rows]
    sent[70], sent[75], sent[205], sent[90] = b'{"amount":', None, None, b'{"amount":1000,"name":"too much"}'
    produce(name, sent, keys=[number.to_bytes(8, "big") for number in numbers])
    more: list[bytes | None] = [json.dumps({"amount": 1, "name": f"m{number}"}).encode() for number in range(300)]
    produce(name, more, 1, keys=[(1000 + number).to_bytes(8, "big") for number in range(300)])


def test_postgresql_gets_the_same_rows_and_dead_letters_by_staging_tables_and_spark_shows_no_password(
    kafka: EmbeddedKafka,
    sink_task: Make,
    produce: Make,
    committed: Make,
    topic: Make,
    postgres: str,
    spark_provider: SparkProvider,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name, results = topic("staged", partitions=2), dict[str, tuple[Any, ...]]()
    for mode in ("always", "never"):
        database, dead = Table(postgres, f"{name}-{mode}"), f"{topic('dead')}-{mode}"
        database.sql(f'DROP TABLE "{database.table}"')
        database.sql(
            f'CREATE TABLE "{database.table}" (id bigint PRIMARY KEY, amount double precision NOT NULL '
            "CHECK (amount < 500), name text UNIQUE)"
        )
        config = database.config(
            topics=name,
            table_name_format=database.table,
            key_converter="org.apache.kafka.connect.converters.LongConverter",
            insert_mode="upsert",
            pk_mode="record_key",
            pk_fields="id",
            delete_enabled="true",
            connection_password="not-to-be-shown",
            max_connections="2",
            bulk_mode=mode,
            errors_tolerance="all",
        )
        queue = {"errors.deadletterqueue.topic.name": dead, "errors.deadletterqueue.topic.replication.factor": "1"}
        task = sink_task(f"staged-{mode}", config | queue).begin()
        if not results:
            changes(produce, name)
            wait_job(task)
            assert task.recorded(EventKind.BULK_FAILED) == []
            wait_committed(task, committed, f"connect-staged-{mode}", {f"{name}-0": 220, f"{name}-1": 300})
            assert staged(task) == 520
            last = [b'{"amount":2,"name":"n3"}', b'{"amount":2,"name":"x"}', b'{"amount":']
            produce(name, last, keys=[number.to_bytes(8, "big") for number in (300, 8, 301)])
        wait_committed(task, committed, f"connect-staged-{mode}", {f"{name}-0": 223, f"{name}-1": 300})
        task.stop()
        rows = sorted(database.sql(f'SELECT * FROM "{database.table}"'))
        found = [(message.key(), message.value()) for message in read_all(kafka.bootstrap_servers, dead)]
        results[mode] = rows, sorted(found), task.runner.metrics()["records"]
        assert ["duplicate key" in event.data["error"] for event in task.recorded(EventKind.BULK_FAILED)] == (
            [True] if mode == "always" else []
        )
    assert results["always"] == results["never"]
    rows, found, _ = results["always"]
    assert [int.from_bytes(key, "big") for key, _ in found] == [70, 90, 300, 301]
    assert [row for row in rows if row[0] in (8, 75, 45, 46, 300)] == [(8, 2.0, "x"), (46, 11.5, "n206")]
    assert len(rows) == 496
    assert "not-to-be-shown" not in shown_by_spark(spark_provider) + caplog.text
    assert spark_tasks(spark_provider, "staged-always") in ({1}, None), "two connections leave one for executors"


def test_spark_reads_directories_by_values_with_their_types(spark_provider: SparkProvider, tmp_path: Path) -> None:
    kind = pa.struct([("id", pa.int64()), ("day", pa.date32()), ("kind", pa.string())])
    days = [datetime.date(2024, 1, 2), None, datetime.date(2024, 1, 3)]
    rows = [{"id": number, "day": days[number % 3], "kind": text} for number, text in enumerate(["a/b", "Ü %", "x:y"])]
    write(
        Lake(ParquetSink.Task, {"path": str(tmp_path), "partition.by": "day,kind"}).opened(TopicPartition("rows", 0)),
        batch(0, rows, kind),
    )
    frame = spark_provider.task_session().read.parquet(str(tmp_path / "rows"))
    assert dict(frame.dtypes) == {"id": "bigint", "day": "date", "kind": "string"}
    assert [row.asDict() for row in frame.orderBy("id").collect()] == rows
