"""Versions of Kafka and Spark are named in one place, and the rest agrees with it."""

from __future__ import annotations

import ast
import json
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from connectx.version import KAFKA_VERSION, SPARK_VERSIONS

ROOT = Path(__file__).parents[2]


def literals(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_no_other_module_names_them() -> None:
    found = {str(path): literals(path) & {KAFKA_VERSION, *SPARK_VERSIONS} for path in (ROOT / "connectx").rglob("*.py")}
    assert [Path(path).name for path, versions in found.items() if versions] == ["version.py"]


def test_java_workers_of_tests_have_the_kafka_whose_plugins_are_equalled() -> None:
    lock = json.loads((ROOT / "connectx" / "jvm" / "jars.lock.json").read_text())
    revisions = {jar["revision"] for jar in lock["kafka-connect"] if jar["module"] == "connect-runtime"}
    assert revisions == {KAFKA_VERSION}


def test_the_extra_allows_the_versions_of_spark_that_the_doctor_knows() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = [one.specifier for one in map(Requirement, extras["spark"]) if one.name == "pyspark"]
    assert all(wanted.contains(f"{version}.0") for version in SPARK_VERSIONS)
    major, minor = SPARK_VERSIONS[-1].split(".")
    assert not wanted.contains(f"{major}.{int(minor) + 1}.0")
    install = (ROOT / "docs" / "install.md").read_text()
    assert f"pyspark {SPARK_VERSIONS[0]} to {SPARK_VERSIONS[-1]}" in install
