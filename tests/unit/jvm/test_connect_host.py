"""The jar with the program that runs Java connectors is made of its sources."""

from __future__ import annotations

import zipfile
from pathlib import Path

from connectx.jvm.connect_host import MAIN_CLASS, copy_jar
from tests.support.connect_host import JAR, compiled, compiler, digest


def test_the_jar_names_the_sources_that_are_here(tmp_path: Path) -> None:
    with zipfile.ZipFile(copy_jar(tmp_path)) as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
        assert f"Sources: {digest()[:56]}" in manifest, "run python -m tests.support.connect_host"
        assert f"{MAIN_CLASS.replace('.', '/')}.class" in jar.namelist()


def test_the_sources_give_the_same_jar_wherever_they_are_compiled() -> None:
    program = compiler()
    assert program is None or compiled(program) == JAR.read_bytes()
