"""Required columns of tables, and constraints of Delta tables: refused rows are reported one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from connectx.connectors.lake.constraints import Constraints
from connectx.connectors.lake.task import LakeTask
from connectx.connectors.shared.errors import LakeUnavailableError
from connectx.errors.plugins import RecordRejectedError
from connectx.plugins.errors import NotStageableError
from tests.support.lake import Context, Lake, batch, partition, write
from tests.unit.connectors.lake.conftest import FORMATS, Tables

pytestmark = pytest.mark.rule("always.8")

P0, TOKEN = partition(), "rows-0-abc-1"
ROW = pa.struct([("id", pa.int64()), ("n", pa.int64())])
COLUMNS = pa.schema([("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
UPSERT = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id"}
Put = Callable[[Lake, list[dict[str, Any]], bool], LakeTask]


def reported(task: LakeTask) -> list[str]:
    assert isinstance(task.context, Context)
    return task.context.reported


def in_tail(lake: Lake, values: list[dict[str, Any]], tolerate: bool) -> LakeTask:
    """The task that has put rows."""
    task = lake.opened(P0, tolerate=tolerate)
    write(task, batch(0, values, ROW))
    return task


def in_bulk(lake: Lake, values: list[dict[str, Any]], tolerate: bool) -> LakeTask:
    """The task of the executor that has staged rows, which another one has committed."""
    task, executor = lake.opened(P0), lake.task(tolerate=tolerate)
    messages = [*executor.stage(task.plan(TOKEN, "rows"), TOKEN, iter([batch(0, values, ROW)]))]
    task.commit(TOKEN, {P0: (0, len(values))}, messages)
    return executor


def delta(folder: Path, constraints: dict[str, str]) -> DeltaTable:
    """An empty table."""
    table = DeltaTable.create(str(folder / "rows"), pa.schema([("id", pa.int64()), ("n", pa.int64())]))
    for name, text in constraints.items():
        table.alter.add_constraint({name: text})
    return table


@pytest.fixture(params=["delta", "iceberg"])
def required(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Lake, Tables]:
    """An empty table with a required column."""
    lake, files = FORMATS[request.param](tmp_path)
    if request.param == "delta":
        DeltaTable.create(str(tmp_path / "rows"), COLUMNS)
    else:
        catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": tmp_path.as_uri()}
        loaded = load_catalog("iceberg", **catalog)
        loaded.create_namespace("default")
        loaded.create_table("default.rows", COLUMNS)
    return lake, Tables(files)


@pytest.fixture(params=[in_tail, in_bulk])
def put(request: pytest.FixtureRequest) -> Put:
    """Writes in each lane."""
    lane: Put = request.param
    return lane


def test_rows_without_a_required_value_are_reported_one_by_one(required: tuple[Lake, Tables], put: Put) -> None:
    lake, tables = required
    values: list[dict[str, Any]] = [{"id": at, "n": None if at % 2 else at} for at in range(4)]
    task = put(lake, values, True)
    assert reported(task) == ["rows-0@1", "rows-0@3"]
    assert tables.sql("SELECT id, n FROM lake ORDER BY id") == [(0, 0), (2, 2)]
    assert lake.task().open([P0]) == {P0: 4}


def test_a_row_without_a_required_value_fails_a_strict_task(required: tuple[Lake, Tables], put: Put) -> None:
    with pytest.raises(RecordRejectedError, match=r"offset 1 of rows-0: the column n is required"):
        put(required[0], [{"id": 0, "n": 0}, {"id": 1, "n": None}], False)


def test_required_columns_stay_required_when_others_are_added(required: tuple[Lake, Tables]) -> None:
    lake, tables = required
    task = lake.opened(P0, tolerate=True)
    more = pa.struct([*ROW, ("more", pa.string())])
    write(task, batch(0, [{"id": 0, "n": None, "more": "x"}, {"id": 1, "n": 1, "more": "y"}], more))
    write(task, batch(2, [{"id": 2, "n": None}], ROW))
    assert reported(task) == ["rows-0@0", "rows-0@2"]
    assert tables.sql("SELECT id, n, more FROM lake") == [(1, 1, "y")]


def test_deletions_need_no_more_than_the_key(required: tuple[Lake, Tables]) -> None:
    lake, tables = required
    kind = pa.struct([("op", pa.string()), ("before", ROW), ("after", ROW)])
    settings = {**UPSERT, "value_envelope": "debezium", "delete_enabled": "true"}
    task = lake.opened(P0, tolerate=True, **settings)
    write(task, batch(0, [{"op": "c", "after": {"id": at, "n": at}} for at in range(3)], kind))
    gone, bad = {"op": "d", "before": {"id": 1, "n": None}}, {"op": "u", "after": {"id": 2, "n": None}}
    write(task, batch(3, [gone, bad, {"op": "u", "after": {"id": 0, "n": 7}}], kind))
    assert tables.sql("SELECT id, n FROM lake ORDER BY id") == [(0, 7), (2, 2)]
    write(task, batch(6, [{"op": "d", "before": {"id": 2, "n": None}}], kind))
    write(task, batch(7, [bad], kind))
    assert reported(task) == ["rows-0@4", "rows-0@7"]
    assert tables.sql("SELECT id, n FROM lake ORDER BY id") == [(0, 7)]


@pytest.mark.parametrize("settings", [{}, UPSERT], ids=["append", "upsert"])
def test_rows_that_violate_a_check_are_found_and_the_others_are_written(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    lake, files = FORMATS["delta"](tmp_path)
    delta(tmp_path, {"small": "n < 90", "even": "n % 2 = 0 OR n < 50"})
    task = lake.opened(P0, tolerate=True, **settings)
    write(task, batch(0, [{"id": at, "n": 2 * at if at != 7 else 51} for at in range(50)], ROW))
    assert reported(task) == ["rows-0@7", *(f"rows-0@{at}" for at in range(45, 50))]
    assert Tables(files).ids() == [at for at in range(45) if at != 7]
    assert lake.task().open([P0]) == {P0: 50}
    with pytest.raises(RecordRejectedError, match=r"offset 51 of rows-0: .* small \(n < 90\)"):
        write(lake.opened(P0, **settings), batch(50, [{"id": 50, "n": 0}, {"id": 51, "n": 99}], ROW))


def test_a_constraint_that_comes_between_a_put_and_its_commit_is_kept(tmp_path: Path) -> None:
    lake, files = FORMATS["delta"](tmp_path)
    table = delta(tmp_path, {})
    task = lake.opened(P0, tolerate=True)
    values = batch(0, [{"id": 0, "n": 0}, {"id": 1, "n": 99}], ROW)
    task.put(values)
    table.alter.add_constraint({"small": "n < 90"})
    with pytest.raises(LakeUnavailableError):
        task.flush()
    write(task, values)
    assert (reported(task), Tables(files).ids()) == (["rows-0@1"], [0])


def test_the_worker_writes_tables_with_constraints(tmp_path: Path) -> None:
    lake, files = FORMATS["delta"](tmp_path)
    table = delta(tmp_path, {})
    task, executor = lake.opened(P0), lake.task()
    messages = [*executor.stage(task.plan(TOKEN, "rows"), TOKEN, iter([batch(0, [{"id": 0, "n": 99}], ROW)]))]
    table.alter.add_constraint({"small": "n < 90"})
    with pytest.raises(NotStageableError, match=r"small \(n < 90\)"):
        lake.opened(P0).plan(TOKEN, "rows")
    with pytest.raises(NotStageableError, match=r"small \(n < 90\)"):
        task.commit(TOKEN, {P0: (0, 1)}, messages)
    assert files("rows") == []


@pytest.mark.parametrize("settings", [{}, UPSERT], ids=["append", "upsert"])
def test_generated_columns_are_computed_and_invariants_are_checked(tmp_path: Path, settings: dict[str, str]) -> None:
    lake, files = FORMATS["delta"](tmp_path)
    invariant = {"delta.invariants": '{"expression": {"expression": "n > 3"}}'}
    fields = [
        pa.field("id", pa.int64()),
        pa.field("n", pa.int64(), metadata=invariant),
        pa.field("next", pa.int64(), metadata={"delta.generationExpression": "n + 1"}),
    ]
    table = DeltaTable.create(str(tmp_path / "rows"), pa.schema(fields))
    table.alter.add_constraint({"small": "next < 10"})
    task = lake.opened(P0, tolerate=True, **settings)
    write(task, batch(0, [{"id": at, "n": at} for at in range(12)], ROW))
    assert reported(task) == [f"rows-0@{at}" for at in (0, 1, 2, 3, 9, 10, 11)]
    found = Tables(files).sql("SELECT id, next FROM lake ORDER BY id")
    assert found == [(at, at + 1) for at in range(4, 9)]
    assert str(Constraints.of(DeltaTable(str(tmp_path / "rows")))) == "small (next < 10), n (n > 3)"
