"""DirectorySource: files of all formats, exactly once over restarts, what does not fit, and finished files."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import json
import lzma
import os
import re
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectx.connectors.files.directory import DirectorySource
from connectx.connectors.files.errors import (
    SourceFileColumnError,
    SourceFileShrunkError,
    SourceFileUnreadableError,
    SourceFileValueError,
)
from connectx.connectors.files.readers import FileReader
from connectx.errors.files import SourceDirectoryMissingError
from tests.support.directories import NO_SPARK, Source, write
from tests.support.jdbc import values_of

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
ROWS = [{"id": number, "name": f"row {number}"} for number in range(10)]


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())


def plain(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the column of rescued data, in which there is nothing."""
    assert {value.pop("_rescued_data", None) for value in values} <= {None}
    return values


@pytest.mark.parametrize(
    ("suffix", "packed"),
    [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".zst", zstd)],
)
def test_json_lines_and_csv_are_read_compressed_or_not(
    tmp_path: Path, suffix: str, packed: Callable[[bytes], bytes]
) -> None:
    write(tmp_path / "json" / f"in.json{suffix}", packed(lines(ROWS)))
    text = "id,name\n" + "".join(f"{row['id']},{row['name']}\n" for row in ROWS)
    write(tmp_path / "csv" / f"in.csv{suffix}", packed(text.encode()))
    assert plain(Source(tmp_path / "json", "json").values()) == ROWS
    assert plain(Source(tmp_path / "csv", "csv").values()) == ROWS


def test_parquet_and_avro_files_keep_their_types(tmp_path: Path) -> None:
    moment = datetime.datetime(2013, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    rows = [{"id": 1, "at": moment, "tags": ["a", "b"], "in": {"x": 1.5}}]
    (tmp_path / "p").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p" / "in.parquet")
    fields = [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "in", "type": {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "double"}]}},
    ]
    (tmp_path / "a").mkdir()
    with (tmp_path / "a" / "in.avro").open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema({"type": "record", "name": "row", "fields": fields}), rows)
    for folder, name in (("p", "parquet"), ("a", "avro")):
        assert Source(tmp_path / folder, name).values() == rows


def test_types_of_csv_are_inferred_from_the_first_rows(tmp_path: Path) -> None:
    write(tmp_path / "in", b'a;b;c;d;e\n1;1.5;2013-01-01 00:00:00;true;"x\ny"\nNA;2;2013-01-02T00:00:00Z;false;z\n')
    first, second = plain(Source(tmp_path, "csv", delimiter=";", null_text="NA").values())
    assert first["c"] == datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)
    assert {name: first[name] for name in "abde"} == {"a": 1, "b": 1.5, "d": True, "e": "x\ny"}
    assert (second["a"], second["b"]) == (None, 2.0)


def test_a_file_that_is_damaged_fails_the_task_with_its_name(tmp_path: Path) -> None:
    write(tmp_path / "in.parquet", b"no parquet")
    with pytest.raises(SourceFileUnreadableError, match=r"in\.parquet of the setting `path` cannot be read"):
        Source(tmp_path, "parquet").values()
    write(tmp_path / "z" / "in.json.gz", b"no gzip")
    with pytest.raises(SourceFileUnreadableError, match=r"in\.json\.gz"):
        Source(tmp_path / "z", "json").values()


def test_rows_come_once_over_restarts_at_any_slice_and_new_files_follow(tmp_path: Path) -> None:
    write(tmp_path / "b.json", lines(ROWS[:4]), age=9)
    write(tmp_path / "a.json", lines(ROWS[4:7]), age=5)
    source = Source(tmp_path, "json", slice_rows="3")
    found: list[int] = []
    while batch := source.values(most=1):
        found += [row["id"] for row in batch]
        source.restart()
    assert found == list(range(7))
    write(tmp_path / "0.json", lines(ROWS[7:]), age=20)
    assert [row["id"] for row in source.values()] == [7, 8, 9]
    assert source.values() == []


def test_a_poll_from_an_older_offset_gives_the_same_rows_again(tmp_path: Path) -> None:
    write(tmp_path / "in.json", lines(ROWS))
    source = Source(tmp_path, "json", slice_rows="4")
    source.values(most=1)
    before = dict(source.context.stored)
    again = source.values(most=2)
    source.context.stored = before  # the transaction was aborted
    assert source.values(most=2) == again


