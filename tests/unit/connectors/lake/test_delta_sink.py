"""Delta tables: offsets as application transactions, partitions, and tables that the sink refuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from connectx.connectors.lake.delta import DeltaSink
from connectx.connectors.shared.errors import LakeError, LakeStorageError, LakeUnavailableError
from connectx.errors.databases import TableMismatchError
from connectx.plugins.errors import NotStageableError
from tests.support.lake import Lake, batch, delta_files, partition, rows, write

P0, P1 = partition(0), partition(1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(DeltaSink.Task, {"path": str(tmp_path)})


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "rows")


def last_commit(table: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in max(Path(table, "_delta_log").glob("*.json")).read_text().splitlines()]


def test_one_commit_has_the_rows_and_the_offset_of_each_partition(lake: Lake, table: str) -> None:
    write(lake.opened(P0, P1), batch(3, rows(1, 2), end=9), batch(0, rows(3), place=P1))
    actions = last_commit(table)
    ids = {"connectx/connect-lake/rows/0": 9, "connectx/connect-lake/rows/1": 1}
    assert {one["txn"]["appId"]: one["txn"]["version"] for one in actions if "txn" in one} == ids
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


DIVIDING = pa.struct([
    ("text", pa.string()), ("flag", pa.bool_()), ("number", pa.int64()), ("day", pa.date32()),
    ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")), ("price", pa.decimal128(9, 2)),
])  # fmt: skip
TIME = datetime(2026, 1, 2, 3, 4, 5, 678901)
VALUES: Sequence[Sequence[Any]] = [
    ("a/b", True, -7, date(2026, 1, 2), TIME.replace(tzinfo=UTC), TIME, Decimal("1.50")),
    ("\u00dc %=x", False, 0, date(1, 1, 1), TIME.replace(tzinfo=UTC, microsecond=0), TIME.min, Decimal(-12)),
    ("", None, None, None, None, None, None),
]


def test_executors_divide_files_by_the_same_texts_as_the_worker_and_both_are_merged(lake: Lake, table: str) -> None:
    kind = pa.struct([*DIVIDING, ("id", pa.int64())])
    given = [dict(zip(DIVIDING.names, values, strict=True)) | {"id": at} for at, values in enumerate(VALUES)]
    task = lake.opened(P0, partition_by=",".join(DIVIDING.names))
    write(task, batch(0, given, kind))
    by_worker = partition_values(table)
    plan = task.plan("job", "rows")
    task.commit("job", {P0: (3, 6)}, [*lake.task().stage(plan, "job", iter([batch(3, given, kind)]))])
    assert partition_values(table) == by_worker
    assert by_worker[0]["price"] == "1.50"
    staged = [Path(path).relative_to(table) for path in delta_files(Path(table)) if "connectx-job" in path]
    assert "text=__HIVE_DEFAULT_PARTITION__" in {path.parts[1] for path in staged}
    assert all(pq.read_schema(Path(table, path)).names == ["id"] for path in staged)
    wanted = [{**row, "text": row["text"] or None} for row in given for _ in range(2)]
    assert found(table) == wanted
    assert DeltaSink.compact(lake.task().settings, "rows").files_after == 3
    assert found(table) == wanted


def test_files_from_before_a_table_got_other_partitions_are_left_to_the_worker(lake: Lake, table: str) -> None:
    task = lake.opened(P0)
    write(task, batch(0, rows(1)))
    messages = [*lake.task().stage(task.plan("job", "rows"), "job", iter([batch(1, rows(2))]))]
    again = DeltaTable(table).to_pyarrow_table()
    write_deltalake(table, again, mode="overwrite", schema_mode="overwrite", partition_by=["name"])
    task.open([P0])
    with pytest.raises(NotStageableError, match="other partitions than the staged files"):
        task.commit("job", {P0: (1, 2)}, messages)


def found(table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().sort_by("id").to_pylist()
    return rows


def partition_values(table: str) -> list[dict[str, str | None]]:
    """Those of the last commit; readers find null in an empty text."""
    added = [action["add"] for action in last_commit(table) if "add" in action]
    values = [{name: text or None for name, text in add["partitionValues"].items()} for add in added]
    return sorted(values, key=lambda each: str(each["number"]))


@pytest.mark.parametrize("kind", [pa.float64(), pa.binary()])
def test_the_worker_writes_tables_that_are_divided_by_values_without_a_common_text(
    lake: Lake, kind: pa.DataType
) -> None:
    value = 0.5 if kind == pa.float64() else b"a"
    task = lake.opened(P0, partition_by="by")
    write(task, batch(0, [{"id": 1, "by": value}], pa.struct([("id", pa.int64()), ("by", kind)])))
    with pytest.raises(NotStageableError, match="partitioned by by of type"):
        task.plan("job", "rows")


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


@pytest.mark.parametrize("nested", [False, True])
def test_fields_that_differ_in_case_alone_are_a_named_error(lake: Lake, nested: bool) -> None:
    kind = pa.struct([("id", pa.int64()), ("ID", pa.int64())])
    values: list[Any] = [{"id": 1, "ID": 2}]
    if nested:
        kind, values = pa.struct([("in", kind)]), [{"in": values[0]}]
    task = lake.opened(P0)
    task.put(batch(0, values, kind))
    with pytest.raises(TableMismatchError):
        task.flush()


def test_a_value_that_is_too_long_for_the_name_of_a_directory_fails_the_task(lake: Lake) -> None:
    task = lake.opened(P0, partition_by="name")
    task.put(batch(0, [{"id": 1, "name": "x" * 300}]))
    with pytest.raises(LakeStorageError):
        task.flush()
