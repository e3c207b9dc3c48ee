"""`connectx plugins` installs, lists and removes Java plugins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from connectx.cli import app
from connectx.verify.doctor.java_plugins import java_plugins
from connectx.verify.doctor.report import Status
from tests.support.java_classes import SOURCE, class_file, jar


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONNECTX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def acme(tmp_path: Path) -> Path:
    return jar(tmp_path / "acme-1.0.jar", class_file("org.acme.Ticks", SOURCE, version=True))


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["plugins", *arguments])
    return done.exit_code, done.output


def test_a_plugin_is_installed_listed_and_removed(acme: Path, cache: Path) -> None:
    assert run("list") == (0, "no Java plugins are installed\n")
    code, output = run("install", str(acme))
    assert (code, "org.acme.Ticks" in output, "acme-1.0 is installed" in output) == (0, True, True)
    code, output = run("list", "--json")
    (listed,) = json.loads(output)
    assert listed["plugins"] == [{"class": "org.acme.Ticks", "type": "source", "version": "1.0"}]
    assert java_plugins({}, None).status is Status.LIMITED
    (cache / "plugins" / "acme-1.0" / "acme-1.0.jar").write_bytes(b"another")
    code, output = run("list")
    assert (code, "acme-1.0.jar has changed" in output) == (1, True)
    assert "has changed" in java_plugins({}, None).why
    assert run("remove", "acme-1.0")[0] == 0
    code, output = run("remove", "acme-1.0")
    assert (code, "none installed" in output) == (1, True)


def test_the_doctor_names_what_is_missing_on_the_plugin_path(acme: Path, tmp_path: Path) -> None:
    assert java_plugins({}, None).status is Status.OFF
    found = java_plugins({"plugin.path": f"{tmp_path}, {tmp_path / 'gone'}"}, None)
    assert (found.status, "gone" in found.why) == (Status.LIMITED, True)
