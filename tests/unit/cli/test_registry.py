"""`connectx registry`: what it refuses before it talks to Kafka."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from connectx.cli import app


def test_a_listener_that_is_not_http_is_refused_in_a_sentence() -> None:
    done = CliRunner().invoke(app, ["registry", "--bootstrap-servers", "x:1", "--listener", "https://127.0.0.1:0"])
    assert done.exit_code == 1
    assert "it speaks http only" in done.output


def test_a_settings_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["registry", str(tmp_path / "none.properties")])
    assert done.exit_code == 1
    assert "none.properties cannot be read" in done.output
