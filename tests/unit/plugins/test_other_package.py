"""A connector of another package, installed as a wheel, gets everything that one that ships has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SAMPLE = Path(__file__).with_name("other_package")
UV = Path(sys.executable).with_name("uv")
ENTRY_POINTS = """
[connectx.connectors]
shelf-source = acme_shelf:ShelfSource
shelf-sink = acme_shelf:ShelfSink
"""


def built(folder: Path) -> Path:
    """The wheel of the sample, which needs no build system: it is one module."""
    wheel = folder / "acme_shelf-7.1-py3-none-any.whl"
    info = "acme_shelf-7.1.dist-info"
    files = {
        "acme_shelf.py": (SAMPLE / "acme_shelf.py").read_text(encoding="utf-8"),
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: acme-shelf\nVersion: 7.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": ENTRY_POINTS,
    }
    with zipfile.ZipFile(wheel, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
        packed.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return wheel


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Answers about the package in an environment over this one."""
    folder = tmp_path_factory.mktemp("other-package")
    env, shelf = folder / "env", folder / "shelf"
    shelf.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
    purelib = sysconfig.get_path("purelib", vars={"base": str(env), "platbase": str(env)})
    below = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    Path(purelib, "under.pth").write_text(below, encoding="utf-8")
    python = env / "bin" / "python"
    install: list[str | Path] = [UV, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python]
    subprocess.run([*install, built(folder)], check=True)
    ran = subprocess.run(
        [python, SAMPLE / "use.py", shelf],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'widgets'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    answers: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return {**answers, "shelf": str(shelf)}


def test_it_is_listed_and_found_by_the_names_that_its_class_has(found: dict[str, Any]) -> None:
    assert found["listed"] == [
        ["acme_shelf.ShelfSink", "sink", "7.1"],
        ["org.acme.shelf.ShelfSourceConnector", "source", "7.1"],
    ]
    assert found["named"] == ["ShelfSource", "ShelfSource"]


def test_its_keys_are_validated(found: dict[str, Any]) -> None:
    assert list(found["validated"]) == ["shelf"]


def test_an_audit_finds_connectors_at_one_of_its_places(found: dict[str, Any]) -> None:
    read, written = found["audited"]
    shelf = f"shelf {found['shelf']}"
    assert ("a and b" in read, shelf in read) == (True, True)
    assert ("c and d" in written, shelf in written) == (True, True)


def test_executors_write_for_it_and_a_check_reads_its_target(found: dict[str, Any]) -> None:
    assert found["stored"] == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_its_row_of_the_overview_is_made_of_its_class(found: dict[str, Any]) -> None:
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in found["rows"]]
    assert cells == [["`ShelfSink`", "at least once", "rows of a shelf"], ["`ShelfSource`", "numbers"]]
