"""Tables with keys in bulk: executors stage the last change of each key, and the worker adds or merges them."""

from __future__ import annotations

import pickle
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from connectx.connectors.lake.delta import DeltaSink
from connectx.connectors.shared.errors import LakeUnavailableError
from connectx.plugins.errors import NotStageableError
from connectx.plugins.slices import SinkBatch
from tests.support.lake import Lake, batch, delta_files, partition, refusal, write
from tests.unit.connectors.lake.conftest import FORMATS, Tables

pytestmark = pytest.mark.rule("always.8")

P0, P1 = partition(0), partition(1)
TOKEN = "rows-0-abc-1"
BY_KEY: dict[str, Any] = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "id", "delete_enabled": "true"}
ROW = pa.struct([("name", pa.string()), ("part", pa.date32())])


@pytest.fixture(params=["delta", "iceberg", "delta by part"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Lake, Tables]:
    if request.param == "delta by part":
        settings = {"path": str(tmp_path), "partition.by": "part"}
        return Lake(DeltaSink.Task, settings), Tables(lambda table: delta_files(tmp_path / table))
    lake, files = FORMATS[request.param](tmp_path)
    return lake, Tables(files)


@pytest.fixture
def task(lake: Lake) -> Any:
    """Has written the rows 1 and 2 at the offsets 0 and 1 of partition 0."""
    task = lake.opened(P0, P1, **BY_KEY)
    write(task, changes(0, (1, "a"), (2, "b")))
    return task


def changes(first: int, *rows: tuple[int, str | None], place: Any = P0) -> SinkBatch:
    """Names by ids; None deletes the row."""
    values = [None if name is None else {"name": name, "part": number % 2} for number, name in rows]
    return batch(first, values, ROW, keys=pa.array([number for number, _ in rows], pa.int64()), place=place)


def stage(lake: Lake, task: Any, *batches: SinkBatch, token: str = TOKEN, **settings: Any) -> list[Any]:
    """Messages of an executor."""
    plan = pickle.loads(pickle.dumps(task.plan(token, "rows")))
    on_executor = lake.task(**BY_KEY, **settings)
    return [pickle.loads(pickle.dumps(each)) for each in on_executor.stage(plan, token, iter(batches))]


def names(tables: Tables) -> dict[int, str]:
    rows = tables.sql("SELECT id, name FROM lake")
    assert len({row[0] for row in rows}) == len(rows), f"a key is there twice: {rows}"
    return dict(sorted(rows))


def offsets(lake: Lake) -> dict[Any, int]:
    return dict(lake.task(**BY_KEY).open([P0, P1]))


def is_added(tmp_path: Path, messages: list[Any]) -> bool:
    """Whether staged files are there after their commit, and so part of the table."""
    kept = {path.name for path in tmp_path.rglob("*.parquet")}
    return {Path(path).name for file in messages for path in file.paths} <= kept


def test_files_with_new_keys_become_part_of_the_table(lake: Lake, tables: Tables, task: Any, tmp_path: Path) -> None:
    messages = stage(lake, task, changes(2, (3, "c"), (3, "C"), (4, "d")))
    messages += stage(lake, task, changes(0, (5, "e"), (6, None), place=P1))
    assert names(tables) == {1: "a", 2: "b"}
    task.commit(TOKEN, {P0: (2, 6), P1: (0, 2)}, messages)
    assert names(tables) == {1: "a", 2: "b", 3: "C", 4: "d", 5: "e"}
    assert offsets(lake) == {P0: 6, P1: 2}
    assert is_added(tmp_path, messages)
    task.commit("next", {P1: (2, 3)}, stage(lake, task, changes(2, (6, None), place=P1), token="next"))
    assert offsets(lake) == {P0: 6, P1: 3}
    write(task, changes(6, (3, None), (5, "E")))
    assert names(tables) == {1: "a", 2: "b", 4: "d", 5: "E"}


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ([[(2, "B"), (3, "c")]], {1: "a", 2: "B", 3: "c"}),
        ([[(3, "c"), (4, "d")], [(3, "C")]], {1: "a", 2: "b", 3: "C", 4: "d"}),
        ([[(3, "c"), (1, None)], [(4, "d"), (3, None)]], {2: "b", 4: "d"}),
        ([[(3, None)], [(3, "c"), (4, None)]], {1: "a", 2: "b", 3: "c"}),
        ([[(1, None), (1, "A")], [(2, "B"), (2, None)]], {1: "A"}),
    ],
    ids=["known keys", "a key in two files", "deleted rows", "a file without rows", "rows that come back"],
)
def test_other_files_are_merged_and_removed(
    lake: Lake, tables: Tables, task: Any, tmp_path: Path, parts: list[list[tuple[int, str | None]]], wanted: Any
) -> None:
    at, messages = 2, []
    for part in parts:
        messages += stage(lake, task, changes(at, *part))
        at += len(part)
    task.commit(TOKEN, {P0: (2, at + 1)}, messages)  # the last record was left out
    assert names(tables) == wanted
    assert offsets(lake) == {P0: at + 1}
    assert not is_added(tmp_path, messages)
    write(task, changes(at + 1, (9, "z")))
    assert names(tables) == {**wanted, 9: "z"}


