"""Files that executors stage, and the commit of the worker that makes them part of a table with their offsets."""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectx.connectors.lake.delta import DeltaSink
from connectx.connectors.lake.iceberg import IcebergSink
from connectx.connectors.lake.parquet import ParquetSink
from connectx.errors.plugins import RecordRejectedError
from connectx.model.ids import TopicPartition
from connectx.plugins.errors import CommitRefusedError, NotStageableError
from connectx.plugins.slices import SinkBatch
from tests.support.lake import Context, Lake, batch, delta_files, partition, rows, write
from tests.unit.connectors.lake.conftest import FORMATS, Tables

pytestmark = pytest.mark.rule("always.8")

P0, P1 = partition(0), partition(1)
TOKEN = "rows-0-abc-1"
MORE = pa.struct([("id", pa.int64()), ("more", pa.string())])
Ranges = dict[TopicPartition, tuple[int, int]]


def stage(lake: Lake, task: Any, token: str, *batches: SinkBatch, **settings: Any) -> list[Any]:
    """Messages of an executor, which has a separate task object and gets everything pickled."""
    plan = pickle.loads(pickle.dumps(task.plan(token, "rows")))
    on_executor = lake.task(**settings)
    return [pickle.loads(pickle.dumps(each)) for each in on_executor.stage(plan, token, iter(batches))]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}


