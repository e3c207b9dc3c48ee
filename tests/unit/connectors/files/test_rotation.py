"""Following a file over rotations, by renaming and by copying and truncating: each line once, or a named error."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from connectx.connectors.files.errors import SourceFileShrunkError, SourceRotationError
from connectx.connectors.files.following import SourceFile
from connectx.connectors.files.rotation import RotatedFile
from connectx.connectors.files.source import FileSource
from connectx.connectors.files.stream_source import FileStreamSource
from tests.support.jdbc import Context

WAIT_MS = 1_000


class Log:
    """A log in a directory, and what was written to it. Each change is a second after the one before."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "app.log"
        self.lines: list[str] = []
        self._now_s = 1_700_000_000
        self.write(0)

    def write(self, count: int = 1, *, path: Path | None = None, text: str = "") -> None:
        new = [text or f"line {len(self.lines) + at}" for at in range(count)]
        self.lines += new
        with (path or self.path).open("a") as file:
            file.write("".join(f"{line}\n" for line in new))
        self._touch(path or self.path)

    def _touch(self, path: Path) -> None:
        self._now_s += 1
        os.utime(path, (self._now_s, self._now_s))

    def _make_room(self) -> None:
        old = sorted(self.path.parent.glob("app.log.*"), key=lambda path: -int(path.name.split(".")[2]))
        for path in old:
            number, *suffix = path.name.split(".")[2:]
            path.rename(path.with_name(".".join(["app.log", str(int(number) + 1), *suffix])))

    def rename(self) -> None:
        self._make_room()
        self.path.rename(f"{self.path}.1")

    def create(self) -> None:
        self.path.touch()
        self._touch(self.path)

    def rename_and_create(self) -> None:
        self.rename()
        self.create()

    def copy(self) -> None:
        self._make_room()
        shutil.copyfile(self.path, f"{self.path}.1")
        self._touch(Path(f"{self.path}.1"))

    def truncate(self) -> None:
        os.truncate(self.path, 0)
        self._touch(self.path)

    def copy_and_truncate(self) -> None:
        self.copy()
        self.truncate()

    def compress(self, number: int = 1) -> None:
        path = Path(f"{self.path}.{number}")
        modified = path.stat().st_mtime_ns
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        os.utime(f"{path}.gz", ns=(modified, modified))
        path.unlink()