@pytest.mark.parametrize(
    ("kind", "first", "second", "third"),
    [
        (pa.string(), "k" * 100 + "a", "k" * 100 + "c", "k" * 100 + "b"),
        (pa.binary(), b"\xff" * 100 + b"a", b"\xff" * 100 + b"c", b"\xff" * 100 + b"b"),
        (pa.date32(), date(2026, 1, 1), date(2026, 1, 3), date(2026, 1, 2)),
        (pa.decimal128(9, 2), Decimal("-1.50"), Decimal(3), Decimal("0.25")),
        (pa.bool_(), False, True, False),
    ],
    ids=str,
)
def test_keys_of_other_types_are_compared_with_those_of_the_table(
    lake: Lake, tables: Tables, kind: pa.DataType, first: Any, second: Any, third: Any
) -> None:
    def of(offset: int, *rows: tuple[Any, str]) -> SinkBatch:
        values = [{"name": name, "part": 0} for _, name in rows]
        return batch(offset, values, ROW, keys=pa.array([key for key, _ in rows], kind))

    task = lake.opened(P0, **BY_KEY)
    write(task, of(0, (first, "a")))
    task.commit("one", {P0: (1, 2)}, stage(lake, task, of(1, (second, "c")), token="one"))
    task.commit("two", {P0: (2, 4)}, stage(lake, task, of(2, (third, "b"), (second, "C")), token="two"))
    found = sorted(row[0] for row in tables.sql("SELECT name FROM lake"))
    assert found == (["C", "b"] if third == first else ["C", "a", "b"])


def test_a_job_is_merged_in_commits_of_limited_size(lake: Lake, tables: Tables) -> None:
    task: Any = lake.opened(P0, P1, **BY_KEY, flush_bytes="1")
    write(task, changes(0, (1, "a"), (2, "b")))
    messages = stage(lake, task, changes(2, (1, "A"), (3, "c")), changes(4, (2, None)), flush_bytes="1")
    messages += stage(lake, task, changes(0, (5, "e"), place=P1))
    seen = []
    table = task._tables[task._lake.table_of("rows")]
    upsert = table.upsert

    def watched(pending: Any, schema: pa.Schema, key: Any) -> None:
        upsert(pending, schema, key)
        seen.append((names(tables), offsets(lake)))

    table.upsert = watched
    task.commit(TOKEN, {P0: (2, 7), P1: (0, 1)}, messages)
    assert seen == [
        ({1: "A", 2: "b", 3: "c"}, {P0: 4}),
        ({1: "A", 3: "c"}, {P0: 5}),
        ({1: "A", 3: "c", 5: "e"}, {P0: 7, P1: 1}),
    ]