def test_globs_names_and_folders_choose_the_files(tmp_path: Path) -> None:
    for number, name in enumerate(["a.json", "b.txt", ".hidden.json", "_tmp.json", "x/c.json"]):
        write(tmp_path / name, lines([{"id": number}]))

    def ids(path: Path, **more: Any) -> list[int]:
        return sorted(row["id"] for row in Source(path, "json", **more).values())

    assert ids(tmp_path) == [0, 1]
    assert ids(tmp_path, path_glob_filter="*.json", recursive_file_lookup="true") == [0, 4]
    assert ids(tmp_path / "*" / "*.json") == [4]


def test_a_file_without_rows_is_finished_too(tmp_path: Path) -> None:
    path = write(tmp_path / "empty.json", b"")
    (piece,) = Source(tmp_path, "json").slices()
    assert (piece.offset["finished"], piece.partition) == (True, {"filename": str(path)})
    assert len(values_of(piece)) == 0


def test_a_file_that_changed_while_it_was_read_fails_the_task(tmp_path: Path) -> None:
    path = write(tmp_path / "in.json", lines(ROWS))
    source = Source(tmp_path, "json", slice_rows="4")
    source.values(most=1)
    path.write_bytes(b"")
    with pytest.raises(SourceFileShrunkError, match="truncated or replaced"):
        source.values()


def test_a_directory_that_does_not_exist_fails_the_task(tmp_path: Path) -> None:
    with pytest.raises(SourceDirectoryMissingError, match="of the setting `path` does not exist"):
        Source(tmp_path / "no", "json").values()


def test_a_check_reads_the_same_rows_again_between_two_offsets(tmp_path: Path) -> None:
    write(tmp_path / "in.json", lines(ROWS))
    source = Source(tmp_path, "json", slice_rows="4", cleanup="mark")
    pieces = list(source.slices())
    source.committed(*pieces)
    (partition,) = source.task.partitions()
    ends = [None, *(piece.offset for piece in pieces)]
    for start, end, piece in zip(ends, ends[1:], pieces, strict=False):
        (again,) = source.task.reread_partition(None, partition, start, end) or [None]  # type: ignore[arg-type]
        assert again is not None
        assert values_of(again) == values_of(piece)
    assert list(source.task.reread_partition(None, partition, ends[-1], None) or ()) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cleanup", "left"), [("delete", None), ("mark", "in/a.json.finished"), ("move", "done/a.json")]
)
def test_a_file_is_cleaned_up_after_the_commit_of_its_last_slice(
    tmp_path: Path, cleanup: str, left: str | None
) -> None:
    path = write(tmp_path / "in" / "a.json", lines(ROWS))
    source = Source(tmp_path / "in", "json", slice_rows="6", cleanup=cleanup, cleanup_dir=str(tmp_path / "done"))
    first, last = source.slices()
    assert source.values() == []
    source.committed(first)
    assert path.exists()
    source.committed(last)
    assert not path.exists()
    found = [str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.is_file()]
    assert found == ([left] if left else [])
    assert source.task.partitions() == ([{"filename": str(path)}] if left else [])