class Reader:
    """Reads as a task does: from the last offset on. Its clock stands still unless it is moved."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.now_ms = 0.0
        self.offset: Mapping[str, Any] | None = None
        self.offsets: list[Mapping[str, Any] | None] = [None]
        self.lines: list[str] = []
        self.restart()

    def restart(self) -> None:
        path = str(self._log.path)
        self.file = RotatedFile(SourceFile(path), "app.log.*", WAIT_MS, clock_ms=lambda: self.now_ms)

    def read(self, most: int = 1_000, max_bytes: int = 10_000) -> list[str]:
        """All lines that there are now, or those of the first polls."""
        found: list[str] = []
        for _ in range(most):
            lines = self.file.next_lines(self.offset, max_bytes)
            if lines is None:
                break
            self.offset = lines.offset
            self.offsets.append(lines.offset)
            found += lines.data.decode().splitlines()
        self.lines += found
        return found

    def read_on(self) -> list[str]:
        """As `read`, also from what follows a file that is quiet."""
        found = self.read()
        self.now_ms += WAIT_MS
        return found + self.read()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest.fixture
def reader(log: Log) -> Reader:
    return Reader(log)


ROTATIONS: list[Callable[[Log], None]] = [Log.rename_and_create, Log.copy_and_truncate]


@pytest.mark.parametrize("rotate", ROTATIONS)
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_each_line_comes_once_however_writes_reads_rotations_and_restarts_mix(
    log: Log, reader: Reader, rotate: Callable[[Log], None], restarts: bool, seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        match chance.randrange(5):
            case 0:
                rotate(log)
            case 1:
                reader.read(chance.randrange(1, 4), chance.choice([10, 30, 10_000]))
            case 2:
                reader.now_ms += WAIT_MS
                if restarts:
                    reader.restart()
            case _:
                log.write(chance.randrange(1, 40))
    while reader.read_on():
        pass
    assert reader.lines == log.lines


@pytest.mark.parametrize("rotate", ROTATIONS)
def test_a_check_reads_the_same_lines_again_between_any_two_offsets(
    log: Log, reader: Reader, rotate: Callable[[Log], None]
) -> None:
    read = []
    for _ in range(3):
        log.write(20)
        while lines := reader.read(1, 60):
            read.append((len(reader.offsets) - 1, lines))
        rotate(log)
    reader.read_on()

    def between(start: int, end: int | None) -> list[str]:
        stop = None if end is None else reader.offsets[end]
        found = reader.file.lines_between(reader.offsets[start], stop, 50)
        return [line for lines in found for line in lines.data.decode().splitlines()]

    assert between(0, None) == log.lines
    for first, _ in read[::3]:
        for last, _ in read[::2]:
            expected = [line for at, lines in read for line in lines if first < at <= last]
            assert between(first, last) == expected


def test_a_renamed_file_is_read_until_its_writer_has_opened_the_new_one(log: Log, reader: Reader) -> None:
    log.write(3)
    assert len(reader.read()) == 3
    log.rename_and_create()
    assert reader.read() == []
    log.write(2, path=Path(f"{log.path}.1"))
    assert reader.read() == ["line 3", "line 4"]
    log.write(1)
    assert reader.read() == []
    reader.now_ms += WAIT_MS
    assert reader.read() == ["line 5"]


def test_between_renaming_and_creating_the_old_file_is_read_and_the_new_one_waited_for(
    log: Log, reader: Reader
) -> None:
    log.write(3)
    reader.read(1, 10)
    log.rename()
    assert reader.read_on() == ["line 1", "line 2"]
    assert "does not exist" in reader.file.waits
    log.create()
    log.write()
    assert reader.read_on() == ["line 3"]


@pytest.mark.parametrize("count", [3, 300])
def test_lines_between_copying_and_truncating_are_read_once(log: Log, reader: Reader, count: int) -> None:
    log.write(count)
    reader.read()
    log.copy()
    log.write(2)
    assert len(reader.read_on()) == 2
    log.truncate()
    log.write(1)
    if count == 300:
        assert reader.read_on() == [f"line {count + 2}"]
    else:  # too few bytes to recognise the copy
        with pytest.raises(SourceRotationError, match="does not begin with the 35 bytes that were read"):
            reader.read()


def test_a_copy_that_is_read_is_not_left_before_the_file_is_truncated(log: Log, reader: Reader) -> None:
    log.rename_and_create()
    log.write(3)
    reader.read_on()
    log.copy_and_truncate()
    reader.read_on()
    log.write(2)
    log.copy()
    assert reader.read_on() == ["line 3", "line 4"]
    log.write(1)
    assert reader.read_on() == []
    assert "it is not truncated yet" in reader.file.waits
    log.truncate()
    log.write(1)
    assert reader.read_on() == ["line 6"]  # copying and truncating has lost line 5


def test_a_line_without_an_end_is_complete_when_its_file_is_left(log: Log, reader: Reader) -> None:
    log.write(1)
    with log.path.open("a") as file:
        file.write("cut")
    assert reader.read_on() == ["line 0"]
    log.rename_and_create()
    log.write(1)
    assert reader.read_on() == ["cut", "line 1"]


def test_compressed_files_are_read_where_they_were_left(log: Log, reader: Reader) -> None:
    log.write(100)
    reader.read(1, 100)
    log.rename_and_create()
    log.write(50)
    log.rename_and_create()
    log.write(5)
    log.compress(2)
    log.compress(1)
    reader.restart()
    reader.read_on()
    assert reader.lines == log.lines


def test_a_file_that_is_gone_is_an_error_that_names_the_glob(log: Log, reader: Reader) -> None:
    log.write(3)
    reader.read(1, 10)
    log.rename_and_create()
    Path(f"{log.path}.1").unlink()
    log.write(9, text="other")
    with pytest.raises(SourceRotationError, match=r"no file of .*app\.log\.\* begins with the 7 bytes that were read"):
        reader.read()


def test_a_file_that_was_left_and_is_written_later_is_an_error(log: Log, reader: Reader) -> None:
    log.write(3)
    log.rename_and_create()
    log.write(1)
    assert len(reader.read_on()) == 4
    log.write(1, path=Path(f"{log.path}.1"))
    with pytest.raises(SourceRotationError, match=r"app\.log\.1 changed after it had been read to its end"):
        reader.read()


def test_files_that_were_modified_at_the_same_time_are_an_error(log: Log, reader: Reader) -> None:
    log.write(3)
    log.rename_and_create()
    log.write(3)
    log.rename_and_create()
    os.utime(f"{log.path}.1", ns=(7, 7))
    os.utime(f"{log.path}.2", ns=(7, 7))
    with pytest.raises(SourceRotationError, match="were modified at the same time"):
        reader.read()


def test_a_truncated_file_without_a_copy_is_an_error(log: Log, reader: Reader) -> None:
    log.write(3)
    reader.read()
    log.truncate()
    with pytest.raises(SourceRotationError, match="no file of"):
        reader.read()


def test_an_offset_of_kafka_connect_is_a_position_in_the_file_itself(log: Log, reader: Reader) -> None:
    log.write(3)
    log.rename_and_create()
    log.write(2)
    reader.offset = {"position": 7}
    assert reader.read() == ["line 4"]
    log.rename_and_create()
    log.write(1)
    assert reader.read_on() == ["line 5"]
    reader.offset = {"position": 700}
    with pytest.raises(SourceFileShrunkError):
        reader.read()


@pytest.mark.parametrize("batch", [0, 2])
def test_file_stream_source_follows_rotated_files(log: Log, batch: int) -> None:
    config = {"file": str(log.path), "topic": "t", "rotated.files": "app.log.*", "rotated.wait.ms": "0"}
    task = FileStreamSource.Task()
    task.start({**config, "batch.size": str(batch)}, Context())
    found: list[str] = []
    offset = None
    for _ in range(3):
        log.write(5)
        while (piece := task.poll(None, offset)) is not None:  # type: ignore[arg-type]
            rows: Any = piece.rows
            found += rows["value"].to_pylist()
            offset = piece.offset
            assert piece.commits_offset == (rows.num_rows == 0)
        log.rename_and_create()
    assert found == log.lines
    task.stop()


def test_rotated_files_need_a_schema_where_one_would_be_inferred() -> None:
    config = {"file": "x", "topic": "t", "rotated.files": "x.*"}
    assert "schema" in FileSource.validate(config)
    assert FileSource.validate({**config, "schema": "id INT"}) == {}
