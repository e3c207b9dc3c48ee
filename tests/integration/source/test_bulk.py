"""Bulk slices of FileSource on real executors: the tail's records, exactly once whatever happens to a job."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest

from connectx.core.messages import TaskFailed
from connectx.model.events import EventKind
from tests.support.profiles import JSON, dotted
from tests.support.records import read_all
from tests.support.spark_executors import held_while_sending, python_of_executors
from tests.support.task_harness import Place, Task
from tests.support.waiting import until

SCHEMA = "id INT, name STRING, price DOUBLE, at TIMESTAMP, on DATE, total DECIMAL(12, 2), kind STRING"
NESTED = "inner STRUCT<tags: ARRAY<STRING>, deep: STRUCT<x: BIGINT>>"
ROWS = 3_000


def rows(count: int) -> str:
    """CSV lines with nulls, numbers that JSON has no name for, and a kind of which every 500th is no number."""
    lines = []
    for number in range(count):
        price = ("NaN", "-Infinity", "", "1e300", "-0.0")[number % 5] if number % 7 == 0 else f"{number / 3}"
        kind = "none" if number % 500 == 499 else str(number % 10)
        name = "" if number % 11 == 0 else f'"number, {number} ü"'
        lines.append(f"{number},{name},{price},2020-01-01T00:00:{number % 60:02d}Z,2020-02-29,{number}.25,{kind}\n")
    return "".join(lines)


def documents(count: int) -> str:
    """JSON lines with nested values, fields in any order, missing fields and nulls."""
    lines = []
    for number in range(count):
        row = {
            **{"id": number, "name": f"number, {number} ü", "price": (None, 1e300, -0.0, 12, number / 3)[number % 5]},
            **{"at": f"2020-01-01T00:00:{number % 60:02d}Z", "on": "2020-02-29", "total": number + 0.25},
            **{"kind": "none" if number % 500 == 499 else str(number % 10)},
            **{"inner": {"tags": ["a", None, "ü"][: number % 4], "deep": {"x": number}} if number % 3 else None},
        }
        kept = [(name, item) for name, item in row.items() if number % 7 or name not in ("name", "price")]
        lines.append(json.dumps(dict(reversed(kept) if number % 2 else kept)) + "\n")
    return "".join(lines)


def source(place: Place, path: Path, instance: int = 1, /, **more: str) -> Task:
    config = {"connector.class": "FileSource", "file": str(path), "topic": f"{place.group}-t", **JSON, **dotted(more)}
    return place.task(config, instance=instance)


SLOWLY = {"bulk_mode": "always", "schema": "id INT, pad STRING", "producer_override_batch_size": "500"}
"""Batches of a few records, so that a job sends for seconds."""
MANY = 4_000


def numbered(path: Path, count: int = ROWS) -> Path:
    path.write_text("".join(f"{number},{'x' * (number % 90)}\n" for number in range(count)))
    return path


def ids(place: Place, isolation: str = "read_committed") -> list[int]:
    return [json.loads(value)["id"] for value in place.values(f"{place.group}-t", isolation)]


def wait_until_committed(place: Place, task: Task, path: Path, connector: str = "c") -> None:
    end = {"position": path.stat().st_size}

    def is_committed() -> bool:
        failed = [stimulus.trace for stimulus in task.stimuli if isinstance(stimulus, TaskFailed)]
        assert not failed, failed[0]
        return place.committed({"filename": str(path)}, connector) == end

    until(is_committed, "the commit of the whole file")


def done_in_part(task: Task) -> dict[str, int] | None:
    """The progress of the job that runs, when its first parts are done."""
    job = cast("dict[str, int] | None", task.runner.metrics()["job"])
    return job if job is not None and job["parts_done"] else None


def held(place: Place) -> AbstractContextManager[None]:
    return held_while_sending(place.bootstrap_servers, f"{place.group}-t")


@pytest.mark.parametrize(("kind", "schemas"), [("csv", "true"), ("json", "false")])
def test_both_lanes_write_the_same_records_in_the_same_order(
    place: Place, tmp_path: Path, kind: str, schemas: str
) -> None:
    path = tmp_path / f"in.{kind}"
    path.write_text("id,name,price,at,on,total,kind\n" + rows(ROWS) if kind == "csv" else documents(ROWS))
    found: dict[str, Any] = {}
    for mode in ("never", "always"):
        topic = place.create_topic(f"{place.group}-{mode}", partitions=3)
        config = {
            "name": mode, "connector.class": "FileSource", "file": str(path), "topic": topic,
            "format": kind, "schema": SCHEMA if kind == "csv" else f"{SCHEMA}, {NESTED}",
            "header": str(kind == "csv").lower(), "key.fields": "id", "bulk.mode": mode, "errors.tolerance": "all",
            **JSON,
            "value.converter.schemas.enable": schemas, "transforms": "cast,mask,head",
            "transforms.cast.type": "Cast$Value", "transforms.cast.spec": "kind:int32",
            "transforms.mask.type": "MaskField$Value", "transforms.mask.fields": "total",
            "transforms.head.type": "InsertHeader", "transforms.head.header": "from",
            "transforms.head.value.literal": "here", "slice.bytes": "60000",
            "producer.override.compression.type": "zstd",
        }  # fmt: skip
        task = place.task(config).begin()
        wait_until_committed(place, task, path, mode)
        skipped = sum(event.data["records"] for event in task.recorded(EventKind.RECORDS_SKIPPED))
        task.stop()
        messages = read_all(place.bootstrap_servers, topic)
        found[mode] = skipped, [(m.partition(), m.key(), m.value(), m.headers()) for m in messages]
        assert len(messages) == ROWS - skipped
        assert task.count("bulk_jobs") == (1 if mode == "always" else 0)
    assert found["always"] == found["never"]
    assert found["never"][0] == ROWS // 500


def test_a_job_whose_python_processes_are_killed_is_done_again_and_nothing_is_lost_or_doubled(
    place: Place, tmp_path: Path
) -> None:
    path = numbered(tmp_path / "in.csv", MANY)
    place.create_topic(f"{place.group}-t")
    task = source(place, path, **SLOWLY).begin()
    with held(place):
        job = until(lambda: done_in_part(task), "the progress of the job")
        killed = python_of_executors()
        assert killed
        for process in killed:
            process.kill()
    until(lambda: task.recorded(EventKind.TRANSACTION_ABORTED), "the abort")
    wait_until_committed(place, task, path)
    assert ids(place) == list(range(MANY))
    assert job["job"] == 1
    assert 0 < job["parts_done"] < job["parts"]
    (failed,) = task.recorded(EventKind.BULK_FAILED)
    (sent,) = task.recorded(EventKind.BULK_STAGED)
    assert [job.data["token"] for job in task.recorded(EventKind.BULK_STARTED)] == [1, 2]
    assert (failed.data["token"], sent.data["token"], sent.data["records"]) == (1, 2, MANY)
    metrics = task.runner.metrics()
    assert [metrics[name] for name in ("lane", "lane_reason", "job")] == ["bulk", "bulk.mode is always", None]
    task.stop()


def test_a_successor_fences_a_job_and_nothing_of_it_becomes_visible(place: Place, tmp_path: Path) -> None:
    path = numbered(tmp_path / "in.csv", MANY)
    place.create_topic(f"{place.group}-t")
    older = source(place, path, **SLOWLY).begin()
    with held(place):
        pass
    newer = source(place, path, 2, **{**SLOWLY, "producer_override_batch_size": "100000"}).begin()
    assert "ProducerFencedError" in older.failure()
    wait_until_committed(place, newer, path)
    newer.stop()
    assert ids(place) == list(range(MANY))


def test_a_line_that_does_not_fit_fails_the_task_after_three_jobs_and_nothing_is_visible(
    place: Place, tmp_path: Path
) -> None:
    path = numbered(tmp_path / "in.csv")
    with path.open("a") as file:
        file.write("x,bad\n")
    task = source(place, path, schema="id INT, pad STRING", bulk_mode="always").begin()
    assert f"Line {ROWS + 1} of {path} does not fit the schema" in task.failure()
    assert len(task.recorded(EventKind.BULK_FAILED)) == 3
    assert ids(place) == []


def test_without_transactions_executors_send_with_their_own_producers(place: Place, tmp_path: Path) -> None:
    path = numbered(tmp_path / "in.csv")
    config = {"connector.class": "FileSource", "file": str(path), "topic": f"{place.group}-t", **JSON}
    more = {"schema": "id INT, pad STRING", "bulk.mode": "always"}
    task = place.task(config | more, exactly_once=False, worker={"offset.flush.interval.ms": "500"}).begin()
    wait_until_committed(place, task, path)
    task.stop()
    assert task.count("bulk_jobs") == 1
    assert sorted(ids(place)) == list(range(ROWS))
