"""A class archive is made beside its program, whole or not at all, and nothing of it outlives its owner."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from connectx.jvm import archive, ivy
from connectx.jvm.java import JavaHome, find_java
from tests.support.waiting import until


@pytest.fixture(params=["this machine's", "the wheel's"])
def java(request: pytest.FixtureRequest) -> JavaHome:
    return find_java() if request.param == "this machine's" else find_java({})


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: JavaHome) -> Path:
    """The path of an archive whose classes were recorded by one run of Java."""
    monkeypatch.setenv("CONNECTX_CACHE_DIR", str(tmp_path / "cache"))
    wanted = archive.archive_path("tool", java, class_path())
    names = tmp_path / "names"
    command = [str(java.java), *archive.record_options(names), "-jar", *map(str, class_path()), "-version"]
    subprocess.run(command, capture_output=True, check=True, timeout=60)
    archive.keep_class_list(names, wanted)
    return wanted


def class_path() -> list[Path]:
    return sorted(ivy.spark_jars_dir().glob("ivy-*.jar"))


def test_recorded_classes_become_an_archive_that_later_runs_use(java: JavaHome, recorded: Path) -> None:
    assert archive.use_options(java, recorded) == []
    dump = archive.Dump(java, [], class_path(), recorded)
    assert dump.start()
    assert not archive.Dump(java, [], class_path(), recorded).start(), "one process at a time makes archives"
    dump.wait(120)
    assert dump.close()
    options = archive.use_options(java, recorded, static=True)
    command = [str(java.java), *options, "-Xshare:on", "-jar", *map(str, class_path()), "-version"]
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
    assert archive.Dump(java, [], class_path(), recorded).start(), "the lock is free"


def test_an_archive_that_is_not_whole_is_dropped_with_its_process(java: JavaHome, recorded: Path) -> None:
    dump = archive.Dump(java, [], class_path(), recorded)
    assert dump.start()
    started = psutil.Process().children(recursive=True)
    assert not dump.close()
    assert not dump.close()

    def running() -> list[psutil.Process]:
        return [child for child in started if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]

    until(lambda: not running(), "the end of its processes")
    assert not recorded.exists()
    assert not list(recorded.parent.glob("*.partial"))


def test_a_run_that_recorded_nothing_leaves_no_list(tmp_path: Path) -> None:
    archive.keep_class_list(tmp_path / "none", tmp_path / "tool-1.jsa")
    (tmp_path / "empty").touch()
    archive.keep_class_list(tmp_path / "empty", tmp_path / "tool-1.jsa")
    assert not archive.class_list(tmp_path / "tool-1.jsa").exists()
