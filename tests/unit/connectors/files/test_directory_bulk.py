"""DirectorySource's bulk lane: the rows, bytes and offsets of the tail, whatever the files and their parts are."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectx.connectors.files import bulk, ranges
from connectx.connectors.files.errors import SourceFileShrunkError, SourceFileUnreadableError, SourceFileValueError
from connectx.connectors.files.readers import FileReader
from tests.support.directories import NO_SPARK, Source, both, rows_of, write

ROWS = [{"id": number, "name": f"row {number} ü", "more": None if number % 3 else number / 4} for number in range(500)]
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture(autouse=True)
def of_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few kilobytes are divided."""
    for module in (ranges, bulk):
        monkeypatch.setattr(module, "PART_BYTES", 2_000)


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def csv_lines(rows: list[dict[str, Any]], end: str = "\n") -> bytes:
    return ("id,name,more" + end + end.join(",".join(str(v or "") for v in row.values()) for row in rows)).encode()


def pieces_of(source: Source, max_bytes: int = 1 << 30) -> list[bulk.Piece]:
    found = source.task.poll_bulk(NO_SPARK, None, max_bytes) if source.task.waiting_bytes(None) else None
    tasks: Any = [] if found is None else found.read.args[2]  # type: ignore[attr-defined]
    return [piece for task in tasks for piece in task]


@pytest.mark.parametrize(("end", "pieces"), [("\n", 5), ("\r\n", 5), ("\r", 1)])
def test_a_large_csv_file_is_divided_at_line_feeds(tmp_path: Path, end: str, pieces: int) -> None:
    write(tmp_path / "a.csv", b"\xef\xbb\xbf" + csv_lines(ROWS, end) + (end + "x,y,z,more,values").encode())
    expected, found, _ = both(tmp_path, "csv", slice_rows="70")
    assert len(pieces_of(Source(tmp_path, "csv", slice_rows="70"))) == pieces
    assert found == expected
    assert found[-1]["value"]["_rescued_data"] == '{"id": "x", "more": "z", "_extra_values": ["more", "values"]}'


def test_a_csv_file_whose_values_may_have_line_feeds_is_read_by_one_task(tmp_path: Path) -> None:
    text = csv_lines(ROWS) + b'\n7,"two\nlines, ""quoted""",1\n'
    write(tmp_path / "a.csv", text)
    expected, found, _ = both(tmp_path, "csv", slice_rows="70", key_fields="id")
    assert len(pieces_of(Source(tmp_path, "csv"))) == 1
    assert found == expected
    assert found[-1]["value"]["name"] == 'two\nlines, "quoted"'


def test_a_large_json_file_is_divided_and_rows_further_down_are_rescued_as_in_the_tail(tmp_path: Path) -> None:
    odd = b'not json\n[1]\n\n{"id":"x","new":1}\n'
    write(tmp_path / "a.json", b"\xef\xbb\xbf" + json_lines(ROWS[:300]) + odd + json_lines(ROWS[300:]))
    expected, found, _ = both(tmp_path, "json", slice_rows="70")
    assert len(pieces_of(Source(tmp_path, "json", slice_rows="70"))) > 5
    assert found == expected
    rescued = [json.loads(row["value"]["_rescued_data"]) for row in found if row["value"]["_rescued_data"]]
    assert rescued == [{"_corrupt_record": "not json"}, {"_corrupt_record": "[1]"}, {"id": "x", "new": 1}]


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize("evolution", ["addNewColumns", "rescue", "none"])
def test_with_a_schema_a_file_is_divided_only_if_columns_cannot_differ_by_range(
    tmp_path: Path, kind: str, evolution: str
) -> None:
    late = [{**row, "late": "x"} for row in ROWS[400:]] if kind == "json" else ROWS[400:]
    write(tmp_path / "a", json_lines(ROWS[:400] + late) if kind == "json" else csv_lines(ROWS))
    rows = {}
    for lane in ("tail", "bulk"):
        source = Source(tmp_path, kind, slice_rows="70")
        source.task._reader = FileReader(kind, 70, SCHEMA, evolution)
        rows[lane] = source.values() if lane == "tail" else [row["value"] for row in source.bulk() or []]
    source = Source(tmp_path, kind, slice_rows="70")
    source.task._reader = FileReader(kind, 70, SCHEMA, evolution)
    assert rows["bulk"] == rows["tail"]
    assert len(rows["tail"]) == 500
    assert (len(pieces_of(source)) > 1) == (evolution != "addNewColumns")