@pytest.fixture(params=[*FORMATS, "delta by id"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Lake, Tables]:
    if request.param != "delta by id":
        lake, files = FORMATS[request.param](tmp_path)
        return lake, Tables(files)
    settings = {"path": str(tmp_path), "partition.by": "id"}
    return Lake(DeltaSink.Task, settings), Tables(lambda table: delta_files(tmp_path / table))


@pytest.fixture
def task(lake: Lake) -> Any:
    """Has written ids 0 and 1 of partition 0."""
    task = lake.opened(P0, P1)
    write(task, batch(0, rows(*range(0, 2))))
    return task


def test_staged_rows_are_seen_only_after_the_commit_which_moves_the_offsets(
    lake: Lake, tables: Tables, task: Any
) -> None:
    ranges: Ranges = {P0: (2, 5), P1: (0, 2)}
    messages = stage(lake, task, TOKEN, batch(2, rows(*range(2, 5))))
    messages += stage(lake, task, TOKEN, batch(0, rows(*range(5, 7)), place=P1))
    assert tables.ids() == [0, 1]
    task.commit(TOKEN, ranges, messages)
    assert tables.ids() == [*range(7)]
    assert lake.task().open([P0, P1]) == {P0: 5, P1: 2}
    write(task, batch(5, rows(*range(7, 8))))
    assert tables.ids() == [*range(8)]


def test_several_parts_and_files_of_a_partition_follow_each_other(lake: Lake, tables: Tables, task: Any) -> None:
    first = stage(lake, task, TOKEN, batch(2, rows(*range(2, 4))), batch(4, rows(*range(4, 6))), flush_bytes="1")
    second = stage(lake, task, TOKEN, batch(6, rows(*range(6, 8))))
    assert len(first) == 2
    task.commit(TOKEN, {P0: (2, 8)}, first + second)
    assert tables.ids() == [*range(8)]
    assert lake.task().open([P0]) == {P0: 8}


def test_a_zombies_late_commit_is_refused_and_changes_nothing(lake: Lake, tables: Tables, task: Any) -> None:
    messages = stage(lake, task, TOKEN, batch(2, rows(*range(2, 5))))
    successor = lake.opened(P0)
    write(successor, batch(2, rows(*range(2, 4))))
    with pytest.raises(CommitRefusedError) as refused:
        task.commit(TOKEN, {P0: (2, 5)}, messages)
    assert refused.value.committed == {P0: 4}
    assert tables.ids() == [0, 1, 2, 3]


def test_files_from_before_a_column_became_wider_do_not_get_into_a_delta_table(lake: Lake, tables: Tables) -> None:
    """Its readers need not know wider types. The other formats keep the types of each file."""
    narrow, wide = (pa.struct([("id", kind), ("name", pa.string())]) for kind in (pa.int32(), pa.int64()))
    task = lake.opened(P0)
    write(task, batch(0, [{"id": 0, "name": "a"}], narrow))
    messages = stage(lake, task, TOKEN, batch(1, [{"id": 1, "name": "a"}], narrow))
    write(lake.opened(P1), batch(0, [{"id": 1 << 40, "name": "a"}], wide, place=P1))
    if isinstance(task, DeltaSink.Task):
        with pytest.raises(NotStageableError, match="wider"):
            task.commit(TOKEN, {P0: (1, 2)}, messages)
        write(task, batch(1, [{"id": 1, "name": "a"}], narrow))
    else:
        task.commit(TOKEN, {P0: (1, 2)}, messages)
    assert tables.ids() == [0, 1, 1 << 40]


def test_a_commit_that_happened_without_an_answer_is_not_done_twice(lake: Lake, tables: Tables, task: Any) -> None:
    messages = stage(lake, task, TOKEN, batch(2, rows(*range(2, 5))))
    same = lake.opened(P0)
    same.plan(TOKEN, "rows")
    same.commit(TOKEN, {P0: (2, 5)}, messages)
    with suppress(CommitRefusedError):
        task.commit(TOKEN, {P0: (2, 5)}, messages)
    assert tables.ids() == [*range(5)]
    assert lake.task().open([P0]) == {P0: 5}


def test_discarded_files_are_removed_and_so_are_those_of_failed_attempts(
    lake: Lake, tables: Tables, task: Any, tmp_path: Path
) -> None:
    before = files(tmp_path)
    stage(lake, task, TOKEN, batch(2, rows(*range(2, 5))))
    staged = files(tmp_path) - before
    assert all(TOKEN in name for name in staged)
    assert staged
    task.discard(TOKEN, [])
    assert files(tmp_path) == before
    token = TOKEN + "1"
    stage(lake, task, token, batch(2, rows(*range(2, 5))))  # an attempt whose answer was lost
    lost = files(tmp_path) - before
    task.commit(token, {P0: (2, 5)}, stage(lake, task, token, batch(2, rows(*range(2, 5)))))
    assert lost.isdisjoint(files(tmp_path))
    assert tables.ids() == [*range(5)]


def test_without_rows_the_offsets_go_with_the_next_ones(lake: Lake, tables: Tables, task: Any) -> None:
    task.plan(TOKEN, "rows")
    task.commit(TOKEN, {P0: (2, 5)}, [])
    write(task, batch(5, rows(*range(5, 6))))
    assert tables.ids() == [0, 1, 5]
    assert lake.task().open([P0]) == {P0: 6}


def test_records_that_change_the_columns_are_left_to_the_worker(lake: Lake, task: Any) -> None:
    with pytest.raises(NotStageableError, match="change the columns"):
        stage(lake, task, TOKEN, batch(2, [{"id": 2, "more": "x"}], MORE))
    with pytest.raises(NotStageableError, match="does not exist yet"):
        lake.task().plan(TOKEN, "others")


def test_records_that_lack_columns_have_nulls_there(lake: Lake, tables: Tables, task: Any) -> None:
    write(task, batch(2, [{"id": 2, "more": "x"}], MORE))
    task.commit(TOKEN, {P0: (3, 4)}, stage(lake, task, TOKEN, batch(3, rows(*range(3, 4)))))
    assert tables.sql("SELECT id, more FROM lake WHERE id > 1 ORDER BY id") == [(2, "x"), (3, None)]


def test_tombstones_are_reported_on_the_executor(lake: Lake, task: Any) -> None:
    plan = task.plan(TOKEN, "rows")
    on_executor = lake.task(tolerate=True)
    (message,) = on_executor.stage(plan, TOKEN, iter([batch(2, [{"id": 2}, None])]))
    assert isinstance(on_executor.context, Context)
    assert len(on_executor.context.reported) == 1
    task.commit(TOKEN, {P0: (2, 4)}, [message])


def test_errors_of_executors_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(RecordRejectedError("rows-0", 7, "The table", "too long")))
    assert isinstance(error, RecordRejectedError)
    assert str(error) == str(RecordRejectedError("rows-0", 7, "The table", "too long"))


def test_configurations_that_only_the_worker_can_write_are_named() -> None:
    upsert = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id"}
    assert DeltaSink.bulk_obstacle({"path": "/lake"}) is None
    assert DeltaSink.bulk_obstacle({"path": "/lake", **upsert}) is None
    assert DeltaSink.bulk_obstacle({"path": "/lake", "partition.by": "day"}) is None
    assert IcebergSink.bulk_obstacle({"iceberg.catalog": "c", "partition.by": "day"}) is None
    assert ParquetSink.bulk_obstacle({"path": "/lake"}) is None
