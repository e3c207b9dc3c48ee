"""Iceberg tables: offsets as properties in the commit of the rows, other writers, and catalogs that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from connectx.connectors.lake import iceberg
from connectx.connectors.lake.iceberg import IcebergSink
from connectx.connectors.lake.merging import MergedFiles, merge_files
from connectx.connectors.shared.errors import LakeError, LakeUnavailableError
from connectx.plugins.registry import Plugins
from connectx.views import HIDDEN, masked
from tests.support.lake import Lake, batch, iceberg_files, partition, refusal, rows, write

P0, P1 = partition(0), partition(1)
OFFSET = "connectx.offsets.connect-lake.rows.0"


@pytest.fixture
def catalog(tmp_path: Path) -> Mapping[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": tmp_path.as_uri()}


@pytest.fixture
def settings(catalog: Mapping[str, str]) -> Mapping[str, str]:
    return {f"iceberg.catalog.{name}": text for name, text in catalog.items()}


@pytest.fixture
def lake(settings: Mapping[str, str]) -> Lake:
    return Lake(IcebergSink.Task, settings)


def loaded(catalog: Mapping[str, str]) -> Table:
    return load_catalog("iceberg", **catalog).load_table("default.rows")


def ids(catalog: Mapping[str, str]) -> list[int]:
    return sorted(loaded(catalog).scan().to_arrow()["id"].to_pylist())


def test_one_commit_has_the_rows_and_the_offset_of_each_partition(lake: Lake, catalog: Mapping[str, str]) -> None:
    write(lake.opened(P0, P1), batch(3, rows(1, 2), end=9), batch(0, rows(3), place=P1))
    table = loaded(catalog)
    offsets = {key: text for key, text in table.properties.items() if key.startswith("connectx.")}
    assert offsets == {OFFSET: "9", "connectx.offsets.connect-lake.rows.1": "1"}
    assert len(table.snapshots()) == 1
    assert "commit.retry.num-retries" not in table.properties


@pytest.mark.parametrize("partition_by", ["", "name"])
def test_many_small_files_become_one_for_each_partition_and_a_task_with_rows_at_hand_goes_on(
    lake: Lake, settings: Mapping[str, str], catalog: Mapping[str, str], partition_by: str
) -> None:
    task = lake.opened(P0, partition_by=partition_by)
    for number in range(4):
        write(task, batch(number, [{"id": number, "name": f"part {number % 2}"}]))
    task.put(batch(4, [{"id": 4, "name": "part 0"}]))
    before = len(loaded(catalog).snapshots())
    done = IcebergSink.compact(settings, "rows")
    assert (done.files_before, done.files_after) == (4, 2 if partition_by else 1)
    assert (len(loaded(catalog).snapshots()), loaded(catalog).properties[OFFSET]) == (before + 1, "4")
    assert IcebergSink.compact(settings, "rows").files_before == done.files_after
    task.flush()
    assert ids(catalog) == [0, 1, 2, 3, 4]
    assert len(iceberg_files(catalog, "default.rows")) == done.files_after + 1
    assert "commit.retry.num-retries" not in loaded(catalog).properties


def test_files_that_changed_while_they_were_merged_are_not_replaced(
    lake: Lake, catalog: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str]
) -> None:
    upsert: dict[str, Any] = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id"}
    task = lake.opened(P0, **upsert)
    for number in range(3):
        write(task, batch(number, rows(number)))

    def merged(table: Table, file_bytes: int) -> tuple[int, MergedFiles]:
        found = merge_files(table, file_bytes)
        write(task, batch(3, [{"id": 1, "name": "new"}]))
        return found

    monkeypatch.setattr(iceberg, "merge_files", merged)
    with pytest.raises(LakeUnavailableError, match="changed while its files were merged"):
        IcebergSink.compact(settings, "rows")
    assert sorted(loaded(catalog).scan().to_arrow()["name"].to_pylist()) == ["new", "row 0", "row 2"]


def test_appends_while_files_are_merged_stay(
    lake: Lake, catalog: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str]
) -> None:
    task = lake.opened(P0)
    for number in range(3):
        write(task, batch(number, rows(number)))

    def merged(table: Table, file_bytes: int) -> tuple[int, MergedFiles]:
        found = merge_files(table, file_bytes)
        write(task, batch(3, rows(3)))
        return found

    monkeypatch.setattr(iceberg, "merge_files", merged)
    assert IcebergSink.compact(settings, "rows").files_after == 1
    assert ids(catalog) == [0, 1, 2, 3]
    assert lake.task().open([P0]) == {P0: 4}


def test_offsets_outlive_expired_snapshots(lake: Lake, catalog: Mapping[str, str]) -> None:
    task = lake.opened(P0)
    write(task, batch(0, rows(1)))
    write(task, batch(1, rows(2)))
    table = loaded(catalog)
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    assert len(loaded(catalog).snapshots()) == 1
    assert lake.task().open([P0]) == {P0: 2}
    write(task, batch(2, rows(3)))
    assert ids(catalog) == [1, 2, 3]


def test_a_commit_of_another_writer_is_no_reason_to_refuse(lake: Lake, catalog: Mapping[str, str]) -> None:
    task = lake.opened(P0)
    write(task, batch(0, rows(1)))
    task.put(batch(1, rows(2)))
    loaded(catalog).append(pa.table({"id": [7], "name": ["x"]}))
    task.flush()
    assert ids(catalog) == [1, 2, 7]


@pytest.mark.rule("618.8.3")
def test_the_librarys_own_retries_let_no_zombie_through(lake: Lake, catalog: Mapping[str, str]) -> None:
    write(lake.opened(P0), batch(0, rows(1)))
    with loaded(catalog).transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "10", "commit.retry.min-wait-ms": "1"})
    zombie, successor = lake.opened(P0), lake.opened(P0)
    zombie.put(batch(1, rows(2)))
    write(successor, batch(1, rows(2, 3)))
    assert refusal(zombie.flush).committed == {P0: 3}
    assert ids(catalog) == [1, 2, 3]


def test_a_refused_commit_leaves_no_data_file_behind(lake: Lake, tmp_path: Path) -> None:
    zombie = lake.opened(P0)
    zombie.put(batch(0, rows(1)))
    write(lake.opened(P0), batch(0, rows(1, 2)))
    write(lake.opened(P1), batch(0, rows(3), place=P1))
    refusal(zombie.flush)
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


def test_a_column_becomes_wider(lake: Lake, catalog: Mapping[str, str]) -> None:
    task = lake.opened(P0)
    write(task, batch(0, [{"n": 1}], pa.struct([("n", pa.int32())])))
    write(task, batch(1, [{"n": 2**40}], pa.struct([("n", pa.int64())])))
    assert str(loaded(catalog).schema().find_type("n")) == "long"
    assert sorted(loaded(catalog).scan().to_arrow()["n"].to_pylist()) == [1, 2**40]


def test_files_are_divided_by_the_partition_columns(lake: Lake, catalog: Mapping[str, str], tmp_path: Path) -> None:
    task = lake.opened(P0, partition_by="name")
    write(task, batch(0, rows(1, 2)))
    write(task, batch(2, rows(3)))
    assert [field.name for field in loaded(catalog).spec().fields] == ["name"]
    assert len({path.parent for path in tmp_path.rglob("*.parquet")}) == 3


def test_a_partition_column_that_the_records_lack_is_refused(lake: Lake) -> None:
    with pytest.raises(LakeError, match=r"without the field day, which partition\.by names"):
        write(lake.opened(P0, partition_by="day"), batch(0, rows(1)))


def test_a_table_with_other_partition_columns_is_refused(lake: Lake) -> None:
    write(lake.opened(P0), batch(0, rows(1)))
    with pytest.raises(LakeError, match=r"partitioned by nothing, and partition\.by names name"):
        lake.opened(P0, partition_by="name")


def test_two_tasks_may_create_the_namespace_at_the_same_time(
    lake: Lake, catalog: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    exists = SqlCatalog.namespace_exists
    answers = [False]

    def was_missing(found: SqlCatalog, namespace: str | Identifier) -> bool:
        """The first answer is that of before the other task created it."""
        return answers.pop() if answers else exists(found, namespace)

    task = lake.opened(P0)
    load_catalog("iceberg", **catalog).create_namespace("default")
    monkeypatch.setattr(SqlCatalog, "namespace_exists", was_missing)
    write(task, batch(0, rows(1)))
    assert not answers
    assert ids(catalog) == [1]


def test_a_catalog_that_cannot_be_reached_is_asked_again(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/no/such/folder/catalog.db"
    with pytest.raises(LakeUnavailableError, match=r"default\.rows cannot be reached: .*unable to open database"):
        Lake(IcebergSink.Task, {"iceberg.catalog.type": "sql", "iceberg.catalog.uri": uri}).opened(P0)


def test_a_catalog_of_no_known_type_fails_the_task() -> None:
    with pytest.raises(LakeError, match=r"Correct `iceberg\.catalog\.\*`"):
        Lake(IcebergSink.Task, {"iceberg.catalog.type": "abacus"}).opened(P0)


def test_a_configuration_without_a_catalog_is_refused() -> None:
    problems = Plugins().connector_class("IcebergSink").validate({"topics": "rows"})
    assert list(problems) == ["iceberg.catalog"]


def test_secrets_of_the_catalog_are_hidden(settings: Mapping[str, str]) -> None:
    secrets = dict.fromkeys(["credential", "token", "s3.secret-access-key"], "hunter2")
    shown = masked({**settings, **{f"iceberg.catalog.{name}": text for name, text in secrets.items()}})
    assert [shown[f"iceberg.catalog.{name}"] for name in secrets] == [HIDDEN] * 3


def test_what_check_reads_is_what_was_written(lake: Lake, settings: Mapping[str, str]) -> None:
    write(lake.opened(P0), batch(0, rows(1, 2)))
    stored = IcebergSink.stored(settings, "rows")
    assert stored is not None
    assert pa.concat_tables(stored.read()).sort_by("id").to_pylist() == rows(1, 2)
