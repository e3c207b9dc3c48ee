"""Delta tables: offsets as application transactions, partitions, and tables that the sink refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from connectx.connectors.lake.delta import DeltaSink
from connectx.errors import LakeError, LakeStorageError, LakeUnavailableError
from tests.support.lake import Lake, batch, delta_files, partition, rows, write

P0, P1 = partition(0), partition(1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(DeltaSink.Task, {"path": str(tmp_path)})


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "rows")


def last_commit(table: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in max(Path(table, "_delta_log").glob("*.json")).read_text().splitlines()]


def test_one_commit_has_the_rows_and_the_offset_of_each_partition(lake: Lake, table: str) -> None:
    write(lake.opened(P0, P1), batch(3, rows(1, 2), end=9), batch(0, rows(3), place=P1))
    actions = last_commit(table)
    ids = {"connectx/connect-lake/rows/0": 9, "connectx/connect-lake/rows/1": 1}
    assert {one["txn"]["appId"]: one["txn"]["version"] for one in actions if "txn" in one} == ids  # type: ignore[index]
    assert sum("add" in one for one in actions) == 1


def test_offsets_survive_a_compaction_and_a_checkpoint(lake: Lake, table: str) -> None:
    task = lake.opened(P0)
    for number in range(3):
        write(task, batch(number, rows(number)))
    other = DeltaTable(table)
    assert other.optimize.compact()["numFilesRemoved"] == 3
    other.create_checkpoint()
    write(task, batch(3, rows(3)))
    assert lake.task().open([P0]) == {P0: 4}
    files = delta_files(Path(table))
    assert duckdb.execute(f"SELECT id FROM read_parquet({files}) ORDER BY 1").fetchall() == [(0,), (1,), (2,), (3,)]


def test_many_small_files_become_one_and_a_task_with_rows_at_hand_goes_on(lake: Lake, tmp_path: Path) -> None:
    task = lake.opened(P0)
    for number in range(4):
        write(task, batch(number, rows(number)))
    task.put(batch(4, rows(4)))
    done = DeltaSink.compact({"path": str(tmp_path)}, "rows")
    assert (done.place, done.files_before, done.files_after) == ("table rows", 4, 1)
    task.flush()
    assert lake.task().open([P0]) == {P0: 5}
    files = delta_files(tmp_path / "rows")
    assert len(files) == 2
    assert duckdb.execute(f"SELECT id FROM read_parquet({files}) ORDER BY 1").fetchall() == [(at,) for at in range(5)]


def test_changes_at_hand_are_made_after_a_compaction(lake: Lake, tmp_path: Path) -> None:
    upsert: dict[str, Any] = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id"}
    task = lake.opened(P0, **upsert)
    for number in range(3):
        write(task, batch(number, rows(number)))
    task.put(batch(3, [{"id": 1, "name": "new"}]))
    DeltaSink.compact({"path": str(tmp_path)}, "rows")
    task.flush()
    found = duckdb.execute(f"SELECT id, name FROM read_parquet({delta_files(tmp_path / 'rows')}) ORDER BY 1").fetchall()
    assert found == [(0, "row 0"), (1, "new"), (2, "row 2")]


def test_an_append_of_another_writer_is_no_reason_to_refuse(lake: Lake, table: str) -> None:
    task = lake.opened(P0)
    write(task, batch(0, rows(1)))
    task.put(batch(1, rows(2)))
    properties = CommitProperties(app_transactions=[Transaction("somebody", 1)])
    write_deltalake(table, pa.table({"id": [7], "name": ["x"]}), mode="append", commit_properties=properties)
    task.flush()
    assert lake.task().open([P0]) == {P0: 2}


def test_files_are_divided_by_the_partition_columns(lake: Lake, table: str) -> None:
    task = lake.opened(P0, partition_by="name")
    write(task, batch(0, rows(1, 2)), batch(2, rows(3)))
    assert sorted(path.name for path in Path(table).glob("name=*")) == ["name=row%201", "name=row%202", "name=row%203"]


def test_a_partition_column_that_the_records_lack_is_refused(lake: Lake) -> None:
    with pytest.raises(LakeError, match=r"without the field day, which partition\.by names"):
        write(lake.opened(P0, partition_by="day"), batch(0, rows(1)))


def test_a_table_with_other_partition_columns_is_refused(lake: Lake) -> None:
    write(lake.opened(P0), batch(0, rows(1)))
    with pytest.raises(LakeError, match=r"partitioned by nothing, and partition\.by names name"):
        lake.opened(P0, partition_by="name")


def test_narrower_integers_fit_a_table_of_another_writer(lake: Lake, table: str) -> None:
    DeltaTable.create(table, schema=pa.schema([("n", pa.int64())]))
    write(lake.opened(P0), batch(0, [{"n": 2}], pa.struct([("n", pa.int32())])))
    assert lake.task().open([P0]) == {P0: 1}


def test_a_table_that_may_forget_offsets_is_refused(lake: Lake, table: str) -> None:
    retention = {"delta.setTransactionRetentionDuration": "interval 1 days"}
    DeltaTable.create(table, pa.schema([("id", pa.int64())]), configuration=retention)
    with pytest.raises(LakeError, match="may forget offsets"):
        lake.opened(P0)


def test_a_directory_with_other_files_becomes_no_table(lake: Lake, table: str) -> None:
    Path(table).mkdir()
    Path(table, "notes.txt").touch()
    with pytest.raises(LakeError, match="not empty, and is no Delta table"):
        lake.opened(P0)


def test_a_damaged_log_is_an_error_with_the_tables_name(lake: Lake, table: str) -> None:
    write(lake.opened(P0), batch(0, rows(1)))
    for log in Path(table, "_delta_log").glob("*.json"):
        log.write_text("{")
    with pytest.raises((LakeError, LakeUnavailableError), match="The table rows cannot be"):
        lake.opened(P0)


def test_a_directory_that_does_not_exist_fails_the_start(tmp_path: Path) -> None:
    with pytest.raises(LakeStorageError, match="does not exist"):
        Lake(DeltaSink.Task, {"path": str(tmp_path / "no")}).task()


def test_what_check_reads_is_what_was_written(lake: Lake, tmp_path: Path) -> None:
    write(lake.opened(P0), batch(0, rows(1, 2)))
    stored = DeltaSink.stored({"path": str(tmp_path)}, "rows")
    assert stored is not None
    assert pa.concat_tables(stored.read()).sort_by("id").to_pylist() == rows(1, 2)
