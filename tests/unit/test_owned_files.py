"""What connectx writes for its user is for the user's eyes, also in the place of a file that others could read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from connectx.api.transfer.exporter import Backup
from connectx.history.log import EventLog
from connectx.history.render.report import save_page
from connectx.owned_files import owned_file
from connectx.recording.file import write_recordings
from connectx.recording.replay import write_test


def _copied(path: Path) -> None:
    source = path.with_name("source.jsonl")
    write_recordings(source, ())
    write_test(source, path.with_suffix(".py"))


WRITERS: dict[str, Callable[[Path], object]] = {
    "recording": lambda path: write_recordings(path, ()),
    "history": lambda path: EventLog().to_jsonl(path),
    "report": lambda path: save_page("<p>private</p>", path),
    "export": lambda path: Backup({}, "", ()).write(path),
    "copy of a recording": _copied,
}


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_written_file_is_its_owners(writer: str, is_there: bool, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    if is_there:
        path.write_text("old")
        path.chmod(0o644)
        reader = path.open()
    WRITERS[writer](path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    if is_there:
        with reader:
            assert reader.read() == "old", "who has opened the old file does not see the new one"
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(TypeError), owned_file(path) as file:
        file.writelines(["new", None])  # type: ignore[list-item]
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_a_link_stays_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with owned_file(tmp_path / "link") as file:
        file.write("text")
    assert (tmp_path / "real").read_text() == "text"
    assert (tmp_path / "link").is_symlink()
    with owned_file("/dev/null") as file:
        file.write("text")
    assert not Path("/dev/null").is_file()
