"""Parquet files as a chain of offsets, and what the sink says about files and directories that it cannot use."""

from __future__ import annotations

import datetime
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectx.connectors.lake.parquet import ParquetSink
from connectx.connectors.lake.parquet_table import ParquetTable
from connectx.connectors.shared.errors import LakeError, LakeStorageError, LakeUnavailableError
from connectx.connectors.shared.storage import storage_errors
from connectx.errors.databases import TableMismatchError
from tests.support.lake import Lake, batch, partition, refusal, rows, write

P0, P1 = partition(0), partition(1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(ParquetSink.Task, {"path": str(tmp_path)})


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_files_name_is_where_it_starts_and_its_metadata_where_it_ends(lake: Lake, tmp_path: Path) -> None:
    write(lake.opened(P0, P1), batch(3, rows(1, 2), end=9), batch(0, rows(3), place=P1))
    assert names(tmp_path) == [f"rows/rows+0+{3:020d}.parquet", f"rows/rows+1+{0:020d}.parquet"]
    metadata = pq.read_schema(tmp_path / names(tmp_path)[0]).metadata
    assert (metadata[b"connectx.end"], metadata[b"connectx.group"]) == (b"9", b"connect-lake")


def test_each_commit_is_one_file_of_each_partition(lake: Lake, tmp_path: Path) -> None:
    task = lake.opened(P0)
    write(task, batch(0, rows(1)), batch(1, rows(2)))
    write(task, batch(2, rows(3)))
    assert len(names(tmp_path)) == 2


def test_a_column_may_become_wider(lake: Lake, tmp_path: Path) -> None:
    task = lake.opened(P0)
    write(task, batch(0, [{"n": 1}], pa.struct([("n", pa.int32())])))
    write(task, batch(1, [{"n": 2**40}], pa.struct([("n", pa.int64())])))
    assert pq.read_schema(tmp_path / names(tmp_path)[1]).field("n").type == pa.int64()
    successor = lake.opened(P0)
    write(successor, batch(2, [{"n": 3}], pa.struct([("n", pa.int32())])))
    assert pq.read_schema(tmp_path / names(tmp_path)[2]).field("n").type == pa.int64()


def test_without_auto_evolve_a_column_does_not_become_wider(lake: Lake) -> None:
    write(lake.opened(P0), batch(0, [{"n": 1}], pa.struct([("n", pa.int32())])))
    with pytest.raises(TableMismatchError, match=r"records have int64: auto\.evolve is false"):
        lake.opened(P0, auto_evolve="false").put(batch(1, [{"n": 2}], pa.struct([("n", pa.int64())])))


def test_a_long_footer_is_read_whole(lake: Lake) -> None:
    names = [f"{number:0300}" for number in range(200)]
    write(lake.opened(P0), batch(0, [dict.fromkeys(names, 1)], pa.struct([(name, pa.int64()) for name in names])))
    assert lake.task().open([P0]) == {P0: 1}


def test_files_of_another_connector_are_refused(lake: Lake) -> None:
    write(lake.opened(P0), batch(0, rows(1)))
    with pytest.raises(
        LakeError, match=r"written by the consumer group connect-lake, not connect-other.*Choose another"
    ):
        lake.opened(P0, group="connect-other")


@pytest.mark.parametrize(("content", "why"), [(b"", "no Parquet file"), (b"x" * 100, "no Parquet file")])
def test_a_file_that_is_no_parquet_is_refused(lake: Lake, tmp_path: Path, content: bytes, why: str) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / f"rows+0+{0:020d}.parquet").write_bytes(content)
    with pytest.raises(LakeError, match=why):
        lake.opened(P0)


