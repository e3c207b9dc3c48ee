"""FileSource: CSV and JSON lines through Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connectx.core.messages import TaskFailed
from connectx.errors.files import SourceFileMissingError
from connectx.model.events import EventKind
from tests.support.profiles import JSON, dotted
from tests.support.task_harness import Place, Task
from tests.support.waiting import until

SCHEMA = "id INT, name STRING, at TIMESTAMP"


def source(place: Place, path: Path, instance: int = 1, /, **more: str) -> Task:
    given = dotted(more)
    config = {"connector.class": "FileSource", "file": str(path), "topic": f"{place.group}-t", **JSON, **given}
    return place.task(config, instance=instance)


def records(place: Place, count: int) -> list[dict[str, Any]]:
    return [json.loads(value) for value in place.wait_for_values(f"{place.group}-t", count)]


def test_csv_lines_become_typed_records_with_keys_and_appended_lines_follow(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text('id,name,at\n1,one,2013-01-01T10:00:00Z\nNA,"two, quoted",NA\n\n')
    task = source(place, path, schema=SCHEMA, header="true", null_text="NA", key_fields="name").begin()
    first, second = records(place, 2)
    assert first == {"id": 1, "name": "one", "at": 1357034400000}
    assert second == {"id": None, "name": "two, quoted", "at": None}
    with path.open("a") as file:
        file.write("3,three,2013-01-02T00:00:00Z\n4,incom")
    assert records(place, 3)[2]["id"] == 3
    task.stop()
    position = path.stat().st_size - len("4,incom")
    assert place.committed({"filename": str(path)}) == {"position": position}


def test_values_with_line_feeds_and_doubled_quotes_are_read_with_multiline(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    text = 'id,"name"\n1,"one\nand ""half"""\r\n2,"two, quoted"\n3,"\n\n"\n'
    path.write_bytes(text.encode())
    config = {"header": "true", "multiline": "true", "slice_bytes": "8"}
    task = source(place, path, **config).begin()
    expected = [(1, 'one\nand "half"'), (2, "two, quoted"), (3, "\n\n")]
    assert [(row["id"], row["name"]) for row in records(place, 3)] == expected
    with path.open("a") as file:
        file.write('4,"half of\n')
    with path.open("a") as file:
        file.write('a value"\n')
    assert [row["name"] for row in records(place, 4)][3] == "half of\na value"
    with path.open("a") as file:
        file.write('"x\n",5\n')
    assert f"Line 10 of {path} does not fit the schema" in task.said(TaskFailed).trace


def test_json_lines_become_typed_records(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text('{"id":1,"name":"one"}\n{"name":"two","id":2}\n')
    task = source(place, path, format="json", schema="id INT, name STRING").begin()
    assert records(place, 2) == [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}]
    task.stop()


@pytest.mark.parametrize(
    ("content", "more", "expected"),
    [
        (
            "id,price,seen,name\n1,2.5,2020-01-01 00:00:00,x\n2,3,2020-01-02 00:00:00,y\n",
            {"header": "true"},
            {"id": 1, "price": 2.5, "name": "x"},
        ),
        ("zip,n\n02134,1e5\n90210,1\n", {"header": "true"}, {"zip": "02134", "n": "1e5"}),
        ("1;true\n2;false\n", {"delimiter": ";"}, {"_c0": 1, "_c1": True}),
        ('{"id":1,"name":"one"}\n', {"format": "json"}, {"id": 1, "name": "one"}),
    ],
)
def test_a_schema_is_inferred_from_header_and_first_lines(
    place: Place, tmp_path: Path, content: str, more: dict[str, str], expected: dict[str, Any]
) -> None:
    path = tmp_path / "in"
    path.write_text(content)
    task = source(place, path, **more).begin()
    first = records(place, 1)[0]
    assert {name: first[name] for name in expected} == expected
    task.stop()


@pytest.mark.parametrize("bad", ["three,3,extra,columns", "x,3"])
def test_a_malformed_line_fails_the_task_with_its_number_and_text_and_nothing_is_lost(
    place: Place, tmp_path: Path, bad: str
) -> None:
    path = tmp_path / "in.csv"
    path.write_text(f"id,n\n1,1\n2,2\n{bad}\n4,4\n")
    task = source(place, path, schema="id INT, n INT", header="true", slice_bytes="8").begin()
    failed = task.said(TaskFailed)
    assert f"Line 4 of {path} does not fit the schema `id INT, n INT`: '{bad}'" in failed.trace
    assert "on.malformed=skip" in failed.trace
    path.write_text(path.read_text().replace(bad, "3" + "," + "3" * (len(bad) - 2)))
    again = source(place, path, 2, schema="id INT, n STRING", header="true").begin()
    assert [record["id"] for record in records(place, 4)] == [1, 2, 3, 4]
    again.stop()


@pytest.mark.parametrize("bad", ["null", "[]", '{"id":"x"}', '{"id":1'])
def test_a_line_that_is_no_object_of_the_schema_fails_the_task(place: Place, tmp_path: Path, bad: str) -> None:
    path = tmp_path / "in.json"
    path.write_text('{"id":1}\n' + bad + "\n")
    failed = source(place, path, format="json", schema="id INT").begin_and_fail()
    assert f"Line 2 of {path} does not fit the schema `id INT`" in failed.trace
    assert bad in failed.trace


def test_malformed_lines_can_be_skipped_and_are_counted(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text('{"id":1}\nno json\n\n{"id":"x"}\nnull\n[{"id":5}]\n{"id":4}\n')
    task = source(place, path, format="json", schema="id INT", on_malformed="skip").begin()
    assert [record["id"] for record in records(place, 2)] == [1, 4]
    (skipped,) = until(lambda: task.recorded(EventKind.RECORDS_SKIPPED), "skipped records")
    assert skipped.data == {"records": 4, "reason": "malformed"}
    task.stop()


def test_a_missing_file_fails_the_task_and_names_it(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    failed = source(place, path, schema=SCHEMA).begin_and_fail()
    assert SourceFileMissingError(str(path)).message in failed.trace


def test_a_file_that_shrank_fails_the_task(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text('{"id":1}\n{"id":2}\n')
    task = source(place, path, format="json", schema="id INT").begin()
    records(place, 2)
    path.write_text('{"id":1}\n')
    assert "has 9 bytes, but 18 bytes" in task.said(TaskFailed).trace


@pytest.mark.parametrize(
    ("more", "reported"),
    [
        ({"schema": "id WHAT"}, "configuration schema: Spark cannot read it (["),
        ({"schema": "id INT", "key.fields": "no"}, "key.fields"),
    ],
)
def test_a_schema_that_cannot_be_used_fails_the_task(
    place: Place, tmp_path: Path, more: dict[str, str], reported: str
) -> None:
    path = tmp_path / "in.csv"
    path.write_text("1\n")
    assert reported in source(place, path, **more).begin_and_fail().trace


def test_a_kill_between_slices_neither_loses_nor_repeats_rows(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("".join(f"{number}\n" for number in range(20_000)))
    small = {"schema": "id INT", "slice.bytes": "20000"}
    first = source(place, path, **small).begin()
    until(lambda: first.count("commits") >= 2, "two commits")
    first.runner.kill()
    assert first.runner.join(20)
    second = source(place, path, 2, **small).begin()
    assert [record["id"] for record in records(place, 20_000)] == list(range(20_000))
    second.stop()
