"""Python code for Spark's executors."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from connectx.connectors.lake.delta import DeltaSink
from connectx.errors.spark import ModuleNotShippedError
from connectx.spark import shipping
from connectx.spark.shipping import archive, modules_of, ship


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONNECTX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "code" / "mysinks"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("class Mine:\n    pass\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    yield folder
    sys.modules.pop("mysinks", None)


class ClassicContext:
    def __init__(self) -> None:
        self._python_includes: list[str] = []

    def addFile(self, path: str) -> None:
        assert Path(path).exists()


def test_connectx_can_be_imported_from_its_archive_alone() -> None:
    path = archive("connectx")
    asked = "import connectx.kafka.fetcher.ranges as found; print(found.__file__)"
    code = f"import sys; sys.path.insert(0, {str(path)!r}); {asked}"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert str(path) in shown


def test_an_archive_is_made_once_and_again_after_a_change(package: Path) -> None:
    first = archive("mysinks")
    made = first.stat().st_mtime_ns
    assert archive("mysinks") == first
    assert first.stat().st_mtime_ns == made
    (package / "more.py").write_text("x = 1\n")
    second = archive("mysinks")
    assert second != first
    assert sorted(zipfile.ZipFile(second).namelist()) == ["mysinks/__init__.py", "mysinks/more.py"]


def test_a_module_without_source_is_an_error_that_names_the_setting() -> None:
    for name in ("no_such_module", "sys"):
        with pytest.raises(ModuleNotShippedError, match=name) as caught:
            archive(name)
        assert "bulk.modules" in caught.value.next_step


def test_the_files_of_connectx_are_read_once_in_a_process(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(module: str) -> Path:
        read.append(module)
        return archive(module)

    monkeypatch.setattr(shipping, "archive", noted)
    for _ in range(3):
        ship(cast(Any, SimpleNamespace(sparkContext=ClassicContext())), ["mysinks"])
    assert sorted(read) == ["connectx", "mysinks", "mysinks", "mysinks"]


def test_only_local_modules_of_classes_are_shipped(package: Path) -> None:
    from mysinks import Mine  # type: ignore[import-not-found]

    assert modules_of([Mine, DeltaSink, pa.Table, Path]) == ("mysinks",)


def test_a_classic_session_gets_each_archive_once(package: Path) -> None:
    session: Any = SimpleNamespace(sparkContext=ClassicContext())
    ship(session, ["mysinks"])
    ship(session, ["mysinks"])
    added = session.sparkContext._python_includes
    assert [name.partition("-")[0] for name in added] == ["connectx", "mysinks"]


def test_a_package_whose_folder_is_on_the_path_twice_is_archived_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "found_twice").mkdir()
    (tmp_path / "found_twice" / "part.py").write_text("number = 1\n")
    for path in (tmp_path, tmp_path / "found_twice" / ".."):
        monkeypatch.syspath_prepend(str(path))
    with zipfile.ZipFile(archive("found_twice")) as made:
        assert made.namelist() == ["found_twice/part.py"]
