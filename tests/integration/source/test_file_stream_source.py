"""FileStreamSource from file to topic."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from connectx.core.messages import TaskFailed, TopicUsed
from connectx.model.events import EventKind
from tests.support.task_harness import Place
from tests.support.waiting import until


def config(path: Path, topic: str, **more: str) -> dict[str, str]:
    return {"connector.class": "FileStreamSource", "file": str(path), "topic": topic, **more}


def test_lines_and_appended_lines_arrive_with_their_offsets_as_kafka_connect_writes_them(
    place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\nhalf")
    task = place.task(config(path, f"{place.group}-lines")).begin()
    assert place.wait_for_values(f"{place.group}-lines", 2) == ["one", "two"]
    with path.open("a") as file:
        file.write(" a line\r\nthree\n")
    assert place.wait_for_values(f"{place.group}-lines", 4) == ["one", "two", "half a line", "three"]
    task.stop()
    assert place.committed({"filename": str(path)}) == {"position": path.stat().st_size}
    assert task.said(TopicUsed).topic == f"{place.group}-lines"
    commits = task.recorded(EventKind.TRANSACTION_COMMITTED)
    assert sum(commit.data["records"] for commit in commits) == 4
    assert [commit.producer_epoch for commit in commits] == list(range(len(commits))), "protocol 2: one each"


def test_a_missing_file_is_waited_for(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "later.txt"
    task = place.task(config(path, f"{place.group}-lines")).begin()
    until(lambda: f"The file {path} of the setting `file` does not exist" in str(task.runner.metrics()["waits"]))
    path.write_text("here\n")
    assert place.wait_for_values(f"{place.group}-lines", 1) == ["here"]
    assert task.runner.metrics()["waits"] == ""
    task.stop()


def test_a_file_that_shrank_fails_the_task_and_names_file_position_and_size(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    task = place.task(config(path, f"{place.group}-lines")).begin()
    place.wait_for_values(f"{place.group}-lines", 2)
    path.write_text("new\n")
    failed = task.said(TaskFailed)
    assert f"{path} has 4 bytes, but 8 bytes" in failed.trace
    assert place.committed({"filename": str(path)}) == {"position": 8}


def test_what_is_no_file_fails_the_task(place: Place, tmp_path: Path) -> None:
    task = place.task(config(tmp_path, f"{place.group}-lines"))
    task.begin_and_fail()
    assert f"{tmp_path} of the setting `file`" in task.said(TaskFailed).trace


def test_bytes_that_are_not_utf8_become_replacement_characters(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"ok\n\xff\xfe!\n")
    task = place.task(config(path, f"{place.group}-lines")).begin()
    assert place.wait_for_values(f"{place.group}-lines", 2) == ["ok", "\ufffd\ufffd!"]
    task.stop()


def test_batch_size_limits_the_lines_of_a_transaction(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{number}\n" for number in range(10)))
    task = place.task(config(path, f"{place.group}-lines", **{"batch.size": "4"})).begin()
    assert place.wait_for_values(f"{place.group}-lines", 10) == [str(number) for number in range(10)]
    until(lambda: len(task.recorded(EventKind.TRANSACTION_COMMITTED)) == 3, "three transactions")
    records = [commit.data["records"] for commit in task.recorded(EventKind.TRANSACTION_COMMITTED)]
    assert records == [4, 4, 2]
    task.stop()


@pytest.mark.parametrize("way", ["rename", "copytruncate"])
def test_rotated_files_are_read_to_their_ends_over_a_kill_and_a_restart(place: Place, tmp_path: Path, way: str) -> None:
    path, topic = tmp_path / "app.log", f"{place.group}-lines"
    expected: list[str] = []

    def write(count: int) -> None:
        expected.extend(str(number) for number in range(len(expected), len(expected) + count))
        with path.open("a") as file:
            file.write("".join(f"{line}\n" for line in expected[-count:]))

    def rotate(number: int) -> None:
        if way == "rename":
            path.rename(f"{path}.{number}")
            path.touch()
        else:
            shutil.copyfile(path, f"{path}.{number}")
            os.truncate(path, 0)

    rotation = {"rotated.files": "app.log.*", "rotated.wait.ms": "100"}
    write(2_000)
    task = place.task(config(path, topic, **rotation), instance=1).begin()
    place.wait_for_values(topic, 1)
    rotate(1)
    write(1_000)
    place.wait_for_values(topic, 2_500)
    task.kill()
    write(1_000)
    rotate(2)
    write(1_000)
    task = place.task(config(path, topic, **rotation), instance=2).begin()
    assert place.wait_for_values(topic, len(expected)) == expected
    task.stop()
    assert place.values(topic) == expected
