"""Reading complete lines of a growing file between exact byte positions."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectx.connectors.files.errors import SourceFileShrunkError, SourceFileUnreadableError
from connectx.connectors.files.following import SourceFile
from connectx.connectors.files.source import ddl_type
from connectx.connectors.files.stream_source import FileStreamSource, lines_of
from connectx.errors.files import SourceFileMissingError


def written(tmp_path: Path, content: bytes) -> SourceFile:
    path = tmp_path / "in"
    path.write_bytes(content)
    return SourceFile(str(path))


@pytest.mark.parametrize(
    ("content", "block"),
    [
        (b"", b""),
        (b"no end", b""),
        (b"a\nb", b"a\n"),
        (b"a\r\nb\r\n", b"a\r\nb\r\n"),
        (b"a\rb\rc", b"a\rb\r"),
        (b"a\rb\r", b"a\r"),  # the last one may be half of a pair
        (b"\n\n", b"\n\n"),
    ],
)
def test_a_block_ends_at_the_last_complete_line(tmp_path: Path, content: bytes, block: bytes) -> None:
    assert written(tmp_path, content).read_lines(0, 100) == block


def test_a_block_starts_at_the_position_and_is_about_as_long_as_asked(tmp_path: Path) -> None:
    file = written(tmp_path, b"one\ntwo\nthree\nfour\n")
    assert file.read_lines(4, 12) == b"two\nthree\n"


def test_a_line_longer_than_a_block_is_read_whole(tmp_path: Path) -> None:
    file = written(tmp_path, b"x" * 1000 + b"\nnext\n")
    assert file.read_lines(0, 10).startswith(b"x" * 1000 + b"\n")


def test_a_file_shorter_than_the_position_is_told_with_both_sizes(tmp_path: Path) -> None:
    file = written(tmp_path, b"one\n")
    with pytest.raises(SourceFileShrunkError, match=r"has 4 bytes, but 9 bytes"):
        file.read_lines(9, 10)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(SourceFileMissingError, match="does not exist"):
        SourceFile(str(tmp_path / "none")).read_lines(0, 10)
    with pytest.raises(SourceFileUnreadableError, match="it is a directory"):
        SourceFile(str(tmp_path)).read_lines(0, 10)


def test_line_numbers_count_from_one(tmp_path: Path) -> None:
    file = written(tmp_path, b"one\ntwo\nthree\n")
    assert [file.line_number(position) for position in (0, 4, 8)] == [1, 2, 3]


def test_waiting_ends_when_the_file_grows_and_gets_slower_while_it_does_not(tmp_path: Path) -> None:
    file = written(tmp_path, b"one\n")
    file.read_lines(0, 10)
    waits: list[int] = []

    def sleep(wait_ms: int) -> bool:
        waits.append(wait_ms)
        if len(waits) == 50:
            Path(file.path).write_bytes(b"one\ntwo\n")
        return False

    file.wait(sleep)
    assert len(waits) == 50
    assert waits[:3] == [10, 11, 12]
    assert max(waits) == 50


def test_waiting_ends_at_once_when_the_task_is_wanted(tmp_path: Path) -> None:
    waits: list[int] = []

    def is_wanted(wait_ms: int) -> bool:
        waits.append(wait_ms)
        return True

    written(tmp_path, b"").wait(is_wanted)
    assert waits == [10]


@pytest.mark.parametrize(
    ("block", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb\rc\n", ["a", "b", "c"]),
        (b"\n\n", ["", ""]),
        ("zwölf\n".encode(), ["zwölf"]),
        (b"\xff\n", ["\ufffd"]),
    ],
)
def test_lines_lose_their_ends_and_become_text(block: bytes, lines: list[str]) -> None:
    assert lines_of(block).column("value").to_pylist() == lines


def test_file_stream_source_needs_a_file_and_a_topic() -> None:
    assert FileStreamSource.validate({"topic": "t"}) == {
        "file": ["Invalid value null for configuration file: a file name is required"]
    }
    assert FileStreamSource.validate({"file": "in.txt", "topic": "t"}) == {}
    assert FileStreamSource.exactly_once_support({}) is True


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-20"], "BIGINT"),
        (["1", "2.50"], "DOUBLE"),
        (["true", "false"], "BOOLEAN"),
        (["2013-01-01 05:00:00", "2013-01-02"], "TIMESTAMP"),
        (["one", "2"], "STRING"),
        (["02134", "90210"], "STRING"),
        (["1e5"], "STRING"),
        (["12345678901234567890123"], "STRING"),
        (["0.1234567890123456789"], "STRING"),
    ],
)
def test_a_column_of_csv_is_text_where_a_number_would_lose_digits(texts: list[str], kind: str) -> None:
    assert ddl_type(texts) == kind