def test_a_large_parquet_file_is_divided_by_row_groups_also_from_a_row_in_the_middle(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet", row_group_size=60, compression="none")
    expected, found, _ = both(tmp_path, "parquet", slice_rows="70")
    assert found == expected
    source = Source(tmp_path, "parquet", slice_rows="70")
    begun = source.values(most=3)
    assert len(pieces_of(source)) > 1
    found = source.bulk() or []
    assert [*begun, *(row["value"] for row in found)] == [row["value"] for row in expected]
    assert list(source.slices()) == []


def test_avro_compressed_files_and_archives_are_read_whole(tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    schema = fastavro.parse_schema({"type": "record", "name": "row", "fields": fields})
    (tmp_path / "avro").mkdir()
    with (tmp_path / "avro" / "a.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"id": row["id"], "name": row["name"]} for row in ROWS])
    write(tmp_path / "json" / "a.json.gz", gzip.compress(json_lines(ROWS)), age=9)
    with zipfile.ZipFile(tmp_path / "json" / "b.zip", "w") as packed:
        packed.writestr("x.json", json_lines(ROWS[:5]))
        packed.writestr("y.json", json_lines([{"other": 1}]))
    for kind in ("avro", "json"):
        expected, found, _ = both(tmp_path / kind, kind, slice_rows="70")
        assert found == expected, kind
        assert {piece.part for piece in pieces_of(Source(tmp_path / kind, kind))} == {None}


def test_files_with_different_columns_are_in_one_job_and_small_ones_share_a_task(tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path / f"{number}.json", json_lines([{f"field {number}": number}] * 12), age=number)
    source = Source(tmp_path, "json")
    slice_ = source.task.poll_bulk(NO_SPARK, None, 1 << 20) if source.task.waiting_bytes(None) else None
    assert slice_ is not None
    assert 2 < slice_.tasks < 6
    expected, found, offsets = both(tmp_path, "json")
    assert found == expected
    assert len(offsets) == 30


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_a_file_is_read_in_several_jobs_over_restarts_and_each_continues_after_the_last(
    tmp_path: Path, kind: str
) -> None:
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a", row_group_size=20, compression="none")
    else:
        write(tmp_path / "a", csv_lines(ROWS) if kind == "csv" else json_lines(ROWS))
    expected = [row for piece in Source(tmp_path, kind).slices() for row in rows_of(piece)]
    source = Source(tmp_path, kind)
    found, jobs = [], 0
    while source.task.waiting_bytes(None):
        found += source.bulk(4_000) or []
        jobs += 1
        (offset,) = source.context.stored.values()
        assert offset["position"] == len(found)
        assert ("bytes" in offset) == (kind != "parquet" and not offset["finished"])
        source.restart()
    assert found == expected
    assert jobs > 2


def test_a_job_takes_the_oldest_files_up_to_its_size(tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path / f"{number}.json", json_lines([{"id": number, "pad": "x" * 800}]), age=number)
    source = Source(tmp_path, "json")
    assert source.task.waiting_bytes(None) == sum(one.stat().st_size for one in tmp_path.iterdir())
    assert [row["value"]["id"] for row in source.bulk(2_000) or []] == [5, 4]
    assert [row["value"]["id"] for row in source.bulk(100) or []] == [3]


def test_the_tail_finishes_a_text_file_that_it_has_begun_and_one_that_one_task_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.json", json_lines(ROWS))
    source = Source(tmp_path, "json", slice_rows="70")
    source.values(most=1)
    assert source.task.waiting_bytes(None) is None
    source.restart()
    monkeypatch.setattr(bulk, "_WHOLE_BYTES", 1_000)
    assert source.bulk() is None
    assert source.task.waiting_bytes(None) is None
    assert len(source.values()) == 430


@pytest.mark.parametrize(("group_rows", "is_for_tail"), [(499, True), (100, False)])
def test_a_parquet_file_with_a_row_group_that_one_task_cannot_read_is_for_the_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_rows: int, is_for_tail: bool
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=group_rows, compression="none")
    monkeypatch.setattr(bulk, "_WHOLE_BYTES", path.stat().st_size // 2)
    source = Source(tmp_path, "parquet")
    assert (source.bulk() is None, source.task.waiting_bytes(None) is None) == (is_for_tail, is_for_tail)
    assert len(source.values()) == (500 if is_for_tail else 0)


def test_files_that_nothing_can_divide_are_for_the_tail_if_they_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "_WHOLE_COMPRESSED_BYTES", 100)
    write(tmp_path / "a.json", json_lines(ROWS[:5]), age=9)
    write(tmp_path / "b.json.gz", gzip.compress(json_lines(ROWS)), age=8)
    write(tmp_path / "c.json", json_lines(ROWS[:5]))
    source = Source(tmp_path, "json")
    assert [row["value"]["id"] for row in source.bulk() or []] == [0, 1, 2, 3, 4]
    assert source.task.waiting_bytes(None) is None
    assert len(source.values(most=1)) == 500
    assert len(source.bulk() or []) == 5


def test_rows_before_a_damage_are_in_the_job_and_the_tail_rejects_the_file(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.json.gz", gzip.compress(json_lines(ROWS) * 20)[:-500], age=9)
    write(tmp_path / "in" / "b.json", json_lines(ROWS[:5]))
    source = Source(tmp_path / "in", "json", slice_rows="70", error_dir=str(tmp_path / "bad"))
    found = source.bulk() or []
    assert len(found) > 70
    assert len(found) % 70 == 5
    assert [offset["finished"] for _, offset in source.last] == [False, True]
    assert source.task.waiting_bytes(None) is None
    (rejected,) = source.slices()
    assert (rejected.offset["position"], rejected.offset["rejected"]) == (len(found) - 5, True)


def test_a_bad_file_without_rows_before_the_damage_moves_no_offset(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", b"no parquet")
    source = Source(tmp_path, "parquet")
    assert source.bulk() == []
    assert source.last == []
    with pytest.raises(SourceFileUnreadableError, match=r"a\.parquet"):
        source.values()


def test_a_bad_piece_fails_the_job_and_after_two_of_them_the_tail_reads_the_file(tmp_path: Path) -> None:
    write(tmp_path / "a.json", json_lines(ROWS) + b'{"id":"x"}\n' + json_lines(ROWS))
    source = Source(tmp_path, "json", slice_rows="70", rescued_data_column="")
    for _ in range(2):
        with pytest.raises(SourceFileValueError):
            source.bulk()
    assert source.bulk() is None
    assert source.task.waiting_bytes(None) is None
    with pytest.raises(SourceFileValueError):
        source.values()


def test_a_file_that_executors_do_not_have_or_that_has_another_size_fails_the_job(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", json_lines(ROWS[:5]))
    source = Source(tmp_path, "json")
    assert source.task.waiting_bytes(None)
    found = source.task.poll_bulk(NO_SPARK, None, 1 << 20)
    assert found is not None
    path.write_bytes(b"{}\n")
    with pytest.raises(SourceFileUnreadableError, match="it has 3 bytes here"):
        source.run(found)
    path.unlink()
    with pytest.raises(SourceFileUnreadableError, match="No such file"):
        source.run(found)


def test_a_file_that_changed_after_rows_of_it_were_read_is_for_the_tail_which_fails(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", json_lines(ROWS))
    source = Source(tmp_path, "json")
    source.bulk(4_000)
    path.write_bytes(b"{}\n")
    source.restart()
    assert source.task.waiting_bytes(None) is None
    with pytest.raises(SourceFileShrunkError):
        source.values()


def test_files_of_a_job_are_cleaned_up_after_its_commit_and_not_before(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "in" / f"{number}.json", json_lines(ROWS[:5]))
    source = Source(tmp_path / "in", "json", cleanup="move", cleanup_dir=str(tmp_path / "done"))
    source.bulk()
    assert not source.task.waiting_bytes(None)
    assert source.values() == []
    assert len(list((tmp_path / "in").iterdir())) == 3
    for _, offset in source.last:
        source.task.committed(offset)
    assert len(list((tmp_path / "done").iterdir())) == 3
    assert len(source.task.partitions()) == 3


def test_files_that_were_committed_before_a_worker_died_are_cleaned_up_by_the_next_task(tmp_path: Path) -> None:
    write(tmp_path / "a.json", json_lines(ROWS))
    source = Source(tmp_path, "json", cleanup="delete")
    source.bulk()
    source.restart()
    assert source.task.waiting_bytes(None) == 0
    assert list(tmp_path.iterdir()) == []
