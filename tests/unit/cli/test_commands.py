"""What commands take and refuse, before any cluster is asked; and a saved history told again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import connectx.cli
from connectx.cli import app
from connectx.cli.common import At, cluster_command, read_connector
from connectx.errors.rest import CommandError
from connectx.history.log import EventLog
from connectx.model.events import EventKind
from tests.support.histories import transition

RUNNER = CliRunner()
NOBODY = ["--url", "http://127.0.0.1:1"]


def test_every_command_on_a_cluster_has_the_options_that_they_share() -> None:
    seen: list[At] = []
    own, other = typer.Typer(), typer.Typer()

    @cluster_command(own)
    def look(at: At, name: str, often: int = 1) -> None:
        seen.append(at)
        at.show({"name": name, "often": often}, "looked")

    own.command("other")(lambda: None)
    done = RUNNER.invoke(
        own, ["look", "it", "--often", "2", "--json", "--show-secrets"], env={"CONNECTX_URL": "http://h:1"}
    )
    assert json.loads(done.stdout) == {"name": "it", "often": 2}
    assert (seen[0].url, seen[0].as_json, seen[0].show_secrets, seen[0].group_id) == ("http://h:1", True, True, None)
    assert RUNNER.invoke(own, ["look", "it"]).stdout == "looked\n"
    assert RUNNER.invoke(own, ["look"]).exit_code == 2
    assert other.registered_commands == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["connectors", "create", "none.json"], "No JSON can be read from none.json"),
        (["connectors", "create", "nameless.json"], "nameless.json does not name the connector. Give --name."),
        (["connectors", "create", "list.json"], "list.json has no connector."),
        (["connectors", "create", "two.json"], "two.json has 2 connectors, where one is taken."),
        (["connectors", "update", "a"], "Give either KEY=VALUE and --unset, or --file."),
        (["connectors", "update", "a", "x"], "x is no KEY=VALUE. To remove a key use --unset."),
        (["offsets", "alter", "a", "nameless.json"], 'nameless.json has no list "offsets".'),
        (["import", "none.json", "--secrets-file", "list.json"], "list.json must look like"),
        (["status", "--basic-file", "empty.txt"], "A basic login must look like user:password."),
        (["status", "--ca-file", "empty.txt"], "The certificates in empty.txt cannot be used"),
        (["status", "--worker-config", "none.properties"], "The properties in none.properties cannot be read"),
        (["replay", "none.jsonl"], "The history in none.jsonl could not be read"),
        (["replay", "nothing.jsonl"], "The history in nothing.jsonl is empty."),
    ],
)
def test_what_cannot_be_used_is_told_in_one_sentence(
    command: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "nameless.json": '{"config": {"a": 1}}',
        "list.json": "[1]",
        "two.json": "[{}, {}]",
        "empty.txt": "# nothing\nx",
        "nothing.jsonl": "",
    }
    for name, text in files.items():
        Path(name).write_text(text)
    done = RUNNER.invoke(app, [*command, *([] if command[0] == "replay" else NOBODY)])
    assert done.exit_code == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_cluster_that_does_not_answer_is_told_in_one_sentence() -> None:
    done = RUNNER.invoke(app, ["status", *NOBODY])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("No worker answers; http://127.0.0.1:1/:")


def test_what_nobody_foresaw_is_a_sentence_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise KeyError("worker_id")

    monkeypatch.setattr(connectx.cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        connectx.cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("connectx has failed (KeyError: 'worker_id'). Please report it;")


def test_a_connector_is_read_as_in_rest_flat_and_from_properties(tmp_path: Path) -> None:
    config = {"name": "a", "tasks.max": "2", "on": "true", "none": None}
    flat, rest, properties = (tmp_path / name for name in ("flat.json", "rest.json", "a.properties"))
    flat.write_text('{"name": "a", "tasks.max": 2, "on": true, "none": null}')
    rest.write_text('{"name": "b", "config": {"tasks.max": 2}}')
    properties.write_text("name=a\ntasks.max : 2\n")
    assert read_connector(str(flat)) == ("a", config)
    assert read_connector(str(rest)) == ("b", {"tasks.max": "2"})
    assert read_connector(str(properties)) == ("a", {"name": "a", "tasks.max": "2"})
    flat.write_text('{"name": "a", "list": [1]}')
    with pytest.raises(CommandError, match="must be a text, a number"):
        read_connector(str(flat))


def test_a_login_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    basic, bearer = tmp_path / "basic", tmp_path / "bearer"
    basic.write_text("# who\nanna:geheim\n")
    bearer.write_text("abc\n")
    assert At()._login() is None
    assert At(basic_file=basic)._login() == "Basic YW5uYTpnZWhlaW0="
    assert At(bearer_file=bearer)._login() == "Bearer abc"
    monkeypatch.setenv("CONNECTX_BASIC", "anna:geheim")
    assert At()._login() == "Basic YW5uYTpnZWhlaW0="
    monkeypatch.delenv("CONNECTX_BASIC")
    monkeypatch.setenv("CONNECTX_BEARER", "def")
    assert At()._login() == "Bearer def"


def test_a_history_is_told_again_and_one_that_went_wrong_has_an_exit_code(tmp_path: Path) -> None:
    path, page = tmp_path / "run.jsonl", tmp_path / "run.html"
    log = EventLog(clock=lambda: 1_000)
    log.append(transition(EventKind.CLUSTER_STARTED, data={"bootstrap_servers": "127.0.0.1:1", "group_id": "g"}))
    log.append(transition(EventKind.WORKER_STARTED, data={"url": "http://127.0.0.1:1/"}), "worker-1")
    log.append(transition(EventKind.WORKER_FAILED, cause="no room", data={"error": "no room"}), "worker-1")
    log.to_jsonl(path)
    done = RUNNER.invoke(app, ["replay", str(path), "--html", str(page)])
    assert done.exit_code == 0, done.stderr
    assert "worker-1 failed" in done.stdout
    assert "no topic and no target was read." in done.stdout
    assert "worker-1 failed" in page.read_text()
    for position in (200, 100):
        covered = {"partition": {"f": "a"}, "from": {"position": position - 10}, "offset": {"position": position}}
        moved = {"records": 1, "offsets": [covered]}
        log.append(transition(EventKind.TRANSACTION_COMMITTED, "lines", 0, data=moved), "worker-1")
    log.to_jsonl(path)
    done = RUNNER.invoke(app, ["replay", str(path), "--json"])
    message = json.loads(done.stdout)
    assert (done.exit_code, message["verdict"]["answer"], message["events"]) == (1, "invalid", 5)


def test_passwords_in_traces_are_hidden_in_json_too() -> None:
    trace = "Failed: jdbc:postgresql://u:s3cret@db/x"

    class Failed:
        def status(self) -> dict[str, Any]:
            return {
                "name": "a",
                "connector": {"state": "FAILED", "trace": trace},
                "tasks": [{"id": 0, "state": "FAILED", "trace": trace}, {"id": 1, "state": "RUNNING"}],
            }

    failed: Any = Failed()
    assert "s3cret" not in json.dumps(At().status(failed))
    assert At().status(failed)["tasks"][1] == {"id": 1, "state": "RUNNING"}
    assert At(show_secrets=True).status(failed) == failed.status()
