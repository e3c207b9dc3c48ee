"""Folders that live as long as their owner."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from connectx.errors.machine import DiskFullError, FolderNotOwnedError
from connectx.jvm.cache import OwnedDir, cache_dir, require_free


def test_the_cache_is_where_the_setting_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTX_CACHE_DIR", str(tmp_path / "cache"))
    assert cache_dir() == tmp_path / "cache"
    assert (tmp_path / "cache").is_dir()


def test_an_owned_folder_goes_with_remove(tmp_path: Path) -> None:
    owned = OwnedDir("kafka", tmp_path)
    (owned.path / "data").mkdir()
    owned.remove()
    owned.remove()
    assert not owned.path.exists()


def test_a_folder_that_somebody_else_put_there_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(FolderNotOwnedError, match="TMPDIR"):
        OwnedDir("kafka", tmp_path / "link")
    assert list((tmp_path / "real").iterdir()) == []


def test_a_folder_of_a_living_owner_stays_when_the_next_is_made(tmp_path: Path) -> None:
    first = OwnedDir("kafka", tmp_path)
    second = OwnedDir("kafka", tmp_path)
    assert first.path.exists()
    first.remove()
    second.remove()


def test_a_folder_of_an_owner_that_was_killed_is_removed_when_the_next_is_made(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib; from connectx.jvm.cache import OwnedDir;"
        "owned = OwnedDir('kafka', pathlib.Path(sys.argv[1])); print(owned.path, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        orphan = Path(owner.stdout.readline().strip())
        assert orphan.exists()
        owner.send_signal(signal.SIGKILL)
    other = OwnedDir("spark", tmp_path)
    assert not orphan.exists()
    other.remove()


def test_too_little_room_is_a_typed_error_that_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(DiskFullError, match="TMPDIR") as caught:
        require_free(tmp_path, 1 << 60, "TMPDIR")
    assert str(tmp_path) in caught.value.message
