"""Placeholders in a connector's configuration: resolved where they are used, and seen by nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import connectx as cx
from connectx.errors.rest import RestError
from tests.support.flows import Lines
from tests.support.records import read_all
from tests.support.waiting import until

MakeLines = Callable[..., Lines]


def test_the_config_topic_keeps_placeholders_and_nobody_sees_what_they_stand_for(
    cluster: cx.Cluster, make_lines: MakeLines, tmp_path: Path
) -> None:
    lines, secrets = make_lines(cluster), tmp_path / "secrets.properties"
    secrets.write_text(f"path={lines.path}\nfolder={tmp_path / 'folder'}\nbatch=many-of-them\n")
    path = f"${{file:{secrets}:path}}"
    lines.append(3)
    connector = lines.start(file=path)
    lines.wait_committed()
    assert connector.config["file"] == path
    shown = {info["value"]["name"]: info["value"] for info in connector.validate()["configs"]}
    assert shown["file"]["value"] == path
    refused = connector.validate({"batch.size": f"${{file:{secrets}:batch}}"})
    problems = [problem for info in refused["configs"] for problem in info["value"]["errors"]]
    assert problems[0].startswith("Invalid value [hidden] for configuration batch.size")

    records = read_all(cluster.bootstrap_servers, cluster.config.config_topic.name)
    texts = [(record.value() or b"").decode() for record in records]
    mine = [text for text in texts if "secrets.properties" in text]
    assert len(mine) == 2, "the connector and its task"
    assert not [text for text in mine if str(lines.path) in text]
    assert all(json.loads(text)["properties"]["file"] == path for text in mine)

    (tmp_path / "folder").mkdir()
    connector.config.update({"file": f"${{file:{secrets}:folder}}"})
    until(lambda: [task.state for task in connector.tasks] == ["FAILED"], "a file that is a folder")
    (task,) = connector.status()["tasks"]
    assert "[hidden]" in task["trace"]
    recorded = task["trace"] + str([(event.cause, event.data) for event in cluster.events])
    assert str(tmp_path / "folder") not in recorded


def test_a_file_that_is_not_there_is_refused_before_anything_is_created(cluster: cx.Cluster, tmp_path: Path) -> None:
    config = {"connector.class": "FileStreamSource", "file": "in.txt", "topic": f"${{file:{tmp_path}/none:topic}}"}
    with pytest.raises(RestError, match="Could not read properties from file"):
        cluster.create("unread", config)
    assert "unread" not in [connector.name for connector in cluster.connectors]