def test_after_a_commit_that_failed_between_two_merges_the_task_continues_where_the_table_is(
    lake: Lake, tables: Tables
) -> None:
    task: Any = lake.opened(P0, P1, **BY_KEY, flush_bytes="1")
    write(task, changes(0, (1, "a"), (2, "b")))
    messages = stage(lake, task, changes(2, (1, "A")), changes(3, (2, "B")), flush_bytes="1")
    table = task._tables[task._lake.table_of("rows")]
    upsert = table.upsert

    def once(pending: Any, schema: pa.Schema, key: Any) -> None:
        upsert(pending, schema, key)
        table.upsert = lost

    def lost(pending: Any, schema: pa.Schema, key: Any) -> None:
        raise LakeUnavailableError("no answer")

    table.upsert = once
    with pytest.raises(LakeUnavailableError):
        task.commit(TOKEN, {P0: (2, 4)}, messages)
    table.upsert = upsert
    assert refusal(lambda: task.commit(TOKEN, {P0: (2, 4)}, messages)).committed == {P0: 3}
    write(task, changes(3, (2, "B")))
    assert names(tables) == {1: "A", 2: "B"}
    assert offsets(lake) == {P0: 4}


def test_a_zombie_is_refused_with_the_offsets_of_all_its_partitions(lake: Lake, tables: Tables, task: Any) -> None:
    messages = stage(lake, task, changes(2, (1, "zombie")))
    messages += stage(lake, task, changes(0, (7, "zombie"), place=P1))
    write(lake.opened(P0, **BY_KEY), changes(2, (1, "A")))
    refused = refusal(lambda: task.commit(TOKEN, {P0: (2, 3), P1: (0, 1)}, messages))
    assert refused.committed == {P0: 3, P1: 0}
    assert names(tables) == {1: "A", 2: "b"}


def test_a_zombie_is_refused_between_two_merges_too(lake: Lake, tables: Tables) -> None:
    task: Any = lake.opened(P0, P1, **BY_KEY, flush_bytes="1")
    write(task, changes(0, (1, "a"), (2, "b")))
    messages = stage(lake, task, changes(2, (1, "A")), flush_bytes="1")
    messages += stage(lake, task, changes(0, (7, "zombie"), place=P1))
    table = task._tables[task._lake.table_of("rows")]
    upsert = table.upsert

    def followed(pending: Any, schema: pa.Schema, key: Any) -> None:
        table.upsert = upsert
        upsert(pending, schema, key)
        write(lake.opened(P1, **BY_KEY), changes(0, (8, "x"), (9, "y"), place=P1))

    table.upsert = followed
    refused = refusal(lambda: task.commit(TOKEN, {P0: (2, 3), P1: (0, 1)}, messages))
    assert refused.committed == {P0: 3, P1: 2}
    assert names(tables) == {1: "A", 2: "b", 8: "x", 9: "y"}


def test_a_key_that_another_task_has_brought_meanwhile_is_replaced(lake: Lake, tables: Tables, task: Any) -> None:
    messages = stage(lake, task, changes(2, (3, "mine")))
    write(lake.opened(P1, **BY_KEY), changes(0, (3, "other"), place=P1))
    task.commit(TOKEN, {P0: (2, 3)}, messages)
    assert names(tables) == {1: "a", 2: "b", 3: "mine"}
    assert offsets(lake) == {P0: 3, P1: 1}


def test_staged_files_of_a_discarded_job_are_removed(lake: Lake, task: Any, tmp_path: Path) -> None:
    before = {*tmp_path.rglob("*.parquet")}
    stage(lake, task, changes(2, (3, "c"), (2, None)))
    assert {*tmp_path.rglob("*.parquet")} > before
    task.discard(TOKEN, [])
    assert {*tmp_path.rglob("*.parquet")} == before
    more = pa.struct([("name", pa.string()), ("more", pa.string())])
    other = batch(2, [{"name": "c", "more": "x"}], more, keys=pa.array([3], pa.int64()))
    with pytest.raises(NotStageableError, match="change the columns"):
        stage(lake, task, other)


def test_required_columns_stay_required(tmp_path: Path) -> None:
    required = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string(), nullable=False)])
    DeltaTable.create(str(tmp_path / "rows"), required)
    lake = Lake(DeltaSink.Task, {"path": str(tmp_path)})
    task = lake.opened(P0, **BY_KEY)
    rows = batch(0, [{"name": "a"}, None], pa.struct([("name", pa.string())]), keys=pa.array([1, 2], pa.int64()))
    task.commit(TOKEN, {P0: (0, 2)}, stage(lake, task, rows))
    table = DeltaTable(str(tmp_path / "rows"))
    assert table.to_pyarrow_table().to_pylist() == [{"id": 1, "name": "a"}]
    assert not any(field.nullable for field in table.schema().fields)
