"""DataSourceSink, without Kafka and Spark: when its writer writes, commits and aborts."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectx.connectors.spark.datasource_sink import DataSourceSink
from connectx.connectors.spark.errors import DataSourceWriteError
from connectx.errors.plugins import RecordRejectedError
from connectx.plugins.errors import NotStageableError
from tests.support.json_lines import ArrowJsonLines, JsonLines, ReadOnly, lines_in, named
from tests.support.lake import Context, batch, partition, rows

P0, P1 = partition(0), partition(1)


def task(folder: Path, source: type = JsonLines, *, tolerate: bool = False, **more: str) -> DataSourceSink.Task:
    found = DataSourceSink.Task()
    options = {f"datasource.options.{name}": text for name, text in {"folder": str(folder), **more}.items()}
    found.start({"datasource.class": named(source), "flush.size": "3", **options}, Context("connect-c", tolerate))
    return found


def ids(folder: Path, suffix: str = "json") -> list[int]:
    return sorted(row["id"] for row in lines_in(folder, suffix))


@pytest.mark.parametrize("source", [JsonLines, ArrowJsonLines])
def test_rows_are_written_by_a_flush_or_when_there_are_enough(tmp_path: Path, source: type) -> None:
    sink = task(tmp_path, source)
    sink.put(batch(0, rows(1, 2)))
    assert ids(tmp_path) == []
    sink.flush()
    assert ids(tmp_path) == [1, 2]
    sink.put(batch(2, rows(3, 4, 5)))
    sink.put(batch(5, rows(6)))
    assert ids(tmp_path) == [1, 2, 3, 4, 5]
    sink.flush()
    assert ids(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert lines_in(tmp_path)[0].keys() == {"id", "name"}


def test_a_column_that_comes_later_is_null_in_rows_before(tmp_path: Path) -> None:
    sink = task(tmp_path)
    sink.put(batch(0, rows(1)))
    sink.put(batch(1, [{"id": 2, "more": 0.5}], pa.struct([("id", pa.int64()), ("more", pa.float64())])))
    sink.flush()
    assert sorted(lines_in(tmp_path), key=lambda row: row["id"]) == [
        {"id": 1, "name": "row 1", "more": None},
        {"id": 2, "name": None, "more": 0.5},
    ]


def test_rows_of_a_partition_that_was_taken_away_are_dropped(tmp_path: Path) -> None:
    sink = task(tmp_path)
    sink.put(batch(0, rows(1)))
    sink.put(batch(0, rows(2), place=P1))
    sink.close([P0])
    sink.flush()
    assert ids(tmp_path) == [2]


@pytest.mark.parametrize("fails", ["write", "commit"])
def test_a_writer_that_fails_aborts_and_fails_the_task(tmp_path: Path, fails: str) -> None:
    sink = task(tmp_path, fails=fails)
    sink.put(batch(0, rows(1)))
    with pytest.raises(DataSourceWriteError, match="JsonLines could not write: OSError: the disk is full"):
        sink.flush()
    assert ids(tmp_path, "*") == []
    sink.put(batch(0, rows(1)))
    sink.flush()
    assert ids(tmp_path) == [1]


def test_a_tombstone_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RecordRejectedError, match="tombstone"):
        task(tmp_path).put(batch(0, [None]))
    sink = task(tmp_path, tolerate=True)
    sink.put(batch(0, [None, {"id": 1}]))
    sink.flush()
    assert ids(tmp_path) == [1]
    assert isinstance(sink.context, Context)
    assert sink.context.reported == ["rows-0@0"]


def staged(sink: DataSourceSink.Task, folder: Path, token: str, *batches: Any, **more: Any) -> list[Any]:
    """Messages of an executor, which gets everything pickled."""
    plan = pickle.loads(pickle.dumps(sink.plan(token, "rows")))
    return [pickle.loads(pickle.dumps(each)) for each in task(folder, **more).stage(plan, token, iter(batches))]


def test_what_executors_write_counts_when_the_worker_commits(tmp_path: Path) -> None:
    sink = task(tmp_path)
    sink.put(batch(0, rows(1)))
    sink.flush()
    messages = staged(sink, tmp_path, "job-1", batch(1, rows(2, 3)), batch(3, rows(4)))
    messages += staged(sink, tmp_path, "job-1", batch(0, rows(5), place=P1))
    assert ids(tmp_path) == [1]
    sink.commit("job-1", {P0: (1, 4), P1: (0, 1)}, messages)
    assert ids(tmp_path) == [1, 2, 3, 4, 5]


def test_a_job_that_is_discarded_leaves_nothing(tmp_path: Path) -> None:
    sink = task(tmp_path)
    sink.put(batch(0, rows(1)))
    messages = staged(sink, tmp_path, "job-1", batch(1, rows(2)))
    assert ids(tmp_path, "staged") == [2]
    sink.discard("job-1", messages)
    assert ids(tmp_path, "staged") == []


def test_a_job_needs_columns_that_are_known_and_stay(tmp_path: Path) -> None:
    sink = task(tmp_path)
    with pytest.raises(NotStageableError, match="not known"):
        sink.plan("job-1", "rows")
    sink.put(batch(0, rows(1)))
    with pytest.raises(NotStageableError, match="other columns"):
        staged(sink, tmp_path, "job-1", batch(1, [{"more": 1}], pa.struct([("more", pa.int64())])))


def test_a_class_without_a_writer_is_refused() -> None:
    (problem,) = DataSourceSink.validate({"datasource.class": named(ReadOnly)})["datasource.class"]
    assert "defines no writer" in problem
    assert DataSourceSink.validate({"datasource.class": "no.such.Thing"}).keys() == {"datasource.class"}
    assert DataSourceSink.validate({"datasource.class": named(JsonLines)}) == {}
