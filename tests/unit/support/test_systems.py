"""Programs from outside: what is missing is named, with the package that brings it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import systems
from tests.support.systems import System

AddProgram = Callable[[str, str], None]


@pytest.fixture
def add_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddProgram:
    """`add_program(name, script)`: a program on a PATH that has no other, for a system `shelf` of package `shelves`."""
    (tmp_path / "bin").mkdir()
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(systems, "SYSTEMS", {"shelf": System("Shelf", ("shelf", "shelf-ng"), ("shelves", "boards"))})

    def add(name: str, script: str) -> None:
        file = tmp_path / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    return add


def shelf() -> System:
    return systems.SYSTEMS["shelf"]


@pytest.mark.usefixtures("add_program")
def test_a_test_whose_system_is_missing_is_skipped_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pytest.skip.Exception, match="package shelves"):
        shelf().require()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(AssertionError, match="package shelves"):
        shelf().require()


def test_any_name_of_a_program_will_do(add_program: AddProgram, tmp_path: Path) -> None:
    add_program("shelf-ng", "")
    assert shelf().require() == str(tmp_path / "bin" / "shelf-ng")
    assert systems.main(["shelf"]) == 0


def test_root_gets_what_is_missing_by_apt_get(
    add_program: AddProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_program("apt-get", f'echo "$@" >>{tmp_path}/calls')
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert systems.main(["shelf"]) == 0
    assert (tmp_path / "calls").read_text().splitlines() == [
        "update -qq",
        "install -y -qq --no-install-recommends shelves boards",
    ]


def test_others_are_shown_how_to_get_it_and_only_ci_stops(
    add_program: AddProgram, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_program("apt-get", "exit 1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert systems.main(["shelf"]) == 0
    assert "apt-get install shelves boards" in capsys.readouterr().out
    monkeypatch.setenv("CI", "true")
    assert systems.main(["shelf"]) == 1


def test_a_user_who_is_not_root_gets_it_in_ci_by_sudo(
    add_program: AddProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_program("apt-get", f"[ $1 = update ] || {{ : >{tmp_path}/bin/shelf; /bin/chmod +x {tmp_path}/bin/shelf; }}")
    add_program("sudo", 'shift; "$@"')
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("CI", "true")
    assert systems.main(["shelf"]) == 0
