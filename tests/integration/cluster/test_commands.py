"""The command line on a running cluster: every verb once, as a user and as a program calls it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import connectx as cx
from connectx.cli import app
from tests.support.flows import Lines
from tests.support.waiting import WAIT_S, until

MakeLines = Callable[..., Lines]
Run = Callable[..., Result]
WAIT = ["--wait", str(WAIT_S)]
PASSWORD = "consumer.override.ssl.key.password"


@pytest.fixture
def run(cluster: cx.Cluster) -> Run:
    """`run(*arguments, code=0, answer=None)`: the command on the cluster of all tests."""

    def call(*arguments: str, code: int = 0, answer: str | None = None) -> Result:
        url = next(worker.url for worker in cluster.workers if worker.state == "running")
        done = CliRunner().invoke(app, list(arguments), env={"CONNECTX_URL": url}, input=answer)
        assert done.exit_code == code, f"{arguments}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    return call


def of_json(done: Result) -> Any:
    return json.loads(done.stdout)


def test_a_connector_lives_by_commands_alone(
    run: Run, cluster: cx.Cluster, make_lines: MakeLines, tmp_path: Path
) -> None:
    lines, file = make_lines(cluster), tmp_path / "connector.json"
    name, config = lines.name, {"connector.class": "FileStreamSource", "file": str(lines.path), "topic": lines.topic}
    file.write_text(json.dumps({"name": name, "config": {**config, PASSWORD: "geheim"}}))
    lines.append(3)

    run("connectors", "validate", str(file))
    assert "RUNNING" in run("connectors", "create", str(file), *WAIT).stdout
    assert "already exists" in run("connectors", "create", str(file), code=1).stderr
    lines.wait_committed()
    assert name in run("connectors", "list").stdout
    shown = run("connectors", "show", name).stdout
    assert "[hidden]" in shown
    assert "geheim" not in shown + run("connectors", "show", name, "--json").stdout
    assert of_json(run("connectors", "show", name, "--json", "--show-secrets"))["config"][PASSWORD] == "geheim"
    assert [task["id"] for task in of_json(run("connectors", "tasks", name, "--json"))] == [0]

    run("connectors", "update", name, "batch.size=7", "--unset", PASSWORD, *WAIT)
    # A worker that does not lead reads the config topic a moment later.
    until(lambda: cluster[name].config.get("batch.size") == "7", "the new setting")
    assert PASSWORD not in cluster[name].config
    run("connectors", "update", name, "--file", str(file), *WAIT)
    until(lambda: "batch.size" not in cluster[name].config, "the first configuration")
    assert "batch.size" in run("connectors", "update", name, "batch.size=x", code=1).stderr
    run("connectors", "pause", name, *WAIT)
    run("connectors", "resume", name, *WAIT)
    run("restart", name, "--tasks", *WAIT)
    run("connectors", "restart", name, "--task", "0", *WAIT)

    assert "before their offsets can be modified" in run("offsets", "reset", name, "--yes", code=1).stderr
    run("connectors", "stop", name, *WAIT)
    got = of_json(run("offsets", "get", name, "--json"))
    assert got["offsets"][0]["offset"] == {"position": lines.path.stat().st_size}
    run("offsets", "reset", name, "--yes")
    assert "nothing yet" in run("offsets", "get", name).stdout
    (tmp_path / "offsets.json").write_text(json.dumps(got))
    run("offsets", "alter", name, str(tmp_path / "offsets.json"))
    assert of_json(run("offsets", "get", name, "--json")) == got

    assert "Nothing was changed" in run("connectors", "delete", name, code=1, answer="n\n").stderr
    run("connectors", "delete", name, answer="y\n")
    assert "not found" in run("connectors", "show", name, code=1).stderr
    lines.check_exactly_once()


def test_a_cluster_is_shown_planned_exported_and_imported(
    run: Run, cluster: cx.Cluster, make_lines: MakeLines, tmp_path: Path
) -> None:
    lines, file, kafka = (
        make_lines(cluster),
        tmp_path / "export.json",
        ["--bootstrap-servers", cluster.bootstrap_servers],
    )
    connector, name = lines.start(**{PASSWORD.replace(".", "_"): "geheim"}), lines.name
    workers = of_json(run("status", "--json", *kafka))["workers"]
    assert {one["url"] for one in workers} == {worker.url for worker in cluster.workers}
    assert sum(one["leader"] for one in workers) == 1
    assert name in run("watch", "--once").stdout
    until(lambda: connector.state == "RUNNING", "the connector")

    found = of_json(run("audit", *kafka, "--fail-on", "never", "--json"))
    assert found["clusters"] == ["connectx"]
    broken = cluster.create(
        f"{name}-broken", {"connector.class": "FileStreamSource", "file": str(tmp_path), "topic": "t"}
    )
    broken.wait("FAILED", WAIT_S)
    assert f"failed_task: {name}-broken-0" in run("audit", code=1).stdout
    broken.delete()

    run("export", str(file))
    assert "geheim" not in file.read_text()
    mine = next(one for one in json.loads(file.read_text())["connectors"] if one["name"] == name)
    file.write_text(json.dumps({"format": "connectx-export", "version": 1, "connectors": [mine]}))
    plan = of_json(run("plan", str(file), "--json", *kafka))
    assert (plan["connectors"][0]["action"], plan["moves"], plan["restarts"]) == ("keep", [], [])
    run("import", str(file))

    new = {"connector.class": "FileStreamSource", "file": "x", "topic": "t"}
    changed = {**new, "file": str(lines.path), "topic": lines.topic, PASSWORD: "other"}
    (tmp_path / "plan.json").write_text(json.dumps({name: changed, "new": {**new, "bacth.size": "5"}}))
    done = run("plan", str(tmp_path / "plan.json"), *kafka)
    assert f"{PASSWORD}: [hidden] -> [hidden]" in done.stdout
    assert "connector new" in done.stdout
    assert "bacth.size has no effect: the connector does not know it. Did you mean batch.size?" in done.stdout
    assert f"These would restart where they are: {name}-0" in done.stdout
    assert "new" not in [one.name for one in cluster.connectors]
    (tmp_path / "plan.json").write_text(json.dumps({"name": "bad", **new, "tasks.max": "x"}))
    assert "be refused" in run("plan", str(tmp_path / "plan.json"), code=1).stdout

    connector.delete()
    assert f"no value for {PASSWORD} of {name}" in run("import", str(file), code=1).stderr
    (tmp_path / "secrets.json").write_text(json.dumps({name: {PASSWORD: "geheim"}}))
    assert "created stopped" in run("import", str(file), "--secrets-file", str(tmp_path / "secrets.json")).stdout
    assert connector.config[PASSWORD] == "geheim"