def test_a_file_that_was_committed_before_a_worker_died_is_cleaned_up_by_the_next_task(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", lines(ROWS))
    source = Source(tmp_path, "json", cleanup="delete")
    source.values()
    assert path.exists()
    source.restart()
    assert source.values() == []
    assert not path.exists()


def test_a_new_file_with_the_name_of_a_finished_one_is_not_cleaned_up(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", lines(ROWS))
    source = Source(tmp_path, "json", cleanup="delete")
    pieces = list(source.slices())
    write(path, lines(ROWS[:2]))
    source.committed(*pieces)
    assert path.exists()


@pytest.mark.parametrize("cleanup", ["delete", "mark", "move", "none"])
def test_a_new_file_with_the_name_and_size_of_a_finished_one_is_reported_and_kept(
    tmp_path: Path, cleanup: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "in" / "a.json", lines(ROWS), age=9)
    source = Source(tmp_path / "in", "json", cleanup=cleanup, cleanup_dir=str(tmp_path / "done"))
    pieces = list(source.slices())
    source.committed(*pieces)
    assert (source.values(), source.task.waits) == ([], "")
    new = lines(list(reversed(ROWS)))
    write(path, new, age=5)
    for _ in range(2):
        assert (source.values(), source.values()) == ([], [])
        assert f"{path} is not read: a file with its name is finished" in source.task.waits
        source.restart()
    assert path.read_bytes() == new
    assert len(caplog.records) == 2
    again = source.task.reread_partition(NO_SPARK, {"filename": str(path)}, None, pieces[-1].offset)
    assert (again is not None and [row["id"] for piece in again for row in values_of(piece)]) == (
        list(range(10)) if cleanup in ("mark", "move") else False
    )
    path.rename(path.with_name("b.json"))
    assert (len(source.values()), source.task.waits) == (10, "")


def test_a_file_that_is_replaced_while_its_rows_are_read_is_not_cleaned_up(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", lines(ROWS), age=9)
    source = Source(tmp_path, "json", slice_rows="4", cleanup="delete")
    pieces = list(source.slices(most=1))
    write(tmp_path / ".b", lines(list(reversed(ROWS)))).rename(path)
    source.committed(*pieces, *source.slices())
    assert path.exists()
    source.restart()
    assert source.values() == []
    assert path.exists()


def test_files_of_offsets_without_a_time_of_change_are_cleaned_up_by_their_size(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", lines(ROWS))
    source = Source(tmp_path, "json", cleanup="delete")
    for piece in source.slices():
        offset = {name: value for name, value in piece.offset.items() if name != "modified_ns"}
        source.context.remember_offset({"filename": str(path)}, offset)
    source.restart()
    assert (source.values(), path.exists()) == ([], False)


@pytest.mark.parametrize(
    ("cleanup", "name", "taken"),
    [
        ("move", "a.csv.gz", ["done/a.csv.gz", "done/a.1.csv.gz", "done/a.2.csv.gz"]),
        ("mark", "a.csv", ["in/a.csv.finished", "in/a.csv.1.finished", "in/a.csv.2.finished"]),
        ("none", "a.csv.gz", ["bad/a.csv.gz", "bad/a.1.csv.gz", "bad/a.2.csv.gz"]),
    ],
)
def test_a_file_is_never_moved_over_another_one_and_is_found_under_its_number(
    tmp_path: Path, cleanup: str, name: str, taken: list[str]
) -> None:
    first, second, third = (tmp_path / one for one in taken)
    write(first, b"of another connector", age=5)
    second.mkdir()
    is_rejected = cleanup == "none"
    text = b"id\n1\n2\n" if name.endswith(".csv") else gzip.compress(b"id\n1\n2\n")
    content = text[:-9] if is_rejected else text
    path = write(tmp_path / "in" / name, content)
    error_dir = str(tmp_path / "bad") if is_rejected else ""
    source = Source(tmp_path / "in", "csv", cleanup=cleanup, cleanup_dir=str(tmp_path / "done"), error_dir=error_dir)
    pieces = list(source.slices())
    source.committed(*pieces)
    assert (path.exists(), first.read_bytes(), third.read_bytes()) == (False, b"of another connector", content)
    again = source.task.reread_partition(NO_SPARK, {"filename": str(path)}, None, pieces[-1].offset)
    assert again is not None
    assert [row["id"] for piece in again for row in values_of(piece)] == ([] if is_rejected else [1, 2])


def test_files_of_two_folders_with_one_name_are_both_kept(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        write(tmp_path / folder / "a.json", lines([{"id": folder}]))
    source = Source(tmp_path / "*" / "*.json", "json", cleanup="move", cleanup_dir=str(tmp_path / "done"))
    source.committed(*source.slices())
    kept = {name: json.loads((tmp_path / "done" / name).read_text())["id"] for name in ("a.json", "a.1.json")}
    assert kept == {"a.json": "x", "a.1.json": "y"}


def test_a_file_that_cannot_be_moved_stays_and_leaves_no_empty_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "in" / "a.json", lines(ROWS))
    source = Source(tmp_path / "in", "json", cleanup="move", cleanup_dir=str(tmp_path / "done"))
    monkeypatch.setattr("shutil.move", lambda path, to: os.rename(f"{path}.gone", to))
    source.committed(*source.slices())
    assert (path.exists(), list((tmp_path / "done").iterdir())) == (True, [])
    assert "cannot move the file" in caplog.text


def test_files_can_be_moved_only_to_a_directory() -> None:
    assert "cleanup.dir" in DirectorySource.validate({"cleanup": "move"})
    assert DirectorySource.validate({"cleanup": "move", "cleanup.dir": "x"}) == {}


TEXTS = {
    "a.json": lines(ROWS[:4]),
    "inner/b.json.gz": gzip.compress(lines(ROWS[4:])),
    "__MACOSX/a.json": b"no json",
    "note.txt": b"no json",
}


def archive(path: Path, texts: Mapping[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as packed:
            for name, text in texts.items():
                packed.writestr(name, text)
        return path
    compressions: dict[str, Callable[[bytes], bytes]] = {".tgz": gzip.compress, ".xz": lzma.compress}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, text in texts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
    path.write_bytes(compressions.get(path.suffix, bytes)(made.getvalue()))
    return path


@pytest.mark.parametrize("name", ["in.zip", "in.tar", "in.tgz", "in.tar.xz"])
def test_the_files_of_an_archive_are_read_one_after_the_other_over_restarts(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / name, TEXTS)
    source = Source(tmp_path, "json", slice_rows="3", archive_glob_filter="*.json*", cleanup="delete")
    found: list[dict[str, Any]] = []
    while batch := source.values(most=1):
        found += plain(batch)
        source.restart()
    assert found == ROWS
    assert source.task.partitions() == []
    assert not path.exists()


def test_each_file_of_an_archive_has_its_own_columns_whatever_the_format(tmp_path: Path) -> None:
    parquet = io.BytesIO()
    pq.write_table(pa.table({"id": [1]}), parquet)
    other = io.BytesIO()
    pq.write_table(pa.table({"name": ["x"]}), other)
    archive(tmp_path / "in.zip", {"a.parquet": parquet.getvalue(), "b.parquet": other.getvalue()})
    assert Source(tmp_path, "parquet").values() == [{"id": 1}, {"name": "x"}]
    archive(tmp_path / "in.tar", {"a.csv": b"id\n1\n", "b.csv": b"name\nx\n"})
    assert plain(Source(tmp_path / "*.tar", "csv").values()) == [{"id": 1}, {"name": "x"}]


@pytest.mark.parametrize("name", ["in.zip", "in.tar", "in.tgz"])
def test_an_archive_that_is_damaged_fails_the_task_with_its_name(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / name, TEXTS)
    path.write_bytes(b"x" + path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(SourceFileUnreadableError, match=name):
        Source(tmp_path, "json").values()


def test_a_file_that_cannot_be_parsed_is_moved_after_its_commit_and_others_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "in" / "sub" / "a.parquet", b"no parquet", age=5)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "in" / "b.parquet")
    bad = str(tmp_path / "bad")
    source = Source(tmp_path / "in", "parquet", recursive_file_lookup="true", error_dir=bad)
    rejected, read = source.slices()
    assert values_of(read) == [{"id": 1}]
    assert (values_of(rejected), rejected.rows_read, rejected.commits_offset) == ([], 1, True)
    assert re.fullmatch(
        rf"The file {path} .* cannot be read \(.*\)\. It is moved to {tmp_path}/bad, with 0 rows of it in Kafka",
        rejected.skip_reason,
    )
    assert path.exists()
    source.committed(rejected, read)
    assert (tmp_path / "bad" / "sub" / "a.parquet").read_bytes() == b"no parquet"
    assert not path.exists()
    assert {"filename": str(path)} in source.task.partitions()


def test_rows_before_the_damage_are_read_and_a_corrected_file_goes_on_after_them(tmp_path: Path) -> None:
    path = write(tmp_path / "in" / "a.json", lines(ROWS[:6]) + b'{"id":"x"}\n')
    source = Source(tmp_path / "in", "json", slice_rows="3", error_dir=str(tmp_path / "bad"))
    source.task._reader = FileReader("json", 3, SCHEMA, "none", "")
    *good, rejected = source.slices()
    assert [row["id"] for piece in good for row in values_of(piece)] == list(range(6))
    assert (rejected.offset["position"], rejected.offset["rejected"]) == (6, True)
    pieces = [*good, rejected]
    partition = {"filename": str(path)}
    for moves in (False, True):
        if moves:
            source.committed(*pieces)
        again = source.task.reread_partition(None, partition, None, rejected.offset)  # type: ignore[arg-type]
        assert [row["id"] for piece in again or () for row in values_of(piece)] == list(range(6))
    assert list(source.task.reread_partition(None, partition, rejected.offset, None) or ()) == []  # type: ignore[arg-type]
    write(path, lines(ROWS))
    assert [row["id"] for row in source.values()] == [6, 7, 8, 9]


def test_a_file_that_was_rejected_before_a_worker_died_is_rejected_again(tmp_path: Path) -> None:
    path = write(tmp_path / "in" / "a.json.gz", b"no gzip")
    source = Source(tmp_path / "in", "json", error_dir=str(tmp_path / "bad"))
    assert len(list(source.slices())) == 1
    source.restart()
    pieces = list(source.slices())
    source.committed(*pieces)
    assert (len(pieces), path.exists(), (tmp_path / "bad" / "a.json.gz").exists()) == (1, False, True)


def test_a_file_that_is_corrected_before_it_is_moved_away_stays_and_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "in" / "a.json.gz", b"no gzip")
    source = Source(tmp_path / "in", "json", error_dir=str(tmp_path / "bad"))
    (rejected,) = source.slices()
    write(path, gzip.compress(lines(ROWS)), age=5)
    source.committed(rejected)
    assert (len(source.values()), path.exists()) == (10, True)


def test_a_file_that_the_system_refuses_to_read_is_not_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in" / "a.json", lines(ROWS))
    source = Source(tmp_path / "in", "json", error_dir=str(tmp_path / "bad"))

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pa, "input_stream", refused)
    with pytest.raises(SourceFileUnreadableError, match="Permission denied"):
        source.values()


def read(path: Path, kind: str, **more: Any) -> list[dict[str, Any]]:
    return [row for table in FileReader(kind, 1_000, **more).tables(str(path)) for row in table.to_pylist()]


def test_what_does_not_fit_is_rescued_as_json(tmp_path: Path) -> None:
    path = write(tmp_path / "in.json", b'{"id":1}\n{"id":"two","at":"2013-01-01T00:00:00Z"}\nnot json\n{"id":4}\n')
    moment = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)
    assert read(path, "json", schema=SCHEMA) == [
        {"id": 1, "at": None, "_rescued_data": None},
        {"id": None, "at": moment, "_rescued_data": '{"id": "two"}'},
        {"id": None, "at": None, "_rescued_data": '{"_corrupt_record": "not json"}'},
        {"id": 4, "at": None, "_rescued_data": None},
    ]
    path = write(tmp_path / "in.csv", b"id,at\nx,2013-01-01 00:00:00\n2,,more,values\n")
    assert read(path, "csv", schema=SCHEMA) == [
        {"id": None, "at": moment, "_rescued_data": '{"id": "x"}'},
        {"id": 2, "at": None, "_rescued_data": '{"_extra_values": ["more", "values"]}'},
    ]
    pq.write_table(pa.table({"id": ["1", "x"]}), tmp_path / "in.parquet")
    found = read(tmp_path / "in.parquet", "parquet", schema=SCHEMA)
    assert [(row["id"], row["_rescued_data"]) for row in found] == [(1, None), (None, '{"id": "x"}')]


def test_without_a_column_for_it_a_value_that_does_not_fit_fails_the_task(tmp_path: Path) -> None:
    path = write(tmp_path / "in.json", b'{"id":"two"}\n')
    with pytest.raises(SourceFileValueError, match=r"in\.json does not fit its columns: .*two"):
        read(path, "json", schema=SCHEMA, rescued="")


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_a_new_column_evolves_the_schema_as_the_mode_says(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"in.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"id": [1], "more": ["x"]}), path)
    else:
        write(path, b'{"id":1,"more":"x"}\n' if kind == "json" else b"id,more\n1,x\n")
    schema = pa.schema([("id", pa.int64())])
    (added,) = read(path, kind, schema=schema)
    assert added == {"id": 1, "more": "x", "_rescued_data": None}
    (rescued,) = read(path, kind, schema=schema, evolution="rescue")
    assert rescued == {"id": 1, "_rescued_data": '{"more": "x"}'}
    (dropped,) = read(path, kind, schema=schema, evolution="none")
    assert dropped == {"id": 1, "_rescued_data": None}
    with pytest.raises(SourceFileColumnError, match="has the column more, which `schema` lacks"):
        read(path, kind, schema=schema, evolution="failOnNewColumns")


def test_a_value_of_a_new_column_that_does_not_fit_the_others_is_rescued(tmp_path: Path) -> None:
    path = write(tmp_path / "in.json", b'{"id":1,"more":"x"}\n{"id":2,"more":7}\n')
    found = read(path, "json", schema=pa.schema([("id", pa.int64())]))
    assert found == [
        {"id": 1, "more": "x", "_rescued_data": None},
        {"id": 2, "more": None, "_rescued_data": '{"more": 7}'},
    ]


def test_a_later_file_brings_its_own_columns(tmp_path: Path) -> None:
    write(tmp_path / "a.json", b'{"id":1}\n', age=5)
    write(tmp_path / "b.json", b'{"id":2,"more":true}\n')
    assert plain(Source(tmp_path, "json").values()) == [{"id": 1}, {"id": 2, "more": True}]
