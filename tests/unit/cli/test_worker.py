"""Settings files as Java reads them, and the lines of a worker's log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from connectx.cli import app
from connectx.cli.common import read_properties
from connectx.cli.worker_log import Level, line_of, to_stderr
from connectx.model.events import EventKind
from connectx.model.worker_config import embedded_config
from tests.support.histories import transition

PROPERTIES = rb"""
# comment
! comment, too
group.id = one
group.id : two
long.list=a,\
          b,\
          c
with\ blank\:colon=\u00fc\ttab
latin=caf\xe9
empty
ends.with.backslash=c:\\dir\\
windows=line\r
"""


def test_settings_are_read_as_java_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "worker.properties"
    path.write_bytes(PROPERTIES.replace(rb"\r", b"\r").replace(rb"\xe9", b"\xe9"))
    assert read_properties(path) == {
        "group.id": "two",
        "long.list": "a,b,c",
        "with blank:colon": "ü\ttab",
        "latin": "café",
        "empty": "",
        "ends.with.backslash": "c:\\dir\\",
        "windows": "line",
    }


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.properties"
    broken.write_text("group.id=\\u12")
    for path in (tmp_path / "none", tmp_path, broken):
        done = CliRunner().invoke(app, ["worker", str(path)])
        assert done.exit_code == 2
        assert "cannot be used" in done.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("rest.auth.basic.file=none", "rest.auth.basic.file=none cannot be read"),
        ("listeners=https://127.0.0.1:0\nssl.keystore.location=none\nssl.keystore.type=PEM", "REST cannot use TLS"),
        ("config.providers=mine\nconfig.providers.mine.class=None", "Class None could not be found"),
        (
            "config.providers=env\nconfig.providers.env.class=EnvVarConfigProvider\nclient.id=${env:a:b}",
            "Path is not supported",
        ),
    ],
)
def test_files_and_providers_that_settings_name_and_that_cannot_be_used_are_usage_errors(
    settings: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = embedded_config({"bootstrap.servers": "127.0.0.1:1"})
    text = "\n".join([*(f"{key}={value}" for key, value in given.items()), settings])
    Path("worker.properties").write_text(text)
    done = CliRunner().invoke(app, ["worker", "worker.properties"])
    assert (done.exit_code, done.exception.__class__) == (2, SystemExit)
    assert "worker.properties cannot be used" in done.stderr
    assert message in done.stderr


def test_a_line_tells_who_what_why_and_a_failures_trace() -> None:
    failed = transition(
        EventKind.TASK_STATE, "lines", 0, generation=3, data={"state": "FAILED", "trace": "Trace\nback"}
    )
    assert line_of(failed) == "[lines|task-0] Task state: state=FAILED, generation=3\nTrace\nback"
    started = transition(EventKind.REBALANCE_STARTED, cause="worker-2 joined", data={"reason": None, "tasks": ()})
    assert line_of(started) == "Rebalance started (worker-2 joined)"


def test_the_log_looks_like_kafka_connects(capsys: pytest.CaptureFixture[str]) -> None:
    to_stderr(Level.INFO)
    logging.getLogger("connectx.any").warning("careful")
    logging.getLogger("connectx.any").debug("unseen")
    logging.getLogger("library").info("unseen")
    logging.getLogger("library").warning("cannot reach %s", "postgresql://app:geheim@db/orders")
    line, masked = capsys.readouterr().err.splitlines()
    assert "postgresql://app:[hidden]@db/orders" in masked
    assert line.startswith("[20")
    assert "] WARN careful (connectx.any:" in line