def test_a_parquet_file_of_a_foreign_writer_is_refused_only_under_a_name_of_ours(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    foreign = pa.table({"id": [1]})
    pq.write_table(foreign, folder / "part-0.parquet")
    assert lake.task().open([P0]) == {}
    pq.write_table(foreign, folder / f"rows+0+{0:020d}.parquet")
    with pytest.raises(LakeError, match="has no offsets of connectx"):
        lake.opened(P0)


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_directory_that_does_not_exist_fails_the_start(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "file":
        path.touch()
    with pytest.raises(LakeStorageError, match=f"directory {path} cannot be used: .*Correct `path`"):
        Lake(ParquetSink.Task, {"path": str(path)}).task()


def test_a_file_in_the_place_of_a_tables_directory_fails_the_task(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "rows").touch()
    with pytest.raises(LakeStorageError, match="The table rows cannot be used: not a directory"):
        write(lake.opened(P0), batch(0, rows(1)))


@contextmanager
def small_files() -> Iterator[None]:
    """The system refuses to write files of more than 1,000 bytes, also to pytest, so not for longer than needed."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_file_that_the_system_refuses_leaves_nothing_visible_and_fails_the_task(lake: Lake, tmp_path: Path) -> None:
    task = lake.opened(P0)
    many = rows(*range(5_000))
    task.put(batch(0, many))
    with small_files(), pytest.raises(LakeStorageError, match=r"file too large.*free space"):
        task.flush()
    assert [name for name in names(tmp_path) if name.endswith(".parquet")] == []


def test_a_url_of_no_known_storage_fails_the_start() -> None:
    with pytest.raises(LakeError, match="nowhere://x cannot be used"):
        Lake(ParquetSink.Task, {"path": "nowhere://x"}).task()


def test_an_unknown_storage_option_is_refused() -> None:
    with pytest.raises(LakeError, match="no_such_option"):
        Lake(ParquetSink.Task, {"path": "s3://bucket/lake", "storage.no_such_option": "1"}).task()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError("Generic LocalFileSystem error: No space left on device (os error 28)"), LakeStorageError),
        (PermissionError(13, "Permission denied"), LakeStorageError),
        (OSError("Generic S3 error: connection refused"), LakeUnavailableError),
        (ValueError("wrong"), LakeError),
    ],
)
def test_an_error_of_the_storage_says_whether_it_is_worth_another_try(error: Exception, expected: type) -> None:
    with pytest.raises(expected) as caught, storage_errors("The table x", "path"):
        raise error
    assert type(caught.value) is expected


def test_a_password_in_an_error_of_the_storage_is_hidden() -> None:
    with pytest.raises(LakeUnavailableError) as caught, storage_errors("The table x", "path"):
        raise OSError("cannot reach https://user:hunter2@host/x")
    assert "hunter2" not in str(caught.value)


DAYS = pa.struct([("id", pa.int64()), ("day", pa.date32()), ("kind", pa.string()), ("level", pa.int16())])
DAY = datetime.date(2024, 1, 2)


def by(folder: Path, names: str) -> Lake:
    return Lake(ParquetSink.Task, {"path": str(folder), "partition.by": names})


def values(*given: tuple[int, datetime.date | None, str | None, int | None]) -> list[dict[str, Any]]:
    return [dict(zip(("id", "day", "kind", "level"), each, strict=True)) for each in given]


def test_directories_name_values_and_files_their_first_offset(tmp_path: Path) -> None:
    lake = by(tmp_path, "day,kind,level")
    written = values((1, DAY, "a", 1), (2, DAY, "b", 1), (3, DAY, "a", 1), (4, None, None, None))
    write(lake.opened(P0), batch(7, written, DAYS))
    name = f"rows+0+{7:020d}"
    null = "__HIVE_DEFAULT_PARTITION__"
    assert names(tmp_path) == [
        f"rows/_connectx/{name}.json",
        f"rows/day=2024-01-02/kind=a/level=1/{name}.parquet",
        f"rows/day=2024-01-02/kind=b/level=1/{name}.parquet",
        f"rows/day={null}/kind={null}/level={null}/{name}.parquet",
    ]
    assert pq.read_table(tmp_path / names(tmp_path)[1], partitioning=None).to_pylist() == [{"id": 1}, {"id": 3}]


TEXTS = ["a", "Ünï ж", "x/y=z", "100%", "a:b?*", "q\"'", " ", "..", "2024-01-02", "{[^]}#", "~<>|"]


def test_duckdb_and_check_read_values_in_their_types_and_any_text(tmp_path: Path) -> None:
    lake = by(tmp_path, "day,kind,level")
    written = values(*((number, DAY, text, -number) for number, text in enumerate([*TEXTS, None])))
    write(lake.opened(P0), batch(0, written, DAYS))
    config = {"path": str(tmp_path), "partition.by": "day,kind,level"}
    stored = ParquetSink.stored(config, "rows")
    assert stored is not None
    found = pa.concat_tables(stored.read()).sort_by("id")
    wanted = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("kind", pa.string()), ("level", pa.int32())])
    assert (found.schema.remove_metadata(), found.to_pylist()) == (wanted, written)
    read = f"read_parquet('{tmp_path}/rows/day=*/*/*/*.parquet', hive_partitioning=true)"
    found_rows = duckdb.execute(f"SELECT id, day, kind, level FROM {read} ORDER BY id").fetchall()
    assert found_rows == [tuple(row.values()) for row in written]


def test_a_text_that_is_empty_becomes_null(tmp_path: Path) -> None:
    write(by(tmp_path, "day,kind,level").opened(P0), batch(0, values((1, DAY, "", 1), (2, DAY, None, 1)), DAYS))
    (file,) = [name for name in names(tmp_path) if name.endswith(".parquet")]
    assert "kind=__HIVE_DEFAULT_PARTITION__" in file


@pytest.mark.rule("always.8")
@pytest.mark.parametrize("moved", [0, 1])
def test_a_successor_completes_the_moves_of_a_commit_that_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    lake, left = by(tmp_path, "day,kind,level"), [moved]
    publish = ParquetTable._publish

    def die(table: ParquetTable, staged: str, path: str) -> None:
        if not left[0]:
            raise OSError("the worker dies")
        left[0] -= 1
        publish(table, staged, path)

    task = lake.opened(P0)
    task.put(batch(0, values((1, DAY, "a", 1), (2, DAY, "b", 1)), DAYS))
    monkeypatch.setattr(ParquetTable, "_publish", die)
    with pytest.raises(LakeUnavailableError):
        task.flush()
    monkeypatch.undo()
    assert lake.task().open([P0]) == {P0: 2}
    assert len([name for name in names(tmp_path) if "/day=" in name]) == 2
    again = batch(0, values((1, DAY, "a", 1), (2, DAY, "b", 1)), DAYS)
    assert refusal(lambda: write(task, again)).committed == {P0: 2}


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ("half", r"The table rows has a column half of type double.*texts, integers"),
        ("missing", r"without the field missing, which partition\.by names"),
        ("id,half", r"without fields besides those of partition\.by"),
    ],
)
def test_partition_by_names_fields_that_can_name_directories_and_leaves_some(
    tmp_path: Path, names: str, problem: str
) -> None:
    kind = pa.struct([("id", pa.int64()), ("half", pa.float64() if names == "half" else pa.string())])
    task = by(tmp_path, names).opened(P0)
    task.put(batch(0, [{"id": 1, "half": None}, {"id": 2, "half": 0.5 if names == "half" else "x"}], kind))
    with pytest.raises(LakeError, match=problem):
        task.flush()


def test_a_table_keeps_its_directories_and_its_group(tmp_path: Path) -> None:
    write(by(tmp_path, "name").opened(P0), batch(0, rows(1)))
    with pytest.raises(LakeError, match=r"is partitioned by name, and partition\.by names id"):
        by(tmp_path, "id").opened(P0)
    with pytest.raises(LakeError, match=r"directories by values, and partition\.by names none"):
        by(tmp_path, "").opened(P0)
    with pytest.raises(LakeError, match="consumer group connect-lake, not connect-other"):
        by(tmp_path, "name").opened(P0, group="connect-other")


def test_a_table_without_directories_does_not_get_them(lake: Lake, tmp_path: Path) -> None:
    write(lake.opened(P0), batch(0, rows(1)))
    with pytest.raises(LakeError, match=r"is partitioned by nothing, and partition\.by names id"):
        by(tmp_path, "id").opened(P0)
