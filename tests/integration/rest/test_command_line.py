"""What commands ask of a worker: a stand-in for its core says what arrives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from connectx.api.attached.cluster import attach
from connectx.cli import app
from connectx.core import verbs
from connectx.core.messages import Done
from connectx.core.replies import Config, ConnectorInfo, ConnectorState, ConnectorStatus, Expanded
from connectx.errors.rest import RestError

CONFIG: Config = {
    "name": "orders",
    "connector.class": "FileStreamSource",
    "connection.password": "geheim",
    "connection.url": "postgresql://app:geheim@db/orders",
}
INFO: ConnectorInfo = {"name": "orders", "config": CONFIG, "tasks": [], "type": "source"}
RUNNING: ConnectorState = {"state": "RUNNING", "worker_id": "a:1", "version": None}
STATUS: ConnectorStatus = {"name": "orders", "connector": RUNNING, "tasks": [], "type": "source"}
EXPANDED: dict[str, Expanded] = {"orders": {"status": STATUS, "info": INFO}}
ANSWERS = {
    verbs.ConnectorInfo: Done(1, 200, INFO),
    verbs.ConnectorConfig: Done(1, 200, CONFIG),
    verbs.ConnectorStatus: Done(1, 200, STATUS),
    verbs.ListConnectors: lambda verb: Done(1, 200, EXPANDED if verb.expand else ["orders"]),
    verbs.PutConfig: Done(1, 200, INFO),
}


@pytest.fixture
def worker(serve: Callable[..., Any]) -> Any:
    return serve(ANSWERS)


def run(worker: Any, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--url", worker.url])


def test_a_file_of_what_was_shown_keeps_the_secrets_that_are_there(worker: Any, tmp_path: Path) -> None:
    shown = json.loads(run(worker, "connectors", "show", "orders", "--json").stdout)
    assert "geheim" not in json.dumps(shown)
    (tmp_path / "shown.json").write_text(json.dumps({**shown, "config": {**shown["config"], "file": "/new"}}))
    done = run(worker, "connectors", "update", "orders", "--file", str(tmp_path / "shown.json"))
    assert done.exit_code == 0, done.stderr
    (sent,) = [verb.config for verb in worker.core.asked if isinstance(verb, verbs.PutConfig)]
    assert sent == {**CONFIG, "file": "/new"}


@pytest.mark.parametrize("command", [["update", "orders", "--file"], ["create"]])
def test_what_is_shown_for_a_secret_never_becomes_the_secret(command: list[str], worker: Any, tmp_path: Path) -> None:
    file = tmp_path / "new.json"
    file.write_text(json.dumps({"name": "orders", "config": {**CONFIG, "api.key": "[hidden]"}}))
    done = run(worker, "connectors", *command, str(file))
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "has [hidden] where the value of api.key should be" in done.stderr
    assert not {verbs.PutConfig, verbs.Create} & {*worker.core.verbs()}


def test_a_worker_that_wants_a_login_is_told_with_every_way_to_give_one(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "basic").write_text("ana:pw\n")
    worker = serve(ANSWERS, {"rest.auth.basic.file": str(tmp_path / "basic")})
    with pytest.raises(RestError, match=r"rest\.auth\.basic\.file.*httpx\.Client\(auth=.*--basic-file"):
        attach(worker.url)
    refused = run(worker, "connectors", "list")
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    known = run(worker, "connectors", "list", "--basic-file", str(tmp_path / "basic"))
    assert (known.exit_code, "orders" in known.stdout) == (0, True)
    with httpx.Client(auth=("ana", "pw")) as http:
        attach(worker.url, http=http).close()
